//! Releasing, and taking out of the store what nobody wants any more.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::contender::{Attempt, Released, Stage};
use crate::engine::acquire::INLINE;
use crate::engine::backoff::Backoff;
use crate::engine::exchange::Exchange;
use crate::engine::live::{LiveClaim, State};
use crate::engine::phase::Phase;
use crate::engine::{sleep, thread};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::loss::LossReason;
use crate::sync::{lock, ring};

type Answer = Result<Option<Released>>;

/// Releases a held claim in the caller's own future; what is left when it is dropped, or when
/// the store takes too long, goes on in the background.
pub(crate) async fn release(live: &Arc<LiveClaim>) -> Result<()> {
    if let Err(forked) = thread::lock_thread() {
        live.finished_in_fork();
        return Err(forked);
    }
    let give_up = live.now() + live.terms.op_timeout;
    let inline = {
        let _on_drop = HandOver(live);
        std::future::poll_fn(|cx| poll(live, cx)).await
    };
    match inline {
        Some(result) => result,
        None => outcome_by(live, give_up).await,
    }
}

/// Waits for the outcome of a release that was started before.
pub(crate) async fn outcome(live: &Arc<LiveClaim>) -> Result<()> {
    thread::lock_thread()?;
    outcome_by(live, live.now() + live.terms.op_timeout).await
}

async fn outcome_by(live: &Arc<LiveClaim>, give_up: BootInstant) -> Result<()> {
    loop {
        let mut changed = std::pin::pin!(live.changed.notified());
        changed.as_mut().enable();
        if let Some(result) = concluded(live) {
            return result;
        }
        tokio::select! {
            () = changed => {}
            () = sleep::sleep_until(give_up) => return Err(unanswered(live, None)),
        }
    }
}

/// What the release has come to; `None` if that is open.
fn concluded(live: &LiveClaim) -> Option<Result<()>> {
    if let Some(lost) = live.lost() {
        return Some(Err(Error::Lost(lost)));
    }
    if !matches!(lock(&live.state).phase, Phase::Ended | Phase::Lingering { .. }) {
        return None;
    }
    Some(match live.given_up.get() {
        Some(error) => Err(never_acknowledged(live, error)),
        None => Ok(()),
    })
}

fn never_acknowledged(live: &LiveClaim, cause: &Arc<Error>) -> Error {
    let text = format!(
        "the release of `{}` was never acknowledged; the key is free when its lease is over",
        live.claim.key
    );
    let error = match **cause {
        Error::Permission(_) => Error::permission(text),
        Error::Configuration(_) => Error::configuration(text),
        _ => Error::unavailable(text),
    };
    error.with_source(Arc::clone(cause))
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
    let exchange = live.ask_release(live.rest_of_min_hold(tenure.granted));
    Some((state, exchange))
}

const NEVER: BootInstant = BootInstant::from_nanos(0);

/// Drives the release in the caller's thread; `None` once the lock thread does.
fn poll(live: &Arc<LiveClaim>, cx: &mut Context<'_>) -> Poll<Option<Result<()>>> {
    if let Some((mut state, exchange)) = begin(live) {
        let until = live.now() + live.terms.op_timeout.min(INLINE);
        state.phase = Phase::Releasing { exchange, until, waker: None };
        live.schedule(until);
        drop(state);
        leave_session(live);
    }
    let mut state = lock(&live.state);
    let Phase::Releasing { exchange, waker, .. } = &mut state.phase else {
        drop(state);
        return Poll::Ready(concluded(live));
    };
    match exchange.poll(cx) {
        Poll::Pending => {
            *waker = Some(cx.waker().clone());
            Poll::Pending
        }
        Poll::Ready(answer) => {
            live.close_down(&mut state);
            drop(state);
            Poll::Ready(Some(answered(live, answer)))
        }
    }
}

fn answered(live: &Arc<LiveClaim>, answer: Answer) -> Result<()> {
    live.core.note(&answer);
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
            conclude(live, Conclusion::Missing);
            live.lost().map_or(Ok(()), |lost| Err(Error::Lost(lost)))
        }
        Err(error) if error.is_retryable() => {
            let error = Arc::new(error);
            live.release_unanswered.store(true, Ordering::Release);
            live.emit(|| EventKind::ReleaseFailed { error: Arc::clone(&error) });
            withdraw_later(live, None);
            Err(unanswered(live, Some(error)))
        }
        Err(error) => {
            let error = Arc::new(error);
            give_up(live, &error);
            Err(never_acknowledged(live, &error))
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
        None => live.finished_in_fork(),
    }
}

/// Finishes an attempt that nobody waits for, then takes out of the store what it left there.
pub(crate) fn settle_later(live: &Arc<LiveClaim>, exchange: Exchange<Attempt>, stage: Stage) {
    let Some(thread) = thread::running() else { return live.finished_in_fork() };
    let live = Arc::clone(live);
    thread.spawn(async move {
        match live.judge(exchange.finish(live.terms.op_timeout).await) {
            Ok(Attempt::Busy { .. }) if stage == Stage::Try => {
                live.drop_contender();
                live.finished();
            }
            _ => withdraw(live, None).await,
        }
    });
}

