//! No immortal lock: whoever vanished loses the key by itself.

use std::time::Duration;

use lockkit_core::{BootInstant, Error, LockExt, Mode, Request};

use crate::bed::{PATIENCE, SLACK, Test};
use crate::case::{clause, rival};
use crate::check::{error, free_now, grant, refused, release, safe, within};
use crate::child::Order;

clause! { "expiry";
    forgotten_claim_ends_after_its_ttl(modes) [Expires];
    no_takeover_before_the_end [Expires];
    killed_holder_frees_the_key(modes) [Processes];
    killed_in_any_phase [Processes];
    killed_waiter_holds_no_place [Processes];
    holders_ttl_governs [Expires];
    every_claim_has_a_ttl;
    ttl_from_everywhere_is_renewed;
}

async fn forgotten_claim_ends_after_its_ttl(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief_in(&key, mode).renew(false)).await;
    let granted = BootInstant::now();
    let rival = grant(&*b, t.brief_in(&key, rival(mode))).await;
    let after = BootInstant::now().since(granted);
    let limit = t.ttl() + t.granularity() + SLACK;
    assert!(after <= limit, "a dead claim went after {after:?}, its TTL is {:?}", t.ttl());
    safe!(!guard.is_held(), "two holders");
    release(&rival).await;
}

async fn no_takeover_before_the_end(t: Test) {
    let (a, b) = (t.client().await, t.client().await);
    for round in 0..3 {
        let key = t.key("a");
        let guard = grant(&*a, t.brief(&key).renew(false)).await;
        let deadline = guard.deadline().expect("a live claim");
        let rival = loop {
            if let Some(rival) = b.try_acquire(t.brief(&key)).await.expect("a try") {
                break rival;
            }
            tokio::task::yield_now().await;
        };
        let early = deadline.since(BootInstant::now());
        safe!(early.is_zero(), "round {round}: the rival came {early:?} before the deadline");
        safe!(!guard.is_held(), "round {round}: two holders");
        release(&rival).await;
    }
}

async fn killed_holder_frees_the_key(t: Test, mode: Mode) {
    let (key, b, mut child) = (t.key("a"), t.client().await, t.child().await);
    let mut ask = t.ask(&key);
    ask.mode = mode;
    child.acquire("a", ask).await;
    child.kill().await;
    let killed = BootInstant::now();
    refused(&*b, t.brief_in(&key, rival(mode)), "its holder was killed a moment ago").await;
    let rival = grant(&*b, t.brief_in(&key, rival(mode))).await;
    let after = BootInstant::now().since(killed);
    let limit = t.ttl() + t.granularity() + SLACK;
    assert!(after <= limit, "freed {after:?} after the kill, the TTL is {:?}", t.ttl());
    release(&rival).await;
}

async fn killed_in_any_phase(t: Test) {
    let client = t.client().await;
    for round in 0..6 {
        let (key, mut child) = (t.key("a"), t.child().await);
        child.tell(Order::Churn { id: "a".into(), ask: t.ask(&key) }).await;
        child.hear("a", "round", PATIENCE).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..20_000))).await;
        child.kill().await;
        let killed = BootInstant::now();
        let guard = grant(&*client, t.brief(&key)).await;
        let after = BootInstant::now().since(killed);
        let limit = t.ttl() + t.granularity() + SLACK;
        assert!(after <= limit, "round {round}: freed {after:?} after the kill");
        release(&guard).await;
    }
}

async fn killed_waiter_holds_no_place(t: Test) {
    let (key, a, b, mut child) = (t.key("a"), t.client().await, t.client().await, t.child().await);
    let guard = grant(&*a, t.brief(&key)).await;
    child.tell(Order::Acquire { id: "w".into(), ask: t.ask(&key) }).await;
    // No one tells when it waits; what it does is one exchange.
    tokio::time::sleep(Duration::from_millis(200)).await;
    child.kill().await;
    release(&guard).await;
    let limit = t.ttl() + t.granularity() + SLACK;
    let next = within(limit, "past a killed waiter", grant(&*b, t.brief(&key))).await;
    release(&next).await;
}

async fn holders_ttl_governs(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key).ttl(t.ttl() * 4).renew(false)).await;
    let deadline = guard.deadline().expect("a live claim");
    let rival = grant(&*b, t.brief(&key).ttl(t.ttl())).await;
    assert!(BootInstant::now() >= deadline, "the waiter's shorter TTL ended the holder's claim");
    release(&rival).await;
}

async fn every_claim_has_a_ttl(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, Request::new(&key)).await;
    let remaining = guard.remaining();
    let (least, most) = (Duration::from_secs(25), Duration::from_secs(30));
    assert!(remaining > least && remaining <= most, "the default TTL is 30 s, not {remaining:?}");
    release(&guard).await;
    let zero = error(client.acquire(t.brief(&key).ttl(Duration::ZERO)).await, "a TTL of zero");
    assert!(matches!(zero, Error::Configuration(_)), "a TTL of zero: {zero:?}");
}

async fn ttl_from_everywhere_is_renewed(t: Test) {
    let (by_url, by_request) = (t.key("url"), t.key("request"));
    let other = t.client().await;
    let client = t.client_with(&format!("ttl={}ms", t.ttl().as_millis())).await;
    let first = grant(&*client, Request::new(&by_url)).await;
    assert!(first.remaining() <= t.ttl(), "`ttl=` in the URL is not taken");
    let second = grant(&*other, t.brief(&by_request)).await;
    tokio::time::sleep(t.ttl() * 5).await;
    assert!(first.is_held() && second.is_held(), "not renewed for 5 TTL");
    refused(&*other, t.brief(&by_url), "its holder lives").await;
    release(&first).await;
    release(&second).await;
    free_now(&*other, t.brief(&by_url), "released").await;
}
