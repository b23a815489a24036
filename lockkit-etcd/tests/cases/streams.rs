//! Streams that end, fall silent, or were never opened again; and what many claims need of them.

use std::time::{Duration, Instant};

use conformance_tests::servers::{Cut, Data, Etcd, Framing, Proxy, Toward};
use lockkit_core::{BootInstant, LockExt, Request};

use crate::clients::*;
use crate::{AT_ONCE, KEY, RARE_POLLS, in_line, patient};

/// ETC-04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_is_told_before_the_next_one_enters() {
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let (cut_off, other) = (client(&[proxy.address()], "ttl=3s"), client(&[server.address()], ""));
    let held = std::sync::Arc::new(grant(&cut_off, KEY).await);
    let told = tokio::spawn({
        let held = std::sync::Arc::clone(&held);
        async move {
            held.lost().await;
            BootInstant::now()
        }
    });
    proxy.swallow(Toward::Both);
    let next = grant(&other, patient(KEY)).await;
    let entered = BootInstant::now();
    assert!(!held.is_held(), "two hold it");
    let told = told.await.unwrap();
    assert!(told <= entered, "told {:?} too late", told.since(entered));
    assert!(next.fence() > held.fence(), "the store cannot tell the late writer");
    next.release().await.unwrap();
}

/// ETC-07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_extends_is_opened_again_each_time_it_ends() {
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let lock = client(&[proxy.address()], "ttl=3s");
    let guard = grant(&lock, KEY).await;
    for round in 0..4 {
        let deadline = guard.deadline().unwrap();
        let renewed = || guard.deadline().is_some_and(|now| now > deadline);
        eventually(Duration::from_secs(3), "it is renewed", renewed).await;
        assert!(proxy.cut(Cut::Reset) > 0);
        grant(&lock, patient(&format!("after{round}"))).await.release().await.unwrap();
    }
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
}

/// ETC-10: also where the lease was never extended before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_the_server_does_not_know_is_replaced() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=6s");
    for _ in 0..3 {
        grant(&lock, "warm").await.release().await.unwrap();
        let [lease] = server.leases().unwrap()[..] else { panic!("one lease") };
        server.revoke(lease).unwrap();
        let guard = grant(&lock, KEY).await;
        let now = server.keys(format!("{PREFIX}{KEY}/")).unwrap().remove(0).lease;
        assert!(now != lease && server.leases().unwrap() == [now]);
        guard.release().await.unwrap();
    }
    // And a holder is not told that this one was extended.
    let guard = grant(&lock, KEY).await;
    server.revoke(server.leases().unwrap()[0]).unwrap();
    tokio::time::timeout(Duration::from_secs(4), guard.lost()).await.unwrap();
}

/// ETC-13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_finds_out_what_it_missed_while_the_server_was_dead() {
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let lock = client(&[proxy.address()], RARE_POLLS);
    let lease = server.grant(Duration::from_secs(60)).unwrap();
    server.put(format!("{PREFIX}{KEY}/foreign"), "", lease).unwrap();
    let waiter = tokio::spawn(lock.acquire(patient(KEY)));
    server.wait_until_watchers(1, AT_ONCE).unwrap();
    proxy.refuse();
    server.process().restart(Data::Kept).unwrap();
    server.revoke(lease).unwrap();
    proxy.accept().unwrap();
    let start = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < AT_ONCE * 5, "it waited for a poll: {:?}", start.elapsed());
}

/// ETC-14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_keep_their_order_over_a_restart() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], RARE_POLLS);
    let held = grant(&lock, KEY).await;
    let mut waiters = Vec::new();
    for ahead in 1..=10 {
        waiters.push(tokio::spawn(lock.acquire(patient(KEY))));
        in_line(&server, ahead + 1).await;
    }
    server.wait_until_watchers(10, AT_ONCE).unwrap();
    server.process().restart(Data::Kept).unwrap();
    let (start, mut last) = (Instant::now(), held.fence());
    held.release().await.unwrap();
    for waiter in waiters {
        let guard = waiter.await.unwrap().unwrap();
        assert!(guard.fence() > last, "out of turn");
        last = guard.fence();
        guard.release().await.unwrap();
    }
    assert!(start.elapsed() < AT_ONCE * 5, "somebody waited for a poll: {:?}", start.elapsed());
}

/// ETC-19: two TTLs, so that each claim must have been renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_claims_need_one_lease_and_one_connection() {
    const CLAIMS: usize = 2_000;
    let ttl = Duration::from_secs(20);
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let lock = client(&[proxy.address()], "");
    let claim = |n| lock.acquire(Request::new(format!("a{n}")).ttl(ttl).timeout(ttl));
    let claims: Vec<_> = (0..CLAIMS).map(|n| tokio::spawn(claim(n))).collect();
    let mut guards = Vec::new();
    for claim in claims {
        guards.push(claim.await.unwrap().unwrap());
    }
    assert_eq!(server.leases().unwrap().len(), 1);
    assert_eq!(proxy.total(), 1, "connections");
    let end = BootInstant::now() + ttl * 2;
    let renewed = || guards.iter().all(|guard| guard.deadline().is_some_and(|at| at > end));
    eventually(ttl * 3, "all of them live two TTLs later", renewed).await;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!((lost, proxy.total()), (0, 1), "claims lost, and connections");
    assert!(lock.close(ttl).await);
}
