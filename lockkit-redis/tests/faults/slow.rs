//! Answers that come late.

use conformance_tests::servers::{Hits, Rule};

use crate::*;

const KEY: &str = "order:lock:1001";

/// For the attempts that are made in one go with the time.
fn attempts(behind: &Behind) -> Hits {
    behind.proxy.rule(Rule::requests("PX"))
}

/// RED-02.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_is_dropped_on_the_way_leaves_no_claim() {
    let behind = Behind::start();
    let lock = behind.client("");
    warm(&lock).await;
    behind.proxy.delay(Toward::Client, ms(200));
    let mut events = lock.core().events();
    let sent = attempts(&behind);
    let acquiring = tokio::spawn(lock.acquire(long(KEY).ttl(ms(3_000))));
    sent.wait(1, AT_ONCE).unwrap();
    // The case demands this moment.
    tokio::time::sleep(ms(50)).await;
    assert!(!is_free(&behind.server, KEY), "the server has it");
    acquiring.abort();
    let _ = acquiring.await;
    eventually(ms(900), "released", || is_free(&behind.server, KEY)).await;
    let other = client(&behind.server, "");
    let guard = grant_free(&other, long(KEY), "nobody holds it").await;
    quiet(&lock).await;
    // Longer than a third of the TTL: nobody renews.
    let unexpected = tokio::time::timeout(ms(1_200), event(&mut events, "renewed", renewed)).await;
    assert!(unexpected.is_err(), "renewed without a holder");
    assert!(has(&behind.server, &guard));
}

/// GEN-46.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_gave_up_before_its_answer_is_in_nobodys_way() {
    let behind = Behind::start();
    let (lock, other) = (behind.client(""), client(&behind.server, RARE_POLLS));
    warm(&lock).await;
    behind.proxy.delay(Toward::Client, ms(600));
    let sent = attempts(&behind);
    let giving_up = lock.acquire(hasty(KEY, 1_500).timeout(ms(300)));
    let giving_up = tokio::spawn(timed(giving_up));
    sent.wait(1, AT_ONCE).unwrap();
    eventually(AT_ONCE, "the server has it", || !is_free(&behind.server, KEY)).await;
    let waiting = waiter(&other, long(KEY));
    let (given_up, took) = giving_up.await.unwrap();
    let error = given_up.expect_err("without an answer");
    assert!(error.is_retryable(), "{error}");
    assert!(took < ms(400), "{took:?}");
    let guard = within(ms(3_000), "the other is in", waiting).await.unwrap();
    behind.proxy.delay(Toward::Client, Duration::ZERO);
    quiet(&lock).await;
    assert!(guard.is_held() && has(&behind.server, &guard));
}

/// At 20 ms the caller waits itself; at 60 and more the lock thread takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_works_at_any_distance() {
    for each_way in [10, 40, 200] {
        let behind = Behind::start();
        behind.proxy.delay(Toward::Both, ms(each_way));
        let (lock, other) = (behind.client(""), behind.client(""));
        let trip = ms(2 * each_way);
        // The first one opens the connection.
        grant(&lock, long("warm")).await.release().await.unwrap();
        let (guard, took) = timed(grant(&lock, long(KEY))).await;
        assert!(took >= trip && took < 2 * trip + ms(100), "{each_way}: an acquire took {took:?}");
        refused(&other, long(KEY), "held").await;
        let (_, took) = timed(refused(&other, long(KEY), "held")).await;
        assert!(took < 2 * trip + ms(100), "{each_way}: a try took {took:?}");
        let waiting = waiter(&other, long(KEY));
        listened(&behind.server, 1).await;
        let (released, took) = timed(guard.release()).await;
        released.unwrap();
        assert!(took < 2 * trip + ms(100), "{each_way}: a release took {took:?}");
        let limit = 4 * trip + POLL + AT_ONCE;
        let next = within(limit, "handed over", waiting).await.unwrap();
        assert!(next.fence() > guard.fence());
        next.release().await.unwrap();
        eventually(PATIENCE, "free", || is_free(&behind.server, KEY)).await;
    }
}
