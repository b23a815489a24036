//! A primary and its replica, watched over by Sentinels, through failovers.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod fleets;

use std::time::{Duration, Instant};

use conformance_tests::servers::{Redis, Sentinels};
use fleets::*;
use lockkit_core::{DistributedLock, Error, Key, LockExt, LossReason, Request};
use lockkit_redis::RedisLock;

fn url(group: &Sentinels, params: &str) -> String {
    format!("redis+sentinel://{}/{}?{params}", group.hosts(), group.name())
}

fn client(group: &Sentinels) -> RedisLock {
    lock(&url(group, ""))
}

/// The primary and its replica.
fn servers(group: &Sentinels) -> (&Redis, &Redis) {
    let primary = group.primary().unwrap();
    let replica = group.servers().iter().find(|server| server.port() != primary.port());
    (primary, replica.unwrap())
}

/// Takes a claim away from a replica, as if it had not been copied yet.
fn forget(replica: &Redis, key: &str) {
    replica.command(&["CONFIG", "SET", "replica-read-only", "no"]).unwrap();
    assert_eq!(replica.command(&["DEL", &format!("lockkit:{key}")]).unwrap().number(), Some(1));
    replica.command(&["CONFIG", "SET", "replica-read-only", "yes"]).unwrap();
}

/// How many scripts a server has run.
fn scripts(server: &Redis) -> i64 {
    let run = |command: &str| {
        let line = server.info(&format!("cmdstat_{command}")).unwrap().unwrap_or_default();
        let count = |name: &str| {
            let field = line.split(',').find_map(|field| field.strip_prefix(name));
            field.and_then(|count| count.parse::<i64>().ok()).unwrap_or(0)
        };
        count("calls=") - count("failed_calls=")
    };
    run("eval") + run("evalsha")
}

/// Has the sentinels replace a primary that does not answer without a vote, which may take them
/// many seconds.
fn hasten(group: &Sentinels) {
    // They may be about to by themselves.
    let _ = group.sentinels()[0].command(&["SENTINEL", "FAILOVER", group.name()]);
}

