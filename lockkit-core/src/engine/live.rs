//! One live claim: everything that the caller, the guard and the lock thread share of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::BootInstant;
use crate::contender::{Attempt, Claim, Contender, Lease, Released, Renewal, Stage};
use crate::core::Shared;
use crate::engine::background::Working;
use crate::engine::exchange::Exchange;
use crate::engine::phase::{Phase, Tenure};
use crate::engine::terms::Terms;
use crate::engine::thread;
use crate::engine::timers::{Due, Slot};
use crate::engine::{release, renew, schedule};
use crate::error::{Error, NotAcquired};
use crate::event::{EventKind, Subject};
use crate::holder::Holder;
use crate::loss::{LossReason, Lost};
use crate::sync::{lock, try_lock};

/// One claim, from the call of acquire to its end.
pub(crate) struct LiveClaim {
    pub(crate) core: Arc<Shared>,
    pub(crate) claim: Claim,
    pub(crate) terms: Terms,
    contender: tokio::sync::Mutex<Box<dyn Contender>>,
    pub(crate) state: Mutex<State>,
    /// Until when the guard may believe, in nanoseconds after boot; zero if there is nothing to
    /// believe. Only ever compared and exchanged, so that "over" is final.
    deadline: AtomicU64,
    fence: OnceLock<u64>,
    loss: OnceLock<LossReason>,
    /// Rung when the claim stops waiting, is lost, or ends.
    pub(crate) changed: Notify,
    /// How many guards hold it; more than one by re-entry alone.
    pub(crate) guards: AtomicUsize,
    /// Whether an attempt was sent and not answered: it may take effect yet.
    pub(crate) uncertain: AtomicBool,
    /// Whether it was told that the claim waits.
    waiting_told: AtomicBool,
    begun: AtomicU64,
    until: AtomicU64,
    slot: Slot,
}

/// What changes together.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) tenure: Option<Tenure>,
    pub(crate) seen: Seen,
    /// Set while the claim is being cleaned up, so that `close` waits for it.
    pub(crate) working: Option<Working>,
}

/// What the attempts so far have seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<Arc<Error>>,
    pub(crate) holder: Option<Holder>,
}

impl LiveClaim {
    pub(crate) fn new(
        core: Arc<Shared>,
        claim: Claim,
        terms: Terms,
        contender: Box<dyn Contender>,
    ) -> Arc<Self> {
        let state =
            State { phase: Phase::Fresh, tenure: None, seen: Seen::default(), working: None };
        Arc::new(Self {
            core,
            claim,
            terms,
            contender: tokio::sync::Mutex::new(contender),
            state: Mutex::new(state),
            deadline: AtomicU64::new(0),
            fence: OnceLock::new(),
            loss: OnceLock::new(),
            changed: Notify::new(),
            guards: AtomicUsize::new(1),
            uncertain: AtomicBool::new(false),
            waiting_told: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            until: AtomicU64::new(u64::MAX),
            slot: Slot::new(),
        })
    }

    pub(crate) fn now(&self) -> BootInstant {
        self.core.clock.now()
    }

