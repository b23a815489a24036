//! One live claim: everything that the caller, the guard and the lock thread share of it.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
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
use crate::sync::{lock, ring, try_lock};

/// One claim, from the call of acquire to its end.
pub(crate) struct LiveClaim {
    pub(crate) core: Arc<Shared>,
    pub(crate) claim: Claim,
    pub(crate) terms: Terms,
    /// Dropped when the claim is over: a forgotten future must not keep the store's connections.
    contender: tokio::sync::Mutex<Option<Box<dyn Contender>>>,
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
    doubt: Doubt,
    /// Why the release was given up, for whoever asks again.
    pub(crate) given_up: OnceLock<Arc<Error>>,
    /// Whether a release was sent and not answered.
    pub(crate) release_unanswered: AtomicBool,
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
    /// Since when the store has owed the lock thread an answer.
    pub(crate) asking: Option<BootInstant>,
}

/// Attempts that were sent, as far as is known, and not answered: they may take effect yet.
#[derive(Debug)]
struct Doubt {
    /// For how long after they were given up.
    lasts: Duration,
    attempts: AtomicU32,
    /// When the last of them was given up, in nanoseconds after boot.
    last: AtomicU64,
}

impl LiveClaim {
    pub(crate) fn new(
        core: Arc<Shared>,
        claim: Claim,
        terms: Terms,
        contender: Box<dyn Contender>,
    ) -> Arc<Self> {
        let doubt = Doubt {
            lasts: contender.late_effects().min(claim.ttl),
            attempts: AtomicU32::new(0),
            last: AtomicU64::new(0),
        };
        let state =
            State { phase: Phase::Fresh, tenure: None, seen: Seen::default(), working: None };
        Arc::new(Self {
            core,
            claim,
            terms,
            contender: tokio::sync::Mutex::new(Some(contender)),
            state: Mutex::new(state),
            deadline: AtomicU64::new(0),
            fence: OnceLock::new(),
            loss: OnceLock::new(),
            changed: Notify::new(),
            guards: AtomicUsize::new(1),
            doubt,
            given_up: OnceLock::new(),
            release_unanswered: AtomicBool::new(false),
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

    /// When the call began, in nanoseconds after boot.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn waited(&self) -> Duration {
        self.now().since(BootInstant::from_nanos(self.begun()))
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
    /// locked, so that a claim that is over is not queued again. Whoever acquires or releases has
    /// looked whether this process was forked; after that it is not asked again.
    pub(crate) fn schedule(self: &Arc<Self>, at: BootInstant) {
        if at != BootInstant::FAR_FUTURE
            && let Some(thread) = thread::started()
        {
            thread.timers().schedule(self, at);
        }
    }

    /// As [`schedule`](Self::schedule), only where somebody has looked whether this process was
    /// forked: a fork may have copied the queue in the middle of a change.
    pub(crate) fn unschedule(&self) {
        if let Some(thread) = thread::started() {
            thread.timers().cancel(&self.slot);
        }
    }

    /// Nothing will be asked of the store any more.
    pub(crate) fn drop_contender(&self) {
        let contender = self.contender.try_lock().ok().and_then(|mut contender| contender.take());
        let _context = thread::context();
        drop(contender);
    }

    /// The claim is over: takes it out of the watchdog's queue and wakes whoever waits for that.
    pub(crate) fn finished(&self) {
        self.end(Self::unschedule);
    }

    /// The same in a forked process, where the queue is the parent's.
    pub(crate) fn finished_in_fork(&self) {
        self.end(|_| {});
    }

    fn end(&self, unschedule: impl FnOnce(&Self)) {
        let working = {
            let mut state = lock(&self.state);
            // What the caller has not collected yet outlives the clean-up; of a guard, its limit too.
            match state.phase {
                Phase::Entered { .. } => {}
                Phase::Refused(_) => unschedule(self),
                _ => {
                    unschedule(self);
                    state.phase = Phase::Ended;
                }
            }
            state.tenure = None;
            state.working.take()
        };
        drop(working);
        ring(&self.changed);
    }

    /// One guard fewer; whether it was the last, which `decided` is told first.
    pub(crate) fn leave(&self, decided: impl FnOnce(bool)) -> bool {
        if self.claim.owner.is_some() {
            return self.core.owners.leave(self, decided);
        }
        decided(true);
        true
    }
}

/// Exchanges with the store.
impl LiveClaim {
    pub(crate) fn ask(self: &Arc<Self>, stage: Stage) -> Exchange<Attempt> {
        let (live, budget) = (Arc::clone(self), self.terms.op_timeout);
        Exchange::new(async move {
            match &mut *live.contender.lock().await {
                Some(contender) => contender.attempt(stage, budget).await,
                None => Err(Error::unavailable("the claim is over")),
            }
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
            match &mut *contender {
                Some(contender) => contender.renew(budget).await,
                None => Ok(Renewal::Gone),
            }
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
            let Some(contender) = &mut *contender else {
                return Ok(Some(Released::NotFound));
            };
            match rest {
                Some(rest) => contender.linger(rest, budget).await,
                None => contender.release(budget).await.map(Some),
            }
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

    /// Notes that an attempt was given up without an answer.
    pub(crate) fn doubt(&self) {
        self.doubt.attempts.fetch_add(1, Ordering::AcqRel);
        self.doubt.last.store(self.now().as_nanos(), Ordering::Release);
    }

    /// Until when such an attempt may take effect yet, or its effect last; `None` if none can.
    /// `found`: a claim was found in the store that no answer had told of.
    pub(crate) fn in_doubt_until(&self, found: bool) -> Option<BootInstant> {
        let open = self.doubt.attempts.load(Ordering::Acquire).saturating_sub(u32::from(found));
        let last = BootInstant::from_nanos(self.doubt.last.load(Ordering::Acquire));
        (open > 0).then_some(last + self.doubt.lasts).filter(|until| self.now() < *until)
    }

    /// How much of `min_hold` is left.
    pub(crate) fn rest_of_min_hold(&self, granted: BootInstant) -> Option<Duration> {
        let rest = (granted + self.terms.min_hold).since(self.now());
        (!rest.is_zero()).then_some(rest)
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

    /// When the watchdog renews it, if at all: not when `max_hold` ends it sooner anyway. It
    /// does renew a lease that outlasts `max_hold`, because renewing is also how a claim that was
    /// taken by force is noticed.
    pub(crate) fn renew_at(&self, lease: &Lease, granted: BootInstant) -> BootInstant {
        let renew_at = schedule::renew_at(lease.sent, lease.ttl);
        if self.terms.renew && renew_at < self.capped_deadline(lease, granted) {
            renew_at
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
        ring(&self.changed);
        let now = self.now();
        let held = now.since(tenure.granted);
        let sweep_at = match reason {
            // Its holder has been told; the key need not wait for the rest of the TTL.
            LossReason::MaxHold => now + schedule::margin(tenure.lease.ttl),
            // The store has let go of it already.
            LossReason::Gone | LossReason::SessionEnded { .. } => now,
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

    /// The error of a caller whose time is over. A store that is silent meanwhile is named.
    pub(crate) fn out_of_time(&self, seen: &mut Seen) -> Error {
        let silent = seen.asking.map(|since| self.now().since(since));
        if let Some(silent) = silent.filter(|silent| *silent >= SILENCE.min(self.terms.op_timeout))
        {
            let error = Error::unavailable(format!("the backend has not answered for {silent:?}"));
            if self.terms.never_waits() {
                return error;
            }
            // An error that the store did answer with says more.
            seen.last_error.get_or_insert_with(|| Arc::new(error));
        }
        self.not_acquired(seen)
    }

    /// The error of a claim that must not ask again.
    pub(crate) fn out_of_attempts(&self, state: &State) -> Option<Error> {
        let limit = if self.terms.never_waits() { Some(1) } else { None };
        let limit = limit.or(self.terms.attempts.map(NonZeroU32::get))?;
        (state.seen.attempts >= limit).then(|| self.not_acquired(&state.seen))
    }

    pub(crate) fn not_acquired(&self, seen: &Seen) -> Error {
        let mut error = NotAcquired::new(self.claim.key.clone(), self.waited(), seen.attempts);
        error.last_error.clone_from(&seen.last_error);
        error.holder.clone_from(&seen.holder);
        error.at_once = self.terms.never_waits();
        Error::NotAcquired(Box::new(error))
    }
}

/// How long a store may owe an answer before that is worth telling.
const SILENCE: Duration = Duration::from_millis(50);

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
            Phase::Waiting { .. } | Phase::Offered(_) | Phase::Entered { .. } => {
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
