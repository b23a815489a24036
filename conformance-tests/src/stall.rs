//! Notices when the machine, not the backend, was late.
//!
//! A thread that only sleeps says how late it woke up. What a case measured while the machine
//! stood still proves nothing about a backend: such a failure is tried again, alone. A success is
//! one in any case, and a failure on a machine that was on time is final.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How late a machine may be, as the contract says: what a call may take beyond its timeout.
const TOLERABLE: Duration = Duration::from_millis(50);

const STEP: Duration = Duration::from_millis(5);

/// Watches until the process ends.
#[derive(Debug)]
pub(crate) struct Stalls {
    longest: Arc<AtomicU64>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let longest = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&longest);
        std::thread::spawn(move || {
            loop {
                let start = Instant::now();
                std::thread::sleep(STEP);
                let late = start.elapsed().saturating_sub(STEP).as_micros();
                seen.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { longest }
    }

    /// The longest time that the machine stood still, if it was too long.
    pub(crate) fn intolerable(&self) -> Option<Duration> {
        let longest = Duration::from_micros(self.longest.load(Ordering::Relaxed));
        (longest > TOLERABLE).then_some(longest)
    }
}
