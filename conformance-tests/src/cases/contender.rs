//! What a backend author writes, without the engine around it: right in every state.

use std::time::Duration;

use lockkit_core::{
    Attempt, BootInstant, Claim, Contender, Error, LockExt, Mode, Released, Renewal, Request, Stage,
};

use crate::bed::{Client, SLACK, Test};
use crate::case::{clause, rival};
use crate::check::{free_now, free_within, grant, grant_free, refused, release, until};
use crate::polls::poll_times;

clause! { "contender";
    attempt_is_idempotent(modes);
    repeated_attempt_gives_a_full_ttl(modes) [Expires];
    busy_try_leaves_nothing;
    lease_counts_from_before_the_request(modes);
    renewal_extends_and_proves(modes);
    renewal_never_creates(modes);
    renewal_of_an_expired_claim_is_gone(modes) [Expires];
    renewal_spares_a_successor(modes) [Expires];
    claim_that_nobody_looks_after_ends(modes) [Expires];
    release_is_right_in_every_state(modes);
    release_spares_a_successor(modes) [Expires];
    linger_keeps_the_key_so_long [Expires];
    other_family_is_no_busy [Permits];
    call_dropped_at_each_poll(modes);
}

/// Enough for any exchange.
pub(super) const BUDGET: Duration = Duration::from_secs(5);

/// A claim that the engine made and never sends.
fn claim(client: &Client, request: Request) -> Claim {
    let mut made = None;
    drop(client.core().acquire(request, |claim| {
        made = Some(claim.clone());
        client.contend(claim)
    }));
    made.expect("a request that is in order")
}

pub(super) fn contend(client: &Client, request: Request) -> Box<dyn Contender> {
    client.contend(claim(client, request))
}

async fn granted(contender: &mut Box<dyn Contender>, stage: Stage) -> (Option<u64>, BootInstant) {
    match contender.attempt(stage, BUDGET).await.expect("an attempt") {
        Attempt::Granted { fence, lease } => (fence, lease.sent + lease.ttl),
        busy => panic!("should be granted: {busy:?}"),
    }
}

async fn busy(contender: &mut Box<dyn Contender>, stage: Stage) {
    let answer = contender.attempt(stage, BUDGET).await.expect("an attempt");
    assert!(matches!(answer, Attempt::Busy { .. }), "should be busy: {answer:?}");
}

async fn released(contender: &mut Box<dyn Contender>) -> Released {
    contender.release(BUDGET).await.expect("a release")
}

async fn gone(contender: &mut Box<dyn Contender>, why: &str) {
    let answer = contender.renew(BUDGET).await.expect("a renewal");
    assert!(matches!(answer, Renewal::Gone), "should be gone, {why}: {answer:?}");
}

async fn attempt_is_idempotent(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief_in(&key, mode));
    let (first, _) = granted(&mut mine, Stage::First).await;
    for stage in [Stage::Try, Stage::First, Stage::Wait] {
        let (again, _) = granted(&mut mine, stage).await;
        assert!(again >= first, "a repeated attempt gave an older fence: {again:?} < {first:?}");
    }
    busy(&mut contend(&b, t.brief_in(&key, rival(mode))), Stage::Try).await;
    assert_eq!(released(&mut mine).await, Released::Freed, "one claim, one release");
    free_now(&*b, t.brief_in(&key, rival(mode)), "released once").await;
}

async fn repeated_attempt_gives_a_full_ttl(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief_in(&key, mode));
    let (_, first) = granted(&mut mine, Stage::First).await;
    tokio::time::sleep(t.ttl() * 3 / 4).await;
    let (_, second) = granted(&mut mine, Stage::Wait).await;
    assert!(second > first + t.ttl() / 2, "the answer does not tell of a new TTL");
    until(first + t.ttl() / 4).await;
    refused(&*b, t.brief_in(&key, rival(mode)), "a repeated attempt re-armed the TTL").await;
    assert_eq!(released(&mut mine).await, Released::Freed);
}

