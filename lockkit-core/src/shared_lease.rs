//! A session, lease or connection that several claims share.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};

use crate::engine::live::LiveClaim;
use crate::loss::LossReason;
use crate::sync::lock;

/// A session, lease or connection that several claims share: when it ends, they all end.
///
/// A backend keeps one per session and names it in each [`Lease`](crate::Lease) that it grants.
/// Cheap to clone; no task and no channel per claim.
#[derive(Clone, Default)]
pub struct SharedLease(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    ended: Option<Arc<str>>,
    members: HashMap<u64, Weak<LiveClaim>>,
}

impl SharedLease {
    /// A session that lives and carries no claim yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends it, for good: every claim on it is lost now, whatever its own deadline says.
    /// `detail` tells people why.
    pub fn end(&self, detail: &str) {
        let members = {
            let mut state = lock(&self.0);
            state.ended.get_or_insert_with(|| Arc::from(detail));
            std::mem::take(&mut state.members)
        };
        let detail: Arc<str> = Arc::from(detail);
        for member in members.into_values().filter_map(|member| member.upgrade()) {
            let reason = LossReason::SessionEnded { detail: Arc::clone(&detail) };
            // Whatever one of them meets, the others are over too.
            let _ = catch_unwind(AssertUnwindSafe(|| member.lose(reason)));
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.0).ended.is_some()
    }

    /// How many claims are held on it.
    pub fn claims(&self) -> usize {
        lock(&self.0).members.len()
    }

    /// Adds a claim; if the session has ended already, says why.
    pub(crate) fn join(&self, id: u64, claim: Weak<LiveClaim>) -> Option<Arc<str>> {
        let mut state = lock(&self.0);
        if state.ended.is_none() {
            state.members.insert(id, claim);
        }
        state.ended.clone()
    }

    pub(crate) fn leave(&self, id: u64) {
        lock(&self.0).members.remove(&id);
    }
}

impl fmt::Debug for SharedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        f.debug_struct("SharedLease")
            .field("ended", &state.ended)
            .field("claims", &state.members.len())
            .finish()
    }
}
