//! Who gets the key next: the one whose key is the oldest, whatever process it belongs to.

use conformance_tests::servers::Etcd;
use lockkit_core::LockExt;

use crate::children::{Held, Waiters, line_up};
use crate::line::*;

/// In the order of the create revisions, and never two at a time.
fn in_order(mut held: Vec<Held>, expected: &[u64]) {
    held.sort();
    let fences: Vec<_> = held.iter().map(|held| held.fence).collect();
    assert_eq!(fences, expected, "in the order of the queue");
    let apart = |pair: &[Held]| pair[0].until <= pair[1].from;
    assert!(held.windows(2).all(apart), "{held:?}");
}

/// The create revisions of those who wait.
fn queue(server: &Etcd) -> Vec<u64> {
    in_line(server)[1..].iter().map(|key| u64::try_from(key.created).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_come_first_served_over_processes() {
    const PROCESSES: usize = 4;
    const EACH: usize = 8;
    let server = Etcd::start().unwrap();
    let holder = client(&url(&server));
    let guard = acquire(&holder).await;
    let mut children =
        tokio::task::block_in_place(|| line_up(&server, PROCESSES, PROCESSES * EACH));
    let queue = queue(&server);
    guard.release().await.unwrap();
    let hear = |child: &mut Waiters| (0..EACH).map(|_| child.held()).collect::<Vec<_>>();
    let held: Vec<_> = tokio::task::block_in_place(|| children.iter_mut().map(hear).collect());
    for (n, held) in held.iter().enumerate() {
        let own: Vec<_> = queue.iter().skip(n).step_by(PROCESSES).copied().collect();
        in_order(held.clone(), &own);
    }
    in_order(held.concat(), &queue);
    assert!(holder.close(PATIENCE).await);
}

/// One that gives up leaves its place, and the one behind it is not let in by that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leaves_the_line_hands_nothing_on() {
    let server = Etcd::start().unwrap();
    let holder = client(&url(&server));
    let guard = acquire(&holder).await;
    let mut waiters = Vec::new();
    for n in 0..4 {
        let lock = holder.clone();
        waiters.push(tokio::spawn(async move { acquire(&lock).await }));
        tokio::task::block_in_place(|| wait_until_waiting(&server, n + 1));
    }
    let queue = queue(&server);
    waiters.remove(1).abort();
    tokio::task::block_in_place(|| wait_until_waiting(&server, 3));
    assert!(guard.is_held() && waiters.iter().all(|waiter| !waiter.is_finished()));
    guard.release().await.unwrap();
    for (waiter, fence) in waiters.into_iter().zip([queue[0], queue[2], queue[3]]) {
        let guard = within("the next one is in", waiter).await.unwrap();
        assert_eq!(guard.fence(), Some(fence));
        guard.release().await.unwrap();
    }
    assert!(holder.close(PATIENCE).await);
}
