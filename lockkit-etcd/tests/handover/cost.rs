//! What each hand-over costs, however many wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance_tests::servers::Etcd;
use lockkit_core::LockExt;
use tokio::task::JoinSet;

use crate::children::{Waiters, line_up};
use crate::counters::Counters;
use crate::line::*;

/// Waiters of one client that get in line again whenever they have been in: what `count`
/// hand-overs between them cost.
async fn rounds(contenders: usize, count: usize) -> Counters {
    let server = Etcd::start().unwrap();
    let (holder, lock) = (client(&url(&server)), client(&url(&server)));
    let guard = acquire(&holder).await;
    let entered = Arc::new(AtomicUsize::new(0));
    let (done, mut over) = tokio::sync::mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for n in 0..contenders {
        let (lock, entered, done) = (lock.clone(), Arc::clone(&entered), done.clone());
        tasks.spawn(async move {
            loop {
                let guard = acquire(&lock).await;
                if entered.fetch_add(1, Ordering::Relaxed) == count {
                    // It keeps the key until all is counted.
                    let _ = done.send(guard).await;
                    return;
                }
                guard.release().await.unwrap();
            }
        });
        tokio::task::block_in_place(|| wait_until_waiting(&server, n + 1));
    }
    let before = Counters::read(&server);
    guard.release().await.unwrap();
    let last = within("all hand-overs", over.recv()).await.unwrap();
    // All others are in line again.
    tokio::task::block_in_place(|| wait_until_waiting(&server, contenders - 1));
    let cost = Counters::since(&server, before);
    tasks.abort_all();
    last.release().await.unwrap();
    assert!(lock.close(PATIENCE).await && holder.close(PATIENCE).await);
    assert_eq!(in_line(&server), [], "nobody is left");
    cost
}

/// One deletes its key; the next one is told and looks; the first asks whether it can come in, and
/// gets in line again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_costs_the_same_with_8_and_with_64_contenders() {
    const COUNT: u64 = 300;
    let few = rounds(8, COUNT as usize).await;
    let many = rounds(64, COUNT as usize).await;
    println!("{COUNT} hand-overs: with 8 {few:?}, with 64 {many:?}");
    for cost in [few, many] {
        // The holder, and each who was in.
        assert_eq!(cost.deletes, COUNT + 1, "{cost:?}");
        assert_eq!(cost.releases, COUNT + 1, "{cost:?}");
        assert_eq!(cost.puts, COUNT, "each gets in line once: {cost:?}");
        assert_eq!(cost.events, COUNT + 1, "one is told of each release: {cost:?}");
        assert!(cost.entries <= 3 * (COUNT + 1), "{cost:?}");
        // Whoever gets in line and takes long for that looks once more.
        assert!(cost.txns <= 3 * (COUNT + 1) + COUNT / 10, "{cost:?}");
        assert!(cost.watches <= 2 * (COUNT + 1), "{cost:?}");
    }
}

/// Waiters that are in once each, of so many processes: what their hand-overs cost.
async fn once_each(processes: usize, count: usize) -> Counters {
    let server = Etcd::start().unwrap();
    let holder = client(&url(&server));
    let guard = acquire(&holder).await;
    let mut children = tokio::task::block_in_place(|| line_up(&server, processes, count));
    let before = Counters::read(&server);
    guard.release().await.unwrap();
    tokio::task::block_in_place(|| {
        let hear = |child: &mut Waiters| (0..count / processes).map(|_| child.held()).count();
        assert_eq!(children.iter_mut().map(hear).sum::<usize>(), count);
    });
    let cost = Counters::since(&server, before);
    assert!(holder.close(PATIENCE).await);
    cost
}

/// Whoever is woken looks once; nobody else asks anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_processes_a_hand_over_costs_the_same_with_8_and_with_64_contenders() {
    for (processes, count) in [(4, 8), (4, 64)] {
        let cost = once_each(processes, count).await;
        println!("{count} hand-overs over {processes} processes: {cost:?}");
        let handovers = count as u64;
        assert_eq!((cost.releases, cost.deletes), (handovers + 1, handovers + 1), "{cost:?}");
        assert_eq!(cost.events, handovers, "behind the last one nobody waits: {cost:?}");
        assert_eq!(cost.txns, handovers, "one look of each: {cost:?}");
        assert_eq!(cost.entries, handovers + 1, "only the releases are written: {cost:?}");
        assert_eq!(cost.puts, 0, "{cost:?}");
        assert!(cost.watches <= handovers, "{cost:?}");
    }
}

/// The one that is next, and nobody else: not when it comes in, and not afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_wakes_one_waiter() {
    const WAITERS: usize = 64;
    let server = Etcd::start().unwrap();
    let clients = [(); 4].map(|()| client(&url(&server)));
    let mut holder = acquire(&clients[0]).await;
    let mut waiters = std::collections::VecDeque::new();
    for n in 0..WAITERS {
        let lock = clients[n % clients.len()].clone();
        waiters.push_back(tokio::spawn(async move { acquire(&lock).await }));
        tokio::task::block_in_place(|| wait_until_waiting(&server, n + 1));
    }
    while let Some(next) = waiters.pop_front() {
        let before = Counters::read(&server);
        holder.release().await.unwrap();
        holder = within("the next one is in", next).await.unwrap();
        // Its watch ends.
        let left = waiters.len();
        tokio::task::block_in_place(|| wait_until_waiting(&server, left));
        let cost = Counters::since(&server, before);
        assert_eq!((cost.events, cost.txns, cost.releases), (1, 1, 1), "{left} wait: {cost:?}");
        assert_eq!((cost.entries, cost.puts, cost.deletes), (1, 0, 1), "{left} wait: {cost:?}");
    }
    holder.release().await.unwrap();
}
