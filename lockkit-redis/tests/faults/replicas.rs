//! Claims that replicas have to confirm.

use conformance_tests::servers::{Action, Redis, Rule};

use crate::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_replicas_do_not_confirm_is_undone_and_holds_up_nobody() {
    const TIMEOUT: Duration = Duration::from_millis(600);
    let primary = Redis::start().unwrap();
    let replica = Redis::builder().replica_of(&primary).start().unwrap();
    replica.wait_until_copying(&primary, PATIENCE).unwrap();
    let lock = client(&primary, "wait_replicas=1&wait_timeout=600ms");
    let guard = grant(&lock, long("confirmed").ttl(ms(1_200))).await;
    assert!(has(&replica, &guard), "the replica has it as soon as it is granted");
    let mut events = lock.core().events();
    replica.process().stop().unwrap();
    // All the connections on which it is waited, and some who wait for one.
    let mut tries = tokio::task::JoinSet::new();
    for n in 0..6 {
        tries.spawn(timed(lock.try_acquire(long(&format!("key{n}")))));
    }
    while let Some(tried) = tries.join_next().await {
        let (result, took) = tried.unwrap();
        let error = result.expect_err("no replica confirms");
        assert!(unavailable(&error), "{error}");
        assert!(error.to_string().contains("0 of the 1 replicas"), "{error}");
        assert!(took < 2 * TIMEOUT + SLACK, "told after {took:?}");
    }
    let (waited, took) = timed(lock.acquire(long("key0").timeout(ms(300)))).await;
    assert!(waited.unwrap_err().is_retryable() && took < ms(400), "{took:?}");
    quiet(&lock).await;
    eventually(AT_ONCE, "undone", || keys(&primary) == ["lockkit:confirmed"]).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    let (mut renewals, mut failures) = (0, 0);
    while let Some(event) = events.try_recv() {
        renewals += u32::from(renewed(&event.kind));
        failures += u32::from(matches!(event.kind, EventKind::RenewalFailed { .. }));
    }
    assert!(renewals >= 2 && failures == 0, "{renewals} renewals, {failures} failures");
    // Nor is its release.
    let (released, took) = timed(guard.release()).await;
    released.unwrap();
    assert!(took < ms(200), "{took:?}");
    replica.process().resume().unwrap();
    let again = within(ms(2_000), "confirmed again", grant(&lock, long("key0"))).await;
    assert!(has(&replica, &again));
}

/// An undo that was not answered may come at any time: what the same wait is granted later would go
/// with it, so it is granted nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_undo_takes_nothing_that_was_granted_since() {
    let primary = Redis::start().unwrap();
    let replica = Redis::builder().replica_of(&primary).start().unwrap();
    replica.wait_until_copying(&primary, PATIENCE).unwrap();
    let behind = Behind::of(primary);
    let lock = behind.client("wait_replicas=1&wait_timeout=200ms");
    let rival = client(&behind.server, "");
    warm(&lock).await;
    grant(&lock, long("warm").shared()).await.release().await.unwrap();
    let (ttl, late) = (ms(9_000), ms(2_500));
    let undos = ["WITHDRAW", "FREE"].map(|script| {
        behind.proxy.rule(Rule::requests(digest(script)).act(Action::Delay(late)).times(1))
    });
    replica.process().stop().unwrap();
    let waiting = tokio::spawn(lock.acquire(long(KEY).ttl(ttl).timeout(late)));
    eventually(PATIENCE, "an undo", || undos.iter().any(|undo| undo.count() > 0)).await;
    let undone = Instant::now();
    replica.process().resume().unwrap();
    match within(PATIENCE, "the end of the wait", waiting).await.unwrap() {
        Ok(guard) => {
            tokio::time::sleep((late + AT_ONCE).saturating_sub(undone.elapsed())).await;
            assert!(!guard.is_held() || has(&behind.server, &guard), "held, and not there");
        }
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            assert!(error.to_string().contains("too few of the replicas"), "{error}");
        }
    }
    // And nothing stays.
    grant(&rival, long(KEY).timeout(late + AT_ONCE)).await.release().await.unwrap();
    quiet(&lock).await;
    empty(&behind.server).await;
}

const KEY: &str = "order:lock:1001";
