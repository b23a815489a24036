//! One holder at a time.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lockkit_core::{LockExt, Mode};

use crate::bed::{Client, Test};
use crate::case::clause;
use crate::check::{
    free_now, grant, grant_free, not_acquired, refused, release, safe, timed, within,
};

clause! { "exclusion";
    free_key_is_granted(modes);
    held_key_is_refused_and_free_after_release;
    same_client_does_not_enter_twice;
    counter_stays_exact_with_a_hundred_tasks heavy;
    one_of_ten_gets_a_free_key;
    one_of_ten_gets_an_expired_key [Expires];
    names_are_independent;
    thousand_names_in_one_client heavy;
    guard_moves_between_threads;
    tokens_never_repeat;
}

async fn free_key_is_granted(t: Test, mode: Mode) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant_free(&*client, t.brief_in(&key, mode), "nobody ever held it").await;
    assert!(guard.is_held() && guard.ensure_held().is_ok());
    assert_eq!((guard.key().as_str(), guard.mode()), (key.as_str(), mode));
    assert!(guard.remaining() <= t.ttl(), "remaining() is more than the TTL");
    assert!(guard.remaining() > t.ttl() / 2, "remaining() of a new claim: {:?}", guard.remaining());
    assert!(guard.loss().is_none());
    release(&guard).await;
    assert!(!guard.is_held() && guard.ensure_held().is_err() && guard.deadline().is_none());
}

async fn held_key_is_refused_and_free_after_release(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key)).await;
    refused(&*b, t.request(&key), "another client holds it").await;
    release(&guard).await;
    let again = grant_free(&*b, t.request(&key), "its holder released it").await;
    refused(&*a, t.request(&key), "another client holds it").await;
    release(&again).await;
}

async fn same_client_does_not_enter_twice(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key)).await;
    let wait = Duration::from_millis(500);
    let same = Arc::clone(&a);
    for (what, client) in [("the same client", &a), ("its clone", &same), ("another", &b)] {
        refused(&**client, t.request(&key), what).await;
        let bare = timed(tokio::time::sleep(wait));
        let nested = timed(client.acquire(t.request(&key).timeout(wait)));
        let ((bare, ()), (took, result)) = tokio::join!(bare, nested);
        not_acquired(result, what);
        assert!(took >= wait && took <= bare + Duration::from_millis(50), "{what}: {took:?}");
    }
    release(&guard).await;
}

/// A number that breaks if two enter at the same time.
#[derive(Default)]
struct Fragile {
    inside: AtomicBool,
    number: AtomicU32,
    fences: Mutex<Vec<u64>>,
}

impl Fragile {
    async fn enter(&self, fence: Option<u64>) {
        safe!(!self.inside.swap(true, Ordering::SeqCst), "two holders at the same time");
        self.fences.lock().unwrap().extend(fence);
        let number = self.number.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_micros(200)).await;
        self.number.store(number + 1, Ordering::SeqCst);
        self.inside.store(false, Ordering::SeqCst);
    }
}

async fn counter_stays_exact_with_a_hundred_tasks(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(4).await);
    let fragile = Arc::new(Fragile::default());
    let tasks = (0..100).map(|n| {
        let (client, fragile) = (Arc::clone(&clients[n % clients.len()]), Arc::clone(&fragile));
        let request = t.request(&key).timeout(Duration::from_secs(60));
        tokio::spawn(async move {
            for _ in 0..3 {
                let guard = grant(&*client, request.clone()).await;
                fragile.enter(guard.fence()).await;
                release(&guard).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    safe!(fragile.number.load(Ordering::SeqCst) == 300, "updates were lost");
    let fences = fragile.fences.lock().unwrap();
    safe!(fences.is_sorted_by(|a, b| a < b), "fences do not grow in the order of the grants");
}

async fn winners(clients: &[Client], t: &Test, key: &str) -> usize {
    let tries = clients.iter().map(|client| {
        let (client, request) = (Arc::clone(client), t.request(key).ttl(t.long_ttl()));
        tokio::spawn(async move { client.try_acquire(request).await.expect("a try") })
    });
    let mut guards = Vec::new();
    for attempt in tries.collect::<Vec<_>>() {
        guards.extend(attempt.await.unwrap());
    }
    for guard in &guards {
        release(guard).await;
    }
    guards.len()
}

async fn one_of_ten_gets_a_free_key(t: Test) {
    let clients = t.clients(10).await;
    for round in 0..10 {
        let winners = winners(&clients, &t, &t.key("a")).await;
        safe!(winners <= 1, "round {round}: {winners} of ten that tried at the same time");
        assert_eq!(winners, 1, "round {round}: of ten that tried at the same time");
    }
}

async fn one_of_ten_gets_an_expired_key(t: Test) {
    let clients = t.clients(10).await;
    for round in 0..3 {
        let key = t.key("a");
        let dead = grant(&*clients[0], t.brief(&key).renew(false)).await;
        tokio::time::sleep(t.ttl() + t.granularity() + Duration::from_millis(20)).await;
        let winners = winners(&clients, &t, &key).await;
        safe!(winners <= 1, "round {round}: {winners} of ten that tried at the same time");
        assert_eq!(winners, 1, "round {round}: of ten that tried at the same time");
        drop(dead);
    }
}

async fn names_are_independent(t: Test) {
    let (a, b, client) = (t.key("a"), t.key("b"), t.client().await);
    let first = grant(&*client, t.request(&a)).await;
    let second = grant_free(&*client, t.request(&b), "only another key is held").await;
    release(&first).await;
    assert!(second.is_held(), "the release of another key ended it");
    release(&second).await;
}

async fn thousand_names_in_one_client(t: Test) {
    let (client, other) = (t.client().await, t.client().await);
    let keys: Vec<String> = (0..1000).map(|_| t.key("n")).collect();
    let tasks = keys.iter().map(|key| {
        let (client, request) = (Arc::clone(&client), t.request(key).ttl(Duration::from_secs(30)));
        tokio::spawn(async move { grant(&*client, request).await })
    });
    let mut guards = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        guards.push(task.await.unwrap());
    }
    assert!(guards.iter().all(lockkit_core::Guard::is_held), "some of a thousand are not held");
    refused(&*other, t.request(&keys[500]), "one of a thousand names").await;
    for guard in &guards {
        release(guard).await;
    }
    free_now(&*other, t.request(&keys[500]), "one of a thousand released names").await;
}

async fn guard_moves_between_threads(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    for _ in 0..50 {
        let guard = grant(&*client, t.brief(&key)).await;
        let guard = tokio::spawn(async move {
            tokio::task::yield_now().await;
            guard
        });
        let guard = within(t.ttl(), "the other task", guard).await.unwrap();
        let released = tokio::spawn(async move { guard.release().await });
        released.await.unwrap().expect("a release by another task than the one that acquired");
    }
}

async fn tokens_never_repeat(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(2).await);
    let mut seen = std::collections::HashSet::new();
    for client in &clients {
        for _ in 0..5000 {
            // Drawn before anything is sent.
            let unsent = client.core().acquire(t.request(&key), |claim| {
                assert!(seen.insert(claim.token), "a token came twice");
                client.contend(claim)
            });
            drop(unsent);
        }
    }
}
