//! The leases of one client: one for each TTL, and those that were closed and are not gone yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::LeaseGrantResponse;
use lockkit_core::{BootInstant, Error, Result};
use tokio::time::timeout;

use crate::errors::Problem;
use crate::fleet::{Answered, Failed, Fleet};
use crate::keeper;
use crate::lease::{Membership, ServerLease};

/// The leases of one client.
#[derive(Debug)]
pub(crate) struct Leases {
    fleet: Arc<Fleet>,
    /// By whole seconds.
    slots: Mutex<HashMap<i64, Arc<Slot>>>,
}

/// The leases of one TTL.
#[derive(Debug, Default)]
struct Slot {
    /// The last one takes new claims, if any does.
    leases: Mutex<Vec<Arc<ServerLease>>>,
    /// One asks for a new lease, the others wait for that.
    granting: tokio::sync::Mutex<()>,
}

impl Leases {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, slots: Mutex::default() }
    }

    fn slot(&self, seconds: i64) -> Arc<Slot> {
        Arc::clone(locked(&self.slots).entry(seconds).or_default())
    }

    /// Puts one more claim on a lease of that TTL.
    ///
    /// # Errors
    /// If there is none yet, and etcd grants none.
    pub(crate) async fn join(&self, ttl: Duration, budget: Duration) -> Result<Membership> {
        let seconds = whole_seconds(ttl);
        let slot = self.slot(seconds);
        if let Some(member) = slot.join() {
            return Ok(member);
        }
        let grant = async {
            let _one = slot.granting.lock().await;
            match slot.join() {
                Some(member) => Ok(member),
                None => self.grant(&slot, seconds, budget).await,
            }
        };
        let silent = || Error::from(Problem::not_sent(format!("no lease within {budget:?}")));
        timeout(budget, grant).await.unwrap_or_else(|_| Err(silent()))
    }

    /// A lease that is not shared, and that nobody extends.
    pub(crate) async fn lone(&self, ttl: Duration, budget: Duration) -> Result<i64> {
        Ok(self.ask(whole_seconds(ttl), budget).await?.value.id())
    }

    async fn ask(
        &self,
        seconds: i64,
        budget: Duration,
    ) -> Result<Answered<LeaseGrantResponse>, Failed> {
        // Each try asks for another one: what comes of one that was not answered ends by itself.
        let grant = |client: Arc<etcd_client::Client>| async move {
            client.lease_client().grant(seconds, None).await
        };
        self.fleet.call(budget, grant).await
    }

    async fn grant(&self, slot: &Slot, seconds: i64, budget: Duration) -> Result<Membership> {
        let granted = self.ask(seconds, budget).await?;
        let ttl = u64::try_from(granted.value.ttl()).unwrap_or_default();
        if ttl == 0 {
            return Err(Problem::malformed("the TTL of a lease").into());
        }
        let lease = ServerLease::new(granted.value.id(), Duration::from_secs(ttl), granted.sent);
        let member = lease
            .join(BootInstant::now())
            .ok_or_else(|| Error::unavailable("the lease was nearly over when it was granted"));
        let mut leases = locked(&slot.leases);
        leases.retain(|lease| !lease.is_over());
        leases.push(Arc::clone(&lease));
        drop(leases);
        tokio::spawn(keeper::keep(lease, Arc::clone(&self.fleet)));
        member
    }

    /// All that are not known to be gone.
    fn all(&self) -> Vec<Arc<ServerLease>> {
        let slots: Vec<_> = locked(&self.slots).values().cloned().collect();
        let leases = slots.iter().flat_map(|slot| locked(&slot.leases).clone());
        leases.filter(|lease| !lease.is_over()).collect()
    }

    /// No new claims on any of them: each is revoked behind its last claim. Waits for those that
    /// carry none, for at most `budget`.
    pub(crate) async fn close(&self, budget: Duration) {
        let all = self.all();
        for lease in &all {
            lease.close();
        }
        let gone = async {
            while all.iter().any(|lease| lease.is_empty() && !lease.is_over()) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = timeout(budget, gone).await;
    }
}

/// How often it is looked whether a lease is gone.
const LOOK: Duration = Duration::from_millis(2);

impl Drop for Leases {
    fn drop(&mut self) {
        // Their keepers go on until they are revoked.
        for lease in self.all() {
            lease.close();
        }
    }
}

impl Slot {
    fn join(&self) -> Option<Membership> {
        locked(&self.leases).last().and_then(|lease| lease.join(BootInstant::now()))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// etcd counts in whole seconds: never less than was asked for.
fn whole_seconds(ttl: Duration) -> i64 {
    let up = u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(ttl.as_secs() + up).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, seconds) in [(1000, 1), (1001, 2), (29_999, 30), (30_000, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
