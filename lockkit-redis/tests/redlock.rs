//! A quorum of independent servers: some dead, hanging, late, or with no memory of their votes.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

#[path = "redlock/crowds.rs"]
mod crowds;
#[path = "redlock/doubts.rs"]
mod doubts;
#[path = "redlock/failures.rs"]
mod failures;
mod fleets;
#[path = "redlock/late.rs"]
mod late;
#[path = "redlock/one_client.rs"]
mod one_client;
#[path = "redlock/setup.rs"]
mod setup;
#[path = "redlock/split.rs"]
mod split;
#[path = "redlock/windows.rs"]
mod windows;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conformance_tests::servers::{Nodes, Proxy, Redis};
use fleets::*;
use lockkit_core::{BootInstant, DistributedLock, Guard, LockExt, Request};
use lockkit_redis::RedisLock;

/// What must not take the time of a server that does not answer: less than the shortest of the
/// times that any of them is given here.
const PROMPT: Duration = Duration::from_millis(200);

/// A TTL by whose end nothing in a test can be explained.
const CALM: Duration = Duration::from_secs(30);

fn redlock(nodes: &Nodes, params: &str) -> RedisLock {
    lock(&format!("redlock://{}?{params}", nodes.hosts()))
}

/// Servers, each behind a proxy.
struct Behind {
    nodes: Nodes,
    proxies: Vec<Proxy>,
}

impl Behind {
    fn start(count: usize) -> Self {
        let nodes = Nodes::start(count).unwrap();
        let proxies = nodes.iter().map(|node| Proxy::start(node.address()).unwrap()).collect();
        Self { nodes, proxies }
    }

    fn client(&self, params: &str) -> RedisLock {
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        lock(&format!("redlock://{}?{params}", hosts.join(",")))
    }
}

/// Opens all connections, so that what comes next is not explained by that.
async fn warm(client: &RedisLock) {
    client.ping().await.unwrap();
    client.acquire("warm").await.unwrap().release().await.unwrap();
}

/// How many servers have anything at `key`.
fn with_key<'a>(nodes: impl IntoIterator<Item = &'a Redis>, key: &str) -> usize {
    nodes.into_iter().filter(|node| claim(node, key).is_some()).count()
}

/// On how many servers `guard` has its claim.
fn votes<'a>(nodes: impl IntoIterator<Item = &'a Redis>, guard: &Guard) -> usize {
    nodes.into_iter().filter(|node| has(node, guard)).count()
}

/// Puts something of somebody else at `key`, for long.
fn occupy(node: &Redis, key: &str) {
    node.command(&["SET", &format!("lockkit:{key}"), "somebody", "PX", "60000"]).unwrap();
}

fn vacate(node: &Redis, key: &str) {
    node.command(&["DEL", &format!("lockkit:{key}")]).unwrap();
}

/// No server has any key.
async fn all_empty(nodes: &[Redis]) {
    let keys = |node: &Redis| node.command(&["KEYS", "*"]).unwrap().members().len();
    until(LONG, "no keys on any server", || nodes.iter().all(|node| keys(node) == 0)).await;
}

async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let result = future.await;
    (result, start.elapsed())
}

/// Sees whether two hold a key at once.
#[derive(Clone, Default)]
struct Overlaps(Arc<Mutex<Vec<Arc<Guard>>>>);

impl Overlaps {
    /// `guard` was acquired just now: nobody else believes.
    fn enter(&self, guard: &Arc<Guard>) {
        let mut inside = self.0.lock().unwrap();
        // In this order: what is over stays over.
        let others = inside.iter().filter(|other| other.is_held()).count();
        assert!(others == 0 || !guard.is_held(), "{} holders at once", others + 1);
        inside.push(Arc::clone(guard));
    }

    /// Before `guard` is released.
    fn leave(&self, guard: &Arc<Guard>) {
        self.0.lock().unwrap().retain(|other| !Arc::ptr_eq(other, guard));
    }

    /// Holds `request` for a moment.
    async fn pass(&self, client: &RedisLock, request: Request, hold: Duration) -> bool {
        let Ok(guard) = client.acquire(request).await else { return false };
        let guard = Arc::new(guard);
        self.enter(&guard);
        tokio::time::sleep(hold).await;
        self.leave(&guard);
        guard.release().await.is_ok()
    }
}
