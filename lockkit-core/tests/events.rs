//! The event stream: gauges made of it return to zero, whatever happens.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use common::{MS, bed, eventually, polled};
use lockkit_core::testing::{Fault, Op};
use lockkit_core::{DistributedLock, EventKind, Events, LockExt, Request, Stage};

/// The gauges of design and metrics, made of events alone.
fn gauges(events: &mut Events) -> (i32, i32) {
    let (mut waiting, mut held) = (0, 0);
    while let Some(event) = events.try_recv() {
        match event.kind {
            EventKind::Waiting => waiting += 1,
            EventKind::Acquired { after_waiting, .. } => {
                waiting -= i32::from(after_waiting);
                held += 1;
            }
            EventKind::Reentered { after_waiting }
            | EventKind::AcquireFailed { after_waiting, .. }
            | EventKind::AcquireCancelled { after_waiting, .. } => {
                waiting -= i32::from(after_waiting);
            }
            EventKind::Released { .. }
            | EventKind::ReleaseMismatch { .. }
            | EventKind::ReleaseGivenUp { .. }
            | EventKind::Lost { .. } => held -= 1,
            _ => {}
        }
    }
    assert_eq!(events.missed(), 0);
    (waiting, held)
}

#[tokio::test]
async fn gauges_return_to_zero() {
    let bed = bed();
    let lock = &bed.faulty;
    let mut events = lock.core().events();
    let request = || Request::new("k").ttl(MS(120)).timeout(MS(60));
    let take = async || lock.acquire(request().timeout(MS(2000))).await.unwrap();

    let held = take().await;
    assert!(lock.acquire(request()).await.is_err());
    assert!(lock.try_acquire(request()).await.unwrap().is_none());
    drop(polled(lock.acquire(request()), 1).await.unwrap_err());
    assert!(polled(lock.acquire(request()), 0).await.is_err());
    held.release().await.unwrap();

    // Lost, taken by force, released without an answer, never released.
    let unrenewed = lock.acquire(request().renew(false)).await.unwrap();
    unrenewed.lost().await;
    let forced = take().await;
    lock.force_release(forced.key(), lockkit_core::Which::Whoever).await.unwrap();
    assert!(forced.release().await.unwrap_err().is_lost());
    let unanswered = take().await;
    lock.next(Op::Release, Fault::LoseAnswer);
    assert!(unanswered.release().await.is_err());
    unanswered.release().await.unwrap();
    let never = take().await;
    lock.every(Op::Release, Fault::Refuse);
    assert!(never.release().await.is_err());
    let denied = lock.acquire(request().timeout(MS(2000))).await;
    lock.every(Op::Release, Fault::Deny);
    assert!(denied.unwrap().release().await.is_err());
    lock.every(Op::Release, Fault::None);

    // Re-entered, at once and after a wait; failed at once; panicked.
    let owned = || request().owner("me").timeout(MS(2000));
    let first = lock.acquire(owned()).await.unwrap();
    drop(lock.acquire(owned()).await.unwrap());
    drop(first);
    lock.next(Op::Attempt(Stage::First), Fault::Deny);
    assert!(lock.acquire(request()).await.is_err());
    let guard = take().await;
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(panicked.await.is_err());

    eventually("all is cleaned up", || lock.core().cleaning_up() == 0).await;
    assert_eq!(gauges(&mut events), (0, 0));
}

#[tokio::test]
async fn warnings_are_kept_for_those_who_come_later() {
    let memory = lockkit_core::Memory::new();
    memory.core().warn("the disk is of paper");
    memory.core().warn("the disk is of paper");
    let mut events = memory.core().events();
    memory.core().warn("it rains");
    assert_eq!(memory.core().warnings().len(), 2);
    let event = events.recv().await.unwrap();
    assert!(matches!(event.kind, EventKind::Warning { message } if &*message == "it rains"));
}
