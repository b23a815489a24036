//! The options of a request.

use std::num::NonZeroU32;
use std::time::Duration;

use lockkit_core::{BootInstant, Error, Guard, LockExt, LossReason, Mode};

use crate::bed::{SLACK, Test};
use crate::case::{clause, rival};
use crate::check::{
    error, free_within, grant, is_lost, not_acquired, refused, release, timed, within,
};

clause! { "options";
    max_hold_ends_the_claim(modes);
    max_hold_longer_than_the_work_changes_nothing;
    min_hold_outlasts_the_release(modes) [Expires];
    min_hold_outlasts_the_drop [Expires];
    min_hold_outlasts_the_process [Expires Processes];
    min_hold_longer_than_the_ttl [Expires];
    min_hold_shorter_than_the_work;
    attempts_are_limited;
    one_attempt_is_a_try;
    labels_give_no_rights;
    contradictions_are_refused;
}

async fn max_hold_ends_the_claim(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let most = t.ttl() * 2;
    let guard = grant(&*a, t.brief_in(&key, mode).max_hold(most)).await;
    let granted = BootInstant::now();
    tokio::time::sleep(t.ttl() * 3 / 2).await;
    assert!(guard.is_held(), "lost before max_hold: {:?}", guard.loss());
    let lost = within(t.ttl(), "max_hold", guard.lost()).await;
    let held = BootInstant::now().since(granted);
    assert!(held <= most + SLACK, "held {held:?}, max_hold is {most:?}");
    assert!(held + Duration::from_millis(50) >= most, "held only {held:?} of {most:?}");
    assert!(matches!(lost.reason, LossReason::MaxHold), "{lost:?}");
    is_lost(guard.release().await, "the release after max_hold");
    let limit = t.ttl() + t.granularity() + t.prompt();
    let next = b.acquire(t.brief_in(&key, rival(mode)));
    release(&within(limit, "free after max_hold", next).await.expect("a grant")).await;
}

async fn max_hold_longer_than_the_work_changes_nothing(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let guard = grant(&*a, t.brief(&key).max_hold(t.ttl() * 3)).await;
    release(&guard).await;
    tokio::time::sleep(t.ttl() * 3).await;
    assert!(guard.loss().is_none(), "lost after its release");
}

/// The key stays taken until `least` after the grant, and is free soon after.
async fn stays_taken(t: &Test, key: &str, mode: Mode, granted: BootInstant, least: Duration) {
    let client = t.client().await;
    refused(&*client, t.request_in(key, rival(mode)), "its min_hold is not over").await;
    let limit = least + t.granularity() + SLACK;
    let next = free_within(&*client, t.request_in(key, rival(mode)), limit, "min_hold").await;
    let held = BootInstant::now().since(granted);
    // The store measures from the grant, which was before the answer came.
    assert!(held + Duration::from_millis(20) >= least, "kept {held:?}, min_hold is {least:?}");
    assert!(held <= limit, "kept {held:?}, min_hold is {least:?}");
    release(&next).await;
}

async fn min_hold_outlasts_the_release(t: Test, mode: Mode) {
    let (key, a) = (t.key("a"), t.client().await);
    let least = t.ttl() * 2 / 3;
    let guard = grant(&*a, t.brief_in(&key, mode).min_hold(least)).await;
    let granted = BootInstant::now();
    let (took, result) = timed(guard.release()).await;
    result.expect("a release before min_hold");
    assert!(took < least / 2, "the release waited for min_hold: {took:?}");
    assert!(!guard.is_held());
    stays_taken(&t, &key, mode, granted, least).await;
}

async fn min_hold_outlasts_the_drop(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let guard = grant(&*a, t.brief(&key).min_hold(t.ttl())).await;
    let granted = BootInstant::now();
    drop(guard);
    stays_taken(&t, &key, Mode::Exclusive, granted, t.ttl()).await;
}

async fn min_hold_outlasts_the_process(t: Test) {
    let (key, mut child) = (t.key("a"), t.child().await);
    let mut ask = t.ask(&key);
    ask.min_hold = t.ttl() * 2;
    let granted = child.acquire("a", ask).await.at;
    assert_eq!(child.release("a").await.rest, "ok");
    child.exit().await;
    stays_taken(&t, &key, Mode::Exclusive, granted, t.ttl() * 2).await;
}

async fn min_hold_longer_than_the_ttl(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let guard = grant(&*a, t.brief(&key).min_hold(t.ttl() * 3)).await;
    let granted = BootInstant::now();
    release(&guard).await;
    stays_taken(&t, &key, Mode::Exclusive, granted, t.ttl() * 3).await;
}

async fn min_hold_shorter_than_the_work(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard: Guard = grant(&*a, t.brief(&key).min_hold(t.ttl() / 4)).await;
    tokio::time::sleep(t.ttl() / 2).await;
    release(&guard).await;
    let limit = Duration::from_millis(200);
    release(&free_within(&*b, t.brief(&key), limit, "min_hold was over").await).await;
}

async fn attempts_are_limited(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key)).await;
    for attempts in [2, 3] {
        let limit = NonZeroU32::new(attempts).expect("not zero");
        let refusal = b.acquire(t.request(&key).attempts(limit)).await;
        let refusal = not_acquired(refusal, "a limited number of attempts");
        assert_eq!(refusal.attempts, attempts);
        assert!(refusal.waited < Duration::from_secs(5), "waited for {:?}", refusal.waited);
    }
    release(&guard).await;
}

async fn one_attempt_is_a_try(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    let one = t.brief(&key).attempts(NonZeroU32::MIN);
    let (took, refusal) = timed(b.acquire(one.clone())).await;
    assert_eq!(not_acquired(refusal, "one attempt").attempts, 1);
    assert!(took < t.ttl() / 6 + Duration::from_millis(50), "one attempt waited {took:?}");
    release(&guard).await;
    release(&grant(&*b, one).await).await;
}

async fn labels_give_no_rights(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let request = t.request(&key).label("worker-1");
    let guard = grant(&*a, request.clone()).await;
    for client in [&a, &b] {
        refused(&**client, request.clone(), "an equal label is no owner").await;
    }
    release(&guard).await;
}

async fn contradictions_are_refused(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let bad = [
        ("a TTL of zero", t.brief(&key).ttl(Duration::ZERO)),
        ("an endless TTL", t.brief(&key).ttl(Duration::MAX)),
        ("no time for an answer", t.brief(&key).op_timeout(Duration::ZERO)),
        ("max_hold < min_hold", t.brief(&key).min_hold(t.ttl()).max_hold(t.ttl() / 2)),
    ];
    for (what, request) in bad {
        let refusal = error(client.acquire(request).await, what);
        assert!(matches!(refusal, Error::Configuration(_)), "{what}: {refusal:?}");
    }
    assert!(client.log().is_empty(), "the store was asked for what cannot be");
}
