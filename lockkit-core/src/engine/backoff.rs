//! How long to pause between two questions to a store.

use std::time::Duration;

/// Pauses that are random, growing and capped.
///
/// The upper end grows by half with each pause up to the maximum, the pause is drawn evenly from
/// the minimum to the upper end, so that many waiters spread out instead of marching in step.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    upper: Duration,
}

impl Backoff {
    pub(crate) fn new((min, max): (Duration, Duration)) -> Self {
        Self { min, max, upper: min.mul_f64(1.5).min(max) }
    }

    /// The next pause. `spread` is a random number from 0 to 1.
    ///
    /// With `free_in`, the pause ends shortly after the key is free at the latest: a holder that
    /// died is followed at its expiry, not a poll later.
    pub(crate) fn next(&mut self, free_in: Option<Duration>, spread: f64) -> Duration {
        let pause = self.min + self.upper.saturating_sub(self.min).mul_f64(spread);
        self.upper = self.upper.mul_f64(1.5).min(self.max);
        match free_in {
            Some(free_in) if free_in < pause => free_in + EXPIRY_SLACK.mul_f64(spread) + TICK,
            _ => pause,
        }
    }
}

/// Over how long the waiters spread after an expiry.
const EXPIRY_SLACK: Duration = Duration::from_millis(8);
/// The least pause after an expiry: the resolution of the stores' clocks.
const TICK: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    proptest! {
        #[test]
        fn stays_in_its_bounds(
            min in 1_u64..1000, more in 0_u64..5000, spreads in prop::collection::vec(0.0_f64..1.0, 1..60),
        ) {
            let mut backoff = Backoff::new((MS(min), MS(min + more)));
            for spread in spreads {
                let pause = backoff.next(None, spread);
                prop_assert!(pause >= MS(min) && pause <= MS(min + more));
            }
        }

        #[test]
        fn never_sleeps_past_an_expiry(free_in in 0_u64..100, spread in 0.0_f64..1.0) {
            let pause = Backoff::new((MS(100), MS(500))).next(Some(MS(free_in)), spread);
            prop_assert!(pause > MS(free_in) && pause <= MS(free_in + 9));
        }
    }

    #[test]
    fn grows_to_the_maximum() {
        let mut backoff = Backoff::new((MS(100), MS(500)));
        let pauses: Vec<_> = (0..6).map(|_| backoff.next(None, 1.0).as_millis()).collect();
        assert_eq!(pauses, [150, 225, 337, 500, 500, 500]);
    }
}
