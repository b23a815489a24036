//! What the tests of this crate share: clients, and looking into servers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conformance_tests::servers::Etcd;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{Guard, LockExt, Request};
use lockkit_etcd::EtcdLock;

/// What stands before the keys of these tests.
pub(crate) const PREFIX: &str = "t:";

/// A client of these servers.
pub(crate) fn client(servers: &[SocketAddr], params: &str) -> EtcdLock {
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let url = format!("etcd://{}?prefix={PREFIX}&{params}", servers.join(","));
    EtcdLock::from_url(&ConnectUrl::parse(&url).unwrap()).unwrap()
}

/// A key that nobody has is granted.
pub(crate) async fn grant(lock: &EtcdLock, request: impl Into<Request>) -> Guard {
    lock.acquire(request).await.unwrap()
}

/// Waits until `done` is so, for at most `limit`.
pub(crate) async fn eventually(limit: Duration, what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until neither a key nor a lease is left.
pub(crate) async fn empty(server: &Etcd) {
    let nothing = || server.keys("").unwrap().is_empty() && server.leases().unwrap().is_empty();
    eventually(Duration::from_secs(3), "nothing is left", nothing).await;
}
