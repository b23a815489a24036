//! Watches the server's clock against this machine's.
//!
//! Redis keeps expiries as points of its wall clock. Where that steps, claims end early or late,
//! and where it steps back, fences do. Nobody can prevent that from here, but it can be told.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockkit_core::BootInstant;

/// The difference between the server's clock and this machine's, as last seen.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The server's time minus ours lies between these, in microseconds.
    least: i128,
    most: i128,
    at: BootInstant,
}

/// A smaller step ends no claim by more than the margin of its deadline.
const STEP: i128 = 10_000;

/// By how much clocks may drift apart, in microseconds per second: ten times what they do.
const DRIFT: i128 = 1_000;

impl ServerClock {
    /// Notes that the server's clock showed `micros` between the two instants; by how much it has
    /// stepped since last time, and whether back, if it has.
    pub(crate) fn note(
        &self,
        micros: u64,
        sent: BootInstant,
        received: BootInstant,
    ) -> Option<(Duration, bool)> {
        let ours = |at: BootInstant| i128::from(at.as_nanos() / 1000);
        let now = Seen {
            least: i128::from(micros) - ours(received),
            most: i128::from(micros) - ours(sent),
            at: received,
        };
        // Who is asked at the same time may leave it to the other.
        let mut seen = match self.0.try_lock() {
            Ok(seen) => seen,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        let last = seen.replace(now)?;
        let elapsed = i128::try_from(received.since(last.at).as_micros()).unwrap_or(i128::MAX);
        let slack = STEP.saturating_add(elapsed.saturating_mul(DRIFT) / 1_000_000);
        let (ahead, behind) = (now.least - last.most - slack, last.least - now.most - slack);
        let micros = |by: i128| Duration::from_micros(u64::try_from(by + slack).unwrap_or(0));
        if ahead > 0 {
            Some((micros(ahead), false))
        } else if behind > 0 {
            Some((micros(behind), true))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn steps_are_told_once() {
        let clock = ServerClock::default();
        assert_eq!(clock.note(5_000_000, at(1000), at(1002)), None);
        assert_eq!(clock.note(6_000_000, at(2000), at(2001)), None, "one second later");
        let (by, back) = clock.note(8_500_000, at(3000), at(3001)).unwrap();
        assert!(!back && by.as_millis().abs_diff(1500) <= 2, "{by:?}");
        assert_eq!(clock.note(9_500_000, at(4000), at(4001)), None, "told already");
        let (by, back) = clock.note(6_500_000, at(5000), at(5001)).unwrap();
        assert!(back && by.as_millis().abs_diff(4000) <= 2, "{by:?}");
    }

    #[test]
    fn slow_answers_and_drift_are_no_steps() {
        let clock = ServerClock::default();
        assert_eq!(clock.note(1_000_000, at(1000), at(1001)), None);
        assert_eq!(clock.note(2_300_000, at(2000), at(2600)), None, "somewhere in 600 ms");
        assert_eq!(clock.note(1_003_605_000, at(1_003_600), at(1_003_601)), None, "drift");
    }
}
