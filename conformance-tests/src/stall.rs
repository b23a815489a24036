//! Notices when the machine, not the backend, was late.
//!
//! A thread that only sleeps says how late it woke up. What a case measured while the machine
//! stood still proves nothing about a backend's *timing*: such a failure is tried again, alone.
//! A failure on a machine that was on time is final, and so is a broken promise of safety (see
//! [`safe!`](crate::check::safe)) on any machine: a holder that stalls is what locks must bear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How late a machine may be, as the contract says: what a call may take beyond its timeout.
const TOLERABLE: Duration = Duration::from_millis(50);

/// Whether a promise of safety was seen broken.
static VIOLATED: AtomicBool = AtomicBool::new(false);

/// Makes the failure that follows final.
pub(crate) fn violated() {
    VIOLATED.store(true, Ordering::SeqCst);
}

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

    /// The longest time that the machine stood still, if that excuses a failure.
    pub(crate) fn excuse(&self) -> Option<Duration> {
        if VIOLATED.load(Ordering::SeqCst) {
            return None;
        }
        let longest = Duration::from_micros(self.longest.load(Ordering::Relaxed));
        (longest > TOLERABLE).then_some(longest)
    }
}
