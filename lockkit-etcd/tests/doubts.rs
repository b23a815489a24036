//! Requests that were given up without an answer, and may take effect later.

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

    fn lease_of_first(&self) -> i64 {
        self.server.keys(PREFIX).unwrap()[0].lease
    }

    fn claims(&self) -> usize {
        self.server.keys(PREFIX).unwrap().len()
    }
}

/// What lands behind its own clean-up finds no lease. Else it would stay for ever, since its lease
/// is kept alive for others. Those move, and keep their places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_in_doubt_is_left_by_all_and_revoked() {
    let ways = TwoWays::start();
    let lock = ways.client();
    lock.ping().await.unwrap();
    let other = grant(&lock, "other").await;
    let (fence, old) = (other.fence(), ways.lease_of_first());
    // One who waits has a place on it too.
    let waiter = tokio::spawn(lock.acquire(Request::new("other").timeout(AT_ONCE * 20)));
    eventually(AT_ONCE, "in line", || ways.claims() == 2).await;
    let guard = ways.twice_sent(&lock).await;
    let late = ways.server.keys(PREFIX).unwrap().remove(2).key;
    guard.release().await.unwrap();
    let moved = || ways.lease_of_first() != old;
    eventually(Duration::from_secs(3), "the other claim is on another lease", moved).await;
    let gone = || !ways.server.leases().unwrap().contains(&old);
    eventually(AT_ONCE, "the lease in doubt is revoked", gone).await;
    let error = ways.server.put(late, "late", old).unwrap_err().to_string();
    assert!(error.contains("lease not found"), "{error}");
    assert!(other.is_held() && other.fence() == fence, "{:?}", other.loss());
    assert_eq!(ways.claims(), 2, "nobody has lost its place");
    other.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(lock.close(AT_ONCE).await);
    empty(&ways.server).await;
}

/// The same without anybody else: it need not end by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_in_doubt_that_nobody_is_on_is_revoked_at_once() {
    let ways = TwoWays::start();
    let lock = ways.client();
    grant(&lock, "first").await.release().await.unwrap();
    let [old] = ways.server.leases().unwrap()[..] else { panic!("one lease") };
    let guard = ways.twice_sent(&lock).await;
    let gone = || !ways.server.leases().unwrap().contains(&old);
    eventually(AT_ONCE, "the lease in doubt is revoked", gone).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    grant(&lock, "late").await.release().await.unwrap();
    assert!(lock.close(AT_ONCE).await);
    empty(&ways.server).await;
}
