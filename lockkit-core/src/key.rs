//! Keys: the names of what is locked.

use std::fmt;
use std::sync::Arc;

use crate::encoding;
use crate::error::{Error, Result};

/// The name of what is locked: any UTF-8 string of 1 to 512 bytes.
///
/// Slashes, braces, spaces (trailing ones too), letter case, dots, emoji and control characters
/// are all part of the name. Two different names are never one lock.
/// The docs use the style `domain:lock:id`, as in `order:lock:1001`.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 512;

    /// Checks `name` and makes it a key.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the name is empty or longer than [`Key::MAX_BYTES`].
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        match name.len() {
            0 => Err(Error::configuration("the key is empty; a key has 1 to 512 bytes")),
            1..=Self::MAX_BYTES => Ok(Self(Arc::from(name))),
            n => Err(Error::configuration(format!(
                "the key has {n} bytes; at most {} are allowed (hash longer names yourself)",
                Self::MAX_BYTES
            ))),
        }
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in the one frozen encoding that Redis, etcd and ZooKeeper share; see
    /// [`encoding`](crate::encoding).
    pub fn encoded(&self) -> String {
        encoding::encode(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Key {
    /// Control characters are escaped, so that a key cannot forge a line of a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_counted_in_bytes() {
        assert!(Key::new("").is_err());
        assert!(Key::new("a".repeat(512)).is_ok());
        assert!(Key::new("a".repeat(513)).is_err());
        assert!(Key::new("é".repeat(256)).is_ok());
        assert!(Key::new("é".repeat(257)).is_err());
    }

    #[test]
    fn display_cannot_break_a_log_line() {
        let key = Key::new("a\nERROR b\u{1b}[31m").unwrap();
        assert_eq!(key.to_string(), "a\\nERROR b\\u{1b}[31m");
        assert_eq!(key.as_str(), "a\nERROR b\u{1b}[31m");
    }
}
