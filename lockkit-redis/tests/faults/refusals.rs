//! Servers that are full, loading, no primaries, or let nobody in.

use conformance_tests::servers::{Redis, Resp};
use lockkit_core::LossReason;

use crate::*;

const KEY: &str = "order:lock:1001";

/// The error of who waits for a while, with its cause, and that of who does not.
async fn both_errors(lock: &RedisLock) -> [Error; 2] {
    let waited = timed(lock.acquire(long(KEY).timeout(ms(250)))).await;
    assert!(waited.1 < ms(400), "{waited:?}");
    // Who tries does not overtake who waits.
    eventually(AT_ONCE, "nobody waits", || lock.core().waiting() == 0).await;
    [waited.0.unwrap_err(), lock.try_acquire(long(KEY)).await.unwrap_err()]
}

/// Whoever waits is told the cause; whoever does not, that it is unavailable.
async fn unavailable_because(lock: &RedisLock, causes: &[&str]) {
    let [waited, tried] = both_errors(lock).await;
    assert!(unavailable(&tried), "{tried}");
    assert!(waited.is_retryable() && waited.reason() == "unavailable", "{waited}");
    let all = [waited.to_string(), tried.to_string()];
    for cause in causes {
        assert!(all.iter().all(|text| text.contains(cause)), "`{cause}` is in both of {all:?}");
    }
}

fn warned(lock: &RedisLock, of: &str) -> bool {
    lock.core().warnings().iter().any(|warning| warning.contains(of))
}

/// GEN-10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_evicted_is_told_lost() {
    let server = Redis::builder().max_memory(3 << 20, "allkeys-random").start().unwrap();
    let (lock, other) = (client(&server, ""), client(&server, ""));
    lock.ping().await.unwrap();
    assert!(warned(&lock, "allkeys-random"), "{:?}", lock.core().warnings());
    let guard = grant(&lock, long(KEY).ttl(ms(3_000))).await;
    let mut full = server.connect().unwrap();
    let (start, data) = (Instant::now(), "x".repeat(10_000));
    for n in 0_u64.. {
        full.call(&["SET", &format!("data{n}"), &data]).unwrap().checked().unwrap();
        if full.call(&["EXISTS", &format!("lockkit:{KEY}")]).unwrap().number() == Some(0) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "never evicted");
    }
    let lost = within(ms(1_000) + SLACK, "told at the next renewal", guard.lost()).await;
    assert!(matches!(lost.reason, LossReason::Gone), "{lost}");
    quiet(&lock).await;
    assert!(is_free(&server, KEY), "made again");
    let next = grant_free(&other, long(KEY), "evicted").await;
    assert!(next.fence() > guard.fence());
}

