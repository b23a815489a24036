//! A request with everything that it left open filled in and checked.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::capability::Capabilities;
use crate::contender::{Claim, Stage};
use crate::engine::schedule;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::mode::Mode;
use crate::request::{Request, Wait};
use crate::settings::Settings;

/// The terms of one claim besides what its store needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) wait: Wait,
    pub(crate) op_timeout: Duration,
    pub(crate) attempts: Option<NonZeroU32>,
    pub(crate) renew: bool,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
}

/// No sane lease is longer, and no store's arithmetic overflows below it.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

impl Terms {
    /// Whether a busy answer is final.
    pub(crate) fn never_waits(&self) -> bool {
        self.wait == Wait::Within(Duration::ZERO) || self.attempts == NonZeroU32::new(1)
    }

    /// The stage of the first attempt.
    pub(crate) fn first_stage(&self) -> Stage {
        if self.never_waits() { Stage::Try } else { Stage::First }
    }
}

/// Whether the backend keeps such a TTL, and an answer has time.
pub(crate) fn check_times(
    ttl: Duration,
    op_timeout: Option<Duration>,
    capabilities: &Capabilities,
) -> Result<()> {
    let smallest = capabilities.smallest_ttl;
    if ttl < smallest || ttl > LONGEST {
        return Err(Error::configuration(format!(
            "a TTL of {} is outside what the backend `{}` keeps, {} to 366 days",
            humantime::format_duration(ttl),
            capabilities.name,
            humantime::format_duration(smallest)
        )));
    }
    if op_timeout.is_some_and(|op_timeout| op_timeout.is_zero()) {
        return Err(Error::configuration("an `op_timeout` of zero leaves no time for an answer"));
    }
    Ok(())
}

/// Checks `request` against what the backend can do, before any I/O.
pub(crate) fn resolve(
    request: Request,
    settings: &Settings,
    capabilities: &Capabilities,
) -> Result<(Claim, Terms)> {
    let key = Key::new(&request.key)?;
    let lacking = match request.mode {
        Mode::Exclusive => None,
        Mode::Shared => (!capabilities.shared).then_some("shared mode"),
        Mode::Permit { .. } => (!capabilities.permits).then_some("permits"),
    };
    if let Some(lacking) = lacking {
        return Err(Error::unsupported(capabilities.name, lacking));
    }
    let ttl = request.ttl.unwrap_or(settings.ttl);
    let op_timeout = request.op_timeout.or(settings.op_timeout);
    check_times(ttl, op_timeout, capabilities)?;
    let op_timeout = op_timeout.unwrap_or_else(|| schedule::op_timeout(ttl));
    if request.max_hold.is_some_and(|max| max <= request.min_hold) {
        return Err(Error::configuration("`max_hold` must be longer than `min_hold`"));
    }
    if request.min_hold > LONGEST {
        return Err(Error::configuration("a `min_hold` of more than 366 days is not kept"));
    }
    let mut claim = Claim::new(key, request.mode, ttl);
    claim.label = request.label;
    claim.owner = request.owner;
    let terms = Terms {
        wait: request.wait.unwrap_or(settings.wait),
        // An exchange that outlasts the lease has nothing to tell any more.
        op_timeout: op_timeout.min(ttl),
        attempts: request.attempts,
        renew: request.renew,
        min_hold: request.min_hold,
        max_hold: request.max_hold,
    };
    Ok((claim, terms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{Consistency, LeaseKind};

    fn refused(request: Request) -> String {
        let backend = Capabilities::new("bare", Consistency::Ap("never"), LeaseKind::Expires);
        resolve(request, &Settings::default(), &backend).unwrap_err().to_string()
    }

    #[test]
    fn bad_requests_are_refused_with_a_reason() {
        let request = || Request::new("a");
        let zero = Duration::ZERO;
        assert!(refused(Request::new("")).contains("empty"));
        assert!(refused(request().shared()).contains("shared mode"));
        assert!(refused(request().permit(NonZeroU32::MIN)).contains("permits"));
        assert!(refused(request().ttl(Duration::from_millis(999))).contains("TTL"));
        assert!(refused(request().ttl(Duration::MAX)).contains("TTL"));
        assert!(refused(request().op_timeout(zero)).contains("op_timeout"));
        assert!(refused(request().max_hold(zero)).contains("max_hold"));
        assert!(refused(request().min_hold(Duration::MAX)).contains("min_hold"));
    }
}
