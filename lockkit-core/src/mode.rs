//! In which way a claim shares its key.

use std::fmt;
use std::num::NonZeroU32;

/// In which way a claim shares its key with others.
///
/// All live claims of a key belong to one family: exclusive and shared together, or permits of
/// one limit. A claim of another family is a configuration error, told at once: it never waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// One holder, nobody beside it. The default.
    #[default]
    Exclusive,
    /// Any number of readers; excludes `Exclusive`.
    Shared,
    /// One of at most `limit` holders: a semaphore. All users of a key must name the same limit.
    Permit {
        /// How many may hold the key at the same time.
        limit: NonZeroU32,
    },
}

impl Mode {
    /// Whether a live claim of this mode and one of `other` may be on the same key at all, held
    /// or waiting.
    pub fn same_family(self, other: Self) -> bool {
        match (self, other) {
            (Self::Permit { limit: a }, Self::Permit { limit: b }) => a == b,
            (Self::Permit { .. }, _) | (_, Self::Permit { .. }) => false,
            _ => true,
        }
    }

    /// Whether a holder of this mode already has what `wanted` asks for: the rule of re-entry.
    pub fn covers(self, wanted: Self) -> bool {
        self == wanted || (self == Self::Exclusive && wanted == Self::Shared)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permit { limit } => write!(f, "permit of {limit}"),
        }
    }
}
