//! A request without an answer is not a "no": it may have taken effect, now or later.

use std::time::Duration;

use lockkit_core::testing::{Exchanged, Fault, Faulty, Op};
use lockkit_core::{DistributedLock, Error, LockExt, Stage};

use crate::bed::{PATIENCE, SLACK, Test};
use crate::case::clause;
use crate::check::{error, eventually, grant, release, timed, within};

clause! { "unknown";
    lost_answer_of_an_acquire_is_recognised(modes);
    lost_answer_of_a_try_leaves_nothing;
    hanging_acquire_returns_in_time_and_is_cleaned_up;
    hanging_try_returns_in_time_and_is_cleaned_up;
    answer_after_its_deadline_is_no_grant [Expires];
    lost_answer_of_a_release_frees_the_key;
    hanging_release_is_told_and_retried;
    failing_release_frees_the_key_later;
    local_state_is_free_whatever_the_store_says;
    store_that_comes_back_is_used_again;
    dead_store_holds_nobody_up;
}

fn attempts(client: &Faulty) -> Vec<Exchanged> {
    client.log().into_iter().filter(|e| matches!(e.op, Op::Attempt(_))).collect()
}

async fn cleaned_up(client: &Faulty) {
    let done = || client.core().cleaning_up() == 0 && client.core().waiting() == 0;
    eventually(PATIENCE, "the clean-up ends", done).await;
}

/// Long enough to tell clean-up from expiry; short, because what was never answered is looked
/// for as long as it could live.
const TTL: Duration = Duration::from_secs(4);

/// Another client gets the key long before its TTL.
async fn free_soon(t: &Test, key: &str, why: &str) {
    let client = t.client().await;
    let next = client.acquire(t.request(key).ttl(t.long_ttl()));
    let limit = TTL / 2;
    release(&within(limit, why, next).await.expect("a grant")).await;
}

async fn lost_answer_of_an_acquire_is_recognised(t: Test, mode: lockkit_core::Mode) {
    for fault in [Fault::LoseAnswer, Fault::HangAfter] {
        let (key, client) = (t.key("a"), t.faulty().await);
        client.next(Op::Attempt(Stage::First), fault.clone());
        let request = t.request_in(&key, mode).ttl(t.long_ttl());
        let request = request.op_timeout(Duration::from_millis(200));
        let what = format!("the own claim is recognised after {fault:?}");
        let guard = within(Duration::from_secs(3), &what, grant(&*client, request)).await;
        let tokens: Vec<_> = attempts(&client).iter().map(|e| e.token).collect();
        assert!(tokens.len() >= 2 && tokens.iter().all(|token| *token == guard.token()));
        release(&guard).await;
        free_soon(&t, &key, "released after a lost answer").await;
    }
}

async fn lost_answer_of_a_try_leaves_nothing(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    client.next(Op::Attempt(Stage::Try), Fault::LoseAnswer);
    let result = client.try_acquire(t.request(&key).ttl(TTL)).await;
    match result {
        Ok(Some(guard)) => release(&guard).await,
        Err(Error::Unavailable(_)) => {}
        other => panic!("an unknown outcome is neither a grant nor busy: {other:?}"),
    }
    free_soon(&t, &key, "a try whose answer was lost").await;
}

async fn hanging_acquire_returns_in_time_and_is_cleaned_up(t: Test) {
    for fault in [Fault::Hang, Fault::HangAfter, Fault::DelayAnswer(Duration::from_millis(700))] {
        let (key, client) = (t.key("a"), t.faulty().await);
        client.all(&fault);
        let wait = Duration::from_millis(300);
        let request = t.request(&key).ttl(TTL).timeout(wait);
        let bare = timed(tokio::time::sleep(wait));
        let ((bare, ()), (took, result)) = tokio::join!(bare, timed(client.acquire(request)));
        let refusal = error(result, "an acquire that hangs");
        assert!(refusal.is_retryable(), "{refusal:?}");
        let limit = bare.max(wait) + Duration::from_millis(50);
        assert!(took <= limit, "{fault:?}: {took:?} for a timeout of {wait:?}, bare {bare:?}");
        client.all(&Fault::None);
        free_soon(&t, &key, &format!("an acquire with {fault:?} is cleaned up")).await;
        cleaned_up(&client).await;
    }
}

async fn hanging_try_returns_in_time_and_is_cleaned_up(t: Test) {
    for fault in [Fault::Hang, Fault::HangAfter] {
        let (key, client) = (t.key("a"), t.faulty().await);
        client.next(Op::Attempt(Stage::Try), fault.clone());
        let wait = Duration::from_millis(200);
        let request = t.request(&key).ttl(TTL).op_timeout(wait);
        let bare = timed(tokio::time::sleep(wait));
        let ((bare, ()), (took, result)) = tokio::join!(bare, timed(client.try_acquire(request)));
        let refusal = error(result, "a try that hangs");
        assert!(matches!(refusal, Error::Unavailable(_)), "{refusal:?}");
        assert!(took <= bare.max(wait) + Duration::from_millis(50), "{fault:?}: {took:?}");
        free_soon(&t, &key, &format!("a try with {fault:?} is cleaned up")).await;
    }
}

