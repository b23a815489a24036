//! The key that is handed over, who asks for it, and who is in line.

use std::time::{Duration, Instant};

use conformance_tests::servers::{Etcd, EtcdKey};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{Guard, LockExt, Request};
use lockkit_etcd::EtcdLock;

/// The key that is handed over.
pub(crate) const KEY: &str = "order:lock:1001";

/// How long anything may take that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server, and how its clients name it. No TTL and no poll is a reason for anything: whoever is
/// in was woken, and whoever asks, too.
pub(crate) fn url(server: &Etcd) -> String {
    format!("etcd://{}?ttl=120s&poll_min=60s&poll_max=60s", server.address())
}

pub(crate) fn client(url: &str) -> EtcdLock {
    EtcdLock::from_url(&ConnectUrl::parse(url).unwrap()).unwrap()
}

pub(crate) async fn acquire(lock: &EtcdLock) -> Guard {
    lock.acquire(Request::new(KEY).wait_forever()).await.unwrap()
}

/// Those who have the key or wait for it, in their order.
pub(crate) fn in_line(server: &Etcd) -> Vec<EtcdKey> {
    server.keys(format!("lockkit:{KEY}/")).unwrap()
}

/// Waits until so many wait, each with a watch, behind one who holds the key.
pub(crate) fn wait_until_waiting(server: &Etcd, count: usize) {
    server.wait_until_watchers(count as u64, PATIENCE).unwrap();
    assert_eq!(in_line(server).len(), count + 1);
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let start = Instant::now();
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {:?}: {what}", start.elapsed()),
    }
}
