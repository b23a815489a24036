//! Callers that stop polling, owners that hold twice, releases that are answered strangely.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::num::NonZeroU32;
use std::task::{Context, Waker};
use std::time::Duration;

use common::{MS, bed, eventually, polled};
use lockkit_core::testing::{Fault, Op};
use lockkit_core::{DistributedLock, Error, LockExt, Memory, Request, Stage, Which};

/// A re-entry that is offered to a future that is never polled again does not keep the key.
#[tokio::test]
async fn an_offered_re_entry_ends() {
    let memory = Memory::new();
    let request = || Request::new("k").owner("o").ttl(MS(150)).wait_forever();
    let stranger = memory.acquire("k").await.unwrap();
    let entering = polled(memory.acquire(request()), 1).await.unwrap_err();
    let kept = polled(memory.acquire(request()), 1).await.unwrap_err();
    stranger.release().await.unwrap();
    let guard = entering.await.unwrap();
    guard.release().await.unwrap();
    // `kept` was offered a guard on that claim, or the key itself; nobody collects either.
    let other = memory.another_client();
    let next = other.acquire(Request::new("k").timeout(Duration::from_secs(3))).await;
    next.expect("the key is free soon").release().await.unwrap();
    drop(kept);
}

#[tokio::test]
async fn a_lost_answer_does_not_cut_min_hold_short() {
    let bed = bed();
    let start = std::time::Instant::now();
    let request = Request::new("k").ttl(MS(300)).min_hold(MS(500));
    let guard = bed.faulty.acquire(request).await.unwrap();
    bed.faulty.next(Op::Linger, Fault::LoseAnswer);
    bed.faulty.next(Op::Linger, Fault::Refuse);
    assert!(guard.release().await.is_err());
    let next = bed.other.acquire(Request::new("k").timeout(MS(3000))).await.unwrap();
    assert!(start.elapsed() >= MS(500), "free after {:?}", start.elapsed());
    next.release().await.unwrap();
}

#[tokio::test]
async fn attempts_are_counted_when_the_store_fails() {
    let bed = bed();
    bed.faulty.all(&Fault::Refuse);
    let request = Request::new("k").attempts(NonZeroU32::new(2).unwrap()).wait_forever();
    let acquire = tokio::time::timeout(MS(3000), bed.faulty.acquire(request));
    let error = acquire.await.expect("it ends").unwrap_err();
    assert_eq!(error.reason(), "unavailable", "{error}");
}

#[tokio::test]
async fn the_second_attempt_comes_after_a_pause() {
    let memory = Memory::new();
    let holder = memory.acquire("k").await.unwrap();
    let request = Request::new("k").attempts(NonZeroU32::new(2).unwrap());
    let waiter = memory.another_client();
    let waiting = tokio::spawn(async move { waiter.acquire(request).await });
    tokio::time::sleep(MS(40)).await;
    holder.release().await.unwrap();
    let guard = waiting.await.unwrap().expect("it was still waiting");
    guard.release().await.unwrap();
}

/// A cap on the holding time does not keep a forced release from being told.
#[tokio::test]
async fn max_hold_does_not_stop_the_watchdog() {
    let memory = Memory::new();
    let request = Request::new("k").ttl(MS(900)).max_hold(MS(850));
    let guard = memory.acquire(request).await.unwrap();
    assert!(memory.force_release(guard.key(), Which::Whoever).await.unwrap());
    let lost = tokio::time::timeout(MS(300 + 50), guard.lost()).await.expect("within a third");
    assert_eq!(lost.reason.reason(), "gone");
}

/// One lost request does not make the key wait for the rest of the TTL after `max_hold`.
#[tokio::test]
async fn the_key_is_free_soon_after_max_hold() {
    let bed = bed();
    let request = Request::new("k").ttl(Duration::from_secs(60)).max_hold(MS(50));
    let guard = bed.faulty.acquire(request).await.unwrap();
    bed.faulty.next(Op::Release, Fault::Refuse);
    guard.lost().await;
    bed.is_free("k").await;
}

