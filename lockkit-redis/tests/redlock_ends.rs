//! What a client of a quorum leaves on the lock thread: in a process of its own, since that thread
//! is the process's.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

use std::time::{Duration, Instant};

use conformance_tests::servers::{Action, Nodes, Proxy, Redis, Rule, Toward};
use lockkit_core::testing::lock_thread_tasks;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{LockExt, Request};
use lockkit_redis::RedisLock;

/// Longer than anything takes here that does not wait for it.
const TTL: Duration = Duration::from_secs(60);

fn until(limit: Duration, what: &str, look: impl Fn() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}, {}", lock_thread_tasks());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn client(proxies: &[Proxy]) -> RedisLock {
    let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let url = ConnectUrl::parse(&format!("redlock://{}", hosts.join(","))).unwrap();
    RedisLock::from_url(&url).unwrap()
}

/// Faults of each kind, of which something is to be remembered: votes that were not answered,
/// releases that one server did not hear of, waiters that gave up.
async fn use_it(nodes: &Nodes, proxies: &[Proxy], client: &RedisLock) {
    let request = || Request::new("k").ttl(TTL).op_timeout(Duration::from_millis(400));
    client.acquire(request()).await.unwrap().release().await.unwrap();
    // A request that is late, so that it is looked for after the release.
    let late = Action::Delay(Duration::from_millis(800));
    proxies[2].rule(Rule::requests("EVALSHA").act(late).times(1));
    let guard = client.acquire(request()).await.unwrap();
    let waited = client.acquire(request().timeout(Duration::from_millis(200))).await;
    waited.unwrap_err();
    // Until the late request was given up.
    tokio::time::sleep(Duration::from_millis(400)).await;
    guard.release().await.unwrap();
    nodes[1].process().stop().unwrap();
    client.acquire(request()).await.unwrap().release().await.unwrap();
    proxies[0].delay(Toward::Client, Duration::from_millis(100));
    drop(client.acquire(request()).await.unwrap());
    proxies[0].delay(Toward::Client, Duration::ZERO);
    client.try_acquire(request()).await.unwrap();
}

/// One server does not hear that it is to keep a claim no longer than that: it is told then, and
/// until then there is nothing to do.
async fn keep_it(nodes: &Nodes, _: &[Proxy], client: &RedisLock) {
    let request = Request::new("kept").ttl(TTL).min_hold(TTL / 2).op_timeout(SOON / 10);
    let guard = client.acquire(request).await.unwrap();
    let has = |node: &Redis| node.command(&["EXISTS", "lockkit:kept"]).unwrap().number() == Some(1);
    until(SOON, "all votes", || nodes.iter().all(has));
    nodes[1].process().stop().unwrap();
    guard.release().await.unwrap();
    // Until that is given up.
    tokio::time::sleep(SOON / 5).await;
}

/// What it takes at most: exchanges under way, subscriptions that end when they are idle.
const SOON: Duration = Duration::from_secs(5);

async fn ends(close: bool, used: impl AsyncFn(&Nodes, &[Proxy], &RedisLock)) {
    let nodes = Nodes::start(3).unwrap();
    let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.address()).unwrap()).collect();
    let client = client(&proxies);
    used(&nodes, &proxies, &client).await;
    if close {
        assert!(client.close(SOON).await);
        until(SOON, "no tasks of a closed client", || lock_thread_tasks() == 0);
    }
    drop(client);
    until(SOON, "no tasks of a client that is gone", || lock_thread_tasks() == 0);
    for proxy in &proxies {
        proxy.wait_until_open(0, SOON).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_client_that_is_closed_or_dropped() {
    for close in [true, false] {
        ends(close, use_it).await;
        ends(close, keep_it).await;
    }
}
