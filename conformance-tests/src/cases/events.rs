//! One event stream tells each thing once.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkit_core::testing::{Fault, Op};
use lockkit_core::{DistributedLock, Event, EventKind, Events, LockExt, Which};

use crate::bed::{Test, close};
use crate::case::clause;
use crate::check::{eventually, grant, not_acquired, release, until};

clause! { "events";
    acquire_and_release_are_one_event_each(modes);
    refusal_is_one_event;
    wait_begins_once_and_ends_once;
    cancelled_wait_is_one_event;
    loss_is_one_event [Expires];
    forced_release_is_one_loss [ForcedRelease];
    reentry_is_told_apart;
    renewals_are_told;
    failed_renewals_are_told [Expires];
    silence_of_the_store_begins_and_ends_once;
    gauges_return_to_zero [Expires];
}

/// How often what happened to claims of `key`.
fn counts(events: &mut Events, key: &str) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    while let Some(event) = events.try_recv() {
        if event.claim.as_ref().is_some_and(|claim| claim.key.as_str() == key) {
            *counts.entry(word(&event)).or_default() += 1;
        }
    }
    assert_eq!(events.missed(), 0, "the stream lost events");
    counts
}

fn word(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Waiting => "waiting",
        EventKind::Acquired { .. } => "acquired",
        EventKind::Reentered { .. } => "reentered",
        EventKind::AcquireFailed { .. } => "failed",
        EventKind::AcquireCancelled { .. } => "cancelled",
        EventKind::Renewed => "renewed",
        EventKind::RenewalFailed { .. } => "renewal failed",
        EventKind::Released { .. } => "released",
        EventKind::ReleaseFailed { .. } => "release failed",
        EventKind::ReleaseMismatch { .. } => "mismatch",
        EventKind::Lost { .. } => "lost",
        EventKind::Unavailable => "unavailable",
        EventKind::Available { .. } => "available",
        _ => "other",
    }
}

fn expect(events: &mut Events, key: &str, expected: &[(&'static str, usize)]) {
    let expected: BTreeMap<_, _> = expected.iter().copied().collect();
    assert_eq!(counts(events, key), expected);
}

async fn acquire_and_release_are_one_event_each(t: Test, mode: lockkit_core::Mode) {
    let (key, client) = (t.key("a"), t.client().await);
    let mut events = client.core().events();
    for _ in 0..5 {
        let guard = grant(&*client, t.request_in(&key, mode).ttl(t.long_ttl())).await;
        release(&guard).await;
        release(&guard).await;
        drop(guard);
    }
    drop(grant(&*client, t.request_in(&key, mode).ttl(t.long_ttl())).await);
    assert!(close(&client).await);
    expect(&mut events, &key, &[("acquired", 6), ("released", 6)]);
}

async fn refusal_is_one_event(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key)).await;
    let mut events = b.core().events();
    assert!(b.try_acquire(t.request(&key)).await.expect("a try").is_none());
    expect(&mut events, &key, &[("failed", 1)]);
    let wait = Duration::from_millis(120);
    not_acquired(b.acquire(t.request(&key).timeout(wait)).await, "a held key");
    assert!(close(&b).await);
    expect(&mut events, &key, &[("failed", 1), ("waiting", 1)]);
    release(&guard).await;
}

async fn wait_begins_once_and_ends_once(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    let mut events = b.core().events();
    let waiting = b.acquire(t.brief(&key).ttl(t.long_ttl()));
    let hold = async {
        tokio::time::sleep(t.ttl()).await;
        release(&guard).await;
    };
    let (next, ()) = tokio::join!(waiting, hold);
    release(&next.expect("a grant")).await;
    expect(&mut events, &key, &[("waiting", 1), ("acquired", 1), ("released", 1)]);
}

async fn cancelled_wait_is_one_event(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key)).await;
    let mut events = b.core().events();
    for _ in 0..3 {
        let wait = b.acquire(t.request(&key));
        assert!(tokio::time::timeout(Duration::from_millis(80), wait).await.is_err());
    }
    // Never polled: it never began.
    drop(b.acquire(t.request(&key)));
    assert!(close(&b).await);
    expect(&mut events, &key, &[("waiting", 3), ("cancelled", 3)]);
    release(&guard).await;
}

async fn loss_is_one_event(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let mut events = client.core().events();
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    until(guard.deadline().expect("a live claim")).await;
    for _ in 0..3 {
        assert!(!guard.is_held() && guard.release().await.is_err());
        guard.lost().await;
    }
    drop(guard);
    assert!(close(&client).await);
    expect(&mut events, &key, &[("acquired", 1), ("lost", 1)]);
}