async fn busy_try_leaves_nothing(t: Test) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    let mut tried = contend(&b, t.brief(&key).ttl(t.long_ttl()));
    busy(&mut tried, Stage::Try).await;
    release(&guard).await;
    free_now(&*c, t.brief(&key), "only a try was refused before").await;
    assert_eq!(released(&mut tried).await, Released::NotFound);
}

async fn lease_counts_from_before_the_request(t: Test, mode: Mode) {
    let (key, client) = (t.key("a"), t.client().await);
    let mut mine = contend(&client, t.brief_in(&key, mode));
    let before = BootInstant::now();
    let Attempt::Granted { lease, .. } = mine.attempt(Stage::Try, BUDGET).await.expect("a try")
    else {
        panic!("nobody holds it");
    };
    let after = BootInstant::now();
    assert!(before <= lease.sent && lease.sent <= after, "sent at {:?}", lease.sent);
    let before = BootInstant::now();
    let Renewal::Extended(lease) = mine.renew(BUDGET).await.expect("a renewal") else {
        panic!("it is held");
    };
    assert!(before <= lease.sent && lease.sent <= BootInstant::now(), "sent {:?}", lease.sent);
    assert_eq!(released(&mut mine).await, Released::Freed);
}

async fn renewal_extends_and_proves(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief_in(&key, mode));
    granted(&mut mine, Stage::First).await;
    for _ in 0..4 {
        tokio::time::sleep(t.ttl() / 2).await;
        let answer = mine.renew(BUDGET).await.expect("a renewal");
        assert!(matches!(answer, Renewal::Extended(_)), "a living claim: {answer:?}");
        refused(&*b, t.brief_in(&key, rival(mode)), "it is renewed").await;
    }
    assert_eq!(released(&mut mine).await, Released::Freed);
    gone(&mut mine, "it was released").await;
}

async fn renewal_never_creates(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut never = contend(&a, t.brief_in(&key, mode));
    gone(&mut never, "it was never asked for").await;
    let mut mine = contend(&a, t.brief_in(&key, mode));
    granted(&mut mine, Stage::First).await;
    assert_eq!(released(&mut mine).await, Released::Freed);
    gone(&mut mine, "it was released").await;
    gone(&mut never, "it was never asked for").await;
    free_now(&*b, t.brief_in(&key, rival(mode)), "nobody holds it").await;
}

async fn renewal_of_an_expired_claim_is_gone(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief_in(&key, mode));
    let (_, end) = granted(&mut mine, Stage::First).await;
    until(end + t.granularity() + Duration::from_millis(20)).await;
    gone(&mut mine, "its time is over").await;
    free_now(&*b, t.brief_in(&key, rival(mode)), "it expired").await;
    assert_eq!(released(&mut mine).await, Released::NotFound);
}

/// As after a power cut: no engine renews it, releases it or sweeps it.
async fn claim_that_nobody_looks_after_ends(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut dead = contend(&a, t.brief_in(&key, mode));
    let (_, end) = granted(&mut dead, Stage::First).await;
    drop(dead);
    refused(&*b, t.brief_in(&key, rival(mode)), "its time is not over").await;
    let next = grant(&*b, t.brief_in(&key, rival(mode))).await;
    let now = BootInstant::now();
    assert!(now >= end, "taken over {:?} before its end", end.since(now));
    let late = now.since(end);
    assert!(late <= t.granularity() + SLACK, "freed {late:?} after its end");
    release(&next).await;
}

async fn renewal_spares_a_successor(t: Test, mode: Mode) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief_in(&key, mode));
    let (_, end) = granted(&mut mine, Stage::First).await;
    until(end + t.granularity() + Duration::from_millis(20)).await;
    let next = grant_free(&*b, t.brief_in(&key, rival(mode)).renew(false), "it expired").await;
    let start = BootInstant::now();
    tokio::time::sleep(t.ttl() / 2).await;
    gone(&mut mine, "another claim has the key").await;
    assert!(next.is_held());
    let third = grant(&*c, t.brief_in(&key, rival(mode))).await;
    let after = BootInstant::now().since(start);
    let limit = t.ttl() + t.granularity() + SLACK;
    assert!(after <= limit, "a stale renewal extended the successor's claim to {after:?}");
    release(&third).await;
}