/// Takes out of the store what may be left of a lost claim, at `at`.
pub(crate) fn sweep_lost(live: &Arc<LiveClaim>, at: BootInstant) {
    let Some(thread) = thread::running() else { return live.finished_in_fork() };
    let live = Arc::clone(live);
    thread.spawn(async move {
        sleep::sleep_until(at).await;
        withdraw(live, None).await;
    });
}

/// Takes the claim out of the store (or, for the rest of `min_hold`, leaves it to the store);
/// tries for as long as its lease can live.
pub(crate) async fn withdraw(
    live: Arc<LiveClaim>,
    mut exchange: Option<Exchange<Option<Released>>>,
) {
    let last = live.now() + live.claim.ttl;
    let op_timeout = live.terms.op_timeout;
    let mut backoff = Backoff::new((op_timeout / 4, Duration::from_secs(1).max(op_timeout)));
    loop {
        let release = exchange.take().unwrap_or_else(|| ask_again(&live));
        let answer = release.finish(op_timeout).await;
        live.core.note(&answer);
        match answer {
            Ok(None) => return linger_here(&live),
            Ok(Some(Released::NotFound)) => return conclude(&live, Conclusion::Missing),
            Ok(Some(Released::Freed)) => return conclude(&live, Conclusion::Freed),
            Err(error) => {
                live.release_unanswered.store(true, Ordering::Release);
                let error = Arc::new(error);
                live.emit(|| EventKind::ReleaseFailed { error: Arc::clone(&error) });
                if !error.is_retryable() || live.now() >= last {
                    return give_up(&live, &error);
                }
            }
        }
        tokio::time::sleep(backoff.next(None, fastrand::f64())).await;
    }
}

fn ask_again(live: &Arc<LiveClaim>) -> Exchange<Option<Released>> {
    let granted = lock(&live.state).tenure.as_ref().map(|tenure| tenure.granted);
    live.ask_release(granted.and_then(|granted| live.rest_of_min_hold(granted)))
}

fn give_up(live: &Arc<LiveClaim>, error: &Arc<Error>) {
    live.given_up.get_or_init(|| Arc::clone(error));
    conclude(live, Conclusion::GivenUp);
}

/// An attempt that was given up without an answer may take effect yet, after the clean-up: looks
/// again, less and less often, for as long as it could matter and the client is open. Nobody waits
/// for this: mostly there is nothing to find.
async fn sweep_doubt(live: Arc<LiveClaim>, until: BootInstant, kept_until: BootInstant) {
    let op_timeout = live.terms.op_timeout;
    let mut pause = op_timeout.max(Duration::from_millis(10));
    let mut next = kept_until.max(live.now() + pause).min(until);
    while not_closed_until(&live, next).await {
        let _ = live.ask_release(None).finish(op_timeout).await;
        if live.now() >= until {
            break;
        }
        pause *= 2;
        next = (live.now() + pause).min(until);
    }
    live.drop_contender();
}

/// Waits until `at`, or until the client is closed; whether it is still open then.
async fn not_closed_until(live: &LiveClaim, at: BootInstant) -> bool {
    let mut closing = std::pin::pin!(live.core.closing.notified());
    closing.as_mut().enable();
    if live.core.is_closed() {
        return false;
    }
    tokio::select! {
        () = closing => false,
        () = sleep::sleep_until(at) => true,
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
    let mut conclusion = conclusion;
    if matches!(conclusion, Conclusion::Missing) && live.release_unanswered.load(Ordering::Acquire)
    {
        // It may have been an earlier release that freed it.
        conclusion = Conclusion::Freed;
    }
    if let Some(granted) = granted {
        let held = live.now().since(granted);
        if matches!(conclusion, Conclusion::Missing) {
            live.set_loss(&LossReason::Gone);
        }
        live.emit(|| match conclusion {
            Conclusion::Freed => EventKind::Released { held },
            Conclusion::Missing => EventKind::ReleaseMismatch { held },
            Conclusion::GivenUp => EventKind::ReleaseGivenUp { held },
        });
    }
    let found = granted.is_none() && matches!(conclusion, Conclusion::Freed);
    let doubt = live.in_doubt_until(found);
    if let Some((until, thread)) = doubt.and_then(|until| Some((until, thread::running()?))) {
        // What the store keeps for the rest of `min_hold` has the same token.
        let kept_until = granted.unwrap_or(live.now()) + live.terms.min_hold;
        thread.spawn(sweep_doubt(Arc::clone(live), until, kept_until));
    } else {
        live.drop_contender();
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
    ring(&live.changed);
}

/// `min_hold` is over.
pub(crate) fn linger_over(live: &Arc<LiveClaim>) {
    withdraw_later(live, None);
}
