//! Futures that are stopped after each poll in turn, kept without being polled, forgotten, or
//! left behind by their runtime: nothing stays in the store, in the queue or on the lock thread.
//!
//! One test function, since the tasks of the lock thread are counted for the whole process.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Bed, MS, bed, eventually, fair_bed, no_tasks, polled};
use lockkit_core::testing::{Fault, Op, Outcome, watchdog_entries};
use lockkit_core::{Acquire, DistributedLock, LockExt, Memory, Request, Stage};

const TTL: Duration = Duration::from_secs(60);

fn request() -> Request {
    Request::new("k").ttl(TTL).op_timeout(MS(300)).timeout(MS(400))
}

fn beds() -> [Bed; 2] {
    [bed(), fair_bed()]
}

/// What is done with a future that is not finished.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Dropped,
    Kept,
    Forgotten,
    RuntimeEnds,
}

const FATES: [Fate; 4] = [Fate::Dropped, Fate::Kept, Fate::Forgotten, Fate::RuntimeEnds];

/// Runs `start` for `polls` polls in a place where its `fate` can happen to it; returns what
/// must be kept alive meanwhile.
async fn doom<F>(start: F, polls: usize, fate: Fate) -> Option<Acquire>
where
    F: FnOnce() -> Acquire + Send + 'static,
{
    if fate == Fate::RuntimeEnds {
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                // The runtime ends with the future inside one of its tasks.
                let task = tokio::spawn(async move {
                    let _unfinished = polled(start(), polls).await;
                    std::future::pending::<()>().await;
                });
                let _ = tokio::time::timeout(MS(60), task).await;
            });
        });
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
        return None;
    }
    match polled(start(), polls).await {
        Ok(result) => drop(result.expect("granted, if it ended at all")),
        Err(future) => match fate {
            Fate::Dropped => drop(future),
            Fate::Forgotten => std::mem::forget(future),
            _ => return Some(future),
        },
    }
    None
}

#[tokio::test]
async fn nothing_is_left_behind() {
    acquire_of_a_free_key().await;
    acquire_of_a_busy_key().await;
    acquire_that_gets_the_key_but_is_not_polled().await;
    acquire_that_is_answered_late().await;
    release_stopped().await;
    guards_dropped_in_odd_places().await;
    refused_before_its_time().await;
    eventually("the watchdog has no entry", || watchdog_entries() == 0).await;
}

/// The answer takes a while, so the future is polled several times.
async fn acquire_of_a_free_key() {
    for fate in FATES {
        for polls in 0..4 {
            for bed in beds() {
                let faulty = Arc::clone(&bed.faulty);
                for stage in [Stage::First, Stage::Wait] {
                    faulty.every(Op::Attempt(stage), Fault::DelayAnswer(MS(20)));
                }
                let kept = doom(move || faulty.acquire(request()), polls, fate).await;
                bed.is_free("k").await;
                drop(kept);
                bed.is_clean().await;
            }
        }
    }
    no_tasks().await;
}

async fn acquire_of_a_busy_key() {
    for fate in FATES {
        for polls in 0..4 {
            for bed in beds() {
                let holder = bed.other.acquire(request()).await.unwrap();
                let faulty = Arc::clone(&bed.faulty);
                faulty.every(Op::Attempt(Stage::First), Fault::DelayAnswer(MS(10)));
                let start = move || faulty.acquire(request().wait_forever());
                // With no end of its own, a future that is kept must be dropped at the end.
                let start: Box<dyn FnOnce() -> Acquire + Send> = if fate == Fate::Dropped {
                    Box::new(start)
                } else {
                    let faulty = Arc::clone(&bed.faulty);
                    Box::new(move || faulty.acquire(request()))
                };
                let kept = doom_while_busy(start, polls, fate).await;
                eventually("the wait is over", || bed.faulty.core().waiting() == 0).await;
                holder.release().await.unwrap();
                bed.is_free("k").await;
                drop(kept);
                bed.is_clean().await;
            }
        }
    }
    no_tasks().await;
}

/// As `doom`, for a future that cannot be granted: `polls` may be more than it ever wakes for.
async fn doom_while_busy(
    start: Box<dyn FnOnce() -> Acquire + Send>,
    polls: usize,
    fate: Fate,
) -> Option<Acquire> {
    if fate == Fate::RuntimeEnds {
        return doom(start, polls, fate).await;
    }
    let mut future = start();
    for _ in 0..polls {
        let _ = tokio::time::timeout(
            MS(15),
            std::future::poll_fn(|cx| {
                let _ = std::pin::Pin::new(&mut future).poll(cx);
                std::task::Poll::<()>::Pending
            }),
        )
        .await;
    }
    match fate {
        Fate::Dropped => drop(future),
        Fate::Forgotten => std::mem::forget(future),
        _ => return Some(future),
    }
    None
}

