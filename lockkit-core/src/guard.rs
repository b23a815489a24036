//! What a successful acquire returns.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::engine::live::LiveClaim;
use crate::engine::release;
use crate::engine::sleep;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::key::Key;
use crate::loss::{LossReason, Lost};
use crate::mode::Mode;
use crate::token::Token;

/// A held key. The same type for all backends.
///
/// While it lives, the watchdog renews the claim every TTL/3. Dropping it releases the key in
/// the background, which never panics and never blocks: a moment later the key is free.
/// [`release`](Guard::release) does the same, and tells the outcome when it is.
///
/// Holding a guard is not proof of holding the key: a process can be stopped, a network cut.
/// Ask [`is_held`](Guard::is_held), await [`lost`](Guard::lost) or work inside
/// [`run`](Guard::run); and hand the [`fence`](Guard::fence) to the resource that is protected,
/// which alone can refuse a write that comes too late.
#[must_use = "dropping the guard releases the key, and `let _ = …` drops it at once: give it a name"]
pub struct Guard {
    live: Arc<LiveClaim>,
    state: AtomicU8,
}

/// Nobody has released it.
const HOLDING: u8 = 0;
/// Being released; whether it is the last guard of its claim is not decided yet.
const LEAVING: u8 = 1;
/// Released, and other guards of the owner were left.
const LEFT: u8 = 2;
/// Released, as the last guard.
const LAST: u8 = 3;

impl Guard {
    pub(crate) fn new(live: Arc<LiveClaim>) -> Self {
        Self { live, state: AtomicU8::new(HOLDING) }
    }

    /// Leaves the claim, once: the state afterwards, and whether this call has made it so.
    fn leave(&self) -> (u8, bool) {
        let exchange =
            |from, to| self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if exchange(HOLDING, LEAVING).is_ok() {
            let last = self.live.leave(|last| {
                self.state.store(if last { LAST } else { LEFT }, Ordering::Release);
            });
            return (if last { LAST } else { LEFT }, true);
        }
        loop {
            match self.state.load(Ordering::Acquire) {
                // Another thread decides it right now, within a few instructions.
                LEAVING => std::hint::spin_loop(),
                state => return (state, false),
            }
        }
    }

    pub(crate) fn tell_reentered(&self) {
        self.live.emit(|| EventKind::Reentered { after_waiting: true });
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.live.claim.key
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.live.claim.mode
    }

    /// The token of the claim.
    pub fn token(&self) -> Token {
        self.live.claim.token
    }

    /// The number that grows with every grant of this key, for the protected resource to refuse
    /// late writers; `None` on backends without fences.
    pub fn fence(&self) -> Option<u64> {
        self.live.fence()
    }

