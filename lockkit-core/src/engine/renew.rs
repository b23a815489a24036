//! The watchdog: renewing what is held, and telling what is lost.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::contender::{Lease, Renewal};
use crate::engine::live::{LiveClaim, State};
use crate::engine::phase::Phase;
use crate::engine::{release, schedule, thread};
use crate::error::Result;
use crate::event::EventKind;
use crate::loss::LossReason;
use crate::sync::{lock, ring};

/// The watchdog looks at a held claim. Returns when it wants to look again.
pub(crate) fn due(live: &Arc<LiveClaim>, mut state: MutexGuard<'_, State>) -> Option<BootInstant> {
    // None: somebody has just found it lapsed and waits for this lock to say so.
    let deadline = live.deadline()?;
    if live.now() >= deadline {
        drop(state);
        live.lapse(deadline);
        return None;
    }
    Some(start_if_due(live, &mut state).min(deadline))
}

/// Starts a renewal if it is time; returns when it will be otherwise.
pub(crate) fn start_if_due(live: &Arc<LiveClaim>, state: &mut State) -> BootInstant {
    let Some(tenure) = &mut state.tenure else { return BootInstant::FAR_FUTURE };
    if tenure.renewing {
        return BootInstant::FAR_FUTURE;
    }
    if live.now() < tenure.renew_at {
        return tenure.renew_at;
    }
    tenure.renewing = true;
    let left = schedule::deadline(tenure.lease.sent, tenure.lease.ttl).since(live.now());
    let budget = live.terms.op_timeout.min(left).max(Duration::from_millis(1));
    let live = Arc::clone(live);
    if let Some(thread) = thread::running() {
        // A task of its own, so that a slow renewal delays no other.
        thread.spawn(async move {
            let result = live.ask_renewal(budget).finish(budget).await;
            renewed(&live, result);
        });
    }
    BootInstant::FAR_FUTURE
}

fn renewed(live: &Arc<LiveClaim>, result: Result<Renewal>) {
    live.core.note(&result);
    let mut state = lock(&live.state);
    if let Some(tenure) = &mut state.tenure {
        tenure.renewing = false;
    }
    if !matches!(state.phase, Phase::Held | Phase::Lingering { .. }) {
        return;
    }
    match result {
        Ok(Renewal::Extended(lease)) => extend(live, state, lease),
        Ok(Renewal::Gone) => {
            let lingering = matches!(state.phase, Phase::Lingering { .. });
            drop(state);
            if lingering {
                release::conclude(live, release::Conclusion::Missing);
            } else {
                live.lose(LossReason::Gone);
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            let Some(tenure) = &mut state.tenure else { return };
            tenure.last_error = Some(Arc::clone(&error));
            let spread = fastrand::f64();
            tenure.renew_at = schedule::retry_renewal_at(live.now(), tenure.lease.ttl, spread);
            let renew_at = tenure.renew_at;
            live.schedule(renew_at);
            drop(state);
            live.emit(|| EventKind::RenewalFailed { error });
        }
    }
}

fn extend(live: &Arc<LiveClaim>, mut state: MutexGuard<'_, State>, lease: Lease) {
    let held = matches!(state.phase, Phase::Held);
    let Some(tenure) = &mut state.tenure else { return };
    let deadline = live.capped_deadline(&lease, tenure.granted);
    let renew_at = live.renew_at(&lease, tenure.granted);
    if held {
        // None: somebody has just found it lapsed and waits for this lock to say so.
        let Some(old) = live.deadline() else { return };
        if live.now() >= old {
            drop(state);
            // An answer after the deadline comes too late: it was over, so it stays over.
            return live.lapse(old);
        }
        if !live.move_deadline(old, deadline) {
            return;
        }
        if deadline < old {
            ring(&live.changed);
        }
    }
    let moved = std::mem::replace(&mut tenure.lease, lease);
    let shared = tenure.lease.shared.clone();
    tenure.renew_at = renew_at;
    tenure.last_error = None;
    live.schedule(renew_at.min(deadline));
    if let Some(old) = moved.shared {
        old.leave(live.id());
    }
    let ended = shared.and_then(|shared| shared.join(live.id(), Arc::downgrade(live)));
    drop(state);
    live.emit(|| EventKind::Renewed);
    if let Some(detail) = ended {
        live.lose(LossReason::SessionEnded { detail });
    }
}
