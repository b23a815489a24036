//! A server that stands still: its connections stay open, and nothing is answered.

use conformance_tests::servers::{Action, Redis, Rule};
use lockkit_core::LossReason;

use crate::*;

const KEY: &str = "order:lock:1001";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_learns_in_time_that_its_server_stands_still() {
    const TTL: Duration = Duration::from_secs(1);
    let server = Redis::start().unwrap();
    let (lock, other) = (client(&server, ""), client(&server, ""));
    let guard = grant(&lock, long(KEY).ttl(TTL)).await;
    let fence = guard.fence();
    server.process().stop().unwrap();
    let (lost, after) = timed(guard.lost()).await;
    assert!(matches!(lost.reason, LossReason::Expired { .. }), "{lost}");
    assert!(after <= TTL + ms(50), "told {after:?} after the server stood still");
    assert!(!guard.is_held());
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    server.process().resume().unwrap();
    let next = within(ms(2_000), "all works again", grant(&other, long(KEY))).await;
    assert!(next.fence() > fence);
    let again = within(ms(2_000), "here too", grant(&lock, long("another"))).await;
    again.release().await.unwrap();
    next.release().await.unwrap();
    empty(&server).await;
}

/// RED-31. Beside a bare sleep, for the machine may be late as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_returns_in_time_while_the_server_stands_still() {
    const WAIT: Duration = Duration::from_secs(1);
    let server = Redis::start().unwrap();
    let lock = client(&server, "");
    warm(&lock).await;
    let mut late = Vec::new();
    server.process().stop().unwrap();
    // Over connections that are open, and over those that are to be opened.
    for key in [KEY, "another"] {
        let acquire = timed(lock.acquire(long(key).timeout(WAIT)));
        let ((result, took), (_, slept)) = tokio::join!(acquire, timed(tokio::time::sleep(WAIT)));
        let error = result.expect_err("the server stands still");
        assert!(error.is_retryable(), "{error}");
        late.push(took.saturating_sub(slept));
    }
    assert!(late.iter().all(|late| *late <= ms(50)), "later than a sleep by {late:?}");
    server.process().resume().unwrap();
    grant(&lock, long("third")).await.release().await.unwrap();
    empty(&server).await;
}

/// The `SET` lies in the server's socket when its caller gives up, and is carried out as soon as
/// the server goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_does_when_it_goes_on_is_undone() {
    let behind = Behind::start();
    let (lock, server) = (behind.client(""), &behind.server);
    warm(&lock).await;
    ask(server, &["CONFIG", "RESETSTAT"]);
    server.process().stop().unwrap();
    let sent = behind.proxy.rule(Rule::requests("PX"));
    let given_up = lock.acquire(hasty(KEY, 300).timeout(ms(200))).await;
    assert!(given_up.is_err() && sent.count() == 1, "{given_up:?} after {} sets", sent.count());
    server.process().resume().unwrap();
    let executed = || ask(server, &["INFO", "commandstats"]).text().contains("cmdstat_set:calls=");
    eventually(AT_ONCE, "carried out", executed).await;
    eventually(ms(2_500), "undone", || is_free(server, KEY)).await;
    grant_free(&lock, long(KEY), "undone").await.release().await.unwrap();
    quiet(&lock).await;
    empty(server).await;
}

/// The same, but it arrives after the clean-up that was to undo it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_after_its_own_clean_up_is_undone_too() {
    let behind = Behind::start();
    let (lock, server) = (behind.client(""), &behind.server);
    warm(&lock).await;
    let late = Rule::requests("PX").act(Action::Delay(ms(1_200))).times(1);
    let late = behind.proxy.rule(late);
    let given_up = lock.acquire(hasty(KEY, 200).timeout(ms(100))).await;
    assert!(given_up.is_err() && late.count() == 1, "{given_up:?}");
    quiet(&lock).await;
    assert!(is_free(server, KEY), "it has not arrived yet");
    eventually(ms(2_500), "it arrives", || !is_free(server, KEY)).await;
    eventually(ms(3_000), "it is undone", || is_free(server, KEY)).await;
}