async fn release_is_right_in_every_state(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief_in(&key, mode).ttl(t.long_ttl()));
    assert_eq!(released(&mut mine).await, Released::NotFound, "never asked for");
    let holder = grant(&*b, t.brief_in(&key, rival(mode))).await;
    busy(&mut mine, Stage::First).await;
    released(&mut mine).await;
    busy(&mut mine, Stage::Wait).await;
    released(&mut mine).await;
    assert!(holder.is_held());
    refused(&*a, t.brief_in(&key, rival(mode)), "only those who wait released").await;
    release(&holder).await;
    free_now(&*b, t.brief_in(&key, rival(mode)), "nobody waits any more").await;
    granted(&mut mine, Stage::First).await;
    assert_eq!(released(&mut mine).await, Released::Freed, "held");
    assert_eq!(released(&mut mine).await, Released::NotFound, "released before");
}

async fn release_spares_a_successor(t: Test, mode: Mode) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief_in(&key, mode));
    let (_, end) = granted(&mut mine, Stage::First).await;
    until(end + t.granularity() + Duration::from_millis(20)).await;
    let next = grant_free(&*b, t.brief_in(&key, rival(mode)), "it expired").await;
    assert_eq!(released(&mut mine).await, Released::NotFound, "its time is over");
    refused(&*c, t.brief_in(&key, rival(mode)), "only a stale claim was released").await;
    tokio::time::sleep(t.ttl()).await;
    assert!(next.is_held(), "a stale release freed the successor's claim: {:?}", next.loss());
    release(&next).await;
}

async fn linger_keeps_the_key_so_long(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let mut mine = contend(&a, t.brief(&key));
    granted(&mut mine, Stage::First).await;
    let (rest, start) = (t.ttl() * 2, BootInstant::now());
    let Some(kept) = mine.linger(rest, BUDGET).await.expect("an answer") else {
        // This store's leases die with the process: the engine keeps the claim instead.
        assert_eq!(released(&mut mine).await, Released::Freed);
        return;
    };
    assert_eq!(kept, Released::Freed);
    tokio::time::sleep(t.ttl() * 3 / 2).await;
    refused(&*b, t.brief(&key), "it lingers").await;
    let limit = t.ttl() / 2 + t.granularity() + SLACK;
    let next = free_within(&*b, t.brief(&key), limit, "the rest is over").await;
    let after = BootInstant::now().since(start);
    assert!(after + Duration::from_millis(5) >= rest, "free after {after:?} of {rest:?}");
    assert_eq!(mine.linger(rest, BUDGET).await.expect("an answer"), Some(Released::NotFound));
    assert!(next.is_held());
    release(&next).await;
}

async fn other_family_is_no_busy(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    let three = std::num::NonZeroU32::new(3).expect("not zero");
    let mut other = contend(&b, t.brief(&key).permit(three));
    for stage in [Stage::Try, Stage::First, Stage::Wait] {
        let answer = other.attempt(stage, BUDGET).await;
        let refused = matches!(answer, Err(Error::Configuration(_)));
        assert!(refused, "permits of a key that is held exclusively: {answer:?}");
    }
    released(&mut other).await;
    release(&guard).await;
}

/// A call that is dropped is a request without an answer: the release after it must be right.
async fn call_dropped_at_each_poll(t: Test, mode: Mode) {
    let (a, b) = (t.client().await, t.client().await);
    for polls in 0..100 {
        let key = t.key("a");
        let mut mine = contend(&a, t.brief_in(&key, mode).ttl(t.long_ttl()));
        let attempt = poll_times(mine.attempt(Stage::First, BUDGET), polls).await.cancel();
        let done = attempt.is_some();
        drop(attempt);
        released(&mut mine).await;
        let why = format!("an attempt dropped after {polls} polls was released");
        // What was under way when the call was dropped must not come back later.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let limit = Duration::from_secs(1);
        let request = t.brief_in(&key, rival(mode)).timeout(limit);
        let next = b.acquire(request).await.unwrap_or_else(|e| panic!("{why}: {e}"));
        release(&next).await;
        if done {
            return;
        }
    }
    panic!("no answer within 100 polls");
}
