//! How a claim that was held can end without being released.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::key::Key;

/// A claim that was held is over. Final: it never comes back.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Lost {
    /// The key that was held.
    pub key: Key,
    /// What ended it.
    pub reason: LossReason,
}

impl Lost {
    pub(crate) fn new(key: Key, reason: LossReason) -> Self {
        Self { key, reason }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` was lost: {}", self.key, self.reason)
    }
}

impl std::error::Error for Lost {}

/// What ended a claim that was held.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed without an acknowledged renewal: the backend was out of reach, the
    /// process or its machine was stopped, or renewal was switched off.
    Expired {
        /// The last renewal error, if there was one.
        last_error: Option<Arc<Error>>,
    },
    /// The store no longer has the claim although its time was not over: somebody deleted it or
    /// released it by force, or the server forgot it.
    Gone,
    /// The session, shared lease or connection that carried the claim ended.
    SessionEnded {
        /// What the backend says about it.
        detail: Arc<str>,
    },
    /// The claim was held for as long as `max_hold` allows.
    MaxHold,
    /// It was released. Only [`Guard::run`](crate::Guard::run) says so, for work that was to begin
    /// after that.
    Released,
}

impl LossReason {
    /// One lower-case word for the kind, for labels of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "expired",
            Self::Gone => "gone",
            Self::SessionEnded { .. } => "session_ended",
            Self::MaxHold => "max_hold",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { last_error: None } => {
                f.write_str("its time ran out without a renewal (was the process stopped?)")
            }
            Self::Expired { last_error: Some(e) } => {
                write!(f, "its time ran out, and the last renewal failed with: {e}")
            }
            Self::Gone => f.write_str("the store no longer has it (deleted or released by force)"),
            Self::SessionEnded { detail } => write!(f, "its session ended: {detail}"),
            Self::MaxHold => f.write_str("it was held for as long as `max_hold` allows"),
            Self::Released => f.write_str("this guard was released before"),
        }
    }
}
