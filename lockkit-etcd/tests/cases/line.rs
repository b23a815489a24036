//! Places in the queue that are lost, made twice, or somebody else's.

use std::time::{Duration, Instant};

use conformance_tests::servers::{Etcd, Framing, Proxy, Toward};
use lockkit_core::{DistributedLock, Key, LockExt, Mode, Request, Which};

use crate::clients::*;
use crate::{AT_ONCE, KEY, RARE_POLLS, in_line, patient};

/// How a waiter's place is taken away.
#[derive(Debug, Clone, Copy)]
enum Taken {
    LeaseRevoked,
    KeyDeleted,
}

async fn a_waiter_without_its_place_is_not_let_in(taken: Taken) {
    let server = Etcd::start().unwrap();
    let [holder, waiter, behind] = [(); 3].map(|()| client(&[server.address()], "ttl=6s"));
    let held = grant(&holder, KEY).await;
    let mut second = tokio::spawn(waiter.acquire(patient(KEY)));
    in_line(&server, 2).await;
    let third = tokio::spawn(behind.acquire(patient(KEY)));
    in_line(&server, 3).await;
    let place = server.keys(PREFIX).unwrap().remove(1);
    match taken {
        Taken::LeaseRevoked => server.revoke(place.lease).unwrap(),
        Taken::KeyDeleted => assert!(server.delete(&place.key).unwrap()),
    }
    held.release().await.unwrap();
    let third = third.await.unwrap().unwrap();
    // It finds its place at the end, behind the one who was behind it.
    in_line(&server, 2).await;
    let early = tokio::time::timeout(Duration::from_secs(1), &mut second).await;
    assert!(early.is_err(), "{taken:?}: let in beside another one");
    assert!(third.is_held());
    third.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.fence() > third.fence(), "{taken:?}");
    second.release().await.unwrap();
}

/// ETC-01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_lease_was_revoked_is_not_let_in() {
    a_waiter_without_its_place_is_not_let_in(Taken::LeaseRevoked).await;
}

/// GEN-32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_key_was_deleted_is_not_let_in() {
    a_waiter_without_its_place_is_not_let_in(Taken::KeyDeleted).await;
}

/// ETC-20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_that_end_leave_neither_keys_nor_leases() {
    let server = Etcd::start().unwrap();
    let [holder, waiter] = [(); 2].map(|()| client(&[server.address()], "ttl=30s"));
    let held = grant(&holder, KEY).await;
    let only = server.leases().unwrap();
    let brief = || Request::new(KEY).timeout(Duration::from_millis(200));
    for _ in 0..10 {
        let waits: Vec<_> = (0..50).map(|_| tokio::spawn(waiter.acquire(brief()))).collect();
        for wait in waits {
            assert!(wait.await.unwrap().unwrap_err().is_not_acquired());
        }
    }
    assert!(server.leases().unwrap().len() <= 2, "500 waits of one client share a lease");
    // Before the lease goes, which would take them with it.
    let places = || server.keys("").unwrap().len() == 1;
    eventually(AT_ONCE, "no place is left", places).await;
    assert!(waiter.close(AT_ONCE * 5).await);
    let left = || server.leases().unwrap() == only;
    eventually(AT_ONCE, "only the holder's is left", left).await;
    held.release().await.unwrap();
}

/// ETC-23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_again_knows_its_own_place() {
    let server = Etcd::start().unwrap();
    let slow = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let lock = client(&[slow.address(), server.address()], "ttl=12s&op_timeout=2s");
    let other = client(&[server.address()], "ttl=12s");
    // So that a connection and a lease are there.
    grant(&lock, "warm").await.release().await.unwrap();
    slow.hold(Toward::Client);
    let first = tokio::spawn(lock.acquire(patient(KEY)));
    in_line(&server, 1).await;
    let second = tokio::spawn(other.acquire(patient(KEY)));
    in_line(&server, 2).await;
    let first = first.await.unwrap().unwrap();
    let keys = server.keys(format!("{PREFIX}{KEY}/")).unwrap();
    assert_eq!(keys.len(), 2, "one place for each");
    assert_eq!(first.fence(), u64::try_from(keys[0].created).ok(), "the place of the first try");
    assert!(!second.is_finished());
    first.release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
}

/// ETC-23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_a_holder_wakes_the_waiter() {
    let server = Etcd::start().unwrap();
    let waiter = client(&[server.address()], RARE_POLLS);
    for way in ["released", "deleted", "revoked", "expired", "forced"] {
        let lease =
            server.grant(Duration::from_secs(if way == "expired" { 2 } else { 60 })).unwrap();
        let key = format!("{PREFIX}{KEY}/{lease:x}");
        let holder = client(&[server.address()], "ttl=30s");
        let held = if way == "released" { Some(grant(&holder, KEY).await) } else { None };
        if held.is_none() {
            server.put(&key, "", lease).unwrap();
        }
        let waiting = tokio::spawn(waiter.acquire(patient(KEY)));
        server.wait_until_watchers(1, AT_ONCE).unwrap();
        match (way, held) {
            (_, Some(guard)) => guard.release().await.unwrap(),
            ("deleted", _) => assert!(server.delete(&key).unwrap()),
            ("revoked", _) => server.revoke(lease).unwrap(),
            ("forced", _) => {
                assert!(
                    holder.force_release(&Key::new(KEY).unwrap(), Which::Whoever).await.unwrap()
                );
            }
            _ => {}
        }
        let within = Duration::from_secs(10);
        let woken = tokio::time::timeout(within, waiting).await;
        let guard = woken.unwrap_or_else(|_| panic!("{way}, and the waiter slept on"));
        guard.unwrap().unwrap().release().await.unwrap();
    }
}

/// ZK-22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_without_a_lease_is_told_and_holds_nobody_up_for_ever() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=6s");
    // Beside the lock, and not in its way.
    for beside in [KEY.to_owned(), format!("{KEY}-config"), format!("{KEY}0/1")] {
        server.put(format!("{PREFIX}{beside}"), "config", 0).unwrap();
    }
    grant(&lock, KEY).await.release().await.unwrap();
    server.put(format!("{PREFIX}{KEY}/1"), "config", 0).unwrap();
    let (start, limit) = (Instant::now(), Duration::from_millis(500));
    let error = lock.acquire(Request::new(KEY).timeout(limit)).await.unwrap_err();
    assert!(error.is_not_acquired(), "{error}");
    assert!(start.elapsed() < limit + AT_ONCE, "{:?}", start.elapsed());
    let key = Key::new(KEY).unwrap();
    let seen = lock.inspect(&key).await.unwrap().unwrap();
    assert_eq!((seen.mode, seen.token), (Mode::Exclusive, None), "nobody's of this library");
    assert!(lock.force_release(&key, Which::Whoever).await.unwrap());
    grant(&lock, KEY).await.release().await.unwrap();
}
