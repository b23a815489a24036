//! A server that is killed, and comes again with or without its data.

use conformance_tests::servers::{Data, Redis, Rule};
use lockkit_core::LossReason;

use crate::*;

const KEY: &str = "order:lock:1001";

fn durable() -> Redis {
    Redis::builder().append_only().start().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_the_server_forgot_is_told_lost_and_not_made_again() {
    let server = Redis::start().unwrap();
    let (holder, other) = (client(&server, ""), client(&server, ""));
    let guard = grant(&holder, long(KEY).ttl(ms(3_000))).await;
    let fence = guard.fence().unwrap();
    server.process().restart(Data::Emptied).unwrap();
    assert!(is_free(&server, KEY), "the server has forgotten it");
    // A renewal comes every second.
    let lost = within(ms(2_000), "told at the next renewal", guard.lost()).await;
    assert!(matches!(lost.reason, LossReason::Gone), "{lost}");
    assert!(!guard.is_held());
    quiet(&holder).await;
    assert!(is_free(&server, KEY), "made again: {}", at(&server, KEY));
    let next = grant_free(&other, long(KEY), "the server is empty").await;
    assert!(next.fence().unwrap() > fence, "{next:?} after {fence}");
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    assert!(has(&server, &next), "the loser has touched the next claim");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_outlives_a_restart_of_a_server_that_keeps_its_data() {
    let server = durable();
    let (holder, other) = (client(&server, ""), client(&server, ""));
    let mut events = holder.core().events();
    let guard = grant(&holder, long(KEY).ttl(ms(3_000))).await;
    let fence = guard.fence().unwrap();
    server.process().kill().unwrap();
    count(&mut events, |_| true);
    server.process().start_again(Data::Kept).unwrap();
    event(&mut events, "renewed after the restart", renewed).await;
    assert!(guard.is_held() && has(&server, &guard));
    refused(&other, long(KEY), "the claim has outlived the restart").await;
    // The server that came again knows no scripts.
    guard.release().await.unwrap();
    let next = grant_free(&other, long(KEY), "it was released").await;
    assert!(next.fence().unwrap() > fence, "{next:?} after {fence}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_the_server_died_on_is_told_and_done_later() {
    for data in [Data::Kept, Data::Emptied] {
        let behind = Behind::of(durable());
        let (lock, process) = (behind.client(""), behind.server.process());
        warm(&lock).await;
        let guard = std::sync::Arc::new(grant(&lock, hasty(KEY, 1_500)).await);
        // The claim's fence is written before.
        eventually(AT_ONCE, "noted", || at(&behind.server, KEY).contains(":f:")).await;
        process.stop().unwrap();
        let sent = behind.proxy.rule(Rule::requests(digest("FREE")));
        let releasing = std::sync::Arc::clone(&guard);
        let releasing = tokio::spawn(async move { releasing.release().await });
        sent.wait(1, AT_ONCE).unwrap();
        process.kill().unwrap();
        let told = within(ms(1_800), "the release returns", releasing).await.unwrap();
        let error = told.expect_err("nobody knows what became of it");
        assert!(unavailable(&error), "{error}");
        assert!(!guard.is_held());
        process.start_again(data).unwrap();
        eventually(ms(4_000), "free", || is_free(&behind.server, KEY)).await;
        quiet(&lock).await;
        guard.release().await.unwrap_or_else(|e| panic!("{data:?}: it is free by now: {e}"));
        grant_free(&lock, long(KEY), "released").await.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_in_when_the_server_has_forgotten_the_holder() {
    let server = Redis::start().unwrap();
    let (holder, lock) = (client(&server, ""), client(&server, ""));
    let guard = grant(&holder, long(KEY).ttl(ms(6_000))).await;
    let waiting = waiter(&lock, long(KEY));
    listened(&server, 1).await;
    let mut events = lock.core().events();
    server.process().kill().unwrap();
    // Its death is noticed before it ends.
    event(&mut events, "an attempt in vain", |kind| matches!(kind, EventKind::Unavailable)).await;
    server.process().start_again(Data::Emptied).unwrap();
    let next = within(ms(2_000), "the waiter is in", waiting).await.unwrap();
    assert!(next.fence() > guard.fence());
    within(ms(4_000), "the holder is told", guard.lost()).await;
    assert!(next.is_held() && has(&server, &next));
}

/// Behind a restart, too, somebody listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_listens_again_after_a_restart() {
    let server = durable();
    let (holder, lock) = (client(&server, ""), client(&server, ""));
    let guard = grant(&holder, long(KEY)).await;
    let waiting = waiter(&lock, long(KEY));
    listened(&server, 1).await;
    server.process().restart(Data::Kept).unwrap();
    listened(&server, 1).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    drop(within(POLL + AT_ONCE, "woken", waiting).await.unwrap());
}