    /// Whether the claim certainly still stands. A comparison with the clock: no I/O, no wait.
    ///
    /// Once `false`, always `false`.
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HOLDING && self.live.is_held()
    }

    /// Until when the claim certainly stands if no renewal succeeds; `None` if it is over.
    pub fn deadline(&self) -> Option<BootInstant> {
        if self.is_held() { self.live.deadline() } else { None }
    }

    /// How long the claim certainly stands if no renewal succeeds; zero if it is over.
    pub fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |deadline| deadline.since(self.live.now()))
    }

    /// Nothing if the claim still stands.
    ///
    /// # Errors
    /// [`Error::Lost`] after a loss, [`Error::NotHeld`] after a release.
    pub fn ensure_held(&self) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        Err(self.live.lost().map_or_else(|| Error::NotHeld(self.key().clone()), Error::Lost))
    }

    /// Why the claim was lost; `None` if it was not.
    pub fn loss(&self) -> Option<Lost> {
        self.live.is_held();
        self.live.lost()
    }

    /// Resolves when the claim is lost, at its deadline at the latest, without any answer of a
    /// network; stays pending after a release.
    ///
    /// # Cancel safety
    /// Cancel-safe; each call resolves, also long after the loss.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        let live = Arc::clone(&self.live);
        async move {
            loop {
                let mut changed = std::pin::pin!(live.changed.notified());
                changed.as_mut().enable();
                live.is_held();
                if let Some(lost) = live.lost() {
                    return lost;
                }
                changed.await;
            }
        }
    }

    /// Resolves when the claim would end within `lead` if no renewal succeeded in the meantime,
    /// or is lost already: the time to stop what must have stopped before the key can pass on.
    /// Stays pending after a release.
    ///
    /// A renewal happens every TTL/3, so with a `lead` of two thirds of the TTL or more this
    /// resolves although nothing is wrong.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub fn expiring(&self, lead: Duration) -> impl Future<Output = ()> + Send + use<> {
        let live = Arc::clone(&self.live);
        async move {
            loop {
                let mut changed = std::pin::pin!(live.changed.notified());
                changed.as_mut().enable();
                live.is_held();
                if live.lost().is_some() {
                    return;
                }
                let Some(deadline) = live.deadline() else {
                    // Released, or in the very middle of being lost.
                    changed.await;
                    continue;
                };
                let at = deadline - lead;
                if live.now() >= at {
                    return;
                }
                tokio::select! {
                    () = sleep::sleep_until(at) => {}
                    () = changed => {}
                }
            }
        }
    }

    /// Runs `future` for as long as the key is held: drops it at its next await when the claim
    /// is lost. Of a guard that was released before, it runs nothing; one that is released
    /// meanwhile is the caller's own doing, and stops nothing.
    ///
    /// # Errors
    /// [`Interrupted`] if the claim was lost before `future` ended, or before its result was
    /// seen; the result is inside if there is one. With [`LossReason::Released`] if this guard had
    /// been released.
    ///
    /// # Cancel safety
    /// As `future`; the key stays held.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Interrupted<F::Output>> {
        if self.state.load(Ordering::Acquire) != HOLDING && self.loss().is_none() {
            let lost = Lost::new(self.key().clone(), LossReason::Released);
            return Err(Interrupted { lost, output: None });
        }
        let output = tokio::select! {
            biased;
            lost = self.lost() => return Err(Interrupted { lost, output: None }),
            output = future => output,
        };
        match self.loss() {
            Some(lost) => Err(Interrupted { lost, output: Some(output) }),
            None => Ok(output),
        }
    }

    /// Releases the key. Only the first call does anything; a later one waits for its outcome.
    /// With re-entrancy, the key is free after the last guard of the owner.
    ///
    /// Returns within `op_timeout`. No renewal is sent afterwards.
    ///
    /// # Errors
    /// - [`Error::Lost`]: the claim was over before; nothing was touched. Work done under it may
    ///   have overlapped with another holder's.
    /// - [`Error::Unavailable`]: the store did not answer. The release goes on in the background
    ///   for as long as the claim can live; call again to wait for it.
    ///
    /// # Cancel safety
    /// Dropped at any point, the release goes on in the background.
    pub async fn release(&self) -> Result<()> {
        match self.leave() {
            (LAST, true) => release::release(&self.live).await,
            (LAST, false) => release::outcome(&self.live).await,
            _ => self.live.lost().map_or(Ok(()), |lost| Err(Error::Lost(lost))),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.leave() == (LAST, true) {
            release::in_background(&self.live);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", self.key())
            .field("mode", &self.mode())
            .field("token", &self.token())
            .field("fence", &self.fence())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// The claim was lost while work ran under it; see [`Guard::run`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Interrupted<T> {
    /// The loss.
    pub lost: Lost,
    /// What the work returned, if it ended before the loss was noticed.
    pub output: Option<T>,
}

impl<T> fmt::Display for Interrupted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.output {
            Some(_) => write!(f, "the work ended, but {} before", self.lost),
            None => write!(f, "the work was stopped: {}", self.lost),
        }
    }
}

impl<T: fmt::Debug> std::error::Error for Interrupted<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.lost)
    }
}

impl<T> From<Interrupted<T>> for Error {
    /// The loss; what the work returned, if anything, is dropped.
    fn from(interrupted: Interrupted<T>) -> Self {
        Self::Lost(interrupted.lost)
    }
}
