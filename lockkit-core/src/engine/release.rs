//! Releasing, and taking out of the store what nobody wants any more.

use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::contender::{Attempt, Released, Stage};
use crate::engine::backoff::Backoff;
use crate::engine::exchange::Exchange;
use crate::engine::live::{LiveClaim, State};
use crate::engine::phase::Phase;
use crate::engine::{sleep, thread};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::loss::LossReason;
use crate::sync::lock;

type Answer = Result<Option<Released>>;

/// Releases a held claim in the caller's own future; what is left when it is dropped, or when
/// the store takes too long, goes on in the background.
pub(crate) async fn release(live: &Arc<LiveClaim>) -> Result<()> {
    let _on_drop = HandOver(live);
    std::future::poll_fn(|cx| poll(live, cx)).await
}

/// Waits for the outcome of a release that was started before.
pub(crate) async fn outcome(live: &Arc<LiveClaim>) -> Result<()> {
    let give_up = live.now() + live.terms.op_timeout;
    loop {
        let mut changed = std::pin::pin!(live.changed.notified());
        changed.as_mut().enable();
        if let Some(lost) = live.lost() {
            return Err(Error::Lost(lost));
        }
        if matches!(lock(&live.state).phase, Phase::Ended | Phase::Lingering { .. }) {
            return Ok(());
        }
        tokio::select! {
            () = changed => {}
            () = sleep::sleep_until(give_up) => return Err(unanswered(live, None)),
        }
    }
}

/// Releases a held claim in the background.
pub(crate) fn in_background(live: &Arc<LiveClaim>) {
    let Some((mut state, exchange)) = begin(live) else { return };
    live.close_down(&mut state);
    drop(state);
    withdraw_later(live, Some(exchange));
}

/// Hands the release over if it is still under way when the caller drops it.
struct HandOver<'a>(&'a Arc<LiveClaim>);

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        take_over(self.0, lock(&self.0.state));
    }
}

/// Stops believing and makes the exchange; `None` if the claim is over already.
fn begin(live: &Arc<LiveClaim>) -> Option<(MutexGuard<'_, State>, Exchange<Option<Released>>)> {
    // Whoever comes after the deadline touches nothing.
    live.is_held();
    let state = lock(&live.state);
    let (Phase::Held, Some(tenure)) = (&state.phase, &state.tenure) else { return None };
    let believed = live.deadline().is_some_and(|d| live.move_deadline(d, NEVER));
    if !believed {
        // Somebody has just found it lapsed and waits for this lock to say so.
        drop(state);
        live.lose(LossReason::Expired { last_error: None });
        return None;
    }
    let rest = (tenure.granted + live.terms.min_hold).since(live.now());
    let exchange = live.ask_release((!rest.is_zero()).then_some(rest));
    Some((state, exchange))
}

const NEVER: BootInstant = BootInstant::from_nanos(0);

fn poll(live: &Arc<LiveClaim>, cx: &mut Context<'_>) -> Poll<Result<()>> {
    if let Some((mut state, exchange)) = begin(live) {
        let until = live.now() + live.terms.op_timeout;
        state.phase = Phase::Releasing { exchange, until, waker: None };
        live.schedule(until);
        drop(state);
        leave_session(live);
    }
    let mut state = lock(&live.state);
    match &mut state.phase {
        Phase::Releasing { exchange, waker, .. } => match exchange.poll(cx) {
            Poll::Pending => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Poll::Ready(answer) => {
                live.close_down(&mut state);
                drop(state);
                Poll::Ready(answered(live, answer))
            }
        },
        phase => {
            let ended = matches!(phase, Phase::Ended | Phase::Lingering { .. });
            drop(state);
            Poll::Ready(match live.lost() {
                Some(lost) => Err(Error::Lost(lost)),
                None if ended => Ok(()),
                None => Err(unanswered(live, None)),
            })
        }
    }
}

fn answered(live: &Arc<LiveClaim>, answer: Answer) -> Result<()> {
    match answer {
        Ok(None) => {
            linger_here(live);
            Ok(())
        }
        Ok(Some(Released::Freed)) => {
            conclude(live, Conclusion::Freed);
            Ok(())
        }
        Ok(Some(Released::NotFound)) => {
            live.set_loss(&LossReason::Gone);
            conclude(live, Conclusion::Missing);
            live.lost().map_or(Ok(()), |lost| Err(Error::Lost(lost)))
        }
        Err(error) if error.is_retryable() => {
            let error = Arc::new(error);
            live.emit(|| EventKind::ReleaseFailed { error: Arc::clone(&error) });
            withdraw_later(live, None);
            Err(unanswered(live, Some(error)))
        }
        Err(error) => {
            conclude(live, Conclusion::GivenUp);
            Err(error)
        }
    }
}

