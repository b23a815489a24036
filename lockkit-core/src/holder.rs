//! Who holds a key, as the store tells it.

use std::fmt;
use std::time::Duration;

use crate::mode::Mode;
use crate::token::Token;

/// Who holds a key, as the store tells it: for people and for forced release, never for a
/// decision about locking.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// How the key is held.
    pub mode: Mode,
    /// The fence of the claim that has held it longest.
    pub fence: Option<u64>,
    /// The token of that claim.
    pub token: Option<Token>,
    /// The label of that claim, if it gave one.
    pub label: Option<String>,
    /// For how long that claim has held the key.
    pub held_for: Option<Duration>,
    /// After which time the last of the holders is gone if nobody renews.
    pub expires_in: Option<Duration>,
    /// How many claims hold the key (more than one: shared or permits).
    pub holders: usize,
    /// How many claims wait for it, where the store keeps a queue.
    pub waiting: Option<usize>,
}

impl Holder {
    /// One holder of whom only the mode is known; fill in the rest.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            fence: None,
            token: None,
            label: None,
            held_for: None,
            expires_in: None,
            holders: 1,
            waiting: None,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held by ")?;
        match &self.label {
            Some(label) => write!(f, "`{}`", label.escape_debug())?,
            None => write!(f, "a claim without a label")?,
        }
        if self.holders > 1 {
            write!(f, " and {} more", self.holders - 1)?;
        }
        if let Some(fence) = self.fence {
            write!(f, " (fence {fence})")?;
        }
        if let Some(held) = self.held_for {
            write!(f, " for {}", humantime::format_duration(whole_millis(held)))?;
        }
        if let Some(left) = self.expires_in {
            write!(
                f,
                ", free in {} at the latest",
                humantime::format_duration(whole_millis(left))
            )?;
            write!(f, " unless renewed")?;
        }
        Ok(())
    }
}

fn whole_millis(d: Duration) -> Duration {
    Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// Which claim a forced release takes the key from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// Whoever holds it, all of them.
    Whoever,
    /// The claim with this fence: safe against hitting a successor.
    Fence(u64),
    /// The claim with this token.
    Token(Token),
}
