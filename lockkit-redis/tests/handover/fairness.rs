//! Who gets the key next where the server keeps a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use conformance_tests::servers::Redis;
use lockkit_core::LockExt;

use crate::children::{KEY, Waiters};
use crate::clients::*;

/// For how long a place stands that nobody asks for again.
const PLACE: Duration = Duration::from_secs(2);

/// One client acquires and releases without a pause; five others come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_loops_starves_nobody() {
    const ROUNDS: usize = 20;
    let server = Redis::start().unwrap();
    let cycles = Arc::new(AtomicUsize::new(0));
    let busy = {
        let (lock, cycles) = (client(&server, "fair=true"), Arc::clone(&cycles));
        tokio::spawn(async move {
            loop {
                let guard = lock.acquire(long(KEY)).await.unwrap();
                cycles.fetch_add(1, Ordering::Relaxed);
                guard.release().await.unwrap();
            }
        })
    };
    eventually(PATIENCE, "it loops", || cycles.load(Ordering::Relaxed) > 10).await;
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let (lock, cycles) = (client(&server, "fair=true"), Arc::clone(&cycles));
            tokio::spawn(async move {
                let mut worst = 0;
                for round in 0..ROUNDS {
                    let before = cycles.load(Ordering::Relaxed);
                    let guard = lock.acquire(long(KEY)).await.unwrap();
                    // The first attempt opens the connections.
                    if round > 0 {
                        worst = worst.max(cycles.load(Ordering::Relaxed) - before);
                    }
                    guard.release().await.unwrap();
                }
                worst
            })
        })
        .collect();
    for waiter in waiters {
        let worst = within(PATIENCE, "each gets in", waiter).await.unwrap();
        println!("at most {worst} cycles of the busy one until a waiter was in");
        // One that had the key already when it asked, one before it in line, and what passes
        // between the request and its place in line.
        assert!(worst <= 8, "a waiter saw {worst} cycles of the busy client pass");
    }
    busy.abort();
}

/// Five waiters that were killed in line do not each cost the time that their places stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_killed_waiters_cost_one_place_in_all() {
    let server = Redis::start().unwrap();
    let (holder, lock) = (client(&server, "fair=true"), client(&server, "fair=true"));
    let guard = grant(&holder, long(KEY)).await;
    let mut dead: Vec<_> = (0..5).map(|_| Waiters::start(&server, "fair=true", 1)).collect();
    dead.iter_mut().for_each(|child| child.hear("all wait"));
    waiting(&holder, KEY, 5).await;
    let waiter = tokio::spawn(lock.acquire(long(KEY)));
    waiting(&holder, KEY, 6).await;
    dead.iter_mut().for_each(Waiters::kill);
    let start = Instant::now();
    guard.release().await.unwrap();
    let next = within(PATIENCE, "the living one gets in", waiter).await.unwrap().unwrap();
    let took = start.elapsed();
    println!("in after {took:?}");
    assert!(took <= PLACE + SLACK, "five dead waiters held the key up for {took:?}");
    next.release().await.unwrap();
}
