//! Commands per hand-over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use conformance_tests::servers::{Redis, Reply};
use lockkit_core::{DistributedLock, Key, LockExt};
use lockkit_redis::RedisLock;
use tokio::task::JoinSet;

use crate::children::{KEY, Waiters};
use crate::clients::*;
use crate::counters::{self, Sent};

/// Waiters of one client that get in line again whenever they have been in. Gives what `count`
/// hand-overs between them cost, and how long they took.
async fn rounds(server: &Redis, params: &str, waiters: usize, count: usize) -> (Sent, Duration) {
    let (holder, lock) = (client(server, params), client(server, params));
    let guard = grant(&holder, long(KEY)).await;
    let (entered, (done, mut over)) =
        (Arc::new(AtomicUsize::new(0)), tokio::sync::mpsc::channel(1));
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let (lock, entered, done) = (lock.clone(), Arc::clone(&entered), done.clone());
        tasks.spawn(async move {
            loop {
                let guard = lock.acquire(long(KEY).wait_forever()).await.unwrap();
                if entered.fetch_add(1, Ordering::Relaxed) == count {
                    // It keeps the key until all is counted.
                    let _ = done.send(guard).await;
                    return;
                }
                guard.release().await.unwrap();
            }
        });
    }
    waiting(&lock, KEY, waiters).await;
    settled(server).await;
    counters::reset(server);
    let start = Instant::now();
    guard.release().await.unwrap();
    let last = within(PATIENCE, "all hand-overs", over.recv()).await.unwrap();
    let (sent, took) = (counters::read(server), start.elapsed());
    tasks.abort_all();
    drop(last);
    assert!(lock.close(PATIENCE).await && holder.close(PATIENCE).await);
    (sent, took)
}

/// Waits until the channel of the key is listened to, and nobody does more than poll.
async fn settled(server: &Redis) {
    eventually(PATIENCE, "somebody listens", || {
        !ask(server, &["PUBSUB", "CHANNELS"]).members().is_empty()
    })
    .await;
    loop {
        counters::reset(server);
        tokio::time::sleep(Duration::from_millis(40)).await;
        if counters::read(server).scripts <= 2 {
            return;
        }
    }
}

/// How often one who waits can have polled meanwhile.
fn polls(took: Duration) -> usize {
    usize::try_from(took.as_millis() / 100).unwrap() + 1
}

/// From release to release within one client: one release, and one attempt of the next, which it
/// may have begun before the release (and then once more behind it). However many wait behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_the_same_with_ten_and_with_a_hundred_waiters() {
    const COUNT: usize = 300;
    let server = Redis::start().unwrap();
    let (ten, took_ten) = rounds(&server, "", 10, COUNT).await;
    let (hundred, took_hundred) = rounds(&server, "", 100, COUNT).await;
    println!(
        "{COUNT} hand-overs: with 10 {ten:?} in {took_ten:?}, with 100 {hundred:?} in {took_hundred:?}"
    );
    for (sent, took) in [(ten, took_ten), (hundred, took_hundred)] {
        // One release, at most two attempts.
        let most = 3 * (COUNT + 1) + polls(took);
        assert!(sent.scripts <= most, "{sent:?} in {took:?}, at most {most}");
        assert!(sent.scripts >= 2 * COUNT, "{sent:?}: were they counted?");
        assert!(sent.messages <= COUNT + 1, "{sent:?}");
    }
    // How many attempts begin just before the release, chance decides; ninety more waiters that
    // each cost something would show by far more.
    let slack = COUNT / 2 + polls(took_ten) + polls(took_hundred);
    let (few, many) = (ten.scripts, hundred.scripts);
    assert!(many <= few + slack, "10 waiters: {few}, 100 waiters: {many} for {COUNT} hand-overs");
}

/// With a queue in the server the one that is next is told by name, and it alone asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_hand_over_costs_the_same_with_ten_and_with_a_hundred_waiters() {
    const COUNT: usize = 200;
    let server = Redis::start().unwrap();
    let mut costs = Vec::new();
    for waiters in [10, 100] {
        let (sent, took) = rounds(&server, "fair=true", waiters, COUNT).await;
        println!("{COUNT} fair hand-overs with {waiters}: {sent:?} in {took:?}");
        // One release, one attempt, and of the one that gets in line again: one to take its place
        // and one more once it listens. Each in line asks now and then.
        let most = 4 * (COUNT + 1) + waiters * polls(took);
        assert!(sent.scripts <= most, "{waiters}: {sent:?} in {took:?}, at most {most}");
        assert!(sent.messages <= COUNT + 1 + waiters, "{waiters}: {sent:?}");
        costs.push(sent.scripts.saturating_sub(waiters * polls(took)));
    }
    assert!(costs[1] <= costs[0] + 10 * polls(Duration::from_secs(1)) + COUNT / 20, "{costs:?}");
}

