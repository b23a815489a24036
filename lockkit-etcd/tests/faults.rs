//! What servers, networks and people do to locks, and what each step costs.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod clients;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clients::*;
use conformance_tests::servers::{Cut, Data, Etcd, Framing, Proxy, Toward};
use lockkit_core::{DistributedLock, Error, LockExt, LossReason, Request};
use lockkit_etcd::EtcdLock;

/// How long what happens at once may take.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Polls so rare that whoever is in at once did not wait for one.
const RARE_POLLS: &str = "ttl=9s&poll_min=8s&poll_max=8s";

const KEY: &str = "order:lock:1001";

fn patient(key: &str) -> Request {
    Request::new(key).timeout(Duration::from_secs(20))
}

fn cost(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let more = after.iter().map(|(method, count)| {
        (method.clone(), count - before.get(method).copied().unwrap_or_default())
    });
    more.filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_to_acquire_and_one_to_release() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=30s");
    grant(&lock, "warm").await.release().await.unwrap();
    let before = server.messages_by_method().unwrap();
    for n in 0..10 {
        grant(&lock, format!("a{n}")).await.release().await.unwrap();
    }
    for n in 0..10 {
        let held = grant(&lock, Request::new(format!("b{n}")).shared()).await;
        grant(&lock, Request::new(format!("b{n}")).shared()).await.release().await.unwrap();
        held.release().await.unwrap();
    }
    let cost = cost(&before, &server.messages_by_method().unwrap());
    let expected = [("DeleteRange".to_owned(), 30), ("Txn".to_owned(), 30)];
    assert_eq!(cost, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_share_a_lease_and_waiters_a_stream() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], RARE_POLLS);
    let mut held = Vec::new();
    for n in 0..50 {
        held.push(grant(&lock, format!("a{n}")).await);
    }
    assert_eq!(server.leases().unwrap().len(), 1);
    let first = grant(&lock, KEY).await;
    let pass_on = || {
        let acquire = lock.acquire(patient(KEY));
        async move { acquire.await.unwrap().release().await.unwrap() }
    };
    let waiters: Vec<_> = (0..5).map(|_| tokio::spawn(pass_on())).collect();
    server.wait_until_watchers(5, AT_ONCE).unwrap();
    assert_eq!(server.messages_by_method().unwrap()["Watch"], 5, "one for each waiter");
    let start = Instant::now();
    first.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert!(start.elapsed() < AT_ONCE, "somebody waited for a poll: {:?}", start.elapsed());
    drop(held);
    assert!(lock.close(AT_ONCE).await);
    empty(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_wake_the_next_in_line_alone() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], RARE_POLLS);
    let two = std::num::NonZeroU32::new(2).unwrap();
    let permit = || patient(KEY).permit(two);
    let (one, other) = (grant(&lock, permit()).await, grant(&lock, permit()).await);
    let mut waiters = Vec::new();
    for waiting in 1..=4 {
        waiters.push(tokio::spawn(lock.acquire(permit())));
        server.wait_until_watchers(waiting, AT_ONCE).unwrap();
    }
    let before = server.messages("Txn").unwrap();
    // The younger of the holders goes first: the queue's order is another thing than theirs.
    other.release().await.unwrap();
    let third = waiters.remove(0).await.unwrap().unwrap();
    assert_eq!(server.messages("Txn").unwrap() - before, 1, "only the next one asked");
    one.release().await.unwrap();
    let fourth = waiters.remove(0).await.unwrap().unwrap();
    assert!(third.fence() < fourth.fence());
    for guard in [third, fourth] {
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_deleted_by_hand_is_told() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=3s");
    let (guard, other) = (grant(&lock, KEY).await, grant(&lock, "other").await);
    let key = server.keys(format!("{PREFIX}{KEY}/")).unwrap().remove(0).key;
    assert!(server.delete(key).unwrap());
    let lost = tokio::time::timeout(Duration::from_millis(1500), guard.lost()).await.unwrap();
    assert!(matches!(lost.reason, LossReason::Gone), "{lost}");
    assert!(other.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_lease_takes_its_claims_and_no_others() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=3s");
    let guard = grant(&lock, KEY).await;
    let [lease] = server.leases().unwrap()[..] else { panic!("one lease") };
    let long = grant(&lock, Request::new("long").ttl(Duration::from_secs(60))).await;
    // One who waits is on the same lease, for another key.
    let blocker = grant(&lock, Request::new("busy").ttl(Duration::from_secs(60))).await;
    let waiter = tokio::spawn(lock.acquire(patient("busy")));
    eventually(AT_ONCE, "two on it", || server.lease(lease).unwrap().unwrap().keys.len() == 2)
        .await;
    server.revoke(lease).unwrap();
    let lost = tokio::time::timeout(Duration::from_millis(1500), guard.lost()).await.unwrap();
    assert!(matches!(lost.reason, LossReason::SessionEnded { .. } | LossReason::Gone), "{lost}");
    assert!(long.is_held() && blocker.is_held());
    grant(&lock, KEY).await.release().await.unwrap();
    // It has queued again, on another lease.
    let again = || server.keys(format!("{PREFIX}busy/")).unwrap().len() == 2;
    eventually(AT_ONCE, "the waiter is in line again", again).await;
    blocker.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_waiters_outlive_a_restart_of_the_server() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=6s");
    let guard = grant(&lock, KEY).await;
    let fence = guard.fence();
    let waiter = tokio::spawn(lock.acquire(patient(KEY)));
    server.wait_until_watchers(1, AT_ONCE).unwrap();
    server.process().restart(Data::Kept).unwrap();
    let held = grant(&lock, patient("another")).await;
    assert!(guard.is_held() && guard.fence() == fence);
    server.wait_until_watchers(1, AT_ONCE * 3).unwrap();
    guard.release().await.unwrap();
    let start = Instant::now();
    let next = waiter.await.unwrap().unwrap();
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert!(next.fence() > fence);
    next.release().await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_compaction_and_a_cut_connection() {
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let lock = client(&[proxy.address()], RARE_POLLS);
    let holder = client(&[server.address()], "ttl=9s");
    let guard = grant(&holder, KEY).await;
    let waiter = tokio::spawn(lock.acquire(patient(KEY)));
    server.wait_until_watchers(1, AT_ONCE).unwrap();
    proxy.refuse();
    assert!(proxy.cut(Cut::Reset) > 0);
    server.wait_until_watchers(0, AT_ONCE).unwrap();
    // What it has missed is not there any more when it comes back.
    grant(&holder, "other").await.release().await.unwrap();
    server.compact().unwrap();
    guard.release().await.unwrap();
    server.compact().unwrap();
    let start = Instant::now();
    proxy.accept().unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < AT_ONCE * 3, "it waited for a poll: {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_left_for_the_next() {
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let lock = client(&[proxy.address(), server.address()], "ttl=3s");
    let guard = grant(&lock, KEY).await;
    let waiter = tokio::spawn(lock.acquire(patient(KEY)));
    server.wait_until_watchers(1, AT_ONCE).unwrap();
    proxy.swallow(Toward::Both);
    for n in 0..20 {
        grant(&lock, format!("a{n}")).await.release().await.unwrap();
    }
    // Two of its lives: it is renewed over the other way.
    let early = tokio::time::timeout(Duration::from_secs(6), guard.lost()).await;
    assert!(early.is_err(), "{early:?}");
    let start = Instant::now();
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_server_the_loss_comes_in_time_and_calls_are_bounded() {
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let lock = client(&[proxy.address()], "ttl=3s");
    let guard = grant(&lock, KEY).await;
    let deadline = guard.deadline().unwrap();
    proxy.swallow(Toward::Both);
    let start = Instant::now();
    let limit = Duration::from_millis(700);
    let error = lock.acquire(Request::new("b").timeout(limit)).await.unwrap_err();
    assert!(start.elapsed() < limit + AT_ONCE / 2, "{:?}", start.elapsed());
    assert_eq!(error.reason(), "unavailable", "{error}");
    let lost = guard.lost().await;
    assert!(matches!(lost.reason, LossReason::Expired { .. }), "{lost}");
    assert!(lockkit_core::BootInstant::now() < deadline + AT_ONCE / 2);
    let key = format!("{PREFIX}{KEY}/");
    assert_eq!(server.keys(&key).unwrap().len(), 1, "told before anybody else could get in");
    proxy.pass(Toward::Both);
    proxy.cut(Cut::Reset);
    grant(&lock, patient(KEY)).await.release().await.unwrap();
    assert!(lock.close(AT_ONCE * 5).await);
    empty(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_dropped_or_closed_leaves_no_lease() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=60s");
    grant(&lock, KEY).await.release().await.unwrap();
    assert_eq!(server.leases().unwrap().len(), 1);
    drop(lock);
    empty(&server).await;
    let lock = client(&[server.address()], "ttl=60s");
    let guard = grant(&lock, KEY).await;
    assert!(lock.close(AT_ONCE).await);
    assert!(guard.is_held());
    assert_eq!(server.leases().unwrap().len(), 1, "a guard that lives keeps it");
    assert!(matches!(lock.acquire("b").await, Err(Error::Configuration(_))));
    guard.release().await.unwrap();
    empty(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_application_serves_too() {
    let server = Etcd::start().unwrap();
    let own = etcd_client::Client::connect([server.address().to_string()], None).await.unwrap();
    let mut options = lockkit_etcd::EtcdOptions::default();
    options.prefix = PREFIX.to_owned();
    let lock = EtcdLock::from_client(own, lockkit_core::Settings::default(), options).unwrap();
    lock.ping().await.unwrap();
    let guard = grant(&lock, KEY).await;
    let other = client(&[server.address()], "");
    assert!(other.try_acquire(KEY).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(lock.close(AT_ONCE).await && other.close(AT_ONCE).await);
    empty(&server).await;
}
