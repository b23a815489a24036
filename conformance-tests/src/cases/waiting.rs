//! Waiting is bounded, and ends promptly when the key becomes free.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{BootInstant, LockExt, Mode, Request};

use crate::bed::{PATIENCE, SLACK, Test};
use crate::case::{clause, rival};
use crate::check::{eventually, grant, not_acquired, refused, release, timed, within};

clause! { "waiting";
    returns_within_the_timeout(modes);
    zero_and_try_return_at_once;
    refusal_says_how_long_and_how_often;
    release_lets_the_waiter_in(modes);
    waits_without_a_limit;
    wait_is_not_limited_by_the_ttl;
    grant_after_a_long_wait_has_a_full_ttl [Expires];
    idle_waiter_still_gets_in;
    timeouts_in_a_row;
    every_waiter_of_every_client_gets_in heavy;
    default_wait_from_the_url;
}

async fn returns_within_the_timeout(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request_in(&key, rival(mode))).await;
    for millis in [1, 20, 100, 300, 700] {
        let wait = Duration::from_millis(millis);
        let bare = timed(tokio::time::sleep(wait));
        let asked = timed(b.acquire(t.request_in(&key, mode).timeout(wait)));
        let ((bare, ()), (took, result)) = tokio::join!(bare, asked);
        not_acquired(result, "an acquire of a held key");
        let limit = bare.max(wait) + Duration::from_millis(50);
        assert!(took <= limit, "a timeout of {wait:?} took {took:?}, a bare sleep {bare:?}");
        assert!(took >= wait, "a timeout of {wait:?} took only {took:?}");
    }
    release(&guard).await;
}

async fn zero_and_try_return_at_once(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    for _ in 0..5 {
        let zero = timed(b.acquire(t.brief(&key).timeout(Duration::ZERO))).await;
        not_acquired(zero.1, "a wait of zero");
        let tried = timed(b.try_acquire(t.brief(&key))).await;
        assert!(tried.1.expect("a try").is_none());
        // One exchange, which has a sixth of the TTL; not a wait.
        let limit = t.ttl() / 6 + Duration::from_millis(50);
        assert!(zero.0 <= limit && tried.0 <= limit, "{:?}, {:?}", zero.0, tried.0);
    }
    release(&guard).await;
    release(&grant(&*b, t.brief(&key).timeout(Duration::ZERO)).await).await;
}

async fn refusal_says_how_long_and_how_often(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key)).await;
    let wait = Duration::from_millis(250);
    let refusal = not_acquired(b.acquire(t.request(&key).timeout(wait)).await, "a held key");
    assert_eq!(refusal.key.as_str(), key);
    assert!(refusal.waited >= wait, "{:?}", refusal.waited);
    assert!(refusal.attempts >= 1, "it never asked the store");
    assert!(refusal.last_error.is_none(), "nothing failed: {:?}", refusal.last_error);
    assert!(refusal.to_string().contains(&key), "the message: {refusal}");
    release(&guard).await;
}

async fn release_lets_the_waiter_in(t: Test, mode: Mode) {
    let (a, b) = (t.client().await, t.client().await);
    for waiter in [&a, &b] {
        let key = t.key("a");
        let guard = grant(&*a, t.request_in(&key, rival(mode))).await;
        let mut waiting = waiter.acquire(t.request_in(&key, mode));
        let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
        assert!(early.is_err(), "got in beside the holder");
        release(&guard).await;
        let next = within(t.prompt(), "a release lets the waiter in", waiting).await;
        release(&next.expect("a grant")).await;
    }
}

async fn waits_without_a_limit(t: Test) {
    let (a, b) = (t.client().await, t.client().await);
    let ways: [fn(Request) -> Request; 2] =
        [Request::wait_forever, |request| request.timeout(Duration::MAX)];
    for way in ways {
        let key = t.key("a");
        let guard = grant(&*a, t.brief(&key)).await;
        let waiting = b.acquire(way(t.brief(&key)));
        let hold = async {
            tokio::time::sleep(t.ttl() * 2).await;
            release(&guard).await;
        };
        let both = async { tokio::join!(waiting, hold) };
        let (next, ()) = within(t.ttl() * 2 + t.prompt(), "the unlimited wait ends", both).await;
        release(&next.expect("a grant")).await;
    }
}

async fn wait_is_not_limited_by_the_ttl(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key).ttl(t.ttl() * 5)).await;
    let waiting = b.acquire(t.brief(&key).timeout(PATIENCE));
    let hold = async {
        tokio::time::sleep(t.ttl() * 3).await;
        release(&guard).await;
        BootInstant::now()
    };
    let (next, released) = tokio::join!(waiting, hold);
    let after = BootInstant::now().since(released);
    assert!(after <= t.prompt(), "got in {after:?} after the release");
    release(&next.expect("a wait longer than the own TTL")).await;
}

async fn grant_after_a_long_wait_has_a_full_ttl(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    let waiting = b.acquire(t.brief(&key).renew(false));
    let hold = async {
        tokio::time::sleep(t.ttl() * 2).await;
        release(&guard).await;
    };
    let (next, ()) = tokio::join!(waiting, hold);
    let next = next.expect("a grant");
    let least = t.ttl() * 3 / 4 - t.ttl() / 100;
    assert!(next.remaining() >= least, "of its TTL only {:?} is left", next.remaining());
    tokio::time::sleep(t.ttl() / 2).await;
    refused(&*a, t.brief(&key), "half a TTL after the grant").await;
    release(&next).await;
}

async fn idle_waiter_still_gets_in(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    let waiting = tokio::spawn(b.acquire(t.brief(&key).timeout(PATIENCE)));
    tokio::time::sleep(t.ttl() * 6).await;
    assert!(guard.is_held() && !waiting.is_finished());
    release(&guard).await;
    let next = within(t.prompt(), "a waiter of 6 TTL gets in", waiting).await;
    release(&next.unwrap().expect("a grant")).await;
}

async fn timeouts_in_a_row(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key)).await;
    for _ in 0..60 {
        let wait = Duration::from_millis(fastrand::u64(0..20));
        not_acquired(b.acquire(t.request(&key).timeout(wait)).await, "a held key");
    }
    let core = b.core().clone();
    eventually(SLACK, "those that timed out left the queue", || core.waiting() == 0).await;
    release(&guard).await;
    let next = b.acquire(t.request(&key));
    release(&within(SLACK * 2, "nobody waits any more", next).await.expect("a grant")).await;
}

async fn every_waiter_of_every_client_gets_in(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(5).await);
    let guard = grant(&*clients[0], t.request(&key)).await;
    let waiters: Vec<_> = (0..20)
        .map(|n| {
            let (client, request) = (Arc::clone(&clients[n % 5]), t.request(&key));
            let request = request.timeout(Duration::from_secs(40));
            tokio::spawn(async move { release(&grant(&*client, request).await).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    release(&guard).await;
    for waiter in waiters {
        waiter.await.expect("each of 20 waiters gets in");
    }
}

async fn default_wait_from_the_url(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let b = t.client_with("timeout=200ms").await;
    let guard = grant(&*a, t.request(&key)).await;
    let refusal = not_acquired(b.acquire(key.as_str()).await, "a held key");
    let waited = refusal.waited;
    let (least, most) = (Duration::from_millis(200), Duration::from_secs(2));
    assert!(waited >= least && waited < most, "`timeout=200ms`, waited {waited:?}");
    release(&guard).await;
}
