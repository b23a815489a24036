//! Helpers of the engine's tests.

#![allow(dead_code, unreachable_pub)] // each test binary uses its own part

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockkit_core::testing::{Faulty, lock_thread_tasks};
use lockkit_core::{DistributedLock, LockExt, Memory, Request};

pub const MS: fn(u64) -> Duration = Duration::from_millis;

/// A backend with faults, another client of the same store without, and the store itself.
pub struct Bed {
    pub faulty: Arc<Faulty>,
    pub other: Memory,
}

pub fn bed() -> Bed {
    bed_on(Memory::new())
}

pub fn fair_bed() -> Bed {
    bed_on(Memory::fair())
}

fn bed_on(memory: Memory) -> Bed {
    let other = memory.another_client();
    Bed { faulty: Faulty::new(Arc::new(memory)), other }
}

impl Bed {
    /// Shows that nothing is left: no clean-up, no seat, no entry in the store.
    pub async fn is_clean(&self) {
        eventually("the clean-up ends", || self.faulty.core().cleaning_up() == 0).await;
        assert_eq!(self.faulty.core().waiting(), 0, "a seat is left in the local queue");
        assert_eq!(self.other.entries(), 0, "something is left in the store");
    }

    /// Shows that another client gets the key long before its TTL of a minute.
    pub async fn is_free(&self, key: &str) {
        let request = Request::new(key).timeout(Duration::from_secs(2));
        let guard = self.other.acquire(request).await.expect("the key is free");
        guard.release().await.expect("and can be released");
    }
}

/// Waits until `done`, which is bound to happen; fails after five seconds.
pub async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2500 {
        if done() {
            return;
        }
        tokio::time::sleep(MS(2)).await;
    }
    panic!("it did not happen within 5 s: {what}");
}

/// No task is left on the lock thread. Only for binaries with one test at a time.
pub async fn no_tasks() {
    eventually("the lock thread has no task", || lock_thread_tasks() == 0).await;
}

/// Polls `future` at most `n` times, each time it is woken; `Err` gives it back unfinished.
pub async fn polled<F: Future + Unpin>(mut future: F, n: usize) -> Result<F::Output, F> {
    let mut left = n;
    let output = std::future::poll_fn(|cx: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match Pin::new(&mut future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    output.ok_or(future)
}