/// A waiter that is granted the key and never polled again: given back when its time is up.
async fn acquire_that_gets_the_key_but_is_not_polled() {
    for bed in beds() {
        let holder = bed.other.acquire(request()).await.unwrap();
        let waiting = polled(bed.faulty.acquire(request()), 1).await.unwrap_err();
        eventually("it waits", || bed.faulty.count(Op::Attempt(Stage::Wait)) > 0).await;
        holder.release().await.unwrap();
        let granted = |op: &lockkit_core::testing::Exchanged| {
            op.op == Op::Attempt(Stage::Wait) && op.outcome == Outcome::Yes
        };
        bed.faulty.logged(|log| log.iter().any(granted)).await;
        bed.is_free("k").await;
        assert_eq!(bed.faulty.count(Op::Renew), 0, "renewed before it was collected");
        let error = waiting.await.unwrap_err();
        assert!(error.is_not_acquired(), "{error}");
        bed.is_clean().await;
    }
    no_tasks().await;
}

/// The store takes longer than the caller's time: an error in time, a clean-up behind it.
async fn acquire_that_is_answered_late() {
    for fault in [Fault::DelayAnswer(MS(250)), Fault::LoseAnswer, Fault::HangAfter] {
        for bed in beds() {
            bed.faulty.next(Op::Attempt(Stage::First), fault.clone());
            bed.faulty.every(Op::Attempt(Stage::Wait), Fault::Refuse);
            let start = std::time::Instant::now();
            // What may land late is looked for until its lease would be over.
            let acquire = bed.faulty.acquire(request().ttl(MS(1500)).timeout(MS(120)));
            let error = acquire.await.unwrap_err();
            let took = start.elapsed();
            assert!(took >= MS(120) && took < MS(170), "{fault:?}: {took:?}");
            assert_eq!(error.reason(), "unavailable", "{error}");
            bed.is_free("k").await;
            bed.is_clean().await;
        }
    }
    no_tasks().await;
}

async fn release_stopped() {
    for polls in 0..4 {
        for fault in [Fault::Delay(MS(20)), Fault::DelayAnswer(MS(20)), Fault::LoseAnswer] {
            for forgotten in [false, true] {
                let bed = bed();
                let guard = bed.faulty.acquire(request()).await.unwrap();
                bed.faulty.next(Op::Release, fault.clone());
                if forgotten {
                    let guard: &'static _ = Box::leak(Box::new(guard));
                    let future = Box::pin(guard.release());
                    if let Err(future) = polled(future, polls).await {
                        std::mem::forget(future);
                        if polls == 0 {
                            // Never polled, so never begun: the guard holds on.
                            assert!(guard.is_held());
                            guard.release().await.unwrap_or_default();
                        }
                    }
                } else {
                    let _ = polled(Box::pin(guard.release()), polls).await;
                    drop(guard);
                }
                bed.is_free("k").await;
                bed.is_clean().await;
                let log = bed.faulty.log();
                let release = log.iter().position(|e| e.op == Op::Release).unwrap();
                let after = &log[release..];
                assert!(after.iter().all(|e| e.op != Op::Renew), "renewed after the release");
            }
        }
    }
    no_tasks().await;
}

async fn guards_dropped_in_odd_places() {
    let memory = Memory::new();
    let take = async |key: &str| memory.acquire(Request::new(key).ttl(TTL)).await.unwrap();

    let outside = take("outside").await;
    std::thread::spawn(move || drop(outside)).join().unwrap();

    let ended = take("ended").await;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _inside = handle.enter();
        drop(ended);
    })
    .join()
    .unwrap();

    thread_local! {
        static LATE: std::cell::RefCell<Option<lockkit_core::Guard>> =
            const { std::cell::RefCell::new(None) };
    }
    let late = take("late").await;
    std::thread::spawn(move || LATE.set(Some(late))).join().unwrap();

    let unwound = take("unwound").await;
    let panicked = tokio::spawn(async move {
        let _guard = unwound;
        panic!("the work failed (on purpose)");
    });
    assert!(panicked.await.unwrap_err().is_panic());

    let aborted = take("aborted").await;
    let task = tokio::spawn(async move {
        let _guard = aborted;
        std::future::pending::<()>().await;
    });
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());

    assert!(memory.close(MS(2000)).await);
    assert_eq!(memory.entries(), 0);
    no_tasks().await;
}

/// What is refused long before its timeout leaves the watchdog's queue then.
async fn refused_before_its_time() {
    let attempts = std::num::NonZeroU32::new(2).unwrap();
    for bed in beds() {
        let holder = bed.other.acquire(request()).await.unwrap();
        for _ in 0..20 {
            let request = request().attempts(attempts).timeout(TTL);
            assert!(bed.faulty.acquire(request).await.unwrap_err().is_not_acquired());
        }
        holder.release().await.unwrap();
        bed.is_clean().await;
        eventually("the watchdog has no entry", || watchdog_entries() == 0).await;
    }
    no_tasks().await;
}
