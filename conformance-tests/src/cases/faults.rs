//! Renewals that fail, are slow or get lost; errors that do or do not mend.

use std::time::Duration;

use lockkit_core::testing::{Exchanged, Fault, Faulty, Op, Outcome};
use lockkit_core::{BootInstant, DistributedLock, Error, Guard, LockExt, LossReason, Stage};

use crate::bed::{PATIENCE, SLACK, Test};
use crate::case::clause;
use crate::check::{error, eventually, grant, is_lost, refused, release, timed, within};

clause! { "faults";
    one_failed_renewal_loses_nothing;
    failing_renewals_lose_at_the_deadline;
    hanging_renewals_lose_at_the_deadline;
    lost_answers_of_renewals_lose_at_the_deadline;
    renews_at_a_third_of_the_ttl;
    deadline_counts_from_the_sending_of_the_acquire;
    deadline_counts_from_the_sending_of_the_renewal;
    slow_renewal_delays_no_other;
    no_renewal_after_the_release heavy;
    nothing_is_sent_for_a_lost_claim;
    suspended_machine_is_seen_at_once;
    error_for_good_is_told_at_once;
    refused_renewal_is_retried_to_the_deadline;
    transient_error_is_told_with_the_timeout;
    transient_error_is_overcome;
}

fn exchanges(client: &Faulty, guard: &Guard, op: Op) -> Vec<Exchanged> {
    let of = |e: &Exchanged| e.token == guard.token() && e.op == op;
    client.log().into_iter().filter(of).collect()
}

async fn one_failed_renewal_loses_nothing(t: Test) {
    let other = t.client().await;
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Hang, Fault::HangAfter] {
        let (key, client) = (t.key("a"), t.faulty().await);
        let guard = grant(&*client, t.brief(&key)).await;
        client.next(Op::Renew, fault.clone());
        tokio::time::sleep(t.ttl() * 2).await;
        assert!(guard.is_held(), "one renewal with {fault:?}: {:?}", guard.loss());
        refused(&*other, t.brief(&key), "one renewal failed, the next did not").await;
        release(&guard).await;
    }
}

