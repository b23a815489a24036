//! What Redis and the network say, as errors of lockkit.

use std::fmt;

use lockkit_core::{Core, Error};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

/// What went wrong, in a form that several callers can be told.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    class: Class,
    text: String,
    source: Option<RedisError>,
}

const RUNTIME_ENDED: &str = "the caller's runtime has ended, and its connection with it";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Unavailable,
    Permission,
    Configuration,
}

impl Problem {
    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self { class: Class::Unavailable, text: text.into(), source: None }
    }

    pub(crate) fn configuration(text: impl Into<String>) -> Self {
        Self { class: Class::Configuration, text: text.into(), source: None }
    }

    /// `who` is the server that it was said by or about.
    pub(crate) fn new(who: &impl fmt::Display, error: RedisError) -> Self {
        let (class, hint) = judge(&error);
        let text = if hint.is_empty() { who.to_string() } else { format!("{who} {hint}") };
        Self { class, text, source: Some(error) }
    }

    /// A problem that stands for several: permanent if all of them are.
    pub(crate) fn like<'a>(problems: impl Iterator<Item = &'a Self>, text: String) -> Self {
        let mut classes = problems.map(|problem| problem.class);
        let first = classes.next().unwrap_or(Class::Unavailable);
        let class = if classes.all(|class| class == first) { first } else { Class::Unavailable };
        Self { class, text, source: None }
    }

    /// What an error says, for callers of whom each is told.
    pub(crate) fn of(error: &Error) -> Self {
        let (class, failure) = match error {
            Error::Permission(failure) => (Class::Permission, failure),
            Error::Configuration(failure) => (Class::Configuration, failure),
            Error::Unavailable(failure) => (Class::Unavailable, failure),
            other => return Self::unavailable(other.to_string()),
        };
        Self { class, text: failure.to_string(), source: None }
    }

    /// The same, with the name of the server that it is about.
    pub(crate) fn at(mut self, who: &impl fmt::Display) -> Self {
        let who = who.to_string();
        if !self.text.contains(&who) {
            self.text = format!("{who}: {}", self.text);
        }
        self
    }

    /// The runtime that was to drive the connection has ended.
    pub(crate) fn runtime_ended() -> Self {
        Self::unavailable(RUNTIME_ENDED)
    }

    /// Whether a right is missing.
    pub(crate) fn is_permission(&self) -> bool {
        self.class == Class::Permission
    }

    /// Whether it is for want of a runtime only.
    pub(crate) fn is_runtime_ended(&self) -> bool {
        self.text == RUNTIME_ENDED
    }

    /// Whether it stays until somebody puts it right.
    pub(crate) fn is_permanent(&self) -> bool {
        self.class != Class::Unavailable
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

/// What class an error is of, and what is to be said about the server.
fn judge(error: &RedisError) -> (Class, &'static str) {
    use ServerErrorKind as S;
    match error.kind() {
        ErrorKind::AuthenticationFailed => (Class::Permission, "refuses the user or the password"),
        ErrorKind::InvalidClientConfig => (Class::Configuration, "cannot be connected to"),
        ErrorKind::Server(kind) => match kind {
            S::ReadOnly => (
                Class::Unavailable,
                "is a replica and takes no locks; name the primary, or the sentinels that know it",
            ),
            S::BusyLoading => (Class::Unavailable, "is loading its data"),
            S::MasterDown => (Class::Unavailable, "is a replica that has lost its primary"),
            S::ClusterDown => (Class::Unavailable, "says that the cluster is down"),
            S::TryAgain | S::Moved | S::Ask => (Class::Unavailable, "is moving the key's slot"),
            S::NoPerm => (Class::Permission, "denies the user what locks need"),
            S::CrossSlot => (Class::Configuration, "finds the keys of one lock in several slots"),
            _ => by_code(error),
        },
        ErrorKind::Extension => by_code(error),
        _ => (Class::Unavailable, ""),
    }
}

/// By the first word of what the server said.
fn by_code(error: &RedisError) -> (Class, &'static str) {
    let text = error.to_string();
    let says = |word: &str| text.contains(word);
    match error.code().unwrap_or_default() {
        "NOAUTH" => (Class::Permission, "wants a password"),
        "WRONGPASS" => (Class::Permission, "refuses the user or the password"),
        "NOPERM" => (Class::Permission, "denies the user what locks need"),
        "OOM" => (
            Class::Unavailable,
            "is out of memory and takes no more claims (renewals and releases go on)",
        ),
        "MISCONF" => (Class::Unavailable, "takes no writes because it cannot save its data"),
        "NOREPLICAS" => (Class::Unavailable, "takes no writes because it lacks replicas"),
        "BUSY" => (Class::Unavailable, "is busy with a script"),
        "WRONGTYPE" => (
            Class::Configuration,
            "has data of another type under a lock's key; give locks a `prefix` of their own",
        ),
        _ if says("unknown command") => (
            Class::Configuration,
            "does not know a command that locks need; it may be a sentinel, a proxy, or too old",
        ),
        _ if says("without any password")
            || says("invalid password")
            || says("invalid username") =>
        {
            (Class::Permission, "refuses the user or the password")
        }
        // What a script may not do, servers from 7.0 on say without a code of its own.
        _ if says("user executing the script can't") || says("this user has no permissions") => {
            (Class::Permission, "denies the user what locks need")
        }
        _ if says("DB index") => (Class::Configuration, "has no database of this number"),
        _ if says("max number of clients") => (Class::Unavailable, "has too many clients"),
        _ => (Class::Unavailable, "refuses"),
    }
}

/// For whoever names a holder by a fence where there are none.
pub(crate) fn no_fences(core: &Core) -> Error {
    Error::unsupported(core.capabilities().name, "fences by which a holder could be named")
}

/// The answers to a request.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) values: Vec<Value>,
    /// Whether it was sent once more because nothing was heard of the first time, which may have
    /// had its effect, or may have it yet.
    pub(crate) sent_twice: bool,
}

impl Answered {
    /// The answer to a request of one command.
    pub(crate) fn first(self) -> Value {
        self.values.into_iter().next().unwrap_or(Value::Nil)
    }
}

/// A request that brought no answer.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) problem: Problem,
    /// Whether it may have reached the server.
    pub(crate) may_have_effect: bool,
}

impl Failed {
    pub(crate) fn never_sent(problem: Problem) -> Self {
        Self { problem, may_have_effect: false }
    }

    pub(crate) fn unanswered(problem: Problem) -> Self {
        Self { problem, may_have_effect: true }
    }

    /// The same, of a request that was perhaps sent once before.
    pub(crate) fn after(self, sent_before: bool) -> Self {
        Self { may_have_effect: self.may_have_effect || sent_before, ..self }
    }

    /// The same, with the name of the server that it is about.
    pub(crate) fn at(self, who: &impl fmt::Display) -> Self {
        Self { problem: self.problem.at(who), ..self }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.problem.into()
    }
}