    /// The clocks of the call start: at the first poll, not when the future was made.
    pub(crate) fn begin(&self, now: BootInstant, until: BootInstant) {
        self.begun.store(now.as_nanos(), Ordering::Relaxed);
        self.until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// When the caller gives up.
    pub(crate) fn until(&self) -> BootInstant {
        BootInstant::from_nanos(self.until.load(Ordering::Relaxed))
    }

    pub(crate) fn waited(&self) -> Duration {
        self.now().since(BootInstant::from_nanos(self.begun.load(Ordering::Relaxed)))
    }

    pub(crate) fn fence(&self) -> Option<u64> {
        self.fence.get().copied()
    }

    pub(crate) fn set_fence(&self, fence: Option<u64>) {
        if let Some(fence) = fence {
            self.fence.get_or_init(|| fence);
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.slot.id()
    }

    pub(crate) fn emit(&self, kind: impl FnOnce() -> EventKind) {
        let claim = &self.claim;
        self.core
            .events
            .emit(|| (Some(Subject::new(claim.key.clone(), claim.token, claim.mode)), kind()));
    }

    pub(crate) fn tell_waiting(&self) {
        self.waiting_told.store(true, Ordering::Relaxed);
        self.emit(|| EventKind::Waiting);
    }

    /// Whether a `Waiting` event is to be followed up.
    pub(crate) fn after_waiting(&self) -> bool {
        self.waiting_told.load(Ordering::Relaxed)
    }

    /// Makes sure that the watchdog looks at this claim at `at` or before. Called with the state
    /// locked, so that a claim that is over is not queued again.
    pub(crate) fn schedule(self: &Arc<Self>, at: BootInstant) {
        if at != BootInstant::FAR_FUTURE
            && let Some(thread) = thread::running()
        {
            thread.timers().schedule(self, at);
        }
    }

    pub(crate) fn unschedule(&self) {
        if let Some(thread) = thread::running() {
            thread.timers().cancel(&self.slot);
        }
    }

    /// The claim is over: takes it out of the watchdog's queue and wakes whoever waits for that.
    pub(crate) fn finished(&self) {
        let working = {
            let mut state = lock(&self.state);
            // What the caller has not collected yet outlives the clean-up; of a guard, its limit too.
            match state.phase {
                Phase::Entered(_) => {}
                Phase::Refused(_) => self.unschedule(),
                _ => {
                    self.unschedule();
                    state.phase = Phase::Ended;
                }
            }
            state.tenure = None;
            state.working.take()
        };
        drop(working);
        self.changed.notify_waiters();
    }

    /// One guard fewer; whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.claim.owner.is_none() || self.core.owners.leave(self)
    }
}

/// Exchanges with the store.
impl LiveClaim {
    pub(crate) fn ask(self: &Arc<Self>, stage: Stage) -> Exchange<Attempt> {
        let (live, budget) = (Arc::clone(self), self.terms.op_timeout);
        Exchange::new(async move {
            let result = live.contender.lock().await.attempt(stage, budget).await;
            live.core.note(&result);
            result
        })
    }

    pub(crate) fn ask_renewal(self: &Arc<Self>, budget: Duration) -> Exchange<Renewal> {
        let live = Arc::clone(self);
        Exchange::new(async move {
            let mut contender = live.contender.lock().await;
            // A release may have come first; nothing is renewed after that.
            if !matches!(lock(&live.state).phase, Phase::Held | Phase::Lingering { .. }) {
                return Ok(Renewal::Gone);
            }
            let result = contender.renew(budget).await;
            live.core.note(&result);
            result
        })
    }

    /// Releases; or, with `rest`, leaves the claim for that time if the store can.
    pub(crate) fn ask_release(
        self: &Arc<Self>,
        rest: Option<Duration>,
    ) -> Exchange<Option<Released>> {
        let (live, budget) = (Arc::clone(self), self.terms.op_timeout);
        Exchange::new(async move {
            let mut contender = live.contender.lock().await;
            let result = match rest {
                Some(rest) => contender.linger(rest, budget).await,
                None => contender.release(budget).await.map(Some),
            };
            live.core.note(&result);
            result
        })
    }
}

/// Holding and losing.
impl LiveClaim {
    /// Until when the guard may believe.
    pub(crate) fn deadline(&self) -> Option<BootInstant> {
        match self.deadline.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(BootInstant::from_nanos(nanos)),
        }
    }