async fn answer_after_its_deadline_is_no_grant(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    // The lease is over by the time its answer is read.
    client.next(Op::Attempt(Stage::First), Fault::DelayAnswer(t.ttl() - Duration::from_millis(3)));
    let guard = grant(&*client, t.brief(&key).op_timeout(t.ttl() * 4)).await;
    assert!(guard.is_held(), "a grant that is over when it is returned");
    assert!(guard.remaining() > t.ttl() / 2, "only {:?} of its TTL is left", guard.remaining());
    assert!(attempts(&client).len() >= 2, "the late answer was taken for a grant");
    release(&guard).await;
}

async fn lost_answer_of_a_release_frees_the_key(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let guard = grant(&*client, t.request(&key).ttl(t.long_ttl())).await;
    client.next(Op::Release, Fault::LoseAnswer);
    match guard.release().await {
        Ok(()) | Err(Error::Unavailable(_)) => {}
        other => panic!("an unknown outcome of a release: {other:?}"),
    }
    assert!(!guard.is_held());
    free_soon(&t, &key, "a release whose answer was lost").await;
    cleaned_up(&client).await;
    guard.release().await.expect("the second release, when the outcome is known");
    assert!(guard.loss().is_none(), "a release whose answer was lost is no loss");
}

async fn hanging_release_is_told_and_retried(t: Test) {
    for fault in [Fault::Hang, Fault::HangAfter] {
        let (key, client) = (t.key("a"), t.faulty().await);
        let limit = Duration::from_millis(200);
        let guard = grant(&*client, t.request(&key).ttl(t.long_ttl()).op_timeout(limit)).await;
        client.next(Op::Release, fault.clone());
        let bare = timed(tokio::time::sleep(limit));
        let ((bare, ()), (took, result)) = tokio::join!(bare, timed(guard.release()));
        let told = error(result, "a release that hangs");
        assert!(matches!(told, Error::Unavailable(_)), "{told:?}");
        assert!(took <= bare.max(limit) + Duration::from_millis(50), "{fault:?}: {took:?}");
        free_soon(&t, &key, &format!("a release with {fault:?} is retried")).await;
        cleaned_up(&client).await;
        guard.release().await.expect("the second release, when the outcome is known");
    }
}

async fn failing_release_frees_the_key_later(t: Test) {
    let (key, client, other) = (t.key("a"), t.faulty().await, t.client().await);
    let guard = grant(&*client, t.request(&key).ttl(t.long_ttl())).await;
    client.every(Op::Release, Fault::Refuse);
    drop(guard);
    let next = tokio::spawn(other.acquire(t.request(&key)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!next.is_finished(), "freed although no release got through");
    client.every(Op::Release, Fault::None);
    let next = within(PATIENCE, "the release is retried until it gets through", next).await;
    release(&next.unwrap().expect("a grant")).await;
}

async fn local_state_is_free_whatever_the_store_says(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let guard = grant(&*client, t.brief(&key).owner("job-7")).await;
    client.all(&Fault::Refuse);
    assert!(guard.release().await.is_err());
    client.all(&Fault::None);
    let next = client.acquire(t.brief(&key).owner("job-7"));
    let next = within(t.ttl() * 2 + SLACK, "the key after a failed release", next).await;
    let next = next.expect("a grant");
    assert_ne!(next.token(), guard.token(), "a released claim was entered again");
    release(&next).await;
}

async fn store_that_comes_back_is_used_again(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let guard = grant(&*client, t.brief(&key).ttl(t.ttl() * 3)).await;
    client.all(&Fault::Hang);
    tokio::time::sleep(t.ttl()).await;
    client.all(&Fault::None);
    tokio::time::sleep(t.ttl() * 3).await;
    assert!(guard.is_held(), "not renewed after the store came back: {:?}", guard.loss());
    release(&guard).await;
    for _ in 0..3 {
        release(&grant(&*client, t.brief(&key)).await).await;
    }
}

/// Waiters, tries and releases against a store that never answers all return in time.
async fn dead_store_holds_nobody_up(t: Test) {
    let client = t.faulty().await;
    let held = grant(&*client, t.brief(&t.key("held"))).await;
    client.all(&Fault::Hang);
    let wait = Duration::from_millis(400);
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let key = t.key(if n % 2 == 0 { "same" } else { "own" });
            let acquire = client.acquire(t.brief(&key).timeout(wait));
            tokio::spawn(async move { timed(acquire).await })
        })
        .collect();
    for task in tasks {
        let (took, result) = task.await.unwrap();
        assert!(result.is_err(), "granted by a store that does not answer");
        assert!(took <= wait + Duration::from_millis(150), "{took:?} for a timeout of {wait:?}");
    }
    within(t.ttl() + SLACK, "the loss is told without any answer", held.lost()).await;
}
