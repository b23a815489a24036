//! Subscriptions that are cut, late, deaf or flooded.

use conformance_tests::servers::{Action, Redis, Rule};
use tokio::task::JoinSet;

use crate::*;

const KEY: &str = "order:lock:1001";

/// Within this, somebody was woken: it is half of the [`RARE_POLLS`]. (At once it is not, for all
/// tests here share one lock thread, and one of them floods it.)
const WOKEN: Duration = Duration::from_secs(4);

fn numbered(n: usize) -> String {
    format!("order:lock:{n}")
}

/// RED-07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_wait_has_nothing_to_do_with_subscriptions() {
    let behind = Behind::start();
    let (holder, lock) = (client(&behind.server, ""), behind.client(""));
    let _guards = [grant(&holder, long(KEY)).await, grant(&holder, long("other")).await];
    let subscribing = behind.proxy.rule(Rule::requests("SUBSCRIBE").act(Action::Lose));
    for phase in ["before anybody waits", "while a subscription hangs"] {
        let before = subscribing.count();
        let mut tries = JoinSet::new();
        for n in 0..20 {
            let key = if n % 2 == 0 { KEY } else { "other" };
            tries.spawn(timed(lock.try_acquire(long(key))));
        }
        while let Some(tried) = tries.join_next().await {
            let (answer, took) = tried.unwrap();
            assert!(answer.unwrap().is_none(), "{phase}");
            assert!(took < ms(300), "{phase}: took {took:?}");
        }
        assert_eq!(subscribing.count(), before, "{phase}");
        assert_eq!(connections(&behind.server, "pubsub"), 0, "{phase}");
        if before == 0 {
            // It subscribes in vain from now on.
            drop(waiter(&lock, long("other")));
            subscribing.wait(1, PATIENCE).unwrap();
        }
    }
}

/// RED-08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_woken_gets_in_by_asking() {
    let behind = Behind::start();
    let (holder, lock) = (client(&behind.server, ""), behind.client(""));
    let guard = grant(&holder, long(KEY)).await;
    let lost = behind.proxy.rule(Rule::answers("message").act(Action::Lose));
    let waiting = waiter(&lock, long(KEY));
    listened(&behind.server, 1).await;
    guard.release().await.unwrap();
    drop(within(POLL + SLACK, "asked", waiting).await.unwrap());
    lost.wait(1, AT_ONCE).unwrap();
}

/// RED-10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_that_end_before_they_listen_leave_nothing() {
    const WAITERS: usize = 200;
    let behind = Behind::start();
    let (holder, lock) = (client(&behind.server, ""), behind.client(""));
    let mut guards = Vec::new();
    for n in 0..WAITERS {
        guards.push(grant(&holder, long(&numbered(n))).await);
    }
    behind.proxy.rule(Rule::answers("subscribe").act(Action::Delay(ms(900))));
    let mut waits = JoinSet::new();
    for n in 0..WAITERS {
        waits.spawn(lock.acquire(long(&numbered(n)).timeout(ms(300))));
    }
    while let Some(waited) = waits.join_next().await {
        let error = waited.unwrap().expect_err("held");
        assert!(error.is_not_acquired(), "{error}");
    }
    quiet(&lock).await;
    behind.proxy.clear_rules();
    listened(&behind.server, 0).await;
    eventually(ms(4_000), "no subscriber is left", || connections(&behind.server, "pubsub") == 0)
        .await;
    // And the next one who waits is woken.
    let lock = behind.client(RARE_POLLS);
    let waiting = waiter(&lock, long(&numbered(0)));
    listened(&behind.server, 1).await;
    guards.swap_remove(0).release().await.unwrap();
    drop(within(WOKEN, "woken", waiting).await.unwrap());
}

/// RED-26: the release is told before the server knows that somebody listens; or is known to
/// listen before the waiter knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_before_the_subscription_is_confirmed_is_not_missed() {
    const LATE: Duration = Duration::from_millis(300);
    for late in [Rule::requests("SUBSCRIBE"), Rule::answers("subscribe")] {
        let behind = Behind::start();
        let (holder, lock) = (client(&behind.server, ""), behind.client(RARE_POLLS));
        let guard = grant(&holder, long(KEY)).await;
        let late = behind.proxy.rule(late.act(Action::Delay(LATE)));
        let waiting = waiter(&lock, long(KEY));
        late.wait(1, PATIENCE).unwrap();
        let since = Instant::now();
        guard.release().await.unwrap();
        drop(within(PATIENCE, "the waiter is in", waiting).await.unwrap());
        let took = since.elapsed();
        assert!(took < LATE + WOKEN, "in after {took:?}");
    }
}