    pub(crate) fn set_deadline(&self, deadline: BootInstant) {
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    /// Moves the deadline from `old`; fails if the claim was found over meanwhile.
    pub(crate) fn move_deadline(&self, old: BootInstant, new: BootInstant) -> bool {
        self.deadline
            .compare_exchange(old.as_nanos(), new.as_nanos(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// A comparison with the clock, without effect.
    pub(crate) fn still_stands(&self) -> bool {
        self.deadline().is_some_and(|deadline| self.now() < deadline)
    }

    /// A comparison with the clock; whoever finds the deadline passed makes that final.
    pub(crate) fn is_held(self: &Arc<Self>) -> bool {
        let Some(deadline) = self.deadline() else { return false };
        if self.now() < deadline {
            return true;
        }
        self.lapse(deadline);
        // The exchange fails if a renewal was acknowledged in time just now.
        self.still_stands()
    }

    /// The deadline of a claim that is granted at `granted` on `lease`.
    pub(crate) fn capped_deadline(&self, lease: &Lease, granted: BootInstant) -> BootInstant {
        let cap = self.terms.max_hold.map_or(BootInstant::FAR_FUTURE, |max| granted + max);
        schedule::deadline(lease.sent, lease.ttl).min(cap)
    }

    /// When the watchdog renews it, if at all: not when `max_hold` ends it sooner anyway.
    pub(crate) fn renew_at(&self, lease: &Lease, granted: BootInstant) -> BootInstant {
        let capped =
            self.capped_deadline(lease, granted) < schedule::deadline(lease.sent, lease.ttl);
        if self.terms.renew && !capped {
            schedule::renew_at(lease.sent, lease.ttl)
        } else {
            BootInstant::FAR_FUTURE
        }
    }

    /// The deadline `seen` has passed.
    pub(crate) fn lapse(self: &Arc<Self>, seen: BootInstant) {
        if self.move_deadline(seen, BootInstant::from_nanos(0)) {
            let reason = {
                let state = lock(&self.state);
                self.lapse_reason(state.tenure.as_ref(), seen)
            };
            self.lose(reason);
        }
    }

    fn lapse_reason(&self, tenure: Option<&Tenure>, seen: BootInstant) -> LossReason {
        let capped = tenure
            .zip(self.terms.max_hold)
            .is_some_and(|(tenure, max_hold)| tenure.granted + max_hold == seen);
        if capped {
            return LossReason::MaxHold;
        }
        LossReason::Expired { last_error: tenure.and_then(|t| t.last_error.clone()) }
    }

    /// Ends a held claim for good, tells whoever waits for that, and takes out of the store what
    /// may be left there, once the lease is over.
    pub(crate) fn lose(self: &Arc<Self>, reason: LossReason) {
        let tenure = {
            let mut state = lock(&self.state);
            let Phase::Held = state.phase else { return };
            let Some(tenure) = state.tenure.take() else { return };
            self.deadline.store(0, Ordering::Release);
            self.set_loss(&reason);
            self.close_down(&mut state);
            tenure
        };
        if let Some(shared) = &tenure.lease.shared {
            shared.leave(self.id());
        }
        if self.claim.owner.is_some() {
            self.core.owners.forget(self);
        }
        self.changed.notify_waiters();
        let now = self.now();
        let held = now.since(tenure.granted);
        let sweep_at = match reason {
            // Its holder has been told; the key need not wait for the rest of the TTL.
            LossReason::MaxHold => now + schedule::margin(tenure.lease.ttl),
            _ => schedule::lease_end(tenure.lease.sent, tenure.lease.ttl),
        };
        self.emit(|| EventKind::Lost { reason, held });
        release::sweep_lost(self, sweep_at);
    }

    pub(crate) fn set_loss(&self, reason: &LossReason) {
        self.loss.get_or_init(|| reason.clone());
    }

    pub(crate) fn lost(&self) -> Option<Lost> {
        self.loss.get().map(|reason| Lost::new(self.claim.key.clone(), reason.clone()))
    }

    pub(crate) fn not_acquired(&self, seen: &Seen) -> Error {
        let mut error = NotAcquired::new(self.claim.key.clone(), self.waited(), seen.attempts);
        error.last_error.clone_from(&seen.last_error);
        error.holder.clone_from(&seen.holder);
        Error::NotAcquired(Box::new(error))
    }
}

/// When the watchdog looks again at a claim whose lock is taken.
const SOON: Duration = Duration::from_millis(2);

impl Due for LiveClaim {
    fn slot(&self) -> &Slot {
        &self.slot
    }

    fn due(self: Arc<Self>, now: BootInstant) -> Option<BootInstant> {
        // The claim's own clock, which a test may have moved ahead of the queue's.
        let now = now.max(self.now());
        // The caller's thread polls its exchange under this lock. Should it be stopped there,
        // all other claims must still be looked after.
        let Some(mut state) = try_lock(&self.state) else { return Some(now + SOON) };
        match &state.phase {
            Phase::Asking { until, .. } => {
                let until = *until;
                if now < until { Some(until) } else { self.take_over_attempt(state, now) }
            }
            Phase::Waiting { .. } | Phase::Offered(_) | Phase::Entered(_) => {
                let until = self.collect_by(&state.phase);
                if now < until { Some(until) } else { self.time_out(state) }
            }
            Phase::Held => renew::due(&self, state),
            Phase::Lingering { until } if now >= *until => {
                state.phase = Phase::Closing;
                drop(state);
                release::linger_over(&self);
                None
            }
            Phase::Lingering { until } => {
                let until = *until;
                Some(renew::start_if_due(&self, &mut state).min(until))
            }
            Phase::Releasing { until, .. } => {
                let until = *until;
                if now < until { Some(until) } else { release::take_over(&self, state) }
            }
            Phase::Fresh | Phase::Refused(_) | Phase::Closing | Phase::Ended => None,
        }
    }
}

impl fmt::Debug for LiveClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveClaim").field("claim", &self.claim).finish_non_exhaustive()
    }
}
