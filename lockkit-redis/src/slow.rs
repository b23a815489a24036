//! Turns on the connections on which it is waited for replicas.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::node::SLOW;

/// Which of the slow connections are free.
#[derive(Debug)]
pub(crate) struct SlowLanes {
    free: Mutex<Vec<usize>>,
    turns: Semaphore,
}

/// One slow connection, for one request.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) at: usize,
    lanes: &'a SlowLanes,
    _permit: Option<SemaphorePermit<'a>>,
}

impl SlowLanes {
    pub(crate) fn new() -> Self {
        Self { free: Mutex::new((0..SLOW).collect()), turns: Semaphore::new(SLOW) }
    }

    /// Waits for a free one.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        // It is never closed.
        let permit = self.turns.acquire().await.ok();
        let at = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or(0);
        Turn { at, lanes: self, _permit: permit }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lanes.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.at);
    }
}
