//! What a hand-over costs, and who gets the key next.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockkit_core::testing::{Faulty, Op};
use lockkit_core::{DistributedLock, LockExt, Stage};

use crate::bed::{PATIENCE, Test};
use crate::case::clause;
use crate::check::{eventually, grant, release, within};

clause! { "handover";
    two_hundred_waiters_of_one_client heavy;
    waiters_of_several_clients heavy;
    waiting_is_quiet;
    fifo_over_clients [Fair];
    busy_client_lets_the_others_in [Fair];
    first_come_first_served_in_one_client;
}

/// The shortest pause between two polls of one waiter.
const FASTEST_POLL: Duration = Duration::from_millis(100);

fn attempts(client: &Faulty) -> usize {
    [Stage::Try, Stage::First, Stage::Wait].iter().map(|s| client.count(Op::Attempt(*s))).sum()
}

/// Waiters that each release as soon as they are in.
fn waiters(
    client: &Arc<Faulty>,
    t: &Test,
    key: &str,
    n: usize,
) -> Vec<tokio::task::JoinHandle<()>> {
    (0..n)
        .map(|_| {
            let acquire = client.acquire(t.request(key).timeout(Duration::from_secs(60)));
            tokio::spawn(async move { release(&acquire.await.expect("a grant")).await })
        })
        .collect()
}

async fn all_wait(client: &Faulty, n: usize) {
    // A store with a queue has no local one; there each has asked at least once.
    let waiting = || client.core().waiting() == n || client.count(Op::Attempt(Stage::First)) >= n;
    eventually(PATIENCE, &format!("{n} wait"), waiting).await;
}

async fn two_hundred_waiters_of_one_client(t: Test) {
    let (key, holder, client) = (t.key("a"), t.client().await, t.faulty().await);
    let guard = grant(&*holder, t.request(&key).ttl(t.long_ttl())).await;
    let first = waiters(&client, &t, &key, 1);
    all_wait(&client, 1).await;
    let others = waiters(&client, &t, &key, 199);
    all_wait(&client, 200).await;
    let (before, start) = (attempts(&client), Instant::now());
    release(&guard).await;
    for waiter in first.into_iter().chain(others) {
        waiter.await.expect("each waiter gets in");
    }
    let asked = attempts(&client) - before;
    // Each hand-over may cost one attempt of the first in line, or of the one that is woken;
    // behind that, whoever contends may poll.
    let contenders = if t.capabilities().fair { 200 } else { 1 };
    let polls = start.elapsed().as_millis() / FASTEST_POLL.as_millis() + 1;
    let polls = usize::try_from(polls).expect("a number") * contenders;
    assert!(asked <= 2 * 200 + polls, "{asked} attempts for 200 hand-overs and {polls} polls");
}

async fn waiters_of_several_clients(t: Test) {
    let (key, holder) = (t.key("a"), t.client().await);
    let guard = grant(&*holder, t.request(&key).ttl(t.long_ttl())).await;
    let mut clients = Vec::new();
    let mut all = Vec::new();
    for _ in 0..4 {
        let client = t.faulty().await;
        all.extend(waiters(&client, &t, &key, 15));
        all_wait(&client, 15).await;
        clients.push(client);
    }
    let before: usize = clients.iter().map(|client| attempts(client)).sum();
    let start = Instant::now();
    release(&guard).await;
    for waiter in all {
        waiter.await.expect("each waiter gets in");
    }
    let asked = clients.iter().map(|client| attempts(client)).sum::<usize>() - before;
    let contenders = if t.capabilities().fair { 60 } else { 4 };
    let polls = start.elapsed().as_millis() / FASTEST_POLL.as_millis() + 1;
    let polls = usize::try_from(polls).expect("a number") * contenders;
    let limit = 60 * 4 + 60 + polls;
    assert!(asked <= limit, "{asked} attempts for 60 hand-overs between 4 clients, {polls} polls");
}

async fn waiting_is_quiet(t: Test) {
    let (key, holder, client) = (t.key("a"), t.client().await, t.faulty().await);
    let guard = grant(&*holder, t.request(&key).ttl(t.long_ttl())).await;
    let mut waiting = tokio::spawn(client.acquire(t.request(&key)));
    let time = Duration::from_secs(3);
    assert!(tokio::time::timeout(time, &mut waiting).await.is_err());
    let asked = attempts(&client);
    assert!(asked <= 3 + 30, "a waiter asked {asked} times in {time:?}: not 100 ms apart");
    assert!(
        asked >= 4,
        "a waiter asked only {asked} times in {time:?}: no poll behind the wake-up"
    );
    release(&guard).await;
    release(&waiting.await.unwrap().expect("a grant")).await;
}

async fn fifo_over_clients(t: Test) {
    let (key, holder) = (t.key("a"), t.client().await);
    let guard = grant(&*holder, t.request(&key).ttl(t.long_ttl())).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(t.faulty().await);
    }
    let mut all = Vec::new();
    for n in 0..12 {
        let client = &clients[n % 3];
        let before = client.count(Op::Attempt(Stage::First));
        let (acquire, order) = (client.acquire(t.request(&key)), Arc::clone(&order));
        all.push(tokio::spawn(async move {
            let guard = acquire.await.expect("a grant");
            order.lock().unwrap().push(n);
            release(&guard).await;
        }));
        // In the queue before the next one comes.
        let queued = client.logged(|log| {
            let first = |e: &&lockkit_core::testing::Exchanged| {
                e.op == Op::Attempt(Stage::First)
                    && e.outcome != lockkit_core::testing::Outcome::Open
            };
            log.iter().filter(first).count() > before
        });
        within(PATIENCE, "a place in the queue", queued).await;
    }
    release(&guard).await;
    for waiter in all {
        waiter.await.expect("each waiter gets in");
    }
    assert_eq!(*order.lock().unwrap(), (0..12).collect::<Vec<_>>(), "not first come first served");
}

async fn busy_client_lets_the_others_in(t: Test) {
    let (key, busy) = (t.key("a"), t.client().await);
    let request = t.request(&key);
    let looping = tokio::spawn(async move {
        loop {
            release(&grant(&*busy, request.clone()).await).await;
        }
    });
    for client in t.clients(5).await {
        let next = client.acquire(t.request(&key));
        let next = within(t.prompt(), "a client that acquires in a loop lets others in", next);
        release(&next.await.expect("a grant")).await;
    }
    looping.abort();
    let _ = looping.await;
}

async fn first_come_first_served_in_one_client(t: Test) {
    let (key, holder, client) = (t.key("a"), t.client().await, t.faulty().await);
    let guard = grant(&*holder, t.request(&key).ttl(t.long_ttl())).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut all = Vec::new();
    for n in 0..8 {
        let (acquire, order) = (client.acquire(t.request(&key)), Arc::clone(&order));
        all.push(tokio::spawn(async move {
            let guard = acquire.await.expect("a grant");
            order.lock().unwrap().push(n);
            release(&guard).await;
        }));
        all_wait(&client, n + 1).await;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    release(&guard).await;
    for waiter in all {
        waiter.await.expect("each waiter gets in");
    }
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>(), "not first come first served");
}
