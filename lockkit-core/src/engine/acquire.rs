//! Acquiring: the caller's side.

use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::contender::{Attempt, Stage};
use crate::engine::live::{LiveClaim, State};
use crate::engine::phase::{Grant, Phase};
use crate::engine::thread;
use crate::engine::{release, wait};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::guard::Guard;
use crate::mode::Mode;
use crate::request::Wait;
use crate::sync::{lock, ring};

/// For how long the caller's own thread drives an exchange. Then the lock thread goes on with it:
/// a caller that has stopped polling must not keep the connection from everybody else.
pub(crate) const INLINE: Duration = Duration::from_millis(50);

/// The future of an acquire. `'static`, and `Unpin`.
///
/// The clock of the request's timeout starts with the first poll. Polled again after it was
/// ready, it stays pending.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Acquire(Inner);

#[derive(Debug)]
enum Inner {
    Refused(Option<Error>),
    Live(Arc<LiveClaim>),
    Done,
}

impl Acquire {
    pub(crate) fn new(live: Arc<LiveClaim>) -> Self {
        Self(Inner::Live(live))
    }

    pub(crate) fn refused(error: Error) -> Self {
        Self(Inner::Refused(Some(error)))
    }
}

impl Future for Acquire {
    type Output = Result<Guard>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let result = match &mut this.0 {
            Inner::Live(live) => std::task::ready!(live.poll_acquire(cx)),
            Inner::Refused(error) => match error.take() {
                Some(error) => Err(error),
                None => return Poll::Pending,
            },
            Inner::Done => return Poll::Pending,
        };
        if let (Inner::Live(live), Err(error)) = (&this.0, &result) {
            let reason = error.reason();
            let (after_waiting, waited) = (live.after_waiting(), live.waited());
            live.emit(|| EventKind::AcquireFailed { after_waiting, waited, reason });
        }
        this.0 = Inner::Done;
        Poll::Ready(result)
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Inner::Live(live) = &self.0 {
            live.abandon();
        }
    }
}

/// The future of an acquire that does not wait: `None` if the key is busy.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct TryAcquire(Acquire);

impl TryAcquire {
    pub(crate) fn new(acquire: Acquire) -> Self {
        Self(acquire)
    }
}

impl Future for TryAcquire {
    type Output = Result<Option<Guard>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match std::task::ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::NotAcquired(busy)) if busy.last_error.is_none() => Ok(None),
            Err(error) => Err(error),
        })
    }
}

