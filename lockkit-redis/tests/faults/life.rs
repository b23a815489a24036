//! From the first command to the last: what is there has an end, and what is over stays over.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conformance_tests::servers::{Cut, Redis};
use lockkit_core::Which;
use tokio::task::JoinSet;

use crate::*;

/// RED-43, RED-17: keys of all kinds have an expiry at every moment, whatever is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_ever_without_an_end() {
    const ENDLESS: &str = "local keys, bad = redis.call('KEYS', '*'), {} \
        for _, key in ipairs(keys) do \
          if redis.call('PTTL', key) == -1 then bad[#bad + 1] = key end \
        end return {#keys, bad}";
    let behind = Arc::new(Behind::start());
    let over = Arc::new(AtomicBool::new(false));
    let (watched, done) = (Arc::clone(&behind), Arc::clone(&over));
    let watcher = std::thread::spawn(move || {
        let mut connection = watched.server.connect().unwrap();
        let (mut looks, mut seen) = (0_u64, 0);
        while !done.load(Ordering::Relaxed) {
            let answer = connection.call(&["EVAL", ENDLESS, "0"]).unwrap().checked().unwrap();
            let [count, endless] = answer.members() else { panic!("{answer:?}") };
            assert!(endless.members().is_empty(), "without an end: {endless:?}");
            looks += 1;
            seen += count.number().unwrap();
        }
        (looks, seen)
    });
    let (two, until) = (NonZeroU32::new(2).unwrap(), Instant::now() + ms(2_500));
    let kinds: [LimitedKind; 5] = [
        ("exclusive", "", |request, _| request),
        ("owned", "", |request, _| request.owner("me")),
        ("shared", "", |request, _| request.shared()),
        ("permit", "", Request::permit),
        ("fair", "fair=true", |request, _| request),
    ];
    let mut tasks = JoinSet::new();
    for (kind, params, with) in kinds {
        let lock = behind.client(&format!("{QUICK_POLLS}&{params}"));
        for _ in 0..3 {
            let lock = lock.clone();
            tasks.spawn(async move {
                let mut granted = 0_u32;
                while Instant::now() < until {
                    let request = long(kind).ttl(ms(450)).timeout(ms(200));
                    if let Ok(guard) = lock.acquire(with(request, two)).await {
                        granted += 1;
                        tokio::time::sleep(ms(fastrand::u64(0..200))).await;
                        let _ = guard.release().await;
                    }
                }
                assert!(granted > 0, "{kind}");
            });
        }
    }
    while Instant::now() < until {
        tokio::time::sleep(ms(fastrand::u64(5..120))).await;
        behind.proxy.cut(Cut::Reset);
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let (looks, seen) = watcher.join().unwrap();
    assert!(looks > 100 && seen > 100, "{seen} keys in {looks} looks");
    empty(&behind.server).await;
}

/// RED-01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_renewal_follows_a_release() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 250;
    let server = Redis::start().unwrap();
    let lock = client(&server, "op_timeout=5s");
    warm(&lock).await;
    let mut monitor = server.connect().unwrap();
    monitor.call(&["MONITOR"]).unwrap().checked().unwrap();
    let reader = std::thread::spawn(move || {
        let (renew, free) = (digest("RENEW"), digest("FREE"));
        let (mut renewals, mut released) = (HashMap::<String, u32>::new(), HashSet::new());
        loop {
            let line = monitor.read().unwrap().text();
            if line.contains("that is all") {
                return (renewals, released);
            }
            // Those of scripts are theirs.
            if line.contains(" lua] ") {
                continue;
            }
            let token = |line: &str| {
                let mut words = line.split('"').filter(|word| word.len() == 32);
                words.next_back().unwrap_or_default().to_owned()
            };
            if line.contains(renew) {
                let token = token(&line);
                assert!(!released.contains(&token), "renewed after its release: {line}");
                *renewals.entry(token).or_default() += 1;
            } else if line.contains(free) {
                released.insert(token(&line));
            }
        }
    });
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (lock, address) = (lock.clone(), server.address());
        tasks.spawn(async move {
            let key = format!("key{task}");
            let mut look = conformance_tests::servers::Resp::tcp(address).unwrap();
            for round in 0..ROUNDS {
                let guard = grant(&lock, long(&key).ttl(ms(100))).await;
                // Every tenth is held until it is about to be renewed.
                if round % 10 == 0 {
                    tokio::time::sleep(ms(32) + Duration::from_micros(fastrand::u64(0..4_000)))
                        .await;
                }
                match guard.release().await {
                    // The machine was busy with others for the whole TTL.
                    Ok(()) | Err(Error::Lost(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                let there = look.call(&["EXISTS", &format!("lockkit:{key}")]).unwrap();
                assert_eq!(there.number(), Some(0), "there after its release");
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    // Three TTLs.
    tokio::time::sleep(ms(300)).await;
    assert_eq!(keys(&server), Vec::<String>::new());
    ask(&server, &["ECHO", "that is all"]);
    let (renewals, released) = reader.join().unwrap();
    assert!(released.len() + 20 >= TASKS * ROUNDS, "{} releases seen", released.len());
    assert!(!renewals.is_empty(), "none was about to be renewed");
}

/// A key that is taken by force while it is renewed and released is nobody's afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_taken_by_force_is_not_made_again() {
    let server = Redis::start().unwrap();
    let (lock, other) = (client(&server, ""), client(&server, ""));
    for _ in 0..10 {
        let guard = grant(&lock, long("key").ttl(ms(300))).await;
        tokio::time::sleep(ms(96) + Duration::from_micros(fastrand::u64(0..8_000))).await;
        assert!(other.force_release(guard.key(), Which::Whoever).await.unwrap());
        let next = grant_free(&other, long("key"), "taken").await;
        within(ms(200) + SLACK, "told", guard.lost()).await;
        assert!(next.is_held() && has(&server, &next));
        next.release().await.unwrap();
        quiet(&lock).await;
        assert!(is_free(&server, "key"));
    }
}

/// Somebody deletes the helper key that tells what a sorted set is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_whose_helper_was_deleted_can_be_released() {
    let server = Redis::start().unwrap();
    let lock = client(&server, "");
    let two = std::num::NonZeroU32::new(2).unwrap();
    for request in [long("key").shared(), long("key").permit(two)] {
        let guard = grant(&lock, request).await;
        let info = [b"DEL".as_slice(), b"lockkit:\xffinfo{lockkit:key}"].map(<[u8]>::to_vec);
        assert_eq!(server.command(&info).unwrap(), Reply::Int(1));
        guard.release().await.unwrap();
        grant_free(&lock, long("key"), "released").await.release().await.unwrap();
    }
    empty(&server).await;
}
