//! Who holds a key, as the store tells it.

use std::num::NonZeroU32;
use std::time::Duration;

use lockkit_core::{Holder, Key, LockExt, Mode};

use crate::bed::{Client, Test};
use crate::case::clause;
use crate::check::{grant, not_acquired, refused, release, until};

clause! { "inspection";
    tells_the_holder(modes) [Inspection];
    free_key_has_none [Inspection];
    expired_claim_is_none [Inspection Expires];
    counts_the_holders [Inspection Shared];
    counts_the_permits [Inspection Permits];
    refusal_names_the_holder [Inspection];
    does_not_disturb [Inspection];
    any_label [Inspection];
}

async fn holder(client: &Client, key: &str) -> Option<Holder> {
    client.inspect(&Key::new(key).expect("a key")).await.expect("an inspection")
}

async fn tells_the_holder(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief_in(&key, mode).label("checkout-7")).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let seen = holder(&b, &key).await.expect("a holder");
    assert_eq!(seen.label.as_deref(), Some("checkout-7"));
    assert_eq!((seen.mode, seen.holders), (mode, 1));
    assert_eq!(seen.fence, guard.fence());
    assert!(seen.token.is_none_or(|token| token == guard.token()), "another token: {seen:?}");
    assert!(seen.expires_in.is_none_or(|left| left <= t.ttl() && !left.is_zero()), "{seen:?}");
    assert!(seen.held_for.is_none_or(|held| held >= Duration::from_millis(50)), "{seen:?}");
    release(&guard).await;
}

async fn free_key_has_none(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    assert_eq!(holder(&client, &key).await, None, "never held");
    release(&grant(&*client, t.request(&key)).await).await;
    assert_eq!(holder(&client, &key).await, None, "released");
}

async fn expired_claim_is_none(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    until(guard.deadline().expect("a live claim")).await;
    tokio::time::sleep(t.granularity() + Duration::from_millis(50)).await;
    assert_eq!(holder(&client, &key).await, None, "expired");
}

async fn counts_the_holders(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let first = grant(&*a, t.request(&key).shared().label("first")).await;
    let second = grant(&*b, t.request(&key).shared().label("second")).await;
    let seen = holder(&b, &key).await.expect("holders");
    assert_eq!((seen.holders, seen.mode), (2, Mode::Shared));
    assert_eq!(seen.label.as_deref(), Some("first"), "not the one that holds it longest");
    release(&first).await;
    let seen = holder(&b, &key).await.expect("a holder");
    assert_eq!((seen.holders, seen.label.as_deref()), (1, Some("second")));
    release(&second).await;
}

async fn counts_the_permits(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let limit = NonZeroU32::new(3).expect("not zero");
    let first = client.permit(t.request(&key), limit).await.expect("a permit");
    let second = client.permit(t.request(&key), limit).await.expect("a permit");
    let seen = holder(&client, &key).await.expect("holders");
    assert_eq!((seen.holders, seen.mode), (2, Mode::Permit { limit }));
    release(&first).await;
    release(&second).await;
}

async fn refusal_names_the_holder(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key).label("nightly-run")).await;
    let wait = Duration::from_millis(200);
    let refusal = not_acquired(b.acquire(t.request(&key).timeout(wait)).await, "a busy key");
    let seen = refusal.holder.as_ref().expect("a refusal that names the holder");
    assert_eq!(seen.label.as_deref(), Some("nightly-run"));
    assert!(refusal.to_string().contains("nightly-run"), "the message: {refusal}");
    release(&guard).await;
}

async fn does_not_disturb(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    for _ in 0..50 {
        holder(&b, &key).await.expect("a holder");
    }
    tokio::time::sleep(t.ttl()).await;
    assert!(guard.is_held());
    refused(&*b, t.brief(&key), "it was only looked at").await;
    release(&guard).await;
}

async fn any_label(t: Test) {
    let client = t.client().await;
    for label in ["", " ", "a\nb", "'; --", "\u{0}", "🔒 straße", "%2F{}\"\\", &"x".repeat(300)]
    {
        let key = t.key("a");
        let guard = grant(&*client, t.request(&key).label(label)).await;
        let seen = holder(&client, &key).await.expect("a holder");
        assert!(
            seen.label.as_deref() == Some(label) || (label.is_empty() && seen.label.is_none()),
            "{label:?} came back as {:?}",
            seen.label
        );
        release(&guard).await;
    }
}
