//! From an answer to a guard: what is granted, offered, collected, given back or refused.

use std::sync::{Arc, MutexGuard};

use crate::clock::BootInstant;
use crate::contender::Attempt;
use crate::engine::acquire::wake;
use crate::engine::live::{LiveClaim, State};
use crate::engine::phase::{Grant, Phase, Tenure};
use crate::engine::{release, schedule};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::guard::Guard;
use crate::loss::LossReason;
use crate::sync::{lock, ring};

impl LiveClaim {
    /// An answer that is read after its own deadline is no grant.
    pub(crate) fn judge(&self, result: Result<Attempt>) -> Result<Attempt> {
        self.core.note(&result);
        match &result {
            Ok(Attempt::Granted { lease, .. })
                if self.now() >= schedule::deadline(lease.sent, lease.ttl) =>
            {
                Err(Error::unavailable("the answer came after the end of the lease it grants"))
            }
            Err(error) if error.is_retryable() => {
                self.doubt();
                result
            }
            _ => result,
        }
    }

    /// From now on a guard holds the claim.
    pub(crate) fn hold(self: &Arc<Self>, mut state: MutexGuard<'_, State>, grant: Grant) -> Guard {
        let now = self.now();
        let Grant { fence, lease } = grant;
        let waited = self.waited();
        self.set_fence(fence);
        let deadline = self.capped_deadline(&lease, now);
        let renew_at = self.renew_at(&lease, now);
        let shared = lease.shared.clone();
        state.tenure =
            Some(Tenure { lease, granted: now, renew_at, renewing: false, last_error: None });
        state.phase = Phase::Held;
        self.set_deadline(deadline);
        self.schedule(renew_at.min(deadline));
        // If the session has ended already, the guard is lost from its first moment.
        let ended = shared.and_then(|s| s.join(self.id(), Arc::downgrade(self)));
        drop(state);
        let entered = self.core.owners.register(self);
        let after_waiting = self.after_waiting();
        self.emit(|| EventKind::Acquired { after_waiting, waited, fence });
        if let Some(detail) = ended {
            self.lose(LossReason::SessionEnded { detail });
        }
        let guard = Guard::new(Arc::clone(self));
        let Some(held) = entered else { return guard };
        // One claim for one owner: this one is given back, in the background.
        drop(guard);
        held.emit(|| EventKind::Reentered { after_waiting: false });
        Guard::new(held)
    }

    /// The caller sees what the lock thread has come to.
    pub(crate) fn collect(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Result<Guard> {
        let by = self.collect_by(&state.phase);
        match std::mem::replace(&mut state.phase, Phase::Ended) {
            Phase::Offered(grant) => {
                if self.now() >= by {
                    self.close_down(&mut state);
                    let error = self.not_acquired(&state.seen);
                    drop(state);
                    release::withdraw_later(self, None);
                    return Err(error);
                }
                Ok(self.hold(state, grant))
            }
            Phase::Entered { guard, .. } => {
                self.unschedule();
                guard.tell_reentered();
                Ok(guard)
            }
            Phase::Refused(error) => {
                // The clean-up may still go on; then it ends the phase.
                if state.working.is_some() {
                    state.phase = Phase::Closing;
                }
                Err(error)
            }
            // Not reachable: the other phases are handled or come after this future is done.
            other => {
                state.phase = other;
                Err(Error::configuration("this acquire is over"))
            }
        }
    }

    /// Marks the claim as being cleaned up.
    pub(crate) fn close_down(&self, state: &mut State) {
        state.phase = Phase::Closing;
        self.begin_clean_up(state);
    }

    pub(crate) fn begin_clean_up(&self, state: &mut State) {
        state.working.get_or_insert_with(|| self.core.background.begin());
    }

    /// Fails the wait with `error`, unless it is over already.
    pub(crate) fn refuse(&self, error: Error) {
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Waiting { .. }) {
            return;
        }
        self.begin_clean_up(&mut state);
        if let Phase::Waiting { waker } = std::mem::replace(&mut state.phase, Phase::Refused(error))
        {
            drop(state);
            wake(waker);
        }
    }

    /// Offers the caller what it waits for; gives it back if the wait is over.
    pub(crate) fn offer(self: &Arc<Self>, offer: Phase) -> Result<(), Phase> {
        let mut state = lock(&self.state);
        if !matches!(state.phase, Phase::Waiting { .. }) {
            return Err(offer);
        }
        if matches!(offer, Phase::Entered { .. }) {
            // This claim's own traces are taken out behind it.
            self.begin_clean_up(&mut state);
        }
        let by = self.collect_by(&offer);
        let waker = match std::mem::replace(&mut state.phase, offer) {
            Phase::Waiting { waker } => waker,
            _ => None,
        };
        self.schedule(by);
        drop(state);
        wake(waker);
        Ok(())
    }

    /// When an offer is given back, or a wait is over.
    pub(crate) fn collect_by(&self, phase: &Phase) -> BootInstant {
        match phase {
            Phase::Offered(grant) => {
                self.until().min(schedule::deadline(grant.lease.sent, grant.lease.ttl))
            }
            Phase::Entered { by, .. } => self.until().min(*by),
            _ => self.until(),
        }
    }

    /// The caller's time is over.
    pub(crate) fn time_out(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
    ) -> Option<BootInstant> {
        let error = self.out_of_time(&mut state.seen);
        match std::mem::replace(&mut state.phase, Phase::Refused(error)) {
            // The waiting task sees it and cleans up.
            Phase::Waiting { waker } => {
                self.begin_clean_up(&mut state);
                drop(state);
                ring(&self.changed);
                wake(waker);
            }
            Phase::Offered(_) => {
                self.begin_clean_up(&mut state);
                drop(state);
                release::withdraw_later(self, None);
            }
            Phase::Entered { guard, .. } => {
                drop(state);
                drop(guard);
            }
            other => state.phase = other,
        }
        None
    }
}
