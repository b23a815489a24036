//! Re-entrancy within one client: which owner holds which key.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::engine::live::LiveClaim;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::request::Owner;
use crate::sync::{lock, ring};

type Held = HashMap<(Key, Owner), Vec<Arc<LiveClaim>>>;

/// The held claims that have an owner. Mostly one per key and owner; a reader and a writer if a
/// store with owners of its own let the writer in.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    held: Mutex<Held>,
    /// Rung when a claim with an owner is held: a waiter of that owner may enter now.
    pub(crate) changed: Notify,
}

fn place(live: &LiveClaim) -> Option<(Key, Owner)> {
    live.claim.owner.as_ref().map(|owner| (live.claim.key.clone(), owner.clone()))
}

impl Owners {
    /// Makes `live` a claim that its owner re-enters; or, if the owner has got another one
    /// meanwhile that covers it, returns that one, with one guard more. (A store that lets owners
    /// re-enter grants to all that ask at the same time.)
    pub(crate) fn register(&self, live: &Arc<LiveClaim>) -> Option<Arc<LiveClaim>> {
        let place = place(live)?;
        let mut held = lock(&self.held);
        let claims = held.entry(place).or_default();
        let covers = |other: &&Arc<LiveClaim>| {
            other.still_stands() && other.claim.mode.covers(live.claim.mode)
        };
        if let Some(other) = claims.iter().find(covers) {
            other.guards.fetch_add(1, Ordering::AcqRel);
            return Some(Arc::clone(other));
        }
        claims.push(Arc::clone(live));
        drop(held);
        ring(&self.changed);
        None
    }

    /// Enters the claim that the owner of `wanted` holds already, if it does: one guard more.
    ///
    /// # Errors
    /// [`Error::Configuration`] if it is held in a mode that does not cover the wanted one:
    /// waiting for oneself would never end.
    pub(crate) fn enter(&self, wanted: &LiveClaim) -> Result<Option<Arc<LiveClaim>>> {
        let Some(place) = place(wanted) else { return Ok(None) };
        let held = lock(&self.held);
        let standing = held.get(&place).into_iter().flatten().filter(|live| live.still_stands());
        let mut other = None;
        for live in standing {
            if live.claim.mode.covers(wanted.claim.mode) {
                live.guards.fetch_add(1, Ordering::AcqRel);
                return Ok(Some(Arc::clone(live)));
            }
            other = Some(live);
        }
        let Some(live) = other else { return Ok(None) };
        Err(Error::configuration(format!(
            "this owner holds `{}` as {} already and cannot take it as {} before it releases it",
            live.claim.key, live.claim.mode, wanted.claim.mode
        )))
    }

    /// Whether [`enter`](Self::enter) has something to say about `wanted`.
    pub(crate) fn may_enter(&self, wanted: &LiveClaim) -> bool {
        let Some(place) = place(wanted) else { return false };
        let held = lock(&self.held);
        held.get(&place).into_iter().flatten().any(|live| live.still_stands())
    }

    /// One guard of `live` fewer; whether it was the last. `decided` is called with that while no
    /// other guard can leave.
    pub(crate) fn leave(&self, live: &LiveClaim, decided: impl FnOnce(bool)) -> bool {
        let mut held = lock(&self.held);
        let last = live.guards.fetch_sub(1, Ordering::AcqRel) == 1;
        decided(last);
        let removed = if last { Self::remove(&mut held, live) } else { None };
        drop(held);
        drop(removed);
        last
    }

    /// `live` is lost: nobody enters it any more.
    pub(crate) fn forget(&self, live: &LiveClaim) {
        let removed = Self::remove(&mut lock(&self.held), live);
        drop(removed);
    }

    fn remove(held: &mut Held, live: &LiveClaim) -> Option<Arc<LiveClaim>> {
        let place = place(live)?;
        let claims = held.get_mut(&place)?;
        let at = claims.iter().position(|held| held.claim.token == live.claim.token)?;
        let removed = claims.swap_remove(at);
        if claims.is_empty() {
            held.remove(&place);
        }
        Some(removed)
    }
}
