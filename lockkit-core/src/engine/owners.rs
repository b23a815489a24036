//! Re-entrancy within one client: which owner holds which key.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::engine::live::LiveClaim;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::request::Owner;
use crate::sync::lock;

/// The held claims that have an owner.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    held: Mutex<HashMap<(Key, Owner), Arc<LiveClaim>>>,
    /// Rung when a claim with an owner is held: a waiter of that owner may enter now.
    pub(crate) changed: Notify,
}

impl Owners {
    /// Makes `live` the claim that its owner re-enters.
    pub(crate) fn register(&self, live: &Arc<LiveClaim>) {
        if let Some(owner) = &live.claim.owner {
            let place = (live.claim.key.clone(), owner.clone());
            let replaced = lock(&self.held).insert(place, Arc::clone(live));
            drop(replaced);
            self.changed.notify_waiters();
        }
    }

    /// Enters the claim that the owner of `wanted` holds already, if it does: one guard more.
    ///
    /// # Errors
    /// [`Error::Configuration`] if it is held in a mode that does not cover the wanted one:
    /// waiting for oneself would never end.
    pub(crate) fn enter(&self, wanted: &LiveClaim) -> Result<Option<Arc<LiveClaim>>> {
        let Some(owner) = &wanted.claim.owner else { return Ok(None) };
        let held = lock(&self.held);
        let Some(live) = held.get(&(wanted.claim.key.clone(), owner.clone())) else {
            return Ok(None);
        };
        if !live.still_stands() {
            return Ok(None);
        }
        if !live.claim.mode.covers(wanted.claim.mode) {
            return Err(Error::configuration(format!(
                "this owner holds `{}` as {} already and cannot take it as {} before it \
                 releases it",
                live.claim.key, live.claim.mode, wanted.claim.mode
            )));
        }
        live.guards.fetch_add(1, Ordering::AcqRel);
        Ok(Some(Arc::clone(live)))
    }

    /// Whether [`enter`](Self::enter) has something to say about `wanted`.
    pub(crate) fn may_enter(&self, wanted: &LiveClaim) -> bool {
        wanted.claim.owner.as_ref().is_some_and(|owner| {
            let held = lock(&self.held);
            held.get(&(wanted.claim.key.clone(), owner.clone()))
                .is_some_and(|live| live.still_stands())
        })
    }

    /// One guard of `live` fewer; whether it was the last.
    pub(crate) fn leave(&self, live: &LiveClaim) -> bool {
        let mut held = lock(&self.held);
        let last = live.guards.fetch_sub(1, Ordering::AcqRel) == 1;
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

    fn remove(
        held: &mut HashMap<(Key, Owner), Arc<LiveClaim>>,
        live: &LiveClaim,
    ) -> Option<Arc<LiveClaim>> {
        let owner = live.claim.owner.as_ref()?;
        let place = (live.claim.key.clone(), owner.clone());
        // The same owner may hold the key a second time (two shared claims granted at once).
        let same = held.get(&place).is_some_and(|h| h.claim.token == live.claim.token);
        if same { held.remove(&place) } else { None }
    }
}