/// Waits until a client has turned to a server.
async fn turned(client: &RedisLock, server: &Redis) {
    let start = Instant::now();
    loop {
        let guard = client.acquire("turned").await.unwrap();
        let there = has(server, &guard);
        guard.release().await.unwrap();
        if there {
            return;
        }
        assert!(start.elapsed() < Duration::from_millis(1500), "still the old one");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_survives_a_failover_and_fences_grow() {
    let group = Sentinels::start().unwrap();
    let (old, new) = servers(&group);
    let (lock, rival) = (client(&group), client(&group));
    let guard = lock.acquire(Request::new("k").ttl(Duration::from_secs(5))).await.unwrap();
    assert!(has(old, &guard));
    until(LONG, "the replica has the claim", || has(new, &guard)).await;
    group.failover().unwrap();
    assert_eq!(group.primary().unwrap().port(), new.port());
    let mut events = lock.core().events();
    event(&mut events, "a renewal", renewed).await;
    event(&mut events, "another renewal", renewed).await;
    assert!(guard.is_held() && has(new, &guard));
    assert!(rival.try_acquire("k").await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_eq!(claim(new, "k"), None);
    let next = rival.acquire("k").await.unwrap();
    assert!(next.fence() > guard.fence() && has(new, &next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_not_copied_is_told_lost_and_not_made_again() {
    let group = Sentinels::start().unwrap();
    let (_, new) = servers(&group);
    let (lock, rival) = (client(&group), client(&group));
    let ttl = Duration::from_secs(6);
    let guard = lock.acquire(Request::new("k").ttl(ttl)).await.unwrap();
    // When the fence is written, nothing that is yet to come would make the key again.
    let noted = || claim(new, "k").is_some_and(|value| value.contains(":f:"));
    until(LONG, "the replica has the claim with its fence", noted).await;
    forget(new, "k");
    group.begin_failover().unwrap();
    let switched = || group.primary().is_ok_and(|primary| primary.port() == new.port());
    until(LONG, "another primary", switched).await;
    let start = Instant::now();
    let lost = within(LONG, "the loss", guard.lost()).await;
    assert!(matches!(lost.reason, LossReason::Gone), "{lost}");
    assert!(start.elapsed() < ttl / 3 + Duration::from_millis(500), "{:?}", start.elapsed());
    assert_eq!(claim(new, "k"), None);
    let next = rival.try_acquire("k").await.unwrap().unwrap();
    assert!(next.fence() > guard.fence());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(has(new, &next));
}

/// The old primary takes writes for about ten seconds, and loses them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_turns_away_from_the_old_primary_while_that_still_works() {
    let group = Sentinels::builder().unhurried().start().unwrap();
    let (old, new) = servers(&group);
    let (lock, idle) = (client(&group), client(&group));
    lock.acquire("k").await.unwrap().release().await.unwrap();
    idle.acquire("k").await.unwrap().release().await.unwrap();
    // As a client that has been unused for long: nobody watches for it.
    idle.disconnect().await;
    group.begin_failover().unwrap();
    turned(&lock, new).await;
    let guard = idle.acquire("i").await.unwrap();
    assert!(has(new, &guard), "its very first claim stands at the new one");
    assert_eq!(old.role().unwrap(), "master", "the old one worked all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_in_after_a_failover_and_is_woken_from_then_on() {
    // The old primary keeps the subscription open, and tells nothing any more.
    let group = Sentinels::builder().unhurried().start().unwrap();
    let (old, new) = servers(&group);
    let holder = client(&group);
    let waiter = lock(&url(&group, RARE_POLLS));
    let guard = holder.acquire("k").await.unwrap();
    until(LONG, "the replica has the claim", || has(new, &guard)).await;
    let waiting = wait_for(&waiter, "k");
    until(LONG, "a subscription", || channels(old) == 1).await;
    group.begin_failover().unwrap();
    // Left to itself, it would stay for about ten seconds.
    let moved = || channels(new) == 1 && channels(old) == 0;
    until(Duration::from_secs(4), "a subscription at the new primary only", moved).await;
    turned(&holder, new).await;
    guard.release().await.unwrap();
    let guard = within(AT_ONCE, "the hand-over", waiting).await.unwrap();
    assert!(has(new, &guard));
    until(LONG, "the end of that subscription", || channels(new) == 0).await;
    let other = lock(&url(&group, RARE_POLLS));
    let waiting = wait_for(&other, "k");
    until(LONG, "a subscription of the next waiter", || channels(new) == 1).await;
    guard.release().await.unwrap();
    let guard = within(AT_ONCE, "the next hand-over", waiting).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_meets_a_killed_primary_reaches_the_new_one() {
    let group = Sentinels::start().unwrap();
    let (_, new) = servers(&group);
    let (lock, rival) = (client(&group), client(&group));
    let guard = lock.acquire(Request::new("k").ttl(10 * TTL)).await.unwrap();
    let start = Instant::now();
    until(LONG, "the replica has the claim", || has(new, &guard)).await;
    let killed = group.kill_primary().unwrap();
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Unavailable(_))), "{released:?}");
    hasten(&group);
    group.wait_for_other_primary(killed.port()).unwrap();
    let next = rival.acquire("k").await.unwrap();
    assert!(has(new, &next) && next.fence() > guard.fence());
    assert!(start.elapsed() < 9 * TTL, "it is free because its time is over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_costs_neither_holders_nor_waiters_anything() {
    let group = Sentinels::start().unwrap();
    let (old, new) = servers(&group);
    let (holder, waiter) = (client(&group), lock(&url(&group, RARE_POLLS)));
    let guard = holder.acquire(Request::new("k").ttl(TTL)).await.unwrap();
    let noted = || claim(new, "k").is_some_and(|value| value.contains(":f:"));
    until(LONG, "the replica has the claim with its fence", noted).await;
    let before = scripts(old);
    let waiting = wait_for(&waiter, "k");
    // If the last question is not answered, the next one comes a whole poll later.
    until(LONG, "a waiter that rests", || channels(old) == 1 && scripts(old) > before).await;
    let mut events = holder.core().events();
    group.kill_primary().unwrap();
    hasten(&group);
    until(LONG, "a subscription at the new primary", || {
        new.role().is_ok_and(|role| role == "master") && channels(new) == 1
    })
    .await;
    event(&mut events, "a renewal", renewed).await;
    assert!(guard.is_held() && !waiting.is_finished());
    guard.release().await.unwrap();
    let next = within(AT_ONCE, "the hand-over", waiting).await.unwrap();
    assert!(has(new, &next) && next.fence() > guard.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stopped_primary_does_later_counts_for_nothing() {
    let group = Sentinels::start().unwrap();
    let (old, new) = servers(&group);
    let lock = lock(&url(&group, "op_timeout=400ms&ttl=24s"));
    let rival = client(&group);
    let guard = lock.acquire("held").await.unwrap();
    until(LONG, "the replica has the claim", || has(new, &guard)).await;
    old.process().stop().unwrap();
    // It is in the old primary's socket, and will be done.
    let late = lock.try_acquire("late").await;
    assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
    hasten(&group);
    within(LONG, "the failover", async {
        while rival.try_acquire("other").await.ok().flatten().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut events = lock.core().events();
    event(&mut events, "a renewal at the new primary", renewed).await;
    let others = rival.try_acquire("late").await.unwrap().expect("nobody has it");
    old.process().resume().unwrap();
    assert!(has(new, &others) && has(new, &guard) && guard.is_held());
    for _ in 0..50 {
        assert!(lock.try_acquire("late").await.unwrap().is_none());
        assert!(lock.try_acquire("held").await.unwrap().is_none());
    }
    guard.release().await.unwrap();
    assert_eq!(claim(new, "held"), None);
    others.release().await.unwrap();
    group.wait_until_settled().unwrap();
    assert_eq!((claim(old, "held"), claim(old, "late")), (None, None));
    lock.acquire("late").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_a_primary_that_was_replaced_meanwhile_is_none() {
    let group = Sentinels::start().unwrap();
    let (old, new) = servers(&group);
    let lock = lock(&url(&group, "op_timeout=30s&ttl=120s"));
    let rival = client(&group);
    lock.acquire("k").await.unwrap().release().await.unwrap();
    old.process().stop().unwrap();
    let late = wait_for(&lock, "k");
    hasten(&group);
    // Another key's request goes to the new primary: this client knows it.
    let known = Request::new("other").op_timeout(Duration::from_secs(1));
    lock.acquire(known.timeout(LONG)).await.unwrap().release().await.unwrap();
    let guard = rival.acquire("k").await.unwrap();
    assert!(has(new, &guard));
    old.process().resume().unwrap();
    // The old one has done it, and has said so.
    until(LONG, "a replica", || old.role().is_ok_and(|role| role == "slave")).await;
    assert!(!late.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    let late = within(LONG, "a grant of the new one", late).await.unwrap();
    assert!(has(new, &late) && late.fence() > guard.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_clients_go_on_after_a_failover() {
    // The servers have a password, and the sentinels have none.
    let server = Redis::builder().password("secret");
    let group = Sentinels::builder().server(server).start().unwrap();
    let (_, new) = servers(&group);
    let url = format!("redis+sentinel://:secret@{}/{}", group.hosts(), group.name());
    let clients = [lock(&url), lock(&url)];
    let guard = clients[0].acquire("k").await.unwrap();
    until(LONG, "the replica has the claim", || has(new, &guard)).await;
    group.failover().unwrap();
    guard.release().await.unwrap();
    let mut fence = guard.fence();
    for round in 0..50 {
        let guard = clients[round % 2].acquire("k").await.unwrap();
        assert!(guard.fence() > fence && has(new, &guard));
        fence = guard.fence();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_sentinel_will_do_and_in_the_end_none() {
    let group = Sentinels::builder().down_after(Duration::from_secs(30)).start().unwrap();
    let [first, second, third] = group.sentinels() else { panic!("not three") };
    first.process().stop().unwrap();
    second.process().kill().unwrap();
    let lock = client(&group);
    let start = Instant::now();
    lock.acquire("k").await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    third.process().stop().unwrap();
    lock.acquire("k").await.unwrap().release().await.unwrap();
    // Nobody watches any more, and nobody can be asked.
    lock.disconnect().await;
    let start = Instant::now();
    lock.acquire("k").await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let stranger = client(&group).acquire(Request::new("k").timeout(Duration::from_millis(300)));
    let start = Instant::now();
    assert!(matches!(stranger.await, Err(Error::NotAcquired(_) | Error::Unavailable(_))));
    assert!(start.elapsed() < Duration::from_millis(450), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_says_it_is_a_replica_is_not_used() {
    let group = Sentinels::builder().unhurried().start().unwrap();
    let (primary, replica) = servers(&group);
    let lock = client(&group);
    lock.acquire("k").await.unwrap().release().await.unwrap();
    // Behind the Sentinels' back; they go on naming it for a while.
    primary.command(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]).unwrap();
    let refused = lock.try_acquire("k").await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
    assert!(refused.to_string().contains("replica"), "{refused}");
    // What only reads would find a replica's answer, which may be old.
    for client in [&lock, &client(&group)] {
        let refused = client.inspect(&Key::new("k").unwrap()).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
        assert!(refused.to_string().contains("says that it is a replica"), "{refused}");
    }
    primary.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    lock.acquire("k").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_said_at_once() {
    let group = Sentinels::builder().down_after(Duration::from_secs(30)).start().unwrap();
    let unknown = lock(&format!("redis+sentinel://{}/orders", group.hosts()));
    let error = unknown.acquire("k").await.unwrap_err();
    assert!(matches!(error, Error::Configuration(_)), "{error:?}");
    assert!(error.to_string().contains("no primary named `orders`"), "{error}");
    let server = group.primary().unwrap().address();
    let error = lock(&format!("redis+sentinel://{server}/mymaster")).ping().await.unwrap_err();
    assert!(matches!(error, Error::Configuration(_)), "{error:?}");
    assert!(error.to_string().contains("is no sentinel"), "{error}");
    client(&group).ping().await.unwrap();
}
