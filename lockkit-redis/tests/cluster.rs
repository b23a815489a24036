//! A cluster whose slots move and whose nodes fail.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod fleets;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use conformance_tests::servers::{Cluster, Data, Process, Redis};
use fleets::*;
use lockkit_core::{DistributedLock, Error, EventKind, LockExt, Request};
use lockkit_redis::RedisLock;

fn url(cluster: &Cluster, params: &str) -> String {
    format!("redis+cluster://{}?{params}", cluster.hosts())
}

fn client(cluster: &Cluster) -> RedisLock {
    lock(&url(cluster, ""))
}

fn slot(cluster: &Cluster, key: &str) -> u16 {
    cluster.slot(&format!("lockkit:{key}")).unwrap()
}

/// A key whose slot the node `node` has.
fn key_on(cluster: &Cluster, node: usize) -> String {
    named_on(cluster, "k", node)
}

fn named_on(cluster: &Cluster, name: &str, node: usize) -> String {
    let mut names = (0..).map(|i| format!("{name}{i}"));
    names.find(|name| cluster.owner(slot(cluster, name)).unwrap() == node).unwrap()
}

/// A short time for an answer that will not come.
const SOON: Duration = Duration::from_millis(200);

/// A cluster that goes on without the slots that nobody has.
fn partly_up() -> Cluster {
    let server = Redis::builder().set("cluster-require-full-coverage", "no");
    Cluster::builder().server(server).start().unwrap()
}

/// Stops a node, or kills it.
fn take_down(node: &Process, stop: bool) {
    if stop {
        node.stop().unwrap();
    } else {
        node.kill().unwrap();
    }
}

fn bring_back(node: &Process, stopped: bool) {
    if stopped {
        node.resume().unwrap();
    } else {
        node.start_again(Data::Kept).unwrap();
    }
}

