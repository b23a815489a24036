//! What is still being cleaned up, for `close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::clock::BootInstant;
use crate::engine::{sleep, thread};

/// Counts the claims whose clean-up goes on behind dropped futures and guards.
#[derive(Debug, Clone, Default)]
pub(crate) struct Background(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: AtomicUsize,
    idle: Notify,
}

impl Background {
    /// One more, until the token is dropped.
    pub(crate) fn begin(&self) -> Working {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        Working(Arc::clone(&self.0))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until nothing is left, until `deadline` at the latest; whether nothing was left.
    pub(crate) async fn idle(&self, deadline: BootInstant) -> bool {
        loop {
            let mut idle = std::pin::pin!(self.0.idle.notified());
            idle.as_mut().enable();
            if self.count() == 0 {
                return true;
            }
            if thread::running().is_none() {
                // A fork: the parent cleans up, and nothing here ever will.
                return false;
            }
            tokio::select! {
                () = idle => {}
                () = sleep::sleep_until(deadline) => return self.count() == 0,
            }
        }
    }
}

/// One claim that is being cleaned up.
#[derive(Debug)]
pub(crate) struct Working(Arc<Inner>);

impl Drop for Working {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
