//! Waiting: the loop on the lock thread that asks, waits and asks again.

use std::sync::Arc;
use std::time::Duration;

use crate::contender::{Attempt, Stage};
use crate::engine::backoff::Backoff;
use crate::engine::exchange::Exchange;
use crate::engine::live::LiveClaim;
use crate::engine::phase::{Grant, Phase};
use crate::engine::queue::Ticket;
use crate::engine::release;
use crate::error::Result;
use crate::guard::Guard;
use crate::sync::lock;
use crate::wake::Wake;

/// Continues with a first attempt that its caller could not finish in time.
pub(crate) async fn resume(
    live: Arc<LiveClaim>,
    ticket: Option<Ticket>,
    exchange: Exchange<Attempt>,
) {
    let answer = live.judge(exchange.finish(live.terms.op_timeout).await);
    wait(live, ticket, Some(answer)).await;
}

/// Waits until the claim is granted, refused, or not wanted any more. `first` is the answer to
/// an attempt that did not prepare a wake-up.
pub(crate) async fn wait(
    live: Arc<LiveClaim>,
    ticket: Option<Ticket>,
    first: Option<Result<Attempt>>,
) {
    let backoff = Backoff::new(live.core.settings.poll);
    let mut waiter = Waiter { backoff, live, ticket, again: false };
    let mut next = match first {
        Some(answer) => match waiter.digest(answer) {
            // Ask again at once, this time with a wake-up prepared: the same attempt still.
            Next::Pause { wake: Some(_), .. } => {
                waiter.again = true;
                Next::Ask
            }
            next => next,
        },
        None => Next::Ask,
    };
    loop {
        next = match next {
            Next::Ask => waiter.ask().await,
            Next::Pause { wake, pause } => waiter.pause(wake, pause).await,
            Next::Enter => waiter.enter(),
            Next::Withdraw => {
                let Waiter { live, ticket, .. } = waiter;
                drop(ticket);
                let asked = lock(&live.state).seen.attempts > 0;
                return if asked { release::withdraw(live, None).await } else { live.finished() };
            }
            Next::Nothing => return waiter.live.finished(),
            Next::Done => return,
        };
    }
}

/// What to do next.
enum Next {
    /// Ask the store, when it is this waiter's turn.
    Ask,
    /// Pause, then ask. `wake` is `None` after an error.
    Pause { wake: Option<Wake>, pause: Duration },
    /// The owner of this claim holds the key by another one.
    Enter,
    /// The wait is over without a grant, or with one that nobody wants.
    Withdraw,
    /// The wait is over, and nothing is left in the store.
    Nothing,
    /// The caller has been told.
    Done,
}

struct Waiter {
    live: Arc<LiveClaim>,
    ticket: Option<Ticket>,
    backoff: Backoff,
    /// Whether the next question belongs to the attempt before.
    again: bool,
}

impl Waiter {
    /// Waits for the turn, then asks the store once. The exchange is never cut, also when the
    /// caller stops waiting meanwhile.
    async fn ask(&mut self) -> Next {
        if let Some(ticket) = &self.ticket {
            tokio::select! {
                biased;
                next = interrupted(&self.live) => return next,
                () = ticket.turn() => {}
            }
        }
        {
            let mut state = lock(&self.live.state);
            if !matches!(state.phase, Phase::Waiting { .. }) {
                return Next::Withdraw;
            }
            state.seen.attempts += u32::from(!std::mem::take(&mut self.again));
            state.seen.asking = Some(self.live.now());
        }
        let answer = self.live.ask(Stage::Wait).finish(self.live.terms.op_timeout).await;
        let answer = self.live.judge(answer);
        self.digest(answer)
    }

    /// Whoever is told has left the line before: what it asks for next must not meet its own seat.
    fn digest(&mut self, answer: Result<Attempt>) -> Next {
        let live = &self.live;
        lock(&live.state).seen.asking = None;
        match answer {
            Ok(Attempt::Granted { fence, lease }) => {
                self.ticket = None;
                match live.offer(Phase::Offered(Grant { fence, lease })) {
                    Ok(()) => Next::Done,
                    Err(_) => Next::Withdraw,
                }
            }
            Ok(Attempt::Busy { wake, holder, free_in }) => {
                let mut state = lock(&live.state);
                state.seen.holder = holder;
                state.seen.last_error = None;
                let error = live.out_of_attempts(&state);
                drop(state);
                if let Some(error) = error {
                    self.ticket = None;
                    live.refuse(error);
                    // Who never waits has left nothing.
                    return if live.terms.never_waits() { Next::Nothing } else { Next::Withdraw };
                }
                let pause = self.backoff.next(free_in, fastrand::f64());
                Next::Pause { wake: Some(wake), pause }
            }
            Err(error) if error.is_retryable() && !live.terms.never_waits() => {
                let mut state = lock(&live.state);
                state.seen.last_error = Some(Arc::new(error));
                let error = live.out_of_attempts(&state);
                drop(state);
                if let Some(error) = error {
                    self.ticket = None;
                    live.refuse(error);
                    return Next::Withdraw;
                }
                if let Some(ticket) = &self.ticket {
                    ticket.pass();
                }
                Next::Pause { wake: None, pause: self.backoff.next(None, fastrand::f64()) }
            }
            Err(error) => {
                self.ticket = None;
                live.refuse(error);
                Next::Withdraw
            }
        }
    }

    /// Pauses until something says that asking again is worth it.
    async fn pause(&self, wake: Option<Wake>, pause: Duration) -> Next {
        let mut wake = wake.unwrap_or_else(Wake::never);
        let nudged = async {
            match &self.ticket {
                Some(ticket) => ticket.nudged().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            next = interrupted(&self.live) => next,
            () = wake.woken() => Next::Ask,
            () = nudged => Next::Ask,
            () = tokio::time::sleep(pause) => Next::Ask,
        }
    }

    /// Takes this claim out of the store, then gives the caller a guard on the one that its
    /// owner holds.
    fn enter(&mut self) -> Next {
        match self.live.core.owners.enter(&self.live) {
            Ok(Some(held)) => {
                // Not renewed for a caller that never comes back: as long as what it enters
                // would have lasted without it.
                let by = held.deadline().unwrap_or_else(|| held.now());
                self.ticket = None;
                // If nobody wants the guard any more, it is dropped outside of all locks.
                drop(self.live.offer(Phase::Entered { guard: Guard::new(held), by }));
                Next::Withdraw
            }
            Ok(None) => Next::Ask,
            Err(error) => {
                self.live.refuse(error);
                Next::Withdraw
            }
        }
    }
}

/// Resolves when the caller no longer waits, or when its owner got the key by another claim.
async fn interrupted(live: &LiveClaim) -> Next {
    loop {
        let mut changed = std::pin::pin!(live.changed.notified());
        let mut owners = std::pin::pin!(live.core.owners.changed.notified());
        changed.as_mut().enable();
        owners.as_mut().enable();
        if !matches!(lock(&live.state).phase, Phase::Waiting { .. }) {
            return Next::Withdraw;
        }
        if live.core.owners.may_enter(live) {
            return Next::Enter;
        }
        tokio::select! {
            () = changed => {}
            () = owners => {}
        }
    }
}
