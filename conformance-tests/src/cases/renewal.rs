//! The watchdog renews for as long as the guard lives, and not longer.

use std::time::Duration;

use lockkit_core::{BootInstant, LockExt, LossReason, Mode};

use crate::bed::{SLACK, Test};
use crate::case::{clause, rival};
use crate::check::{grant, is_lost, refused, release, until, within};

clause! { "renewal";
    held_for_five_ttls(modes);
    off_means_lost_at_the_deadline(modes) [Expires];
    many_claims_are_all_renewed;
    ends_with_the_guard(modes) [Expires];
    waiter_and_holder_in_one_client;
}

async fn held_for_five_ttls(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief_in(&key, mode)).await;
    let end = BootInstant::now() + t.ttl() * 5;
    while BootInstant::now() < end {
        tokio::time::sleep(t.ttl() / 4).await;
        assert!(guard.is_held(), "lost although it was renewed: {:?}", guard.loss());
        refused(&*b, t.brief_in(&key, rival(mode)), "its holder lives").await;
    }
    release(&guard).await;
}

async fn off_means_lost_at_the_deadline(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief_in(&key, mode).renew(false)).await;
    let deadline = guard.deadline().expect("a live claim");
    let lost = within(t.ttl() + SLACK, "lost() without renewal", guard.lost()).await;
    let now = BootInstant::now();
    assert!(now >= deadline, "lost {:?} before the deadline", deadline.since(now));
    assert!(now.since(deadline) <= SLACK, "lost {:?} after the deadline", now.since(deadline));
    assert!(!guard.is_held());
    let expired = matches!(lost.reason, LossReason::Expired { last_error: None });
    assert!(expired, "the reason is not the end of the time: {lost:?}");
    let rival = grant(&*b, t.brief_in(&key, rival(mode))).await;
    is_lost(guard.release().await, "the release after a loss");
    release(&rival).await;
}

async fn many_claims_are_all_renewed(t: Test) {
    let (a, b) = (t.client().await, t.client().await);
    let keys: Vec<String> = (0..40).map(|_| t.key("n")).collect();
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(grant(&*a, t.brief(key).ttl(t.ttl() * 2)).await);
    }
    tokio::time::sleep(t.ttl() * 6).await;
    for guard in &guards {
        assert!(guard.is_held(), "one of 40 was lost: {:?}", guard.loss());
        refused(&*b, t.brief(guard.key().as_str()), "one of 40 that are held").await;
    }
    for guard in guards {
        release(&guard).await;
    }
}

async fn ends_with_the_guard(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    for _ in 0..10 {
        let guard = grant(&*a, t.brief_in(&key, mode)).await;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..20))).await;
        release(&guard).await;
    }
    let guard = grant(&*b, t.brief_in(&key, rival(mode)).renew(false)).await;
    until(guard.deadline().expect("a live claim")).await;
    let limit = t.ttl() / 2 + t.granularity() + SLACK;
    let next = b.acquire(t.brief_in(&key, rival(mode)));
    let next = within(limit, "released claims are still renewed", next).await;
    release(&next.expect("a grant")).await;
}

async fn waiter_and_holder_in_one_client(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    let waiter = client.acquire(t.brief(&key));
    let hold = async {
        tokio::time::sleep(t.ttl() * 5).await;
        assert!(guard.is_held(), "not renewed while another task of the client waits");
        release(&guard).await;
    };
    let (waited, ()) = tokio::join!(waiter, hold);
    let next = waited.expect("the waiter's grant");
    assert!(next.remaining() > t.ttl() / 2, "not a full TTL: {:?}", next.remaining());
    release(&next).await;
}
