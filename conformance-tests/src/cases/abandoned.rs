//! Futures and guards that nobody looks after any more.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::testing::{Fault, Op};
use lockkit_core::{LockExt, LossReason, Stage};
use tokio::runtime::{Builder, Runtime};

use crate::bed::{SLACK, Test};
use crate::case::clause;
use crate::check::{eventually, grant, not_acquired, release, within};
use crate::polls::{Stopped, poll_times};

clause! { "abandoned";
    forgotten_acquire_of_a_free_key;
    forgotten_acquire_of_a_held_key;
    unpolled_grant_is_given_back_at_the_timeout;
    unpolled_grant_is_given_back_at_the_end_of_the_lease;
    unpolled_waiter_polled_again_too_late;
    unpolled_waiter_does_not_stop_the_others;
    runtime_ends_during_an_acquire;
    runtime_ends_during_a_wait;
    forgotten_guard_with_max_hold;
    forgotten_release;
}

const WAIT: Duration = Duration::from_millis(400);

async fn gone_within(t: &Test, key: &str, limit: Duration, why: &str) {
    let client = t.client().await;
    let next = client.acquire(t.request(key).ttl(t.long_ttl()));
    release(&within(limit, why, next).await.expect("a grant")).await;
}

/// Stops an acquire after each of its polls, and forgets it: neither polled nor dropped again.
async fn forgotten_acquire_of_a_free_key(t: Test) {
    let client = t.client().await;
    for polls in 0..50 {
        let key = t.key("a");
        let acquire = client.acquire(t.request(&key).ttl(t.long_ttl()).timeout(WAIT));
        match poll_times(acquire, polls).await {
            Stopped::Pending(future) => std::mem::forget(future),
            Stopped::Ready(result) => return release(&result.expect("a grant")).await,
        }
        let why = format!("an acquire forgotten after {polls} polls");
        gone_within(&t, &key, WAIT + t.prompt(), &why).await;
    }
    panic!("not granted within 50 polls");
}

async fn forgotten_acquire_of_a_held_key(t: Test) {
    let (client, holder) = (t.client().await, t.client().await);
    for polls in 0..50 {
        let key = t.key("a");
        let guard = grant(&*holder, t.request(&key).ttl(t.long_ttl())).await;
        let acquire = client.acquire(t.request(&key).ttl(t.long_ttl()).timeout(WAIT));
        let stopped = poll_times(acquire, polls).await;
        release(&guard).await;
        match stopped {
            Stopped::Pending(future) => std::mem::forget(future),
            Stopped::Ready(result) => {
                not_acquired(result, "the wait for a held key");
                return;
            }
        }
        let why = format!("a wait forgotten after {polls} polls");
        gone_within(&t, &key, WAIT + t.prompt(), &why).await;
    }
    panic!("not over within 50 polls");
}

async fn unpolled_grant_is_given_back_at_the_timeout(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    client.next(Op::Attempt(Stage::First), Fault::DelayAnswer(Duration::from_millis(50)));
    let acquire = client.acquire(t.request(&key).ttl(t.long_ttl()).timeout(WAIT));
    let Stopped::Pending(kept) = poll_times(acquire, 1).await else {
        panic!("ready before the answer came");
    };
    tokio::time::sleep(WAIT).await;
    gone_within(&t, &key, t.prompt(), "a grant that nobody collects").await;
    let late = within(SLACK, "the late poll", kept).await;
    assert!(late.is_err(), "a grant that was given back was collected: {late:?}");
}

async fn unpolled_grant_is_given_back_at_the_end_of_the_lease(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    client.next(Op::Attempt(Stage::First), Fault::DelayAnswer(Duration::from_millis(20)));
    let acquire = client.acquire(t.brief(&key).timeout(Duration::from_secs(60)));
    let Stopped::Pending(kept) = poll_times(acquire, 1).await else {
        panic!("ready before the answer came");
    };
    let limit = t.ttl() + t.granularity() + t.prompt();
    gone_within(&t, &key, limit, "a grant that nobody collects was renewed").await;
    drop(kept);
}

