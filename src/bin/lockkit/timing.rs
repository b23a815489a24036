//! When a command must be stopped so that it is gone before the lock can pass on.

use std::time::Duration;

use crate::exit::Exit;

/// ```text
///              SIGTERM                SIGKILL      warden's SIGKILL   deadline
///                 |------- grace -------|-- safety/2 --|-- safety/2 --|
/// ```
/// The deadline is the lock's own: nobody else can get the key before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
}

impl Timing {
    /// Takes the grace time that was asked for, or TTL/6.
    pub(crate) fn new(ttl: Duration, grace: Option<Duration>) -> Result<Self, Exit> {
        let grace = grace.unwrap_or(ttl / 6);
        if grace > ttl / 3 {
            return Err(Exit::usage(format!(
                "--grace {} is too long: it must be at most a third of the TTL ({}), so that a \
                 renewal can fail and be repeated before the command must be stopped",
                humantime::format_duration(grace),
                humantime::format_duration(ttl),
            )));
        }
        Ok(Self { ttl, grace })
    }

    /// Shortens the grace time where the lock service grants so little (`remaining`, just after
    /// the grant) that a command would be stopped between two renewals that both succeed.
    pub(crate) fn fit(self, remaining: Duration) -> Self {
        // What is left just before a renewal, and a quarter of it for the renewal.
        let lowest = remaining.saturating_sub(self.ttl / 3);
        let lead = lowest.mul_f32(0.75);
        Self { grace: self.grace.min(lead.saturating_sub(self.safety())), ..self }
    }

    /// From SIGKILL to the deadline: for the machine to be late.
    pub(crate) fn safety(self) -> Duration {
        (self.ttl / 40).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// From SIGTERM to the deadline.
    pub(crate) fn lead(self) -> Duration {
        self.grace + self.safety()
    }

    /// How often the warden is told the deadline.
    pub(crate) fn tick(self) -> Duration {
        (self.ttl / 12).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    #[test]
    fn a_sixth_by_default_a_third_at_most() {
        assert_eq!(Timing::new(TTL, None).unwrap().grace, TTL / 6);
        assert_eq!(Timing::new(TTL, Some(TTL / 3)).unwrap().grace, TTL / 3);
        let refused = Timing::new(TTL, Some(TTL / 3 + Duration::from_nanos(1))).unwrap_err();
        assert_eq!(refused.code, 64);
    }

    #[test]
    fn an_ordinary_lease_takes_every_grace_that_is_allowed() {
        let timing = Timing::new(TTL, Some(TTL / 3)).unwrap();
        assert_eq!(timing.fit(TTL * 99 / 100), timing);
    }

    #[test]
    fn a_short_lease_shortens_the_grace() {
        // As ZooKeeper: two thirds of the session timeout.
        let timing = Timing::new(TTL, Some(TTL / 3)).unwrap().fit(TTL * 2 / 3);
        assert!(timing.lead() < TTL / 3, "{timing:?}");
        assert!(timing.grace > TTL / 6, "{timing:?}");
        // Almost nothing: no grace, and no underflow.
        assert_eq!(timing.fit(TTL / 3).grace, Duration::ZERO);
        assert_eq!(timing.fit(Duration::ZERO).grace, Duration::ZERO);
    }
}
