//! Only the owner releases; whoever comes too late touches nothing.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{LockExt, Mode};

use crate::bed::{Client, Test};
use crate::case::{clause, rival};
use crate::check::{free_now, grant, is_lost, refused, release, until, within};

clause! { "ownership";
    late_release_spares_the_successor(modes) [Expires];
    late_drop_spares_the_successor [Expires];
    late_release_without_successor_is_lost [Expires];
    second_release_changes_nothing;
    concurrent_releases_agree;
    old_guard_cannot_free_the_next_claim;
    each_acquire_is_its_own_claim;
    drop_releases(modes);
    panic_and_abort_release;
    release_after_reconnect_by_another_client;
}

/// A claim that ended by itself, and another one after it.
async fn overtaken(
    t: &Test,
    key: &str,
    mode: Mode,
) -> (Client, lockkit_core::Guard, Client, lockkit_core::Guard) {
    let (a, b) = (t.client().await, t.client().await);
    let late = grant(&*a, t.brief_in(key, mode).renew(false)).await;
    until(late.deadline().expect("a live claim")).await;
    let next = grant(&*b, t.brief_in(key, rival(mode))).await;
    (a, late, b, next)
}

async fn late_release_spares_the_successor(t: Test, mode: Mode) {
    let key = t.key("a");
    let (_a, late, _b, next) = overtaken(&t, &key, mode).await;
    is_lost(late.release().await, "the release of an expired claim");
    let c = t.client().await;
    refused(&*c, t.brief_in(&key, rival(mode)), "only a late release came").await;
    tokio::time::sleep(t.ttl()).await;
    assert!(next.is_held(), "a late release ended the successor's claim");
    refused(&*c, t.brief_in(&key, rival(mode)), "only a late release came").await;
    release(&next).await;
}

async fn late_drop_spares_the_successor(t: Test) {
    let key = t.key("a");
    let (_a, late, b, next) = overtaken(&t, &key, Mode::Exclusive).await;
    drop(late);
    tokio::time::sleep(t.ttl() / 2).await;
    refused(&*b, t.brief(&key), "only an expired guard was dropped").await;
    assert!(next.is_held());
    release(&next).await;
}

async fn late_release_without_successor_is_lost(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    until(guard.deadline().expect("a live claim")).await;
    is_lost(guard.release().await, "the release of an expired claim");
    is_lost(guard.release().await, "its second release");
}

async fn second_release_changes_nothing(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    release(&guard).await;
    guard.release().await.expect("the second release of a guard");
    guard.release().await.expect("the third release of a guard");
    drop(guard);
    free_now(&*client, t.brief(&key), "released three times").await;
}

async fn concurrent_releases_agree(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = Arc::new(grant(&*client, t.brief(&key)).await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let guard = Arc::clone(&guard);
            tokio::spawn(async move { guard.release().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().expect("one of eight releases at the same time");
    }
    free_now(&*client, t.brief(&key), "released").await;
}

async fn old_guard_cannot_free_the_next_claim(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let old = grant(&*a, t.brief(&key)).await;
    release(&old).await;
    let new = grant(&*a, t.brief(&key)).await;
    // Whatever it answers: it must not touch the key.
    let _ = old.release().await;
    drop(old);
    tokio::time::sleep(Duration::from_millis(100)).await;
    refused(&*b, t.brief(&key), "only an old guard was released again").await;
    assert!(new.is_held());
    release(&new).await;
}

async fn each_acquire_is_its_own_claim(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let first = grant(&*client, t.brief(&key).renew(false)).await;
    until(first.deadline().expect("a live claim")).await;
    let second = grant(&*client, t.brief(&key)).await;
    assert_ne!(first.token(), second.token(), "two claims, one token");
    is_lost(first.release().await, "the release of the first, expired claim");
    refused(&*client, t.brief(&key), "the second claim of the same client stands").await;
    release(&second).await;
}

async fn drop_releases(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief_in(&key, mode).ttl(t.long_ttl())).await;
    drop(guard);
    let next = b.acquire(t.brief_in(&key, rival(mode)));
    let next = within(Duration::from_secs(2), "the drop frees the key", next).await;
    release(&next.expect("a grant")).await;
}

async fn panic_and_abort_release(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let request = t.brief(&key).ttl(t.long_ttl());
    let (client, ask) = (Arc::clone(&a), request.clone());
    let panicked = tokio::spawn(async move {
        let _guard = grant(&*client, ask).await;
        std::panic::resume_unwind(Box::new("in the critical section"));
    });
    assert!(panicked.await.unwrap_err().is_panic());
    let limit = Duration::from_secs(2);
    let next = within(limit, "a panic frees the key", grant(&*b, request.clone())).await;
    release(&next).await;
    let (ready, entered) = tokio::sync::oneshot::channel();
    let (client, ask) = (Arc::clone(&a), request.clone());
    let aborted = tokio::spawn(async move {
        let _guard = grant(&*client, ask).await;
        let _ = ready.send(());
        std::future::pending::<()>().await;
    });
    entered.await.expect("the task holds the key");
    aborted.abort();
    let next = within(limit, "an abort frees the key", grant(&*b, request)).await;
    release(&next).await;
}

async fn release_after_reconnect_by_another_client(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    drop(a);
    tokio::time::sleep(t.ttl() * 2).await;
    assert!(guard.is_held(), "the guard did not outlive the user's last handle of the client");
    release(&guard).await;
    let b = t.client().await;
    free_now(&*b, t.brief(&key), "released").await;
}
