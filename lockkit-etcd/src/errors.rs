//! What etcd and the network say, as errors of lockkit.

use std::error::Error as StdError;
use std::fmt;

use etcd_client::Error as EtcdError;
use lockkit_core::Error;

/// What went wrong, and what it means for the request.
#[derive(Debug)]
pub(crate) struct Problem {
    class: Class,
    verdict: Verdict,
    text: String,
    source: Option<EtcdError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Unavailable,
    Permission,
    Configuration,
}

/// What an error means for the request that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It never left this process, or the server did not begin with it: another one may serve.
    NotSent,
    /// It may have had its effect, or may have it yet.
    Unknown,
    /// The server's word, which every other server would say too. No effect.
    Refused,
    /// The lease that it names is not there (any more). No effect.
    NoLease,
    /// The token of the connection is not valid any more. No effect.
    StaleToken,
}

impl Problem {
    /// A request that was sent, and not answered in time.
    pub(crate) fn silent(text: impl Into<String>) -> Self {
        Self::new(Class::Unavailable, Verdict::Unknown, text)
    }

    /// A request that was not sent.
    pub(crate) fn not_sent(text: impl Into<String>) -> Self {
        Self::new(Class::Unavailable, Verdict::NotSent, text)
    }

    pub(crate) fn configuration(text: impl Into<String>) -> Self {
        Self::new(Class::Configuration, Verdict::Refused, text)
    }

    /// An answer that has not the form that it must have. It was executed.
    pub(crate) fn malformed(what: &str) -> Self {
        Self::silent(format!("the answer of etcd lacks {what}"))
    }

    /// The answer that a lease is not there.
    pub(crate) fn no_lease() -> Self {
        Self::new(Class::Unavailable, Verdict::NoLease, "etcd no longer has the lease")
    }

    fn new(class: Class, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { class, verdict, text: text.into(), source: None }
    }

    /// `who` is the server that it was said by or about.
    pub(crate) fn of(who: &impl fmt::Display, error: EtcdError) -> Self {
        let (class, verdict, hint) = judge(&error);
        let text = if hint.is_empty() { who.to_string() } else { format!("{who} {hint}") };
        Self { class, verdict, text, source: Some(error) }
    }

    /// The same, for one more of those who are told.
    pub(crate) fn again(&self) -> Self {
        Self { text: self.to_string(), source: None, ..*self }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let error = match problem.class {
            Class::Unavailable => Self::unavailable(problem.text),
            Class::Permission => Self::permission(problem.text),
            Class::Configuration => Self::configuration(problem.text),
        };
        match problem.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

/// Numbers of gRPC status codes.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

fn judge(error: &EtcdError) -> (Class, Verdict, &'static str) {
    use {Class as C, Verdict as V};
    match error {
        EtcdError::GRpcStatus(status) => {
            by_status(i32::from(status.code()), status.message(), never_connected(status))
        }
        EtcdError::LeaseKeepAliveError(text) if text.contains("lease not found") => {
            (C::Unavailable, V::NoLease, "")
        }
        EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) => {
            (C::Configuration, V::Refused, "cannot be connected to")
        }
        EtcdError::TransportError(_) => (C::Unavailable, V::NotSent, "cannot be connected to"),
        _ => (C::Unavailable, V::Unknown, ""),
    }
}

fn by_status(code: i32, message: &str, connecting: bool) -> (Class, Verdict, &'static str) {
    use {Class as C, Verdict as V};
    let says = |text: &str| message.contains(text);
    let denied = "denies the user what locks need: reading and writing under the prefix";
    match code {
        _ if connecting => (C::Unavailable, V::NotSent, "cannot be reached"),
        // Another server may have a better one.
        _ if says("invalid peer certificate") => (
            C::Unavailable,
            V::NotSent,
            "has a certificate that is not trusted (who signed it is named by `tls_ca`)",
        ),
        _ if says("lease not found") => (C::Unavailable, V::NoLease, ""),
        code::PERMISSION_DENIED => (C::Permission, V::Refused, denied),
        code::UNAUTHENTICATED => (C::Permission, V::StaleToken, "refuses the user's token"),
        _ if says("auth store is old") => (C::Unavailable, V::StaleToken, "has changed its users"),
        _ if says("invalid user ID or password") => {
            (C::Permission, V::Refused, "refuses the user or the password")
        }
        _ if says("user name is empty") => {
            (C::Permission, V::Refused, "wants a user and a password")
        }
        _ if says("authentication is not enabled") => (
            C::Configuration,
            V::Refused,
            "knows no users (authentication is not enabled), but the URL names one",
        ),
        _ if says("database space exceeded") => (
            C::Unavailable,
            V::Refused,
            "is out of space and takes no writes until it is compacted and its alarm disarmed",
        ),
        code::RESOURCE_EXHAUSTED => (C::Unavailable, V::NotSent, "is overloaded"),
        code::UNIMPLEMENTED => (
            C::Configuration,
            V::Refused,
            "does not know what locks need: is it etcd 3.4 or later?",
        ),
        code::INVALID_ARGUMENT | code::NOT_FOUND | code::FAILED_PRECONDITION => {
            (C::Configuration, V::Refused, "refuses")
        }
        _ if says("no leader") => (C::Unavailable, V::Unknown, "has no leader"),
        _ => (C::Unavailable, V::Unknown, ""),
    }
}

/// Whether the cause is that no connection came about.
fn never_connected(status: &(impl StdError + 'static)) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(status);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}