/// Releases the key to waiters in other processes, each of which is in once; gives what that cost
/// beyond the releases, and without what the same waiters ask anyway.
async fn attempts(params: &str, processes: usize, each: usize) -> usize {
    let server = Redis::start().unwrap();
    let holder = client(&server, params);
    let guard = grant(&holder, long(KEY)).await;
    let mut children: Vec<_> =
        (0..processes).map(|_| Waiters::start(&server, params, each)).collect();
    children.iter_mut().for_each(|child| child.hear("all wait"));
    in_line(&server, &holder, processes, each).await;

    // What they ask while nothing happens.
    counters::reset(&server);
    let quiet = Instant::now();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let (asked, quiet) = (counters::read(&server).scripts, quiet.elapsed());

    counters::reset(&server);
    let start = Instant::now();
    guard.release().await.unwrap();
    tokio::task::block_in_place(|| children.iter_mut().for_each(|child| child.hear("all were in")));
    let (sent, took) = (counters::read(&server), start.elapsed());
    let handovers = processes * each;
    let polls = (2 * asked + 1) as f64 * took.as_secs_f64() / quiet.as_secs_f64();
    println!(
        "{params} {processes} processes, {handovers} hand-overs in {took:?}: {sent:?}, {polls} polls"
    );
    assert!(sent.scripts >= 2 * handovers, "{sent:?}: were they counted?");
    (sent.scripts - handovers).saturating_sub(polls.ceil() as usize)
}

async fn in_line(server: &Redis, holder: &RedisLock, processes: usize, each: usize) {
    let key = Key::new(KEY).unwrap();
    let start = Instant::now();
    loop {
        let seen = holder.inspect(&key).await.unwrap();
        let fair = holder.core().capabilities().fair;
        let there = if fair {
            seen.is_some_and(|seen| seen.waiting == Some(processes * each))
        } else {
            let listen = ask(server, &["PUBSUB", "CHANNELS"]);
            listen.members().first().is_some_and(|channel| {
                let count = server.command(&[b"PUBSUB", &b"NUMSUB"[..], channel.bytes()]).unwrap();
                count.members().last().and_then(Reply::number) == i64::try_from(processes).ok()
            })
        };
        if there {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "they never were in line");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Each release wakes the first in line of each process, and each of these asks once. Whoever
/// comes to the front of its own line asks once too. Those behind ask nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_one_attempt_for_each_waiting_process() {
    for (processes, each) in [(4, 10), (16, 4)] {
        let handovers = processes * each;
        let asked = attempts("", processes, each).await;
        let most = handovers * (processes + 1);
        assert!(asked <= most, "{asked} attempts for {handovers} hand-overs of {processes}");
    }
}

/// The one that is next is told by name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_attempt_in_all_when_fair() {
    for (processes, each) in [(4, 10), (16, 4)] {
        let handovers = processes * each;
        let asked = attempts("fair=true", processes, each).await;
        // The first is not handed anything: two attempts more for what is under way at the start.
        assert!(asked <= handovers + 2, "{asked} attempts for {handovers} hand-overs");
    }
}

/// 200 waiters of four clients, fifty hand-overs: GEN-20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_are_no_herd() {
    const COUNT: usize = 50;
    for params in ["", "fair=true"] {
        let server = Redis::start().unwrap();
        let holder = client(&server, params);
        let guard = grant(&holder, long(KEY)).await;
        let clients: Vec<_> = (0..4).map(|_| client(&server, params)).collect();
        let entered = Arc::new(AtomicUsize::new(0));
        let (done, mut over) = tokio::sync::mpsc::channel(1);
        let mut tasks = JoinSet::new();
        for n in 0..200 {
            let acquire = clients[n % 4].acquire(long(KEY).wait_forever());
            let (entered, done) = (Arc::clone(&entered), done.clone());
            tasks.spawn(async move {
                let guard = acquire.await.unwrap();
                if entered.fetch_add(1, Ordering::Relaxed) == COUNT {
                    let _ = done.send(guard).await;
                } else {
                    guard.release().await.unwrap();
                }
            });
        }
        if params.is_empty() {
            for client in &clients {
                waiting(client, KEY, 50).await;
            }
        } else {
            waiting(&holder, KEY, 200).await;
        }
        // The first polls come close together.
        tokio::time::sleep(Duration::from_millis(600)).await;
        counters::reset(&server);
        let start = Instant::now();
        guard.release().await.unwrap();
        let last = within(PATIENCE, "fifty hand-overs", over.recv()).await.unwrap();
        let (sent, took) = (counters::read(&server), start.elapsed());
        println!("{params} {COUNT} hand-overs with 200 waiters: {sent:?} in {took:?}");
        let (each, asking) = if params.is_empty() { (1 + 4 + 1, 4) } else { (2, 200) };
        let most = each * (COUNT + 1) + asking * polls(took);
        assert!(sent.scripts <= most, "{params} {sent:?} in {took:?}, at most {most}");
        assert_eq!(sent.messages, COUNT + 1, "{params} one message for each release");
        tasks.abort_all();
        drop(last);
    }
}
