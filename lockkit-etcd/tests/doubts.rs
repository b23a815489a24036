//! Requests that were given up without an answer, and take effect later.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod clients;

use std::time::{Duration, Instant};

use clients::*;
use conformance_tests::servers::{Etcd, Framing, Proxy, Toward};
use lockkit_core::{DistributedLock, Guard, LockExt, Request};

/// How long what happens at once may take.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Two ways to one server, of which the first can stand still.
struct TwoWays {
    server: Etcd,
    slow: Proxy,
}

impl TwoWays {
    fn start() -> Self {
        let server = Etcd::start().unwrap();
        let slow = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
        Self { server, slow }
    }

    fn client(&self) -> lockkit_etcd::EtcdLock {
        client(&[self.slow.address(), self.server.address()], "ttl=6s&op_timeout=1s")
    }

    /// A claim whose create was sent on the way that stands still, and then on the other one.
    async fn twice_sent(&self, lock: &lockkit_etcd::EtcdLock) -> Guard {
        self.slow.hold(Toward::Server);
        let start = Instant::now();
        let guard = grant(lock, "late").await;
        assert!(start.elapsed() >= Duration::from_millis(500), "it went the other way at once");
        guard
    }

    fn claims(&self) -> usize {
        self.server.keys(PREFIX).unwrap().len()
    }
}

/// A create that lands behind its own clean-up finds no lease. Without that it would stay for
/// ever, since its lease is kept alive for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_create_does_not_stay() {
    let ways = TwoWays::start();
    let lock = ways.client();
    lock.ping().await.unwrap();
    let other = grant(&lock, "other").await;
    let fence = other.fence();
    let guard = ways.twice_sent(&lock).await;
    guard.release().await.unwrap();
    assert_eq!(ways.claims(), 1, "only the other one stands");
    // It moves with its next renewal; then the first lease goes, and the create comes.
    let old = ways.server.keys(PREFIX).unwrap()[0].lease;
    let moved = || ways.server.keys(PREFIX).unwrap()[0].lease != old;
    eventually(Duration::from_secs(3), "the other claim is on another lease", moved).await;
    eventually(AT_ONCE, "the old lease is gone", || !ways.server.leases().unwrap().contains(&old))
        .await;
    let before = ways.server.messages("Txn").unwrap();
    ways.slow.pass(Toward::Server);
    eventually(AT_ONCE, "the late create has come", || {
        ways.server.messages("Txn").unwrap() > before
    })
    .await;
    assert_eq!(ways.claims(), 1, "what came late stays");
    assert!(other.is_held() && other.fence() == fence, "{:?}", other.loss());
    other.release().await.unwrap();
    assert!(lock.close(AT_ONCE).await);
    empty(&ways.server).await;
}

/// The same without anybody else: the create comes before the lease was given up by the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_create_goes_with_its_lease() {
    let ways = TwoWays::start();
    let lock = ways.client();
    grant(&lock, "first").await.release().await.unwrap();
    let guard = ways.twice_sent(&lock).await;
    guard.release().await.unwrap();
    ways.slow.pass(Toward::Server);
    eventually(AT_ONCE, "the late claim is gone", || ways.claims() == 0).await;
    // The key is free, and new claims are on a lease that nothing can land on.
    grant(&lock, Request::new("late")).await.release().await.unwrap();
    assert!(lock.close(AT_ONCE).await);
    empty(&ways.server).await;
}
