//! The identity of one claim.

use std::fmt;

use uuid::Uuid;

/// 128 random bits that identify one claim.
///
/// Drawn from the operating system for every claim, before anything is sent, and never used
/// again: no two threads, forks or restored snapshots share one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(Uuid);

impl Token {
    /// Draws a new token.
    #[allow(clippy::new_without_default)] // every call differs: `Default` would mislead
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The 16 bytes, for stores with binary columns.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Reads the 16 bytes back; `None` if there are not 16.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        Uuid::from_slice(bytes).ok().map(Self)
    }
}

impl fmt::Display for Token {
    /// 32 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_simple(), f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Token {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| crate::Error::configuration("a token has 32 hexadecimal digits"))
    }
}
