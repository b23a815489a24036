//! Any future can be dropped after any of its polls, and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::testing::{Fault, Op};
use lockkit_core::{LockExt, Mode, Stage};

use crate::bed::{Client, Test};
use crate::case::{clause, rival};
use crate::check::{eventually, grant, release, within};
use crate::polls::{Stopped, poll_times};

clause! { "cancel";
    acquire_of_a_free_key(modes);
    acquire_of_a_held_key(modes);
    wait_that_is_about_to_end(modes);
    request_under_way(modes);
    answer_under_way(modes);
    release_at_each_poll(modes);
    release_under_way;
    try_at_each_poll;
    waiter_does_not_block_its_successor;
    waiter_dropped_at_the_grant heavy;
    select_in_a_loop;
    random_cancellations_then_a_normal_acquire heavy;
    drop_of_the_client_while_waiting;
}

/// Longer than any future here can be polled without being stuck.
const MOST_POLLS: usize = 200;

/// How long bounded clean-up may take while the store answers; the TTL is far longer.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// The key is free for `client` long before any TTL could free it, and nobody waits.
async fn no_residue(t: &Test, client: &Client, key: &str, mode: Mode, why: &str) {
    let next = client.acquire(t.request_in(key, rival(mode)).ttl(t.long_ttl()));
    release(&within(CLEAN_UP, why, next).await.expect("a grant")).await;
}

async fn quiet(client: &Client, why: &str) {
    let core = client.core().clone();
    eventually(CLEAN_UP, why, || core.waiting() == 0 && core.cleaning_up() == 0).await;
}

async fn acquire_of_a_free_key(t: Test, mode: Mode) {
    let (a, b) = (t.client().await, t.client().await);
    for polls in 0..MOST_POLLS {
        let key = t.key("a");
        let acquire = a.acquire(t.request_in(&key, mode).ttl(t.long_ttl()));
        let done = poll_times(acquire, polls).await.cancel().is_some();
        let why = format!("an acquire dropped after {polls} polls leaves a claim");
        no_residue(&t, &b, &key, mode, &why).await;
        quiet(&a, &why).await;
        if done {
            return;
        }
    }
    panic!("not granted within {MOST_POLLS} polls");
}

async fn acquire_of_a_held_key(t: Test, mode: Mode) {
    let (a, b) = (t.client().await, t.client().await);
    for polls in 0..MOST_POLLS {
        let key = t.key("a");
        let guard = grant(&*b, t.request_in(&key, rival(mode)).ttl(t.long_ttl())).await;
        let request = t.request_in(&key, mode).ttl(t.long_ttl());
        let acquire = a.acquire(request.timeout(Duration::from_millis(150)));
        let done = poll_times(acquire, polls).await.cancel().is_some();
        let why = format!("a wait dropped after {polls} polls");
        quiet(&a, &why).await;
        release(&guard).await;
        no_residue(&t, &b, &key, mode, &why).await;
        if done {
            return;
        }
    }
    panic!("not over within {MOST_POLLS} polls");
}

/// The holder releases while the waiter is stopped, so that some stops meet the grant.
async fn wait_that_is_about_to_end(t: Test, mode: Mode) {
    let (a, b) = (t.client().await, t.client().await);
    for polls in 1..MOST_POLLS {
        let key = t.key("a");
        let guard = grant(&*b, t.request_in(&key, rival(mode)).ttl(t.long_ttl())).await;
        let acquire = a.acquire(t.request_in(&key, mode).ttl(t.long_ttl()));
        let stopped = poll_times(acquire, polls);
        let let_go = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            release(&guard).await;
        };
        let (stopped, ()) = tokio::join!(stopped, let_go);
        let done = stopped.cancel().is_some();
        let why = format!("a wait dropped after {polls} polls, about when it was granted");
        no_residue(&t, &b, &key, mode, &why).await;
        quiet(&a, &why).await;
        if done {
            return;
        }
    }
    panic!("not granted within {MOST_POLLS} polls");
}

async fn dropped_within(t: &Test, mode: Mode, fault: Fault) {
    let (a, b) = (t.faulty().await, t.client().await);
    for polls in 1..4 {
        let key = t.key("a");
        a.next(Op::Attempt(Stage::First), fault.clone());
        let acquire = a.acquire(t.request_in(&key, mode).ttl(t.long_ttl()));
        let stopped = poll_times(acquire, polls).await.cancel();
        drop(stopped);
        let why = format!("an acquire dropped after {polls} polls with {fault:?}");
        let core = lockkit_core::DistributedLock::core(&*a).clone();
        eventually(CLEAN_UP, &why, || core.waiting() == 0 && core.cleaning_up() == 0).await;
        no_residue(t, &b, &key, mode, &why).await;
    }
}

async fn request_under_way(t: Test, mode: Mode) {
    dropped_within(&t, mode, Fault::Delay(Duration::from_millis(80))).await;
}

async fn answer_under_way(t: Test, mode: Mode) {
    dropped_within(&t, mode, Fault::DelayAnswer(Duration::from_millis(80))).await;
}

