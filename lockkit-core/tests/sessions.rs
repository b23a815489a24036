//! Leases that several claims share, and stores that cannot keep a claim beyond the process:
//! what etcd, ZooKeeper and database connections bring along.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::time::Duration;

use async_trait::async_trait;
use common::{MS, eventually};
use lockkit_core::{
    Attempt, Claim, Contender, Core, DistributedLock, LockExt, LossReason, Memory, Released,
    Renewal, Request, Result, SharedLease, Stage,
};

/// The memory backend on a session.
#[derive(Debug)]
struct Sessions {
    memory: Memory,
    session: SharedLease,
}

impl Sessions {
    fn new() -> Self {
        Self { memory: Memory::new(), session: SharedLease::new() }
    }
}

#[async_trait]
impl DistributedLock for Sessions {
    fn core(&self) -> &Core {
        self.memory.core()
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        Box::new(OnSession { inner: self.memory.contend(claim), session: self.session.clone() })
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct OnSession {
    inner: Box<dyn Contender>,
    session: SharedLease,
}

#[async_trait]
impl Contender for OnSession {
    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt> {
        Ok(match self.inner.attempt(stage, budget).await? {
            Attempt::Granted { fence, lease } => {
                Attempt::Granted { fence, lease: lease.on(self.session.clone()) }
            }
            busy @ Attempt::Busy { .. } => busy,
        })
    }

    async fn renew(&mut self, budget: Duration) -> Result<Renewal> {
        Ok(match self.inner.renew(budget).await? {
            Renewal::Extended(lease) => Renewal::Extended(lease.on(self.session.clone())),
            Renewal::Gone => Renewal::Gone,
        })
    }

    async fn release(&mut self, budget: Duration) -> Result<Released> {
        self.inner.release(budget).await
    }
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_claims_and_no_others() {
    let lock = Sessions::new();
    let other = Sessions { memory: lock.memory.another_client(), session: SharedLease::new() };
    let (a, b) = (lock.acquire("a").await.unwrap(), lock.acquire("b").await.unwrap());
    let released = lock.acquire("c").await.unwrap();
    released.release().await.unwrap();
    let elsewhere = other.acquire("d").await.unwrap();
    assert_eq!(lock.session.claims(), 2);

    lock.session.end("the server expired it");
    assert!(!a.is_held() && !b.is_held() && elsewhere.is_held());
    for guard in [&a, &b] {
        let LossReason::SessionEnded { detail } = guard.lost().await.reason else {
            panic!("another reason");
        };
        assert_eq!(&*detail, "the server expired it");
        assert!(guard.release().await.unwrap_err().is_lost());
    }
    assert!(released.loss().is_none());

    let late = lock.acquire("e").await.unwrap();
    assert!(!late.is_held(), "granted on a session that had ended");
}

#[tokio::test]
async fn renewals_keep_a_claim_on_its_session() {
    let lock = Sessions::new();
    let guard = lock.acquire(Request::new("a").ttl(MS(60))).await.unwrap();
    tokio::time::sleep(MS(200)).await;
    assert!(guard.is_held());
    assert_eq!(lock.session.claims(), 1);
    lock.session.end("over");
    assert!(!guard.is_held());
}

#[tokio::test]
async fn min_hold_is_kept_by_the_process_where_the_store_cannot() {
    let lock = Sessions::new();
    let request = || Request::new("a").ttl(MS(60)).min_hold(MS(300));
    let start = std::time::Instant::now();
    let guard = lock.acquire(request()).await.unwrap();
    guard.release().await.unwrap();
    assert!(!guard.is_held());
    guard.release().await.unwrap();
    assert!(lock.try_acquire("a").await.unwrap().is_none());
    assert!(!lock.close(MS(50)).await, "closed while the key is kept");
    assert!(lock.close(MS(2000)).await);
    assert!(start.elapsed() >= MS(300));
    assert_eq!(lock.memory.entries(), 0);
}

#[tokio::test]
async fn min_hold_counts_when_the_guard_is_dropped() {
    let lock = Sessions::new();
    drop(lock.acquire(Request::new("a").min_hold(MS(150))).await.unwrap());
    assert!(lock.try_acquire("a").await.unwrap().is_none());
    eventually("the key is free", || lock.memory.entries() == 0).await;
}
