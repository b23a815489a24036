//! Who gets the key next where the server keeps a queue.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conformance_tests::servers::Redis;
use lockkit_core::{DistributedLock, LockExt};
use tokio::task::JoinSet;

use crate::children::{KEY, Waiters};
use crate::clients::*;

/// For how long a place stands that nobody asks for again.
const PLACE: Duration = Duration::from_secs(2);

/// One client acquires and releases without a pause: all who were in line come before its next
/// turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_loops_starves_nobody() {
    let server = Redis::start().unwrap();
    let busy = client(&server, "fair=true");
    let others: Vec<_> = (0..5).map(|_| client(&server, "fair=true")).collect();
    for _ in 0..20 {
        let order = Arc::new(Mutex::new(Vec::new()));
        let guard = grant(&busy, long(KEY)).await;
        let mut waiters = JoinSet::new();
        for (n, lock) in others.iter().enumerate() {
            let (acquire, order) = (lock.acquire(long(KEY)), Arc::clone(&order));
            waiters.spawn(async move {
                let guard = acquire.await.unwrap();
                order.lock().unwrap().push(n);
                guard.release().await.unwrap();
            });
            waiting(&busy, KEY, n + 1).await;
        }
        let looping = {
            let (busy, order) = (busy.clone(), Arc::clone(&order));
            tokio::spawn(async move {
                guard.release().await.unwrap();
                while order.lock().unwrap().len() < 10 {
                    let guard = grant(&busy, long(KEY)).await;
                    order.lock().unwrap().push(BUSY);
                    guard.release().await.unwrap();
                }
            })
        };
        within(PATIENCE, "all get in", waiters.join_all()).await;
        within(PATIENCE, "the busy one goes on", looping).await.unwrap();
        let order = order.lock().unwrap().clone();
        assert_eq!(order[..5], [0, 1, 2, 3, 4], "who came first, and the busy one: {order:?}");
    }
}

/// However rarely a client is told to ask, it asks before its place is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_outlives_rare_polls() {
    let server = Redis::start().unwrap();
    let [holder, lock, newcomer] =
        ["", "poll_min=9s&poll_max=9s", ""].map(|p| client(&server, &format!("fair=true&{p}")));
    for ttl in [Duration::from_secs(30), Duration::from_millis(300)] {
        let guard = grant(&holder, long(KEY)).await;
        let first = tokio::spawn(lock.acquire(long(KEY).ttl(ttl)));
        waiting(&holder, KEY, 1).await;
        tokio::time::sleep(ttl.min(PLACE) + Duration::from_secs(1)).await;
        let seen = holder.inspect(guard.key()).await.unwrap();
        assert_eq!(seen.and_then(|holder| holder.waiting), Some(1), "its place stands");
        let second = tokio::spawn(newcomer.acquire(long(KEY)));
        waiting(&holder, KEY, 2).await;
        guard.release().await.unwrap();
        let guard = within(POLL, "who was first", first).await.unwrap().unwrap();
        assert!(!second.is_finished());
        guard.release().await.unwrap();
        within(PATIENCE, "the second", second).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// The one that loops, among the others.
const BUSY: usize = 99;

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