async fn lost_at_the_deadline(t: &Test, fault: Fault) -> LossReason {
    let (key, client, rival) = (t.key("a"), t.faulty().await, t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    client.every(Op::Renew, fault);
    let deadline = guard.deadline().expect("a live claim");
    let waiting = tokio::spawn(rival.acquire(t.brief(&key)));
    let lost = within(t.ttl() + SLACK, "the loss is told at the deadline", guard.lost()).await;
    let now = BootInstant::now();
    assert!(now >= deadline, "given up {:?} before the deadline", deadline.since(now));
    assert!(now.since(deadline) < SLACK, "told {:?} after the deadline", now.since(deadline));
    is_lost(guard.release().await, "the release after a loss");
    let next = within(t.ttl() * 2 + SLACK, "the rival gets in", waiting).await;
    release(&next.unwrap().expect("a grant")).await;
    lost.reason
}

async fn failing_renewals_lose_at_the_deadline(t: Test) {
    let reason = lost_at_the_deadline(&t, Fault::Refuse).await;
    let LossReason::Expired { last_error: Some(cause) } = reason else {
        panic!("the loss does not tell its cause: {reason:?}");
    };
    assert!(cause.to_string().contains("injected"), "not the cause: {cause}");
}

async fn hanging_renewals_lose_at_the_deadline(t: Test) {
    let reason = lost_at_the_deadline(&t, Fault::Hang).await;
    assert!(matches!(reason, LossReason::Expired { .. }), "{reason:?}");
}

/// The store extends the claim each time, but nobody here may know.
async fn lost_answers_of_renewals_lose_at_the_deadline(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let guard = grant(&*client, t.brief(&key)).await;
    client.every(Op::Renew, Fault::LoseAnswer);
    let deadline = guard.deadline().expect("a live claim");
    within(t.ttl() + SLACK, "the loss is told at the deadline", guard.lost()).await;
    assert!(BootInstant::now().since(deadline) < SLACK, "an answer that was lost counted");
}

async fn renews_at_a_third_of_the_ttl(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let guard = grant(&*client, t.brief(&key).ttl(t.ttl() * 2)).await;
    tokio::time::sleep(t.ttl() * 8).await;
    let renewals = exchanges(&client, &guard, Op::Renew);
    release(&guard).await;
    assert!((9..=13).contains(&renewals.len()), "{} renewals in 4 TTL", renewals.len());
    for pair in renewals.windows(2) {
        let pause = pair[1].begun.since(pair[0].begun);
        assert!(pause < t.ttl(), "{pause:?} between two renewals of a TTL of {:?}", t.ttl() * 2);
    }
}

/// A deadline that counts from the answer lies this much too late.
const SLOW: Duration = Duration::from_millis(250);

async fn deadline_counts_from_the_sending_of_the_acquire(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    client.next(Op::Attempt(Stage::First), Fault::DelayAnswer(SLOW));
    let request = t.brief(&key).ttl(t.ttl() * 2).op_timeout(t.ttl());
    let guard = grant(&*client, request).await;
    let latest = BootInstant::now() + t.ttl() * 2 - SLOW;
    let deadline = guard.deadline().expect("a live claim");
    assert!(
        deadline <= latest,
        "the deadline counts from the answer: {:?} late",
        deadline.since(latest)
    );
    release(&guard).await;
}

async fn deadline_counts_from_the_sending_of_the_renewal(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let ttl = t.ttl() * 2;
    let guard = grant(&*client, t.brief(&key).ttl(ttl).op_timeout(t.ttl())).await;
    client.every(Op::Renew, Fault::DelayAnswer(SLOW));
    for _ in 0..2 {
        let before = guard.deadline().expect("a live claim");
        let moved = || guard.deadline().is_some_and(|deadline| deadline > before);
        eventually(ttl, "a renewal moves the deadline", moved).await;
        let latest = BootInstant::now() + ttl - SLOW;
        let deadline = guard.deadline().expect("a live claim");
        let late = deadline.since(latest);
        assert!(late.is_zero(), "the deadline counts from the answer: {late:?} late");
    }
    client.every(Op::Renew, Fault::None);
    release(&guard).await;
}

async fn slow_renewal_delays_no_other(t: Test) {
    let client = t.faulty().await;
    client.next(Op::Renew, Fault::Hang);
    let long = t.ttl() * 5;
    let stuck = grant(&*client, t.brief(&t.key("slow")).ttl(long).op_timeout(long)).await;
    let hangs = client.logged(|log| log.iter().any(|e| e.op == Op::Renew));
    within(long, "the renewal that hangs", hangs).await;
    let mut guards = Vec::new();
    for _ in 0..10 {
        guards.push(grant(&*client, t.brief(&t.key("n"))).await);
    }
    tokio::time::sleep(t.ttl() * 2).await;
    let hung = exchanges(&client, &stuck, Op::Renew);
    assert!(hung.iter().any(|e| e.outcome == Outcome::Open), "nothing hangs any more: {hung:?}");
    for guard in &guards {
        assert!(guard.is_held(), "lost beside a renewal that hangs: {:?}", guard.loss());
        let renewed = exchanges(&client, guard, Op::Renew);
        let good = renewed.iter().filter(|e| e.outcome == Outcome::Yes).count();
        assert!(good >= 4, "only {good} renewals in 2 TTL beside one that hangs");
    }
}

async fn no_renewal_after_the_release(t: Test) {
    let client = t.faulty().await;
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let (client, t) = (client.clone(), t.clone());
            tokio::spawn(async move {
                for _ in 0..3 {
                    let key = t.key("a");
                    let guard = grant(&*client, t.brief(&key)).await;
                    // About when the first renewal is due.
                    let third = t.ttl() / 3 + Duration::from_millis(n % 12);
                    tokio::time::sleep(third - Duration::from_millis(6)).await;
                    // Sixty at once may take longer than such a short TTL lets one wait.
                    if n % 2 == 0 { drop(guard.release().await) } else { drop(guard) }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("acquire and release");
    }
    tokio::time::sleep(t.ttl()).await;
    let log = client.log();
    for sent in log.iter().filter(|e| e.op == Op::Release) {
        let later = log.iter().filter(|e| e.token == sent.token && e.op == Op::Renew);
        let later = later.filter(|e| e.begun > sent.begun).count();
        assert_eq!(later, 0, "a renewal was sent after the release of {}", sent.key);
    }
    assert!(log.iter().any(|e| e.op == Op::Renew), "no renewal was due at all");
}

async fn nothing_is_sent_for_a_lost_claim(t: Test) {
    let (key, client, rival) = (t.key("a"), t.faulty().await, t.client().await);
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    guard.lost().await;
    let next = grant(&*rival, t.brief(&key)).await;
    // When its lease is over, what may be left of it is taken away.
    let core = client.core();
    eventually(PATIENCE, "the clean-up behind the loss", || core.cleaning_up() == 0).await;
    let before = client.log().len();
    is_lost(guard.release().await, "the release of a lost claim");
    is_lost(guard.release().await, "its second release");
    drop(guard);
    tokio::time::sleep(t.ttl() / 2).await;
    assert_eq!(client.log().len(), before, "a lost guard sent something");
    release(&next).await;
}

/// The clock jumps, as it does when a suspended machine wakes, before any timer has fired.
async fn suspended_machine_is_seen_at_once(t: Test) {
    let (key, lock) = (t.key("a"), t.suspendable().await);
    let ttl = t.ttl() * 2;
    let guard = grant(&*lock, t.brief(&key).ttl(ttl)).await;
    lock.sleep_through(ttl / 2);
    assert!(guard.is_held(), "lost after half of its TTL");
    lock.sleep_through(ttl);
    assert!(!guard.is_held(), "a machine that slept through its lease believes to hold the key");
    assert!(guard.loss().is_some() && guard.remaining().is_zero());
    within(SLACK, "the loss is told after a suspend", guard.lost()).await;
    is_lost(guard.release().await, "the release after a suspend");
}

async fn error_for_good_is_told_at_once(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    client.next(Op::Attempt(Stage::First), Fault::Deny);
    let request = t.brief(&key).timeout(Duration::from_secs(10));
    let (took, result) = timed(client.acquire(request)).await;
    let refusal = error(result, "an acquire without permission");
    assert!(matches!(refusal, Error::Permission(_)), "{refusal:?}");
    assert!(refusal.to_string().contains("injected"), "not the cause: {refusal}");
    assert!(took < Duration::from_secs(1), "told after {took:?}");
    client.next(Op::Attempt(Stage::Try), Fault::Deny);
    let refusal = error(client.try_acquire(t.brief(&key)).await, "a try without permission");
    assert!(matches!(refusal, Error::Permission(_)), "{refusal:?}");
}

async fn refused_renewal_is_retried_to_the_deadline(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let guard = grant(&*client, t.brief(&key)).await;
    client.every(Op::Renew, Fault::Refuse);
    tokio::time::sleep(t.ttl() * 3 / 4).await;
    assert!(guard.is_held(), "given up before the deadline");
    client.every(Op::Renew, Fault::None);
    tokio::time::sleep(t.ttl()).await;
    assert!(guard.is_held(), "not tried again up to the deadline: {:?}", guard.loss());
    release(&guard).await;
}

async fn transient_error_is_told_with_the_timeout(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    client.all(&Fault::Refuse);
    let wait = Duration::from_millis(400);
    let bare = timed(tokio::time::sleep(wait));
    let asked = timed(client.acquire(t.brief(&key).timeout(wait)));
    let ((bare, ()), (took, result)) = tokio::join!(bare, asked);
    let refusal = error(result, "an acquire without a store");
    assert!(took <= bare.max(wait) + Duration::from_millis(50), "took {took:?}");
    assert!(took >= wait, "given up after {took:?}: a transient error is retried to the end");
    assert!(refusal.is_retryable(), "{refusal:?}");
    assert!(refusal.to_string().contains("injected"), "the cause is not told: {refusal}");
    let tries = client.log().iter().filter(|e| matches!(e.op, Op::Attempt(_))).count();
    assert!(tries >= 2, "only {tries} attempts in {wait:?}");
    let tried = error(client.try_acquire(t.brief(&key)).await, "a try without a store");
    assert!(matches!(tried, Error::Unavailable(_)), "a try must not say `busy`: {tried:?}");
}

async fn transient_error_is_overcome(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    client.next(Op::Attempt(Stage::First), Fault::Refuse);
    client.next(Op::Attempt(Stage::Wait), Fault::Refuse);
    let guard = within(PATIENCE, "two errors, then a grant", grant(&*client, t.brief(&key))).await;
    let left = || client.core().waiting() == 0;
    eventually(SLACK, "the waiter left the queue", left).await;
    release(&guard).await;
}
