//! The clock that all deadlines are measured with.
//!
//! On Linux it is `CLOCK_BOOTTIME`, which goes on while the machine is suspended; a holder that
//! wakes up after its lease ended must not believe that no time has passed. Elsewhere it is the
//! monotonic clock of the standard library, which may or may not count suspend.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time on the clock of this machine that all deadlines are measured with
/// (`CLOCK_BOOTTIME` on Linux), in nanoseconds since it started.
///
/// Sums and differences saturate: a point too far away is [`BootInstant::FAR_FUTURE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// Later than every point that a deadline can have.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Now.
    pub fn now() -> Self {
        Self(raw::now())
    }

    /// From nanoseconds since the machine started.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the machine started.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl Sub<Duration> for BootInstant {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(rhs)))
    }
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after boot", Duration::from_nanos(self.0))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(target_os = "linux", not(lockkit_portable_clock)))]
mod raw {
    use rustix::time::{ClockId, clock_gettime};

    pub(super) fn now() -> u64 {
        let t = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
    }
}

#[cfg(not(all(target_os = "linux", not(lockkit_portable_clock))))]
mod raw {
    use std::sync::OnceLock;
    use std::time::Instant;

    pub(super) fn now() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let start = START.get_or_init(Instant::now);
        // Zero means "no deadline" elsewhere, so the first reading must not be zero.
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// What a [`Core`](crate::Core) reads the time from: the real clock, or, in tests, the real
/// clock moved ahead by hand, as a suspend moves it: before any timer has fired.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    #[cfg(feature = "testing")]
    ahead: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

impl Clock {
    /// A clock that [`Clock::advance`] can move ahead.
    #[cfg(feature = "testing")]
    pub fn adjustable() -> Self {
        Self { ahead: Some(Default::default()) }
    }

    /// Moves an adjustable clock ahead; does nothing to a real one.
    #[cfg(feature = "testing")]
    pub fn advance(&self, by: Duration) {
        if let Some(ahead) = &self.ahead {
            ahead.fetch_add(nanos(by), std::sync::atomic::Ordering::SeqCst);
        }
    }

    pub(crate) fn now(&self) -> BootInstant {
        let now = BootInstant::now();
        #[cfg(feature = "testing")]
        if let Some(ahead) = &self.ahead {
            return now + Duration::from_nanos(ahead.load(std::sync::atomic::Ordering::SeqCst));
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate() {
        let now = BootInstant::now();
        assert_eq!(now + Duration::MAX, BootInstant::FAR_FUTURE);
        assert_eq!(now - Duration::MAX, BootInstant::from_nanos(0));
        assert_eq!(now.since(now + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn time_goes_on() {
        let a = BootInstant::now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(BootInstant::now().since(a) >= Duration::from_millis(5));
    }
}