async fn release_at_each_poll(t: Test, mode: Mode) {
    let (a, b) = (t.client().await, t.client().await);
    for polls in 1..MOST_POLLS {
        let key = t.key("a");
        let guard = grant(&*a, t.request_in(&key, mode).ttl(t.long_ttl())).await;
        let stopped = poll_times(guard.release(), polls).await;
        let done = stopped.cancel().is_some();
        assert!(!guard.is_held(), "held although its release began");
        let why = format!("a release dropped after {polls} polls goes on");
        no_residue(&t, &b, &key, mode, &why).await;
        guard.release().await.expect("a second release");
        quiet(&a, &why).await;
        if done {
            return;
        }
    }
    panic!("not released within {MOST_POLLS} polls");
}

async fn release_under_way(t: Test) {
    let (a, b) = (t.faulty().await, t.client().await);
    for fault in [Fault::Delay, Fault::DelayAnswer] {
        let key = t.key("a");
        let guard = grant(&*a, t.request(&key).ttl(t.long_ttl())).await;
        a.next(Op::Release, fault(Duration::from_millis(80)));
        assert!(poll_times(guard.release(), 1).await.cancel().is_none());
        no_residue(&t, &b, &key, Mode::Exclusive, "a release dropped under way goes on").await;
        drop(guard);
    }
    // A release that was never polled is none.
    let key = t.key("a");
    let guard = grant(&*a, t.request(&key)).await;
    drop(guard.release());
    assert!(guard.is_held(), "an un-polled release released");
    release(&guard).await;
}

async fn try_at_each_poll(t: Test) {
    let (a, b) = (t.client().await, t.client().await);
    for polls in 0..MOST_POLLS {
        let key = t.key("a");
        let request = t.request(&key).ttl(t.long_ttl());
        let done = poll_times(a.try_acquire(request), polls).await.cancel().is_some();
        let why = format!("a try dropped after {polls} polls leaves a claim");
        no_residue(&t, &b, &key, Mode::Exclusive, &why).await;
        if done {
            return;
        }
    }
    panic!("no answer within {MOST_POLLS} polls");
}

async fn waiter_does_not_block_its_successor(t: Test) {
    let (a, b, c) = (t.client().await, t.client().await, t.client().await);
    for successor in [&b, &c] {
        let key = t.key("a");
        let guard = grant(&*a, t.request(&key).ttl(t.long_ttl())).await;
        let wait = |client: &Client| client.acquire(t.request(&key).ttl(t.long_ttl()));
        let Stopped::Pending(first) = poll_times(wait(&b), 1).await else {
            panic!("got in beside the holder");
        };
        let first = tokio::spawn(first);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let second = tokio::spawn(wait(successor));
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.abort();
        release(&guard).await;
        let next = within(t.prompt() + CLEAN_UP, "the successor of a dropped waiter", second);
        release(&next.await.unwrap().expect("a grant")).await;
    }
}

async fn waiter_dropped_at_the_grant(t: Test) {
    let (a, b, c) = (t.client().await, t.client().await, t.client().await);
    for round in 0..20 {
        let key = t.key("a");
        let guard = grant(&*a, t.request(&key).ttl(t.long_ttl())).await;
        let first = tokio::spawn(b.acquire(t.request(&key).ttl(t.long_ttl())));
        tokio::time::sleep(Duration::from_millis(20)).await;
        release(&guard).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
        first.abort();
        // Aborted before, or it holds a guard that is dropped here.
        drop(first.await);
        let why = format!("round {round}: a waiter dropped when it was granted");
        no_residue(&t, &c, &key, Mode::Exclusive, &why).await;
    }
}

async fn select_in_a_loop(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key).ttl(t.long_ttl())).await;
    for _ in 0..40 {
        let wait = b.acquire(t.request(&key).ttl(t.long_ttl()));
        let cut = Duration::from_millis(fastrand::u64(0..15));
        assert!(tokio::time::timeout(cut, wait).await.is_err(), "got in beside the holder");
    }
    quiet(&b, "waits that were cut off are over").await;
    release(&guard).await;
    no_residue(&t, &a, &key, Mode::Exclusive, "40 waits that were cut off").await;
}

async fn random_cancellations_then_a_normal_acquire(t: Test) {
    let (key, client, other) = (t.key("a"), t.client().await, t.client().await);
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let acquire = client.acquire(t.request(&key).ttl(t.long_ttl()));
            let polls = fastrand::usize(0..6);
            tokio::spawn(async move {
                let cut = Duration::from_millis(fastrand::u64(0..100));
                let _ = tokio::time::timeout(cut, poll_times(acquire, polls)).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic in a cancelled acquire");
    }
    quiet(&client, "200 cancelled acquires").await;
    no_residue(&t, &other, &key, Mode::Exclusive, "200 cancelled acquires").await;
    no_residue(&t, &client, &key, Mode::Exclusive, "200 cancelled acquires").await;
}

async fn drop_of_the_client_while_waiting(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    let waiting = tokio::spawn(b.acquire(t.brief(&key)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(b);
    t.left(|left| left.clients.retain(|client| Arc::ptr_eq(client, &a)));
    tokio::time::sleep(t.ttl()).await;
    release(&guard).await;
    let next = within(t.prompt(), "a waiter outlives the handle", waiting).await;
    release(&next.unwrap().expect("a grant")).await;
}