/// GEN-11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_renews_and_releases_and_takes_no_claims() {
    let server = Redis::start().unwrap();
    let kinds: [Kind; 5] = [
        ("young", "", |request| request),
        ("exclusive", "", |request| request),
        ("shared", "", Request::shared),
        ("owned", "", |request| request.owner("me")),
        ("fair", "fair=true", |request| request),
    ];
    let mut held = Vec::new();
    for (kind, params, with) in kinds.into_iter().rev() {
        let lock = client(&server, params);
        let events = lock.core().events();
        let guard = grant(&lock, with(long(kind).ttl(ms(900)))).await;
        if kind == "exclusive" {
            eventually(AT_ONCE, "noted", || at(&server, kind).contains(":f:")).await;
        }
        held.push((lock, events, guard));
    }
    ask(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    for (_, events, guard) in &mut held {
        count(events, |_| true);
        for _ in 0..2 {
            let next = tokio::time::timeout(ms(1_500), event(events, "renewed", renewed)).await;
            assert!(next.is_ok() && guard.is_held(), "{}: {:?}", guard.key(), guard.loss());
        }
    }
    let lock = client(&server, "");
    unavailable_because(&lock, &["OOM", "out of memory"]).await;
    for (_, _, guard) in held {
        guard.release().await.unwrap_or_else(|e| panic!("{}: {e}", guard.key()));
        assert!(is_free(&server, guard.key().as_str()));
    }
    let waiting = waiter(&lock, long(KEY));
    ask(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    drop(within(AT_ONCE, "there is memory again", waiting).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_says_that_it_takes_no_locks() {
    let primary = Redis::start().unwrap();
    let replica = Redis::builder().replica_of(&primary).start().unwrap();
    replica.wait_until_copying(&primary, PATIENCE).unwrap();
    let lock = client(&replica, "");
    let error = lock.ping().await.unwrap_err();
    assert!(unavailable(&error) && error.to_string().contains("is a replica"), "{error}");
    assert!(warned(&lock, "is a replica"), "{:?}", lock.core().warnings());
    unavailable_because(
        &lock,
        &["read only replica", "is a replica and takes no locks", &replica.address().to_string()],
    )
    .await;

    // One that may be written to and has lost its primary.
    ask(&replica, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    ask(&replica, &["CONFIG", "SET", "replica-read-only", "no"]);
    drop(primary);
    let lost = || replica.info("master_link_status").unwrap().as_deref() == Some("down");
    eventually(PATIENCE, "it notices", lost).await;
    unavailable_because(&lock, &["MasterDown", "has lost its primary"]).await;
}

/// No time is spent on what stays so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_let_in_is_told_at_once() {
    let open = Redis::builder().password("right").start().unwrap();
    let named = Redis::builder().user("app on >right ~other:* &* +@all").start().unwrap();
    let users = Redis::builder().user("default off").start().unwrap();
    for (server, user, hint) in [
        (&open, "", "wants a password"),
        (&open, ":wrong@", "refuses the user or the password"),
        (&named, "app:wrong@", "refuses the user or the password"),
        (&named, "nobody:right@", "refuses the user or the password"),
        (&named, "app:right@", "denies the user what locks need"),
        (&users, "", "wants a password"),
    ] {
        let lock = client_at(&format!("redis://{user}{}/0", server.address()));
        let acquire = timed(lock.acquire(long(KEY).timeout(Duration::from_secs(9)))).await;
        let attempts = [
            acquire,
            timed(lock.acquire(long(KEY).wait_forever())).await,
            timed(lock.ping()).await.map_guard(),
        ];
        for (result, took) in attempts {
            match result {
                Err(error @ Error::Permission(_)) => {
                    let text = format!("{error} {error:?}");
                    assert!(text.contains(hint), "{user}: {text}");
                    assert!(!text.contains("wrong@"), "{text}");
                }
                other => panic!("{user}: should be a matter of permission: {other:?}"),
            }
            assert!(took < AT_ONCE, "{user}: told after {took:?}");
        }
    }
}

trait MapGuard {
    fn map_guard(self) -> (lockkit_core::Result<Guard>, Duration);
}

impl MapGuard for (lockkit_core::Result<()>, Duration) {
    /// In the form of an acquire that must have failed.
    fn map_guard(self) -> (lockkit_core::Result<Guard>, Duration) {
        (Err(self.0.expect_err("let in")), self.1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_waited_for() {
    let server = Redis::builder()
        .set("enable-debug-command", "yes")
        .set("loading-process-events-interval-bytes", "1024")
        .start()
        .unwrap();
    let lock = client(&server, "");
    warm(&lock).await;
    let fill = "for i = 1, 4000 do redis.call('SET', 'data' .. i, string.rep(i .. ',', 100)) end";
    ask(&server, &["EVAL", fill, "0"]);
    ask(&server, &["CONFIG", "SET", "key-load-delay", "1000"]);
    let mut loading = server.connect().unwrap();
    loading.send(&["DEBUG", "RELOAD"]).unwrap();
    let mut direct = Resp::tcp(server.address()).unwrap();
    eventually(PATIENCE, "it loads", || {
        direct.call(&["PING"]).unwrap().text().starts_with("LOADING")
    })
    .await;
    unavailable_because(&lock, &["Loading", "is loading its data"]).await;
    let waiting = waiter(&lock, long(KEY));
    eventually(AT_ONCE, "it waits", || lock.core().waiting() == 1).await;
    assert!(direct.call(&["PING"]).unwrap().text().starts_with("LOADING"), "still");
    direct.call(&["CONFIG", "SET", "key-load-delay", "0"]).unwrap().checked().unwrap();
    loading.read().unwrap().checked().unwrap();
    drop(within(AT_ONCE + POLL, "it has loaded", waiting).await.unwrap());
}