impl LiveClaim {
    fn poll_acquire(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Result<Guard>> {
        loop {
            let mut state = lock(&self.state);
            match &mut state.phase {
                Phase::Fresh => {
                    drop(state);
                    if let Some(result) = self.start() {
                        return Poll::Ready(result);
                    }
                }
                Phase::Asking { exchange, stage, waker, .. } => {
                    let stage = *stage;
                    let Poll::Ready(result) = exchange.poll(cx) else {
                        keep_waker(waker, cx);
                        return Poll::Pending;
                    };
                    return match self.first_answer(state, stage, result, cx.waker()) {
                        Some(result) => Poll::Ready(result),
                        None => Poll::Pending,
                    };
                }
                Phase::Waiting { waker } => {
                    keep_waker(waker, cx);
                    return Poll::Pending;
                }
                _ => return Poll::Ready(self.collect(state)),
            }
        }
    }

    /// The first poll: sends the first attempt, or takes a seat in the local queue.
    fn start(self: &Arc<Self>) -> Option<Result<Guard>> {
        let now = self.now();
        self.begin(now, BootInstant::FAR_FUTURE);
        if self.core.is_closed() {
            return Some(Err(Error::configuration("this client was closed")));
        }
        let thread = match thread::lock_thread() {
            Ok(thread) => thread,
            Err(error) => return Some(Err(error)),
        };
        let op_end = now + self.terms.op_timeout;
        let until = match self.terms.wait {
            Wait::Forever => BootInstant::FAR_FUTURE,
            Wait::Within(wait) if wait.is_zero() => op_end,
            Wait::Within(wait) => now + wait,
        };
        self.begin(now, until);
        match self.core.owners.enter(self) {
            Ok(None) => {}
            Ok(Some(held)) => return Some(Ok(self.entered(held))),
            Err(error) => return Some(Err(error)),
        }
        let mut state = lock(&self.state);
        if let Some(mode) = self.core.queues_locally().then(|| self.first_in_line()).flatten() {
            if !mode.same_family(self.claim.mode) {
                return Some(Err(Error::other_family(&self.claim.key, mode, self.claim.mode)));
            }
            if self.terms.never_waits() {
                state.phase = Phase::Ended;
                return Some(Err(self.not_acquired(&state.seen)));
            }
            let ticket = self.core.queue.join(&self.claim.key, self.claim.mode);
            state.phase = Phase::Waiting { waker: None };
            self.schedule(until);
            self.tell_waiting();
            drop(state);
            thread.spawn(wait::wait(Arc::clone(self), Some(ticket), None));
            return None;
        }
        let stage = self.terms.first_stage();
        state.seen.attempts = 1;
        let until = until.min(op_end).min(now + INLINE);
        state.phase = Phase::Asking { exchange: self.ask(stage), stage, until, waker: None };
        self.schedule(until);
        drop(state);
        None
    }

    fn first_in_line(&self) -> Option<Mode> {
        self.core.queue.first(&self.claim.key)
    }

    /// A guard more on the claim `held` of the same owner; this claim was never sent.
    fn entered(self: &Arc<Self>, held: Arc<Self>) -> Guard {
        lock(&self.state).phase = Phase::Ended;
        held.emit(|| EventKind::Reentered { after_waiting: false });
        Guard::new(held)
    }

    fn first_answer(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        stage: Stage,
        result: Result<Attempt>,
        waker: &Waker,
    ) -> Option<Result<Guard>> {
        let busy = match self.judge(result) {
            Ok(Attempt::Granted { fence, lease }) => {
                return Some(Ok(self.hold(state, Grant { fence, lease })));
            }
            Ok(Attempt::Busy { holder, .. }) if stage == Stage::Try => {
                state.seen.holder = holder;
                let error = self.not_acquired(&state.seen);
                drop(state);
                self.finished();
                return Some(Err(error));
            }
            Ok(busy) => Ok(busy),
            Err(error) if stage != Stage::Try && error.is_retryable() => Err(error),
            Err(error) => {
                self.close_down(&mut state);
                drop(state);
                release::withdraw_later(self, None);
                return Some(Err(error));
            }
        };
        state.phase = Phase::Waiting { waker: Some(waker.clone()) };
        self.schedule(self.until());
        self.tell_waiting();
        drop(state);
        self.go_waiting(busy);
        None
    }

    /// Continues on the lock thread after the first answer.
    fn go_waiting(self: &Arc<Self>, first: Result<Attempt>) {
        let local = self.core.queues_locally();
        let ticket = local.then(|| self.core.queue.join(&self.claim.key, self.claim.mode));
        if let Some(thread) = thread::running() {
            thread.spawn(wait::wait(Arc::clone(self), ticket, Some(first)));
        }
    }

    /// The caller's thread has driven the first attempt for long enough, or its time is over: the
    /// lock thread goes on with it.
    pub(crate) fn take_over_attempt(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        now: BootInstant,
    ) -> Option<BootInstant> {
        let waiting = Phase::Waiting { waker: None };
        let Phase::Asking { exchange, waker, stage, .. } =
            std::mem::replace(&mut state.phase, waiting)
        else {
            return None;
        };
        state.seen.asking = Some(BootInstant::from_nanos(self.begun()));
        if now >= self.until() {
            let error = self.out_of_time(&mut state.seen);
            state.phase = Phase::Refused(error);
            self.begin_clean_up(&mut state);
            drop(state);
            release::settle_later(self, exchange, stage);
            wake(waker);
            return None;
        }
        state.phase = Phase::Waiting { waker };
        self.tell_waiting();
        drop(state);
        // Who does not wait takes no seat either.
        let local = self.core.queues_locally() && stage != Stage::Try;
        let ticket = local.then(|| self.core.queue.join(&self.claim.key, self.claim.mode));
        if let Some(thread) = thread::running() {
            thread.spawn(wait::resume(Arc::clone(self), ticket, exchange));
        }
        Some(self.until())
    }

    /// The caller dropped the future.
    fn abandon(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let waited = self.waited();
        match std::mem::replace(&mut state.phase, Phase::Ended) {
            Phase::Fresh => return,
            Phase::Asking { exchange, stage, .. } => {
                self.close_down(&mut state);
                drop(state);
                release::settle_later(self, exchange, stage);
            }
            Phase::Waiting { .. } => {
                self.close_down(&mut state);
                drop(state);
                ring(&self.changed);
            }
            Phase::Offered(_) => {
                self.close_down(&mut state);
                drop(state);
                release::withdraw_later(self, None);
            }
            Phase::Entered { guard, .. } => {
                self.unschedule();
                drop(state);
                drop(guard);
            }
            Phase::Refused(_) => {
                if state.working.is_some() {
                    state.phase = Phase::Closing;
                }
                drop(state);
            }
            other => {
                state.phase = other;
                return;
            }
        }
        let after_waiting = self.after_waiting();
        self.emit(|| EventKind::AcquireCancelled { after_waiting, waited });
    }
}

fn keep_waker(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
