//! What a caller asks for.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::mode::Mode;

/// A value that the caller names and that may enter a key again while it holds it.
///
/// Whoever presents the same value is the same owner; choose values that no one else has by
/// chance (a request id, say, not a host name).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Names an owner.
    pub fn new(value: impl AsRef<str>) -> Self {
        Self(Arc::from(value.as_ref()))
    }

    /// The value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl<T: AsRef<str>> From<T> for Owner {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// How long an acquire may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// At most this long, over everything that it takes. Zero is one attempt without a wait
    /// (which may take as long as one exchange with the store may, `op_timeout`).
    Within(Duration),
    /// Until it is granted, or fails for good.
    Forever,
}

/// What a caller asks for: a key, and how to hold it. Everything but the key has a default, of
/// the client ([`Settings`](crate::Settings)) or of lockkit.
///
/// ```
/// use lockkit_core::Request;
/// use std::time::Duration;
///
/// let request = Request::new("order:lock:1001")
///     .ttl(Duration::from_secs(10))
///     .timeout(Duration::from_millis(500))
///     .label("checkout-7");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Request {
    pub(crate) key: String,
    pub(crate) mode: Mode,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Wait>,
    pub(crate) op_timeout: Option<Duration>,
    pub(crate) attempts: Option<NonZeroU32>,
    pub(crate) owner: Option<Owner>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) renew: bool,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
}

impl Request {
    /// Asks for `key`, exclusively.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            mode: Mode::Exclusive,
            ttl: None,
            wait: None,
            op_timeout: None,
            attempts: None,
            owner: None,
            label: None,
            renew: true,
            min_hold: Duration::ZERO,
            max_hold: None,
        }
    }

    /// In this mode. Default: exclusive.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// As one of many readers.
    pub fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// As one of at most `limit` holders. All users of the key must name the same limit.
    pub fn permit(self, limit: NonZeroU32) -> Self {
        self.mode(Mode::Permit { limit })
    }

    /// After which time a holder that vanished loses the key. Default: 30 s.
    ///
    /// Not how long the work may take: the claim is renewed every third of it while the guard
    /// lives.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait at most, over everything that it takes. Default: 5 s.
    ///
    /// Zero is one attempt without a wait (see [`Wait::Within`]).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.wait = Some(Wait::Within(timeout));
        self
    }

    /// Waits without a limit.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Some(Wait::Forever);
        self
    }

    /// How long one exchange with the store may take. Default: the smaller of TTL/6 and 2 s.
    pub fn op_timeout(mut self, op_timeout: Duration) -> Self {
        self.op_timeout = Some(op_timeout);
        self
    }

    /// How often the store may be asked. Default: no limit.
    pub fn attempts(mut self, attempts: NonZeroU32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Makes the claim re-entrant for this owner. Default: nobody re-enters, not even the same
    /// task.
    ///
    /// A request with the same owner and key succeeds at once while a guard of that owner lives
    /// in this client; the key is free after the last of those guards. On backends with stored
    /// re-entrancy (Redis), the owner enters from every client and process: name owners so that no
    /// two are the same by chance.
    pub fn owner(mut self, owner: impl Into<Owner>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// A text that inspection shows. It identifies nobody: equal labels give no rights.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(Arc::from(label.as_ref()));
        self
    }

    /// Whether the watchdog renews the claim. Default: yes.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// Keeps the key for at least this long, counted from the grant, also when the work is done
    /// sooner: for jobs that several instances start at about the same time. Default: zero.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = min_hold;
        self
    }

    /// Ends the claim after this time, counted from the grant, whatever the holder does.
    /// Default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }
}

impl From<&str> for Request {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

impl From<String> for Request {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

impl From<&String> for Request {
    fn from(key: &String) -> Self {
        Self::new(key.as_str())
    }
}

impl From<&crate::Key> for Request {
    fn from(key: &crate::Key) -> Self {
        Self::new(key.as_str())
    }
}