/// Two claims of one owner that are granted at the same time become one.
#[tokio::test]
async fn an_owner_with_two_claims() {
    let bed = bed();
    let request = || Request::new("k").owner("o").shared();
    bed.faulty.every(Op::Attempt(Stage::First), Fault::Delay(MS(20)));
    let (a, b) = tokio::join!(bed.faulty.acquire(request()), bed.faulty.acquire(request()));
    let (first, second) = (a.unwrap(), b.unwrap());
    assert_eq!(first.token(), second.token());
    second.release().await.unwrap();
    assert!(first.is_held());
    let again = bed.faulty.acquire(request()).await.unwrap();
    assert_eq!(again.token(), first.token());
    let exclusive = bed.faulty.acquire(Request::new("k").owner("o")).await;
    assert!(matches!(exclusive, Err(Error::Configuration(_))), "it waits for itself");
}

#[tokio::test]
async fn a_denied_release_stays_denied() {
    let bed = bed();
    let guard = bed.faulty.acquire("k").await.unwrap();
    bed.faulty.every(Op::Release, Fault::Deny);
    for _ in 0..2 {
        assert!(matches!(guard.release().await, Err(Error::Permission(_))));
    }
}

#[tokio::test]
async fn a_release_that_the_lock_thread_finishes_tells_the_loss() {
    let bed = bed();
    let guard = bed.faulty.acquire("k").await.unwrap();
    bed.other.force_release(guard.key(), Which::Whoever).await.unwrap();
    // Long enough for the lock thread to take it over.
    bed.faulty.next(Op::Release, Fault::Delay(MS(120)));
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(guard.loss().is_some());
}

/// A caller polls once and never again: the lock thread goes on within a moment, and whatever
/// the exchange keeps busy is free again.
#[tokio::test]
async fn an_exchange_does_not_rest_on_its_caller() {
    let bed = bed();
    bed.faulty.next(Op::Attempt(Stage::First), Fault::Delay(MS(30)));
    let mut acquire = bed.faulty.acquire(Request::new("k").op_timeout(Duration::from_secs(20)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(std::pin::Pin::new(&mut acquire).poll(&mut context).is_pending());
    let ended =
        |e: &lockkit_core::testing::Exchanged| e.outcome != lockkit_core::testing::Outcome::Open;
    let end = bed.faulty.logged(|log| log.iter().any(ended));
    tokio::time::timeout(MS(1000), end).await.expect("the lock thread has finished it");
    acquire.await.unwrap().release().await.unwrap();
}

/// An unanswered attempt that lands after the clean-up is found.
#[tokio::test]
async fn what_lands_late_is_taken_out() {
    let bed = bed();
    bed.faulty.set_late_effects(Duration::MAX);
    // Two unanswered attempts; only one of them has an effect before the release.
    bed.faulty.next(Op::Attempt(Stage::First), Fault::Hang);
    bed.faulty.next(Op::Attempt(Stage::Wait), Fault::LoseAnswer);
    bed.faulty.every(Op::Attempt(Stage::Wait), Fault::Refuse);
    let request = Request::new("k").ttl(MS(1200)).op_timeout(MS(60)).timeout(MS(400));
    assert!(bed.faulty.acquire(request).await.is_err());
    eventually("it is released", || bed.faulty.count(Op::Release) > 0).await;
    let released = bed.faulty.count(Op::Release);
    eventually("and looked for again", || bed.faulty.count(Op::Release) > released + 1).await;
}

/// What the store has let go of already needs no clean-up that `close` would wait for.
#[tokio::test]
async fn close_does_not_wait_for_what_is_gone() {
    let memory = Memory::new();
    let guard = memory.acquire(Request::new("k").ttl(MS(3000))).await.unwrap();
    memory.force_release(guard.key(), Which::Whoever).await.unwrap();
    guard.lost().await;
    assert!(memory.close(MS(500)).await);
}

#[tokio::test]
async fn an_interruption_is_a_loss() {
    let memory = Memory::new();
    let work = async {
        let guard = memory.acquire(Request::new("k").ttl(MS(50)).renew(false)).await?;
        guard.run(std::future::pending::<()>()).await?;
        Ok::<(), Error>(())
    };
    assert!(work.await.unwrap_err().is_lost());
}
