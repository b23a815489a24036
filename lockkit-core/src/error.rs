//! What can go wrong, and what the caller can do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::holder::Holder;
use crate::key::Key;
use crate::loss::Lost;
use crate::mode::Mode;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// What went wrong.
///
/// No message, `Debug` output or source of these holds a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key was not acquired within the time or the attempts that the request allows. Nothing is
    /// wrong, and somebody else has it, unless [`last_error`](NotAcquired::last_error) says that the
    /// store failed.
    #[error("{0}")]
    NotAcquired(Box<NotAcquired>),
    /// The claim was held and is over; see [`LossReason`](crate::LossReason).
    #[error("{0}")]
    Lost(Lost),
    /// The guard was released before, so it holds nothing.
    #[error("`{0}` is not held: this guard was released")]
    NotHeld(Key),
    /// The backend did not answer, or answered that it cannot serve now. Retrying may help.
    #[error("unavailable: {0}")]
    Unavailable(#[source] Failure),
    /// The backend knows us and refuses. Retrying does not help.
    #[error("permission denied: {0}")]
    Permission(#[source] Failure),
    /// The request, the URL or the store's content is wrong. Retrying does not help.
    #[error("configuration: {0}")]
    Configuration(#[source] Failure),
    /// This backend cannot do that; the text names the missing capability.
    #[error("unsupported: {0}")]
    Unsupported(#[source] Failure),
}

impl Error {
    /// An [`Error::Unavailable`] with this text.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable(Failure::new(message))
    }

    /// An [`Error::Permission`] with this text.
    pub fn permission(message: impl Into<String>) -> Self {
        Self::Permission(Failure::new(message))
    }

    /// An [`Error::Configuration`] with this text.
    pub fn configuration(message: impl Into<String>) -> Self {
        Self::Configuration(Failure::new(message))
    }

    /// An [`Error::Unsupported`]: the backend `backend` lacks `capability`.
    pub fn unsupported(backend: &str, capability: &str) -> Self {
        Self::Unsupported(Failure::new(format!("the backend `{backend}` has no {capability}")))
    }

    /// The [`Error::Configuration`] for a claim on `key` whose mode is not of the family of
    /// `other`, which is held or waited for already. Backends must not let such a claim wait.
    pub fn other_family(key: &Key, other: Mode, wanted: Mode) -> Self {
        Self::configuration(format!(
            "`{key}` is in use as {other}, and cannot be taken as {wanted} at the same time"
        ))
    }

    /// Keeps `source` as the cause. Without effect on the variants that carry no [`Failure`].
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        match &mut self {
            Self::Unavailable(f)
            | Self::Permission(f)
            | Self::Configuration(f)
            | Self::Unsupported(f) => f.source = Some(source.into()),
            Self::NotAcquired(_) | Self::Lost(_) | Self::NotHeld(_) => {}
        }
        self
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NotAcquired(_) | Self::Unavailable(_))
    }

    /// Whether the time or the attempts were over. [`reason`](Self::reason) is `timeout` if the key
    /// was simply busy, and `unavailable` if the store failed.
    pub fn is_not_acquired(&self) -> bool {
        matches!(self, Self::NotAcquired(_))
    }

    /// Whether the claim was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// One lower-case word for the kind, for labels of metrics: it never holds a name.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotAcquired(e) if e.last_error.is_some() => "unavailable",
            Self::NotAcquired(_) => "timeout",
            Self::Lost(_) => "lost",
            Self::NotHeld(_) => "not_held",
            Self::Unavailable(_) => "unavailable",
            Self::Permission(_) => "permission",
            Self::Configuration(_) => "configuration",
            Self::Unsupported(_) => "unsupported",
        }
    }
}

/// A text for people, with the error that it stands for.
#[derive(Debug)]
pub struct Failure {
    message: String,
    source: Option<BoxError>,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// What happened, without the sources.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

/// Why and after what the key was not acquired.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotAcquired {
    /// The key.
    pub key: Key,
    /// How long the call waited.
    pub waited: Duration,
    /// How often the store was asked.
    pub attempts: u32,
    /// The last error of the store, if the last answer was one. `None`: it was plainly busy.
    pub last_error: Option<Arc<Error>>,
    /// Who was seen holding it last, where the backend can tell.
    pub holder: Option<Holder>,
    /// Whether the request did not want to wait.
    pub at_once: bool,
}

impl NotAcquired {
    pub(crate) fn new(key: Key, waited: Duration, attempts: u32) -> Self {
        Self { key, waited, attempts, last_error: None, holder: None, at_once: false }
    }
}

impl fmt::Display for NotAcquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = humantime::format_duration(Duration::from_millis(
            u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX),
        ));
        if self.at_once {
            write!(f, "`{}` is busy", self.key)?;
        } else {
            write!(f, "`{}` was not acquired within {waited}", self.key)?;
        }
        if let Some(holder) = &self.holder {
            write!(f, ", {holder}")?;
        }
        if let Some(error) = &self.last_error {
            write!(f, "; the last error was: {error}")?;
        }
        Ok(())
    }
}

impl StdError for NotAcquired {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.last_error.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}