/// RED-37.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_was_thrown_out_comes_again() {
    let server = Redis::start().unwrap();
    let (holder, lock) = (client(&server, ""), client(&server, RARE_POLLS));
    let guard = grant(&holder, long(KEY)).await;
    let waiting = waiter(&lock, long(KEY));
    for _ in 0..5 {
        listened(&server, 1).await;
        ask(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    listened(&server, 1).await;
    assert_eq!(connections(&server, "pubsub"), 1);
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    drop(within(WOKEN, "woken", waiting).await.unwrap());
}

/// RED-38, and one connection for however many keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_five_hundred_are_woken_after_two_reconnects() {
    const WAITERS: usize = 500;
    let server = Redis::start().unwrap();
    let (holder, lock) = (client(&server, ""), client(&server, RARE_POLLS));
    let mut holders = JoinSet::new();
    (0..WAITERS).for_each(|n| drop(holders.spawn(holder.acquire(long(&numbered(n))))));
    let guards = holders.join_all().await;
    let mut waits = JoinSet::new();
    (0..WAITERS).for_each(|n| drop(waits.spawn(lock.acquire(long(&numbered(n))))));
    listened(&server, WAITERS).await;
    assert_eq!(connections(&server, "pubsub"), 1);
    ask(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    // Again, as soon as it is there and before it can be done.
    eventually(WOKEN, "it is back", || connections(&server, "pubsub") > 0).await;
    ask(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let mut releases = JoinSet::new();
    for guard in guards {
        releases.spawn(async move { guard.unwrap().release().await.unwrap() });
    }
    releases.join_all().await;
    let all = within(ms(5_000), "all are in", waits.join_all()).await;
    let guards: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    drop(guards);
    quiet(&lock).await;
    // The channels are given up, and then the connection.
    let over = Instant::now();
    listened(&server, 0).await;
    eventually(ms(3_000), "unsubscribed", || connections(&server, "pubsub") == 0).await;
    assert!(over.elapsed() < ms(2_000) + SLACK, "{:?}", over.elapsed());
    empty(&server).await;
}

/// RED-47.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_foreign_messages_drowns_nobody() {
    const FLOOD: &str =
        "for i = 1, tonumber(ARGV[2]) do redis.call('PUBLISH', ARGV[1], ARGV[3]) end";
    let server = Redis::start().unwrap();
    let (holder, lock) = (client(&server, ""), client(&server, ""));
    let guard = grant(&holder, long(KEY)).await;
    let waiting = waiter(&lock, long(KEY));
    listened(&server, 1).await;
    let channel = channels(&server)[0].bytes().to_vec();
    ask(&server, &["CONFIG", "RESETSTAT"]);
    let memory = resident();
    let mut most = 0;
    // Some of nobody's business, and some that look like releases.
    for (count, payload) in [("95000", "foreign"), ("5000", "")] {
        let flood: [&[u8]; 6] =
            [b"EVAL", FLOOD.as_bytes(), b"0", &channel, count.as_bytes(), payload.as_bytes()];
        server.command(&flood).unwrap();
        most = most.max(resident());
    }
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    drop(within(POLL + AT_ONCE, "in behind the flood", waiting).await.unwrap());
    let grown = most.max(resident()).saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} bytes more");
    let stats = ask(&server, &["INFO", "commandstats"]).text();
    let asked = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let asked: usize = asked.unwrap().split(',').next().unwrap().parse().unwrap();
    assert!(asked < 5_000, "asked {asked} times: once for each message that looked like a release");
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_who_waits_turns_off_the_light() {
    let server = Redis::start().unwrap();
    let (holder, lock) = (client(&server, ""), client(&server, ""));
    let _guards = [grant(&holder, long("a")).await, grant(&holder, long("b")).await];
    let waits = ["a", "b"].map(|key| tokio::spawn(lock.acquire(long(key))));
    listened(&server, 2).await;
    let [a, b] = waits;
    a.abort();
    listened(&server, 1).await;
    assert_eq!(connections(&server, "pubsub"), 1);
    b.abort();
    let over = Instant::now();
    listened(&server, 0).await;
    eventually(ms(3_000), "closed", || connections(&server, "pubsub") == 0).await;
    assert!(over.elapsed() < ms(2_000) + SLACK, "{:?}", over.elapsed());
}

/// What was told while nobody could listen is found out by the next poll at the latest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_while_the_subscriber_was_away_is_not_missed() {
    let behind = Behind::start();
    let (holder, lock) = (client(&behind.server, ""), behind.client(""));
    let guard = grant(&holder, long(KEY)).await;
    let waiting = waiter(&lock, long(KEY));
    listened(&behind.server, 1).await;
    behind.proxy.refuse();
    ask(&behind.server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    listened(&behind.server, 0).await;
    guard.release().await.unwrap();
    behind.proxy.accept().unwrap();
    drop(within(POLL + AT_ONCE, "the waiter is in", waiting).await.unwrap());
}