/// Which nodes a subscription is at.
fn subscribed(cluster: &Cluster) -> Vec<usize> {
    let nodes = cluster.nodes().iter().enumerate();
    let running = nodes.filter(|(_, node)| node.process().is_running().unwrap());
    running.filter(|(_, node)| channels(node) > 0).map(|(at, _)| at).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_keys_of_a_lock_are_in_one_slot_whatever_its_name() {
    let cluster = Cluster::start().unwrap();
    let fair = lock(&url(&cluster, "fair=true"));
    let plain = client(&cluster);
    let two = NonZeroU32::new(2).unwrap();
    for name in ["a", "{a}b", "a{b}c", "{}", "}{", "{{x}}", "{a}{b}", " a ", "ä/ß", "...", "\u{0}"]
    {
        let permits = (fair.permit(name, two).await.unwrap(), plain.permit(name, two).await);
        permits.0.release().await.unwrap();
        permits.1.unwrap().release().await.unwrap();
        for lock in [&fair, &plain] {
            let reader = lock.shared(name).await.unwrap();
            let writer = wait_for(lock, Request::new(name).owner("me"));
            until(LONG, "a writer that waits", || lock.core().waiting() > 0 || waits(&cluster))
                .await;
            reader.release().await.unwrap();
            writer.await.unwrap().release().await.unwrap();
            assert!(lock.inspect(&lockkit_core::Key::new(name).unwrap()).await.unwrap().is_none());
        }
    }
    plain.ping().await.unwrap();
    let left = |node: &Redis| node.command(&["KEYS", "*"]).unwrap().texts();
    until(LONG, "no keys", || cluster.nodes().iter().all(|node| left(node).is_empty())).await;
}

/// Whether any node has a queue.
fn waits(cluster: &Cluster) -> bool {
    let queues = |node: &Redis| node.command(&["KEYS", "*queue*"]).unwrap().members().len();
    cluster.nodes().iter().any(|node| queues(node) > 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_while_its_key_is_held_and_waited_for() {
    let cluster = Cluster::start().unwrap();
    let (holder, rival) = (client(&cluster), client(&cluster));
    let waiter = lock(&url(&cluster, RARE_POLLS));
    let key = key_on(&cluster, 0);
    let ttl = Duration::from_secs(4);
    let guard = holder.acquire(Request::new(&key).ttl(ttl)).await.unwrap();
    let waiting = wait_for(&waiter, &*key);
    until(LONG, "a subscription", || !subscribed(&cluster).is_empty()).await;
    cluster.move_slot(slot(&cluster, &key), 1).unwrap();
    let mut events = holder.core().events();
    event(&mut events, "a renewal", renewed).await;
    event(&mut events, "another renewal", renewed).await;
    assert!(guard.is_held() && has(&cluster.nodes()[1], &guard) && !waiting.is_finished());
    assert!(rival.try_acquire(&*key).await.unwrap().is_none());
    guard.release().await.unwrap();
    let next = within(AT_ONCE, "the hand-over", waiting).await.unwrap();
    assert!(next.fence() > guard.fence() && has(&cluster.nodes()[1], &next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_claim_lives_on_in_a_slot_that_has_moved_half() {
    let cluster = Cluster::start().unwrap();
    let (holder, rival) = (client(&cluster), client(&cluster));
    let key = key_on(&cluster, 0);
    let ttl = Duration::from_secs(4);
    let guard = holder.acquire(Request::new(&key).ttl(ttl)).await.unwrap();
    let moving = cluster.begin_move(slot(&cluster, &key), 1).unwrap();
    let mut events = holder.core().events();
    event(&mut events, "a renewal where it is", renewed).await;
    moving.move_key(format!("lockkit:{key}")).unwrap();
    assert!(has(&cluster.nodes()[1], &guard));
    let mut events = holder.core().events();
    event(&mut events, "a renewal where it has gone", renewed).await;
    event(&mut events, "another renewal", renewed).await;
    assert!(rival.try_acquire(&*key).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_eq!(claim(&cluster.nodes()[1], &key), None);
    let next = rival.try_acquire(&*key).await.unwrap().unwrap();
    assert!(has(&cluster.nodes()[1], &next) && next.fence() > guard.fence());
    moving.finish().unwrap();
    next.release().await.unwrap();
    assert_eq!(claim(&cluster.nodes()[1], &key), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_have_moved_half_are_waited_for() {
    let cluster = Cluster::start().unwrap();
    let (holder, rival) = (client(&cluster), client(&cluster));
    let key = key_on(&cluster, 0);
    let reader = holder.shared(Request::new(&key).ttl(Duration::from_secs(6))).await.unwrap();
    let moving = cluster.begin_move(slot(&cluster, &key), 1).unwrap();
    // Its note stays behind.
    moving.move_key(format!("lockkit:{key}")).unwrap();
    let start = Instant::now();
    let refused = rival.shared(Request::new(&key).timeout(Duration::ZERO)).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let mut events = holder.core().events();
    let failed = |kind: &EventKind| matches!(kind, EventKind::RenewalFailed { .. });
    event(&mut events, "a renewal that fails", failed).await;
    let waiting = rival.shared(Request::new(&key).timeout(LONG));
    let waiting = tokio::spawn(waiting);
    moving.move_keys().unwrap();
    moving.finish().unwrap();
    event(&mut events, "a renewal", renewed).await;
    assert!(reader.is_held());
    let other = within(LONG, "the other reader", waiting).await.unwrap().unwrap();
    other.release().await.unwrap();
    reader.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_clients_go_on_after_a_failover() {
    let server = Redis::builder().password("secret");
    let cluster = Cluster::builder().server(server).replicas().start().unwrap();
    let url = format!("redis+cluster://:secret@{}", cluster.hosts());
    let clients = [lock(&url), lock(&url)];
    let waiter = lock(&format!("{url}?{RARE_POLLS}"));
    let key = key_on(&cluster, 0);
    let ttl = Duration::from_secs(4);
    let guard = clients[0].acquire(Request::new(&key).ttl(ttl)).await.unwrap();
    let waiting = wait_for(&waiter, &*key);
    until(LONG, "a subscription", || !subscribed(&cluster).is_empty()).await;
    let new = &cluster.nodes()[cluster.failover(0).unwrap()];
    let mut events = clients[0].core().events();
    event(&mut events, "a renewal", renewed).await;
    event(&mut events, "another renewal", renewed).await;
    assert!(guard.is_held() && has(new, &guard));
    guard.release().await.unwrap();
    let next = within(AT_ONCE, "the hand-over", waiting).await.unwrap();
    assert!(next.fence() > guard.fence());
    let mut fence = next.fence();
    next.release().await.unwrap();
    for round in 0..50 {
        let guard = clients[round % 2].acquire(&*key).await.unwrap();
        assert!(guard.fence() > fence && has(new, &guard));
        fence = guard.fence();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_from_a_killed_primary() {
    let timeout = Duration::from_millis(1500);
    let cluster = Cluster::builder().replicas().node_timeout(timeout).start().unwrap();
    let (holder, rival) = (client(&cluster), client(&cluster));
    let key = key_on(&cluster, 0);
    let guard = holder.acquire(Request::new(&key).ttl(TTL)).await.unwrap();
    let replica = &cluster.nodes()[3];
    until(LONG, "the replica has the claim", || {
        let keys = replica.command(&["KEYS", "*"]).unwrap();
        keys.texts() == [format!("lockkit:{key}")]
    })
    .await;
    let mut events = holder.core().events();
    cluster.nodes()[0].process().kill().unwrap();
    cluster.wait_for_primary(3).unwrap();
    event(&mut events, "a renewal", renewed).await;
    assert!(guard.is_held() && has(replica, &guard));
    let waiting = wait_for(&rival, &*key);
    guard.release().await.unwrap();
    let next = waiting.await.unwrap();
    assert!(next.fence() > guard.fence() && has(replica, &next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_gone_costs_only_its_own_keys() {
    let cluster = partly_up();
    let lock = lock(&url(&cluster, "op_timeout=500ms"));
    let keys = [0, 1, 2].map(|node| key_on(&cluster, node));
    for key in &keys {
        lock.acquire(&**key).await.unwrap().release().await.unwrap();
    }
    for stop in [false, true] {
        let node = cluster.nodes()[0].process();
        take_down(node, stop);
        let start = Instant::now();
        let wait = Duration::from_millis(1300);
        let gone = tokio::spawn(lock.acquire(Request::new(&keys[0]).timeout(wait)));
        let mut others = 0;
        while !gone.is_finished() {
            for key in &keys[1..] {
                lock.acquire(&**key).await.unwrap().release().await.unwrap();
            }
            // When it is known that the node does not answer.
            others += u32::from(start.elapsed() > Duration::from_millis(700));
        }
        // Hundreds, and a handful if they waited for anything that has to do with that node.
        assert!(others > 30, "the other nodes' keys were served {others} times");
        let gone = gone.await.unwrap().unwrap_err();
        assert!(matches!(gone, Error::NotAcquired(_)), "{gone:?}");
        let took = start.elapsed();
        assert!(took >= wait && took < wait + Duration::from_millis(150), "{took:?}");
        bring_back(node, stop);
        let back = lock.acquire(Request::new(&keys[0]).timeout(LONG)).await.unwrap();
        back.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_without_a_server_is_waited_for() {
    let cluster = partly_up();
    let key = key_on(&cluster, 0);
    let (lock, fresh) = (client(&cluster), client(&cluster));
    lock.acquire(&*key).await.unwrap().release().await.unwrap();
    let slot = slot(&cluster, &key).to_string();
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTS", &slot]).unwrap();
    }
    for lock in [&lock, &fresh] {
        let start = Instant::now();
        let refused = lock.try_acquire(&*key).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
    // Whoever of them is first.
    let waiting = [&lock, &fresh].map(|lock| {
        let acquire = lock.acquire(Request::new(&key).timeout(LONG));
        tokio::spawn(async move {
            acquire.await.unwrap().release().await.unwrap();
        })
    });
    cluster.nodes()[1].command(&["CLUSTER", "ADDSLOTS", &slot]).unwrap();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    let guard = lock.acquire(&*key).await.unwrap();
    assert!(has(&cluster.nodes()[1], &guard));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_tells_what_all_of_them_release() {
    let cluster = partly_up();
    let (holder, waiter) = (client(&cluster), lock(&url(&cluster, RARE_POLLS)));
    let keys = [0, 1, 2].map(|node| key_on(&cluster, node));
    let silent = [0, 1, 2].map(|node| named_on(&cluster, "silent", node));
    for key in &keys {
        let guard = holder.acquire(&**key).await.unwrap();
        let waiting = wait_for(&waiter, &**key);
        until(LONG, "a subscription", || !subscribed(&cluster).is_empty()).await;
        guard.release().await.unwrap();
        within(AT_ONCE, "the hand-over", waiting).await.unwrap().release().await.unwrap();
        until(LONG, "its end", || subscribed(&cluster).is_empty()).await;
    }
    // The one that is listened to ends, or stops.
    for stop in [false, true] {
        let guards =
            [holder.acquire(&*keys[0]).await.unwrap(), holder.acquire(&*keys[1]).await.unwrap()];
        let mut waiting: Vec<_> = keys[..2].iter().map(|k| Some(wait_for(&waiter, &**k))).collect();
        until(LONG, "a subscription", || subscribed(&cluster).len() == 1).await;
        let at = subscribed(&cluster)[0];
        let node = cluster.nodes()[at].process();
        take_down(node, stop);
        // A key of another node.
        let other = usize::from(at == 0);
        if stop {
            // Nobody knows until it does not answer.
            let lost = waiter.try_acquire(Request::new(&silent[at]).op_timeout(SOON));
            assert!(lost.await.is_err());
        }
        let elsewhere = || {
            let nodes = cluster.nodes().iter().enumerate().filter(|(i, _)| *i != at);
            nodes.map(|(_, node)| channels(node)).sum::<usize>() == 2
        };
        until(Duration::from_secs(4), "a subscription elsewhere", elsewhere).await;
        guards[other].release().await.unwrap();
        let handed = waiting[other].take().unwrap();
        within(AT_ONCE, "the hand-over", handed).await.unwrap().release().await.unwrap();
        bring_back(node, stop);
        let rest = waiting.into_iter().flatten().next().unwrap();
        let _ = guards[1 - other].release().await;
        rest.abort();
        until(LONG, "its end", || subscribed(&cluster).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_no_cluster_says_so() {
    let server = Redis::start().unwrap();
    let lock = lock(&format!("redis+cluster://{}", server.address()));
    let error = lock.acquire("k").await.unwrap_err();
    assert!(matches!(error, Error::Configuration(_)), "{error:?}");
    assert!(error.to_string().contains("no cluster"), "{error}");
}
