//! The everyday words, on the memory backend.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{DistributedLock, Error, LockExt, Memory, Request};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[tokio::test]
async fn acquire_and_release() {
    let lock: Arc<dyn DistributedLock> = Arc::new(Memory::new());
    let guard = lock.acquire("order:lock:1001").await.unwrap();
    assert!(guard.is_held());
    assert!(lock.try_acquire("order:lock:1001").await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(!guard.is_held());
    assert!(matches!(guard.ensure_held(), Err(Error::NotHeld(_))));
    let again = lock.try_acquire("order:lock:1001").await.unwrap().unwrap();
    assert!(again.fence() > guard.fence());
}

#[tokio::test]
async fn a_waiter_gets_the_key_on_release() {
    for memory in [Memory::new(), Memory::fair()] {
        let (a, b) = (memory.another_client(), memory);
        let guard = a.acquire("k").await.unwrap();
        let waiter = tokio::spawn(async move { b.acquire("k").await });
        tokio::time::sleep(MS(30)).await;
        guard.release().await.unwrap();
        let second = waiter.await.unwrap().unwrap();
        assert!(second.is_held());
    }
}

#[tokio::test]
async fn a_wait_has_an_end() {
    let memory = Memory::new();
    let _guard = memory.acquire("k").await.unwrap();
    let start = std::time::Instant::now();
    let error = memory.acquire(Request::new("k").timeout(MS(100))).await.unwrap_err();
    let took = start.elapsed();
    assert!(error.is_not_acquired(), "{error}");
    assert!(took >= MS(100) && took < MS(150), "{took:?}");
}

#[tokio::test]
async fn renewed_while_held_and_lost_when_not() {
    let memory = Memory::new();
    let renewed = memory.acquire(Request::new("a").ttl(MS(90))).await.unwrap();
    let alone = memory.acquire(Request::new("b").ttl(MS(90)).renew(false)).await.unwrap();
    let lost = alone.lost().await;
    assert_eq!(lost.reason.reason(), "expired");
    tokio::time::sleep(MS(300)).await;
    assert!(renewed.is_held());
    assert!(alone.release().await.unwrap_err().is_lost());
    renewed.release().await.unwrap();
}

#[tokio::test]
async fn dropping_releases() {
    let memory = Memory::new();
    drop(memory.acquire("k").await.unwrap());
    memory.acquire(Request::new("k").timeout(MS(500))).await.unwrap().release().await.unwrap();
    assert!(memory.close(MS(500)).await);
    assert_eq!(memory.core().cleaning_up(), 0);
}

#[tokio::test]
async fn a_second_release_of_a_guard_that_was_not_the_last_is_quiet() {
    let memory = Memory::new();
    let request = || Request::new("k").owner("request-17");
    let first = memory.acquire(request()).await.unwrap();
    let second = memory.acquire(request()).await.unwrap();
    assert_eq!(first.fence(), second.fence());
    first.release().await.unwrap();
    first.release().await.unwrap();
    assert!(!first.is_held() && second.is_held());
    second.release().await.unwrap();
    first.release().await.unwrap();
    assert!(memory.try_acquire("k").await.unwrap().is_some());
}

/// The acquire of an owner that waits enters as soon as the same owner gets the key elsewhere.
#[tokio::test]
async fn a_waiting_owner_enters_when_the_same_owner_gets_the_key() {
    for memory in [Memory::new(), Memory::fair()] {
        let memory = Arc::new(memory);
        let stranger = memory.acquire("k").await.unwrap();
        let acquire = || {
            let memory = Arc::clone(&memory);
            tokio::spawn(async move { memory.acquire(Request::new("k").owner("me")).await })
        };
        let both = (acquire(), acquire());
        tokio::time::sleep(MS(30)).await;
        stranger.release().await.unwrap();
        let a = both.0.await.unwrap().unwrap();
        let b = both.1.await.unwrap().unwrap();
        assert_eq!(a.token(), b.token());
        a.release().await.unwrap();
        assert!(b.is_held());
        b.release().await.unwrap();
        assert!(memory.close(MS(1000)).await);
        assert_eq!(memory.entries(), 0);
    }
}
