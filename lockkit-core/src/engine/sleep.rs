//! Sleeping on the clock that counts suspend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::clock::BootInstant;
use crate::engine::thread;
use crate::engine::timers::{Due, Slot, Timers};
use crate::sync::lock;

/// Sleeps until `at`, on the clock that counts suspend. Never returns early.
///
/// # Cancel safety
/// Cancel-safe.
pub(crate) async fn sleep_until(at: BootInstant) {
    let Ok(thread) = thread::lock_thread() else {
        // No lock thread, so nothing is held in this process either: nothing will come due.
        return std::future::pending().await;
    };
    let sleep = Sleep(Arc::new(Sleeper {
        slot: Slot::new(),
        over: AtomicBool::new(false),
        waker: Mutex::new(None),
    }));
    let mut scheduled = false;
    std::future::poll_fn(|cx| sleep.poll(cx, at, thread.timers(), &mut scheduled)).await;
}

struct Sleeper {
    slot: Slot,
    over: AtomicBool,
    waker: Mutex<Option<std::task::Waker>>,
}

impl Due for Sleeper {
    fn slot(&self) -> &Slot {
        &self.slot
    }

    fn due(self: Arc<Self>, _now: BootInstant) -> Option<BootInstant> {
        self.over.store(true, Ordering::Release);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }
}

struct Sleep(Arc<Sleeper>);

impl Sleep {
    fn poll(
        &self,
        cx: &mut Context<'_>,
        at: BootInstant,
        timers: &Timers,
        scheduled: &mut bool,
    ) -> Poll<()> {
        *lock(&self.0.waker) = Some(cx.waker().clone());
        if self.0.over.load(Ordering::Acquire) || BootInstant::now() >= at {
            return Poll::Ready(());
        }
        if !std::mem::replace(scheduled, true) {
            timers.schedule(&self.0, at);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(thread) = thread::running() {
            thread.timers().cancel(&self.0.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn sleeps_are_not_early_and_come_in_order() {
        let start = BootInstant::now();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for ms in [60_u64, 20, 40] {
            let sender = sender.clone();
            tokio::spawn(async move {
                let at = start + Duration::from_millis(ms);
                sleep_until(at).await;
                assert!(BootInstant::now() >= at);
                sender.send(ms).unwrap();
            });
        }
        let order = [receiver.recv().await, receiver.recv().await, receiver.recv().await];
        assert_eq!(order, [Some(20), Some(40), Some(60)]);
    }

    #[tokio::test]
    async fn a_dropped_sleep_leaves_nothing_queued() {
        let far = BootInstant::now() + Duration::from_secs(3600);
        let _ = tokio::time::timeout(Duration::from_millis(5), sleep_until(far)).await;
        let timers = thread::lock_thread().unwrap().timers();
        assert!(!timers.has(far));
    }
}
