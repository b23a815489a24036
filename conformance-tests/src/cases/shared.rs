//! Readers together, a writer alone, and no writer starves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lockkit_core::{BootInstant, Guard, LockExt};

use crate::bed::{Client, SLACK, Test};
use crate::case::clause;
use crate::check::{eventually, free_within, grant, grant_free, refused, release, safe, within};

clause! { "shared";
    readers_read_together [Shared];
    writer_waits_for_the_last_reader [Shared];
    readers_wait_for_the_writer [Shared];
    stream_of_readers_does_not_starve_a_writer [Shared];
    cancelled_writer_lets_readers_in [Shared];
    writers_and_readers_never_meet [Shared] heavy;
    dead_reader_lets_the_writer_in [Shared Expires];
    one_dead_reader_of_two [Shared Expires];
    many_readers_in_one_client [Shared];
}

async fn readers(clients: &[Client], t: &Test, key: &str) -> Vec<Guard> {
    let mut readers = Vec::new();
    for client in clients {
        readers.push(grant_free(&**client, t.request(key).shared(), "only readers hold it").await);
    }
    readers
}

async fn readers_read_together(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(4).await);
    let mut guards = readers(&clients, &t, &key).await;
    guards.extend(readers(&clients, &t, &key).await);
    tokio::time::sleep(t.ttl() * 2).await;
    for guard in &guards {
        assert!(guard.is_held(), "one of eight readers was lost: {:?}", guard.loss());
        release(guard).await;
    }
}

async fn writer_waits_for_the_last_reader(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(3).await);
    let guards = readers(&clients, &t, &key).await;
    let writer = t.client().await;
    let mut waiting = tokio::spawn(writer.acquire(t.request(&key)));
    for guard in &guards {
        let early = tokio::time::timeout(Duration::from_millis(150), &mut waiting).await;
        assert!(early.is_err(), "the writer got in beside a reader");
        release(guard).await;
    }
    let guard = within(t.prompt(), "the last reader lets the writer in", waiting).await;
    let guard = guard.unwrap().expect("a grant");
    refused(&*clients[0], t.request(&key).shared(), "a writer writes").await;
    release(&guard).await;
}

async fn readers_wait_for_the_writer(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(3).await);
    let guard = grant(&*clients[0], t.request(&key)).await;
    let waiting: Vec<_> = clients
        .iter()
        .map(|client| tokio::spawn(client.acquire(t.request(&key).shared())))
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(waiting.iter().all(|reader| !reader.is_finished()), "a reader beside a writer");
    release(&guard).await;
    let mut guards = Vec::new();
    for reader in waiting {
        // Each keeps the key until all are in.
        let reader = within(t.prompt() * 2, "all readers get in together", reader).await;
        guards.push(reader.unwrap().expect("a grant"));
    }
    for guard in guards {
        release(&guard).await;
    }
}

/// Each reader of a relay gives up only when the next one is in, or has waited in vain.
async fn relay(client: Client, t: Test, key: String, stop: Arc<AtomicBool>) -> u32 {
    let mut rounds = 0;
    let request = || t.request(&key).shared();
    let mut reader = grant(&*client, request()).await;
    while !stop.load(Ordering::SeqCst) {
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(15)).await;
        match client.acquire(request().timeout(Duration::from_millis(200))).await {
            Ok(next) => release(&std::mem::replace(&mut reader, next)).await,
            Err(_) => {
                release(&reader).await;
                reader = grant(&*client, request()).await;
            }
        }
    }
    release(&reader).await;
    rounds
}

async fn stream_of_readers_does_not_starve_a_writer(t: Test) {
    let (key, stop) = (t.key("a"), Arc::new(AtomicBool::new(false)));
    let first = grant(&*t.client().await, t.request(&key).shared()).await;
    let mut relays = Vec::new();
    for client in t.clients(2).await {
        relays.push(tokio::spawn(relay(client, t.clone(), key.clone(), Arc::clone(&stop))));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let writer = t.client().await;
    let waiting = tokio::spawn(writer.acquire(t.request(&key)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    release(&first).await;
    let limit = Duration::from_secs(8);
    let guard = within(limit, "a writer gets in against a stream of readers", waiting).await;
    release(&guard.unwrap().expect("a grant")).await;
    stop.store(true, Ordering::SeqCst);
    for relay in relays {
        assert!(relay.await.unwrap() > 0);
    }
}

async fn cancelled_writer_lets_readers_in(t: Test) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let reader = grant(&*a, t.request(&key).shared()).await;
    let waiting = tokio::spawn(b.acquire(t.request(&key)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    waiting.abort();
    let limit = Duration::from_secs(2) + SLACK;
    let why = "the writer that waited is gone";
    let next = free_within(&*c, t.request(&key).shared(), limit, why).await;
    release(&reader).await;
    release(&next).await;
}

async fn writers_and_readers_never_meet(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(4).await);
    let (reading, writing) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let together = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..24)
        .map(|n| {
            let request = t.request(&key).timeout(Duration::from_secs(60));
            let client = Arc::clone(&clients[n % 4]);
            let (reading, writing) = (Arc::clone(&reading), Arc::clone(&writing));
            let together = Arc::clone(&together);
            tokio::spawn(async move {
                for _ in 0..3 {
                    let reads = n % 3 != 0;
                    let request = if reads { request.clone().shared() } else { request.clone() };
                    let guard = grant(&*client, request).await;
                    let inside = if reads { &reading } else { &writing };
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    let readers = reading.load(Ordering::SeqCst);
                    let writers = writing.load(Ordering::SeqCst);
                    safe!(writers == 0 || (writers == 1 && readers == 0), "{readers}+{writers}");
                    if reads {
                        together.fetch_max(now, Ordering::SeqCst);
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    release(&guard).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("writers and readers met");
    }
    assert!(together.load(Ordering::SeqCst) > 1, "readers never read together");
}

async fn dead_reader_lets_the_writer_in(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let reader = grant(&*a, t.brief(&key).shared().renew(false)).await;
    let start = BootInstant::now();
    let writer = grant(&*b, t.brief(&key)).await;
    let after = BootInstant::now().since(start);
    assert!(after <= t.ttl() + t.granularity() + SLACK, "a dead reader held on for {after:?}");
    assert!(!reader.is_held());
    release(&writer).await;
}

async fn one_dead_reader_of_two(t: Test) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let dead = grant(&*a, t.brief(&key).shared().renew(false)).await;
    let alive = grant(&*b, t.brief(&key).shared()).await;
    tokio::time::sleep(t.ttl() * 2).await;
    assert!(!dead.is_held() && alive.is_held());
    refused(&*c, t.brief(&key), "the other reader lives").await;
    release(&alive).await;
    release(&free_within(&*c, t.brief(&key), t.prompt(), "no reader is left").await).await;
}

async fn many_readers_in_one_client(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let inside = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..30)
        .map(|_| {
            let (client, request) = (Arc::clone(&client), t.request(&key).shared());
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                let guard = grant(&*client, request).await;
                inside.fetch_add(1, Ordering::SeqCst);
                let all = || inside.load(Ordering::SeqCst) == 30;
                eventually(Duration::from_secs(10), "30 readers read at the same time", all).await;
                release(&guard).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("30 readers");
    }
}
