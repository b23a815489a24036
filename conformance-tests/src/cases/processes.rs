//! Several processes on one store; one of them stopped.

use std::time::Duration;

use lockkit_core::{BootInstant, Guard};

use crate::bed::{PATIENCE, SLACK, Test};
use crate::case::clause;
use crate::check::{grant, grant_free, refused, release, safe};
use crate::child::Order;

clause! { "processes";
    exclude_each_other [Processes];
    counter_stays_exact [Processes] heavy;
    first_use_at_the_same_time [Processes] heavy;
    stopped_holder_is_told_and_touches_nothing [Processes Expires];
    stopped_holder_is_fenced_off [Processes Expires Fenced];
    stopped_waiter_does_not_stop_the_others [Processes];
    shortly_stopped_holder_keeps_its_lock [Processes];
}

async fn exclude_each_other(t: Test) {
    let (key, client, mut child) = (t.key("a"), t.client().await, t.child().await);
    child.acquire("a", t.ask(&key)).await;
    refused(&*client, t.request(&key), "another process holds it").await;
    assert_eq!(child.release("a").await.rest, "ok");
    let guard = grant_free(&*client, t.request(&key), "the other process released").await;
    let mut ask = t.ask(&key);
    ask.timeout = Duration::from_millis(200);
    child.tell(Order::Acquire { id: "b".into(), ask }).await;
    child.hear("b", "failed", PATIENCE).await;
    release(&guard).await;
}

async fn counter_stays_exact(t: Test) {
    let (key, file) = (t.key("a"), t.file("counter"));
    std::fs::write(&file, "0").expect("a file");
    let mut children = Vec::new();
    for _ in 0..4 {
        children.push(t.child().await);
    }
    for child in &mut children {
        for id in ["x", "y"] {
            let mut ask = t.ask(&key);
            ask.timeout = Duration::from_secs(60);
            let (id, file) = (id.to_owned(), file.clone());
            child.tell(Order::Count { id, ask, file, times: 6 }).await;
        }
    }
    for child in &mut children {
        for id in ["x", "y"] {
            child.hear(id, "counted", Duration::from_secs(60)).await;
        }
    }
    let number = std::fs::read_to_string(&file).expect("the counter");
    assert_eq!(number, (4 * 2 * 6).to_string(), "updates were lost");
}

/// Nobody has touched the store before they all do.
async fn first_use_at_the_same_time(t: Test) {
    for _ in 0..2 {
        let t = t.in_fresh_space();
        let key = t.key("a");
        let mut children = Vec::new();
        for _ in 0..8 {
            children.push(t.child().await);
        }
        for child in &mut children {
            let (id, ask) = ("a".to_owned(), t.ask(&key));
            child.tell(Order::Count { id, ask, file: zero(&t), times: 1 }).await;
        }
        for child in &mut children {
            child.hear("a", "counted", PATIENCE).await;
        }
        let number = std::fs::read_to_string(t.file("counter")).expect("the counter");
        assert_eq!(number, "8", "updates were lost");
    }
}

fn zero(t: &Test) -> std::path::PathBuf {
    let file = t.file("counter");
    if !file.exists() {
        std::fs::write(&file, "0").expect("a file");
    }
    file
}

/// Stops a child that holds `key` until this process holds it.
async fn overtake_stopped(t: &Test, key: &str) -> (crate::child::Child, u64, Guard) {
    let (client, mut child) = (t.client().await, t.child().await);
    let granted = child.acquire("a", t.ask(key)).await;
    child.stop().await;
    let stopped = BootInstant::now();
    let guard = grant(&*client, t.brief(key)).await;
    let after = BootInstant::now().since(stopped);
    let limit = t.ttl() + t.granularity() + SLACK;
    assert!(after <= limit, "a stopped holder kept the key for {after:?}");
    (child, granted.fence().unwrap_or(0), guard)
}

async fn stopped_holder_is_told_and_touches_nothing(t: Test) {
    let (key, other) = (t.key("a"), t.client().await);
    let (mut child, _, guard) = overtake_stopped(&t, &key).await;
    tokio::time::sleep(t.ttl()).await;
    child.go_on();
    let woken = BootInstant::now();
    safe!(!child.is_held("a").await, "it believes to hold what another process holds");
    let lost = child.hear("a", "lost", SLACK * 2).await;
    assert_eq!(lost.rest, "expired");
    let late = lost.at.since(woken);
    assert!(late <= SLACK, "told {late:?} after it went on");
    assert_eq!(child.release("a").await.rest, "lost");
    refused(&*other, t.brief(&key), "a stopped holder came back and released").await;
    tokio::time::sleep(t.ttl()).await;
    assert!(guard.is_held(), "a holder that came back ended its successor's claim");
    refused(&*other, t.brief(&key), "the successor lives").await;
    release(&guard).await;
}

/// A resource that refuses whoever comes with an older fence than it has seen.
#[derive(Default)]
struct Guarded {
    newest: u64,
}

impl Guarded {
    fn write(&mut self, fence: u64) -> bool {
        let accepted = fence >= self.newest;
        self.newest = self.newest.max(fence);
        accepted
    }
}

async fn stopped_holder_is_fenced_off(t: Test) {
    let (key, mut store) = (t.key("a"), Guarded::default());
    let (child, stale, guard) = overtake_stopped(&t, &key).await;
    assert!(store.write(guard.fence().expect("a fence")), "the holder's write was refused");
    child.go_on();
    safe!(!store.write(stale), "the write of a holder that came back too late was taken");
    release(&guard).await;
}

async fn stopped_waiter_does_not_stop_the_others(t: Test) {
    let (key, a, b, mut child) = (t.key("a"), t.client().await, t.client().await, t.child().await);
    let guard = grant(&*a, t.brief(&key)).await;
    child.tell(Order::Acquire { id: "w".into(), ask: t.ask(&key) }).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    child.stop().await;
    release(&guard).await;
    let start = BootInstant::now();
    let next = grant(&*b, t.brief(&key)).await;
    let after = BootInstant::now().since(start);
    let limit = t.ttl() + t.granularity() + t.prompt();
    assert!(after <= limit, "a stopped waiter held the others up for {after:?}");
    release(&next).await;
    child.go_on();
    let late = child.hear("w", "acquired", PATIENCE).await;
    assert!(late.at > start, "its place was taken, it got in after all");
    assert_eq!(child.release("w").await.rest, "ok");
}

async fn shortly_stopped_holder_keeps_its_lock(t: Test) {
    let (key, client, mut child) = (t.key("a"), t.client().await, t.child().await);
    let mut ask = t.ask(&key);
    ask.ttl = t.ttl() * 3;
    child.acquire("a", ask).await;
    for _ in 0..2 {
        child.stop().await;
        tokio::time::sleep(t.ttl() / 2).await;
        child.go_on();
        tokio::time::sleep(t.ttl()).await;
        assert!(child.is_held("a").await, "lost although it was stopped for a sixth of its TTL");
    }
    refused(&*client, t.brief(&key), "its holder lives").await;
    assert_eq!(child.release("a").await.rest, "ok");
}
