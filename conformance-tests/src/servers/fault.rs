//! What went wrong with a server.

use std::fmt;

/// Why a server is not there, or did not do what a test asked it to.
///
/// Its `Debug` form is its text, so that `unwrap` shows the lines that a server wrote as lines.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault(String);

/// What everything here returns.
pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    /// A fault with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The same, beginning with what was to be done.
    #[must_use]
    pub fn during(self, what: &str) -> Self {
        Self(format!("{what}: {}", self.0))
    }

    /// Whether a server did not start because somebody else has its port.
    pub fn is_address_in_use(&self) -> bool {
        self.0.to_lowercase().contains("address already in use")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.to_string())
    }
}
