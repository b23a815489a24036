//! Networks that go away and come again, and connections that end while nobody looks.

use conformance_tests::servers::{Cut, Redis, Rule};

use crate::*;

const KEY: &str = "order:lock:1001";

/// A network that lost what was under way in one direction and works again, without either side
/// being told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_leave_a_connection_that_carries_nothing() {
    for toward in [Toward::Client, Toward::Server, Toward::Both] {
        let behind = Behind::start();
        let lock = behind.client("");
        let mut events = lock.core().events();
        let guard = grant(&lock, long(KEY).ttl(ms(1_800))).await;
        event(&mut events, "a first renewal", renewed).await;
        // What is lost is a request, or only its answer.
        let lost = if toward == Toward::Client { Toward::Client } else { Toward::Server };
        let (before, sent) = (behind.proxy.total(), behind.proxy.frames(lost));
        behind.proxy.swallow(toward);
        eventually(PATIENCE, "one that is lost", || behind.proxy.frames(lost) > sent).await;
        behind.proxy.pass(toward);
        event(&mut events, "the next one", renewed).await;
        assert!(guard.is_held(), "{toward:?}: {:?}", guard.loss());
        assert!(behind.proxy.total() > before, "{toward:?}: over a new connection");
        // Those that are there have lost some answers, which must not be taken for others.
        guard.release().await.unwrap();
        let next = grant(&lock, long(KEY)).await;
        assert!(next.fence() > guard.fence() && has(&behind.server, &next), "{toward:?}");
        next.release().await.unwrap();
        assert!(is_free(&behind.server, KEY));
    }
}

/// RED-35.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_was_away_for_three_seconds_costs_nothing_else() {
    const AWAY: Duration = Duration::from_secs(3);
    let behind = Behind::start();
    let lock = behind.client("");
    let mut events = lock.core().events();
    let guard = grant(&lock, long(KEY).ttl(ms(6_600))).await;
    let away = Instant::now();
    behind.proxy.refuse();
    behind.proxy.cut(Cut::Reset);
    let (error, took) = timed(lock.acquire(long("another").timeout(ms(500)))).await;
    let error = error.expect_err("the network is away");
    assert!(error.is_retryable() && took < ms(600), "{error} after {took:?}");
    assert_eq!(error.reason(), "unavailable", "{error}");
    let failed = |kind: &EventKind| matches!(kind, EventKind::RenewalFailed { .. });
    event(&mut events, "a renewal in vain", failed).await;
    tokio::time::sleep(AWAY.saturating_sub(away.elapsed())).await;
    behind.proxy.accept().unwrap();
    event(&mut events, "the watchdog goes on", renewed).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    for n in 0..5 {
        let request = long(&format!("after{n}"));
        grant(&lock, request).await.release().await.unwrap();
    }
    guard.release().await.unwrap();
    quiet(&lock).await;
    empty(&behind.server).await;
}

/// Not even who does not wait is told that a connection had ended while nobody used it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ended_while_idle_is_replaced_without_a_word() {
    let behind = Behind::start();
    let lock = behind.client("");
    for round in 0..10 {
        let guard = grant_free(&lock, long(KEY), "free").await;
        // The last that it sends for a long time.
        let noted = format!(":f:{}:", guard.fence().unwrap());
        eventually(PATIENCE, "its fence is noted", || at(&behind.server, KEY).contains(&noted))
            .await;
        let cuts = [Cut::Finish, Cut::Reset];
        match round {
            0..5 => drop(ask(&behind.server, &["CLIENT", "KILL", "TYPE", "normal"])),
            _ => drop(behind.proxy.cut(cuts[round % 2])),
        }
        // The client has noticed.
        behind.proxy.wait_until_open(0, AT_ONCE).unwrap();
        tokio::time::sleep(ms(5)).await;
        guard.release().await.unwrap_or_else(|e| panic!("{round}: {e}"));
    }
    quiet(&lock).await;
    empty(&behind.server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_idle_connections_is_no_trouble() {
    let behind = Behind::of(Redis::builder().set("timeout", "1").start().unwrap());
    let lock = behind.client("");
    warm(&lock).await;
    let opened = behind.proxy.total();
    behind.proxy.wait_until_open(0, Duration::from_secs(5)).unwrap();
    let mut events = lock.core().events();
    let guard = grant_free(&lock, long(KEY), "free").await;
    guard.release().await.unwrap();
    assert!(behind.proxy.total() > opened);
    let trouble = count(&mut events, |kind| matches!(kind, EventKind::Unavailable));
    assert_eq!(trouble, 0);
}

/// Cuts at any moment, and whoever waits behind them comes to an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_flickers_is_only_slow() {
    let behind = Behind::start();
    let (lock, other) = (behind.client(QUICK_POLLS), behind.client(QUICK_POLLS));
    let sets = behind.proxy.rule(Rule::requests("PX"));
    let passing = |lock: RedisLock| {
        tokio::spawn(async move {
            for _ in 0..40 {
                let guard = grant(&lock, long(KEY)).await;
                // What is not answered is done behind it.
                let _ = guard.release().await;
            }
        })
    };
    let both = [passing(lock.clone()), passing(other.clone())];
    let mut cuts = 0;
    while !both.iter().all(JoinHandle::is_finished) {
        tokio::time::sleep(ms(fastrand::u64(1..40))).await;
        cuts += behind.proxy.cut(Cut::Reset);
    }
    for done in both {
        done.await.unwrap();
    }
    assert!(cuts > 10 && sets.count() > 0, "{cuts} cuts");
    quiet(&lock).await;
    quiet(&other).await;
    empty(&behind.server).await;
}
