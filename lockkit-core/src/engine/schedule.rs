//! When what is due: pure functions of instants and durations.

use std::time::Duration;

use crate::clock::BootInstant;

/// By how much a deadline lies before the end of the lease: 1 % of the TTL for clocks that run
/// at different speeds, and 2 ms for the resolution of clocks and stores.
pub(crate) fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// Until when a holder may believe: counted from when the acknowledged request was *sent*, since
/// the store may have started the lease right then.
pub(crate) fn deadline(sent: BootInstant, ttl: Duration) -> BootInstant {
    sent + ttl.saturating_sub(margin(ttl))
}

/// When the store has freed the claim by itself, if its answer was to a request sent at `sent`.
pub(crate) fn lease_end(sent: BootInstant, ttl: Duration) -> BootInstant {
    sent + ttl
}

/// When to renew.
pub(crate) fn renew_at(sent: BootInstant, ttl: Duration) -> BootInstant {
    sent + ttl / 3
}

/// When to renew again after a failure: soon, but not in a hurry; `spread` is a random number
/// from 0 to 1.
pub(crate) fn retry_renewal_at(now: BootInstant, ttl: Duration, spread: f64) -> BootInstant {
    let base = (ttl / 30).clamp(Duration::from_millis(5), Duration::from_secs(1));
    now + base.mul_f64(0.5 + spread)
}

/// How long one exchange may take unless somebody says otherwise: long enough for a slow answer,
/// short enough for several tries within a TTL.
pub(crate) fn op_timeout(ttl: Duration) -> Duration {
    (ttl / 6).min(Duration::from_secs(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ttls() -> impl Strategy<Value = Duration> {
        (10_u64..86_400_000).prop_map(Duration::from_millis)
    }

    proptest! {
        #[test]
        fn order_of_instants(sent in 0_u64..1 << 60, ttl in ttls()) {
            let sent = BootInstant::from_nanos(sent);
            prop_assert!(sent < renew_at(sent, ttl));
            prop_assert!(renew_at(sent, ttl) < deadline(sent, ttl));
            prop_assert!(deadline(sent, ttl) < lease_end(sent, ttl));
        }

        #[test]
        fn deadlines_keep_the_margin(sent in 0_u64..1 << 60, ttl in ttls()) {
            let sent = BootInstant::from_nanos(sent);
            let left = lease_end(sent, ttl).since(deadline(sent, ttl));
            prop_assert_eq!(left, ttl / 100 + Duration::from_millis(2));
        }

        #[test]
        fn a_failed_renewal_is_tried_several_times_before_the_deadline(
            ttl in (100_u64..86_400_000).prop_map(Duration::from_millis),
            spread in 0.0_f64..1.0,
        ) {
            let sent = BootInstant::from_nanos(1);
            let mut at = renew_at(sent, ttl);
            let mut tries = 0;
            while at < deadline(sent, ttl) && tries < 10 {
                tries += 1;
                at = retry_renewal_at(at + op_timeout(ttl), ttl, spread);
            }
            prop_assert!(tries >= 3, "{} tries", tries);
        }
    }

    #[test]
    fn examples() {
        let ttl = Duration::from_secs(30);
        let sent = BootInstant::from_nanos(0);
        assert_eq!(deadline(sent, ttl).as_nanos(), 29_698_000_000);
        assert_eq!(renew_at(sent, ttl).as_nanos(), 10_000_000_000);
        assert_eq!(op_timeout(ttl), Duration::from_secs(2));
        assert_eq!(op_timeout(Duration::from_secs(3)), Duration::from_millis(500));
    }
}