async fn unpolled_waiter_polled_again_too_late(t: Test) {
    let (key, client, holder) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*holder, t.request(&key)).await;
    let acquire = client.acquire(t.request(&key).timeout(WAIT));
    let Stopped::Pending(kept) = poll_times(acquire, 1).await else {
        panic!("got in beside the holder");
    };
    tokio::time::sleep(WAIT * 2).await;
    not_acquired(within(SLACK, "the late poll", kept).await, "a wait polled after its timeout");
    release(&guard).await;
}

async fn unpolled_waiter_does_not_stop_the_others(t: Test) {
    let (a, b, c) = (t.client().await, t.client().await, t.client().await);
    for other in [&b, &c] {
        let key = t.key("a");
        let guard = grant(&*a, t.request(&key)).await;
        let first = b.acquire(t.request(&key).ttl(t.long_ttl()).timeout(WAIT * 2));
        let Stopped::Pending(kept) = poll_times(first, 1).await else {
            panic!("got in beside the holder");
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        let second = tokio::spawn(other.acquire(t.request(&key)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        release(&guard).await;
        let limit = WAIT * 2 + t.prompt();
        let next = within(limit, "a waiter behind one that is not polled", second).await;
        release(&next.unwrap().expect("a grant")).await;
        drop(kept);
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Polls `acquire` so often in a runtime of its own, then ends the runtime.
async fn ends_after(polls: usize, acquire: lockkit_core::Acquire) -> bool {
    let (sender, stopped) = tokio::sync::oneshot::channel();
    let own = runtime();
    own.spawn(async move {
        let stopped = poll_times(acquire, polls).await;
        let _ = sender.send(matches!(stopped, Stopped::Ready(_)));
        // It stays alive until the runtime drops it.
        std::future::pending::<()>().await;
        drop(stopped);
    });
    let done = within(Duration::from_secs(10), "the polls", stopped).await.expect("an answer");
    own.shutdown_background();
    done
}

async fn runtime_ends_during_an_acquire(t: Test) {
    let client = t.client().await;
    for polls in 1..50 {
        let key = t.key("a");
        let acquire = client.acquire(t.request(&key).ttl(t.long_ttl()));
        let done = ends_after(polls, acquire).await;
        let why = format!("a runtime that ended after {polls} polls of an acquire");
        gone_within(&t, &key, Duration::from_secs(2), &why).await;
        if done {
            return;
        }
    }
    panic!("not granted within 50 polls");
}

async fn runtime_ends_during_a_wait(t: Test) {
    let (client, holder) = (t.client().await, t.client().await);
    for polls in 1..4 {
        let key = t.key("a");
        let guard = grant(&*holder, t.request(&key).ttl(t.long_ttl())).await;
        let acquire = client.acquire(t.request(&key).ttl(t.long_ttl()).timeout(WAIT));
        ends_after(polls, acquire).await;
        release(&guard).await;
        let why = format!("a runtime that ended after {polls} polls of a wait");
        gone_within(&t, &key, Duration::from_secs(2), &why).await;
        let core = client.core().clone();
        eventually(Duration::from_secs(2), &why, || core.waiting() == 0).await;
    }
}

async fn forgotten_guard_with_max_hold(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).max_hold(t.ttl() * 2)).await;
    let lost = guard.lost();
    std::mem::forget(guard);
    let lost = within(t.ttl() * 2 + SLACK, "max_hold ends a forgotten claim", lost).await;
    assert!(matches!(lost.reason, LossReason::MaxHold), "{lost:?}");
    let limit = t.ttl() + t.granularity() + t.prompt();
    gone_within(&t, &key, limit, "a forgotten claim after its max_hold").await;
}

async fn forgotten_release(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let request = t.request(&key).ttl(t.long_ttl()).op_timeout(WAIT);
    let guard = Arc::new(grant(&*client, request).await);
    client.next(Op::Release, Fault::Delay(Duration::from_millis(50)));
    let held = Arc::clone(&guard);
    let release = Box::pin(async move { held.release().await });
    match poll_times(release, 1).await {
        Stopped::Pending(future) => std::mem::forget(future),
        Stopped::Ready(result) => result.expect("a release"),
    }
    gone_within(&t, &key, Duration::from_secs(2), "a forgotten release goes on").await;
}
