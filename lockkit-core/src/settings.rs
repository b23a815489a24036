//! The defaults of one client.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::request::Wait;
use crate::url::Params;

/// The defaults of one client, for whatever a request leaves open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// After which time a holder that vanished loses the key. Default: 30 s.
    pub ttl: Duration,
    /// How long an acquire waits. Default: 5 s.
    pub wait: Wait,
    /// How long one exchange with the store may take. Default (`None`): the smaller of TTL/6
    /// and 2 s.
    pub op_timeout: Option<Duration>,
    /// The shortest and the longest pause between two questions of a waiter, behind whatever
    /// wake-ups the store gives; random in between, and growing. Default: 100 to 500 ms.
    pub poll: (Duration, Duration),
}

impl Settings {
    /// The URL parameters that [`Settings::read`] knows.
    pub const PARAMETERS: [&str; 5] = ["ttl", "timeout", "op_timeout", "poll_min", "poll_max"];

    /// Changes what the URL gives: `ttl`, `timeout` (a duration, or `none` for no limit),
    /// `op_timeout`, `poll_min`, `poll_max`.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a value that is no duration, or that cannot be kept.
    pub fn read(mut self, params: &mut Params) -> Result<Self> {
        if let Some(ttl) = params.duration("ttl")? {
            self.ttl = ttl;
        }
        if let Some(text) = params.text("timeout")? {
            self.wait = match text.as_str() {
                "none" => Wait::Forever,
                text => Wait::Within(Params::parse_duration("timeout", text)?),
            };
        }
        if let Some(op_timeout) = params.duration("op_timeout")? {
            self.op_timeout = Some(op_timeout);
        }
        if let Some(min) = params.duration("poll_min")? {
            self.poll.0 = min;
            self.poll.1 = self.poll.1.max(min);
        }
        if let Some(max) = params.duration("poll_max")? {
            self.poll.1 = max;
        }
        if self.poll.0.is_zero() || self.poll.0 > self.poll.1 {
            return Err(Error::configuration(
                "`poll_min` must be more than zero and at most `poll_max`",
            ));
        }
        Ok(self)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: Wait::Within(Duration::from_secs(5)),
            op_timeout: None,
            poll: (Duration::from_millis(100), Duration::from_millis(500)),
        }
    }
}