fn unanswered(live: &LiveClaim, cause: Option<Arc<Error>>) -> Error {
    let error = Error::unavailable(format!(
        "the release of `{}` was not answered within {:?}; it goes on in the background for as \
         long as the claim can live",
        live.claim.key, live.terms.op_timeout
    ));
    match cause {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

/// The lock thread goes on with a release that its caller no longer drives.
pub(crate) fn take_over(
    live: &Arc<LiveClaim>,
    mut state: MutexGuard<'_, State>,
) -> Option<BootInstant> {
    if !matches!(state.phase, Phase::Releasing { .. }) {
        return None;
    }
    let releasing = std::mem::replace(&mut state.phase, Phase::Closing);
    live.close_down(&mut state);
    drop(state);
    if let Phase::Releasing { exchange, waker, .. } = releasing {
        withdraw_later(live, Some(exchange));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    None
}

/// Takes the claim out of the store, on the lock thread.
pub(crate) fn withdraw_later(live: &Arc<LiveClaim>, exchange: Option<Exchange<Option<Released>>>) {
    leave_session(live);
    match thread::running() {
        Some(thread) => thread.spawn(withdraw(Arc::clone(live), exchange)),
        // A fork: the parent's claim is the parent's to release.
        None => live.finished(),
    }
}

/// Finishes an attempt that nobody waits for, then takes out of the store what it left there.
pub(crate) fn settle_later(live: &Arc<LiveClaim>, exchange: Exchange<Attempt>, stage: Stage) {
    let Some(thread) = thread::running() else { return live.finished() };
    let live = Arc::clone(live);
    thread.spawn(async move {
        match live.judge(exchange.finish(live.terms.op_timeout).await) {
            Ok(Attempt::Busy { .. }) if stage == Stage::Try => live.finished(),
            _ => withdraw(live, None).await,
        }
    });
}

/// Takes out of the store what may be left of a lost claim, at `at`.
pub(crate) fn sweep_lost(live: &Arc<LiveClaim>, at: BootInstant) {
    let Some(thread) = thread::running() else { return live.finished() };
    let live = Arc::clone(live);
    thread.spawn(async move {
        sleep::sleep_until(at).await;
        // Once: its lease is over, so the store frees it in any case.
        let _ = live.ask_release(None).finish(live.terms.op_timeout).await;
        live.finished();
        live.core.queue.nudge(&live.claim.key);
    });
}

/// Takes the claim out of the store; tries for as long as its lease can live.
pub(crate) async fn withdraw(
    live: Arc<LiveClaim>,
    mut exchange: Option<Exchange<Option<Released>>>,
) {
    let give_up = live.now() + live.claim.ttl;
    let op_timeout = live.terms.op_timeout;
    let mut backoff = Backoff::new((op_timeout / 4, Duration::from_secs(1).max(op_timeout)));
    let mut failed = false;
    loop {
        let release = exchange.take().unwrap_or_else(|| live.ask_release(None));
        match release.finish(op_timeout).await {
            Ok(None) => return linger_here(&live),
            // An unanswered attempt may land yet: look again, less and less often.
            Ok(Some(Released::NotFound)) if live.is_uncertain() && live.now() < give_up => {}
            // After a failure it may have been an earlier try that freed it.
            Ok(Some(Released::NotFound)) if !failed => return conclude(&live, Conclusion::Missing),
            Ok(Some(_)) => return conclude(&live, Conclusion::Freed),
            Err(error) => {
                failed = true;
                let retry = error.is_retryable() && live.now() < give_up;
                let error = Arc::new(error);
                live.emit(|| EventKind::ReleaseFailed { error });
                if !retry {
                    return conclude(&live, Conclusion::GivenUp);
                }
            }
        }
        tokio::time::sleep(backoff.next(None, fastrand::f64())).await;
    }
}

/// What a release came to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Conclusion {
    /// The claim is out of the store.
    Freed,
    /// It was not there, and nothing of ours had taken it out.
    Missing,
    /// Nobody knows; its lease is over, or the store refuses.
    GivenUp,
}

/// The claim is over.
pub(crate) fn conclude(live: &Arc<LiveClaim>, conclusion: Conclusion) {
    let granted = lock(&live.state).tenure.as_ref().map(|tenure| tenure.granted);
    if let Some(granted) = granted {
        let held = live.now().since(granted);
        live.emit(|| match conclusion {
            Conclusion::Freed => EventKind::Released { held },
            Conclusion::Missing => EventKind::ReleaseMismatch { held },
            Conclusion::GivenUp => EventKind::ReleaseGivenUp { held },
        });
    }
    live.finished();
    live.core.queue.nudge(&live.claim.key);
}

fn leave_session(live: &LiveClaim) {
    let shared = lock(&live.state).tenure.as_ref().and_then(|t| t.lease.shared.clone());
    if let Some(shared) = shared {
        shared.leave(live.id());
    }
}

/// The store cannot keep the claim by itself for the rest of `min_hold`, so this process does.
fn linger_here(live: &Arc<LiveClaim>) {
    let mut state = lock(&live.state);
    let Some(granted) = state.tenure.as_ref().map(|tenure| tenure.granted) else { return };
    let until = granted + live.terms.min_hold;
    state.phase = Phase::Lingering { until };
    // Now: the watchdog finds out when the next renewal is due.
    live.schedule(live.now());
    drop(state);
    live.changed.notify_waiters();
}

/// `min_hold` is over.
pub(crate) fn linger_over(live: &Arc<LiveClaim>) {
    withdraw_later(live, None);
}
