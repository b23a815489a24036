//! Forced release: hits whom it names, is told within TTL/3, and spares the successor.

use lockkit_core::{BootInstant, Error, Guard, LockExt, LossReason, Mode, Token, Which};

use crate::bed::{SLACK, Test};
use crate::case::{clause, rival};
use crate::check::{free_now, grant, grant_free, is_lost, refused, release, within};

clause! { "forced";
    holder_is_told_within_a_third(modes) [ForcedRelease];
    key_is_free_at_once [ForcedRelease];
    nobody_to_hit [ForcedRelease];
    by_token [ForcedRelease];
    by_fence [ForcedRelease Fenced];
    release_spares_the_successor(modes) [ForcedRelease];
    renewal_spares_the_successor(modes) [ForcedRelease Expires];
    renewal_does_not_recreate [ForcedRelease];
    loss_is_final_though_the_key_comes_back [ForcedRelease];
    acquired_again_is_renewed [ForcedRelease];
    one_reader_of_two [ForcedRelease Shared];
    waiter_gets_in [ForcedRelease];
}

async fn force(client: &crate::bed::Client, guard: &Guard, which: Which) -> bool {
    client.force_release(guard.key(), which).await.expect("a forced release")
}

async fn told_in_time(t: &Test, guard: &Guard) {
    let lost = within(t.ttl() / 3 + SLACK, "the loss is told", guard.lost()).await;
    assert!(matches!(lost.reason, LossReason::Gone), "the reason is not `Gone`: {lost:?}");
    assert!(!guard.is_held());
}

async fn holder_is_told_within_a_third(t: Test, mode: Mode) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief_in(&key, mode)).await;
    assert!(force(&b, &guard, Which::Whoever).await, "there was a holder");
    told_in_time(&t, &guard).await;
    is_lost(guard.release().await, "the release after a forced release");
}

async fn key_is_free_at_once(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key).ttl(t.long_ttl())).await;
    force(&b, &guard, Which::Whoever).await;
    let next = grant_free(&*b, t.brief(&key), "it was released by force").await;
    release(&next).await;
    drop(guard);
}

async fn nobody_to_hit(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    release(&guard).await;
    for which in [Which::Whoever, Which::Token(guard.token())] {
        assert!(!force(&a, &guard, which).await, "{which:?} hit somebody on a free key");
    }
    let by_fence = a.force_release(guard.key(), Which::Fence(1)).await;
    if guard.fence().is_some() {
        assert!(!by_fence.expect("an answer"), "a fence hit somebody on a free key");
    } else {
        assert!(matches!(by_fence, Err(Error::Unsupported(_))), "{by_fence:?}");
    }
}

async fn by_token(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    assert!(!force(&b, &guard, Which::Token(Token::new())).await, "hit by another token");
    refused(&*b, t.brief(&key), "another token was named").await;
    assert!(force(&b, &guard, Which::Token(guard.token())).await, "its own token does not hit");
    told_in_time(&t, &guard).await;
}

async fn by_fence(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let old = grant(&*a, t.brief(&key)).await;
    release(&old).await;
    let guard = grant(&*a, t.brief(&key)).await;
    let [old, new] = [&old, &guard].map(|guard| Which::Fence(guard.fence().expect("a fence")));
    assert!(!force(&b, &guard, old).await, "hit by the fence of the claim before");
    refused(&*b, t.brief(&key), "another fence was named").await;
    assert!(force(&b, &guard, new).await, "its own fence does not hit");
    told_in_time(&t, &guard).await;
}

async fn release_spares_the_successor(t: Test, mode: Mode) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    // So long that the holder does not ask the store before it releases.
    let guard = grant(&*a, t.brief_in(&key, mode).ttl(t.long_ttl())).await;
    force(&b, &guard, Which::Whoever).await;
    let next = grant_free(&*b, t.brief_in(&key, rival(mode)), "released by force").await;
    // It cannot know better yet, so it may say either.
    let _ = guard.release().await;
    refused(&*c, t.brief_in(&key, rival(mode)), "only a stale holder released").await;
    tokio::time::sleep(t.ttl()).await;
    assert!(next.is_held(), "a stale holder freed its successor's claim");
    release(&next).await;
}

async fn renewal_spares_the_successor(t: Test, mode: Mode) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let guard = grant(&*a, t.brief_in(&key, mode)).await;
    force(&b, &guard, Which::Whoever).await;
    let request = t.brief_in(&key, rival(mode)).renew(false);
    let next = grant_free(&*b, request, "released by force").await;
    let start = BootInstant::now();
    told_in_time(&t, &guard).await;
    let third = grant(&*c, t.brief_in(&key, rival(mode))).await;
    let after = BootInstant::now().since(start);
    let limit = t.ttl() + t.granularity() + SLACK;
    assert!(after <= limit, "a stale holder renewed its successor's claim: free after {after:?}");
    assert!(!next.is_held());
    release(&third).await;
}

async fn renewal_does_not_recreate(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    force(&b, &guard, Which::Whoever).await;
    told_in_time(&t, &guard).await;
    free_now(&*b, t.brief(&key), "a renewal must not create the claim again").await;
}

async fn loss_is_final_though_the_key_comes_back(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key)).await;
    force(&b, &guard, Which::Whoever).await;
    told_in_time(&t, &guard).await;
    let again = grant(&*a, t.brief(&key)).await;
    tokio::time::sleep(t.ttl()).await;
    assert!(!guard.is_held() && guard.loss().is_some(), "a loss was taken back");
    within(SLACK, "lost() resolves again", guard.lost()).await;
    is_lost(guard.release().await, "the release after a loss");
    assert!(again.is_held(), "the release of a lost guard ended the claim after it");
    release(&again).await;
}

async fn acquired_again_is_renewed(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let first = grant(&*a, t.brief(&key)).await;
    force(&b, &first, Which::Whoever).await;
    told_in_time(&t, &first).await;
    drop(first);
    let second = grant(&*a, t.brief(&key)).await;
    for _ in 0..10 {
        tokio::time::sleep(t.ttl() / 2).await;
        refused(&*b, t.brief(&key), "held for 5 TTL after a loss of the same key").await;
    }
    assert!(second.is_held(), "not renewed: {:?}", second.loss());
    release(&second).await;
}

async fn one_reader_of_two(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let first = grant(&*a, t.brief(&key).shared()).await;
    let second = grant(&*b, t.brief(&key).shared()).await;
    assert!(force(&b, &first, Which::Token(first.token())).await, "its token does not hit");
    told_in_time(&t, &first).await;
    tokio::time::sleep(t.ttl()).await;
    assert!(second.is_held(), "the other reader was hit too");
    refused(&*a, t.brief(&key), "the other reader still reads").await;
    release(&second).await;
}

async fn waiter_gets_in(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key).ttl(t.long_ttl())).await;
    let waiter = b.acquire(t.brief(&key));
    let hit = async {
        tokio::time::sleep(t.ttl() / 4).await;
        force(&b, &guard, Which::Whoever).await;
    };
    let (next, ()) = within(t.ttl() + t.prompt(), "a forced release lets the waiter in", async {
        tokio::join!(waiter, hit)
    })
    .await;
    release(&next.expect("a grant")).await;
}