async fn forced_release_is_one_loss(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut events = a.core().events();
    let guard = grant(&*a, t.request(&key)).await;
    b.force_release(guard.key(), Which::Whoever).await.expect("a forced release");
    guard.lost().await;
    drop(guard);
    assert!(close(&a).await);
    expect(&mut events, &key, &[("acquired", 1), ("lost", 1)]);
}

async fn reentry_is_told_apart(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let mut events = client.core().events();
    let request = || t.request(&key).ttl(t.long_ttl()).owner("job-7");
    let (first, second) = (grant(&*client, request()).await, grant(&*client, request()).await);
    release(&first).await;
    release(&second).await;
    expect(&mut events, &key, &[("acquired", 1), ("reentered", 1), ("released", 1)]);
}

async fn renewals_are_told(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let mut events = client.core().events();
    let guard = grant(&*client, t.brief(&key)).await;
    tokio::time::sleep(t.ttl() * 3).await;
    release(&guard).await;
    let renewed = counts(&mut events, &key)["renewed"];
    assert!((5..=9).contains(&renewed), "{renewed} renewals in 3 TTL at TTL/3");
}

async fn failed_renewals_are_told(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let mut events = client.core().events();
    let guard = grant(&*client, t.request(&key)).await;
    client.every(Op::Renew, Fault::Refuse);
    guard.lost().await;
    assert!(client.close(t.ttl()).await);
    let counts = counts(&mut events, &key);
    let failed = counts.get("renewal failed").copied().unwrap_or(0);
    assert!(failed >= 2 && counts.get("lost") == Some(&1), "{counts:?}");
}

async fn silence_of_the_store_begins_and_ends_once(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let mut events = client.core().events();
    client.all(&Fault::Refuse);
    for _ in 0..3 {
        let refusal = client.acquire(t.brief(&key).timeout(Duration::from_millis(100))).await;
        assert!(refusal.is_err());
    }
    client.all(&Fault::None);
    eventually(Duration::from_secs(5), "the clean-up", || client.core().cleaning_up() == 0).await;
    release(&grant(&*client, t.brief(&key)).await).await;
    let (mut silent, mut back) = (0, 0);
    while let Some(event) = events.try_recv() {
        silent += usize::from(matches!(event.kind, EventKind::Unavailable));
        back += usize::from(matches!(event.kind, EventKind::Available { .. }));
    }
    assert_eq!((silent, back), (1, 1), "one silence is told once, and its end once");
}

/// What a gauge of held and of waiting claims would show at the end.
async fn gauges_return_to_zero(t: Test) {
    let (key, client, other) = (t.key("a"), t.client().await, t.client().await);
    let mut events = client.core().events();
    release(&grant(&*client, t.brief(&key)).await).await;
    drop(grant(&*client, t.brief(&key)).await);
    grant(&*client, t.brief(&key).renew(false)).await.lost().await;
    let guard = grant(&*other, t.brief(&key)).await;
    let wait = |millis| client.acquire(t.brief(&key).timeout(Duration::from_millis(millis)));
    not_acquired(wait(60).await, "a held key");
    let _ = tokio::time::timeout(Duration::from_millis(60), wait(10_000)).await;
    release(&guard).await;
    let (ask, asking) = (t.brief(&key), client.clone());
    let panicked = tokio::spawn(async move {
        let _guard = grant(&*asking, ask).await;
        std::panic::resume_unwind(Box::new("in the critical section"));
    });
    assert!(panicked.await.is_err());
    assert!(close(&client).await);
    let (mut held, mut waits) = (0, BTreeMap::new());
    while let Some(event) = events.try_recv() {
        let Some(claim) = &event.claim else { continue };
        match word(&event) {
            "acquired" => held += 1,
            "released" | "lost" => held -= 1,
            _ => {}
        }
        match word(&event) {
            "waiting" => *waits.entry(claim.token).or_insert(0) += 1,
            "acquired" | "failed" | "cancelled" => {
                waits.entry(claim.token).and_modify(|waiting| *waiting -= 1);
            }
            _ => {}
        }
    }
    assert_eq!(held, 0, "the gauge of held claims");
    assert!(waits.values().all(|waiting| *waiting == 0), "the gauge of waits: {waits:?}");
    assert_eq!(client.core().waiting(), 0);
}
