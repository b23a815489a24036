//! What the proxy does with frames that hold certain bytes.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Cut, Toward};
use crate::servers::{Fault, Result};

/// What happens to a frame that a rule finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is passed on, and counted.
    Count,
    /// It is thrown away, and nobody learns of it.
    Lose,
    /// It is passed on later by this much, and what comes behind it on the connection too.
    Delay(Duration),
    /// It is thrown away, and the connection ends: the server has not seen the request.
    Cut(Cut),
    /// For requests: it is passed on, and when the server has answered it, the connection ends
    /// without the answer. The server has done what the client does not know of.
    ///
    /// Made for connections on which each request has one answer. Where frames are unknown, the
    /// connection ends at the next bytes that come from the server.
    CutAtAnswer(Cut),
}

/// Bytes to look for in every frame of a direction, and what to do about it. The rule that was
/// added first acts first; those that only count all count.
#[derive(Debug, Clone)]
#[must_use]
pub struct Rule {
    pub(super) toward: Toward,
    pub(super) bytes: Vec<u8>,
    pub(super) action: Action,
    pub(super) times: u64,
}

impl Rule {
    /// For frames from clients that hold `bytes`; every frame holds none. Without further words
    /// they are counted.
    pub fn requests(bytes: impl Into<Vec<u8>>) -> Self {
        Self { toward: Toward::Server, bytes: bytes.into(), action: Action::Count, times: u64::MAX }
    }

    /// For frames from the server that hold `bytes`: answers and messages.
    pub fn answers(bytes: impl Into<Vec<u8>>) -> Self {
        Self { toward: Toward::Client, ..Self::requests(bytes) }
    }

    /// Does this instead of counting.
    pub fn act(mut self, action: Action) -> Self {
        self.action = action;
        self
    }

    /// Acts so often and then no more; the default is always.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    pub(super) fn finds(&self, frame: &[u8]) -> bool {
        self.bytes.is_empty() || frame.windows(self.bytes.len()).any(|part| part == self.bytes)
    }
}

/// How often a rule has acted.
#[derive(Debug, Clone, Default)]
pub struct Hits {
    count: Arc<(Mutex<u64>, Condvar)>,
}

impl Hits {
    /// How often so far.
    pub fn count(&self) -> u64 {
        *self.count.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has acted `times` times at least.
    ///
    /// # Errors
    /// After `limit`.
    pub fn wait(&self, times: u64, limit: Duration) -> Result<()> {
        let (count, changed) = &*self.count;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(count, limit, |count| *count < times);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *count >= times {
            return Ok(());
        }
        Err(Fault::new(format!("{count} times and not {times} within {limit:?}")))
    }

    pub(super) fn add_one(&self) {
        let (count, changed) = &*self.count;
        *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        changed.notify_all();
    }
}
