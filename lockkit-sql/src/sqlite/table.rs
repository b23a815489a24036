//! The table: its name, its definition, and the numbers that stand for modes.

use std::num::NonZeroU32;

use lockkit_core::{Error, Mode, Result};

/// The name of the table unless another one is asked for.
pub(super) const DEFAULT_NAME: &str = "lockkit_claims";

/// The number of a writer that waits for readers: it holds nothing, but new readers respect it.
pub(super) const INTENT: i64 = -2;

/// The number that stands for a mode. Frozen: do not change.
pub(super) fn number(mode: Mode) -> Result<i64> {
    match mode {
        Mode::Exclusive => Ok(0),
        Mode::Shared => Ok(-1),
        Mode::Permit { limit } => Ok(i64::from(limit.get())),
        // A mode that this crate does not know yet.
        other => Err(Error::unsupported("sqlite", &format!("mode `{other}`"))),
    }
}

/// The mode that a number stands for; a waiting writer is exclusive.
pub(super) fn mode(number: i64) -> Option<Mode> {
    match number {
        0 | INTENT => Some(Mode::Exclusive),
        -1 => Some(Mode::Shared),
        limit => {
            u32::try_from(limit).ok().and_then(NonZeroU32::new).map(|limit| Mode::Permit { limit })
        }
    }
}

/// A name that can stand in a statement as it is, and that SQLite compares as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName(String);

impl TableName {
    pub(super) fn new(name: &str) -> Result<Self> {
        let valid = name.len() <= 48
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && !name.starts_with("sqlite_");
        if valid {
            return Ok(Self(name.to_owned()));
        }
        Err(Error::configuration(
            "the name of a table must be 1 to 48 of a-z, 0-9 and `_`, must not begin with a digit, \
             nor with `sqlite_`",
        ))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of what has to be there, in the order of [`Self::definition`].
    pub(super) fn parts(&self) -> [String; 3] {
        let name = &self.0;
        [name.clone(), format!("{name}_key"), format!("{name}_reclaim")]
    }

    /// What has to be there: table, index and trigger.
    ///
    /// FROZEN: do not change. Files of earlier versions are compared with it, white space aside.
    ///
    /// - `AUTOINCREMENT`: the id is the fence, and SQLite never gives one twice, whatever is
    ///   deleted.
    /// - The trigger takes away the dead claims of a key in the very statement that grants it
    ///   anew. After that no late renewal, whatever time it believes it is, finds its row.
    pub(super) fn definition(&self) -> [String; 3] {
        let [table, index, trigger] = self.parts();
        [
            format!(
                r#"CREATE TABLE "{table}" (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- the fence
  key BLOB NOT NULL,
  token BLOB NOT NULL,
  mode INTEGER NOT NULL, -- 0 exclusive, -1 shared, n > 0 permit of n, -2 waiting writer, -3 run
  label TEXT,
  boot BLOB NOT NULL, -- the run of the machine that the next two count in
  since INTEGER NOT NULL, -- nanoseconds since boot
  expires INTEGER NOT NULL
)"#
            ),
            format!(r#"CREATE INDEX "{index}" ON "{table}" (key)"#),
            format!(
                r#"CREATE TRIGGER "{trigger}" BEFORE INSERT ON "{table}" BEGIN
  DELETE FROM "{table}" WHERE key = NEW.key AND (boot <> NEW.boot OR expires <= NEW.since);
END"#
            ),
        ]
    }
}

/// The SQL that creates the table `table` (`lockkit_claims` unless the URL says otherwise), for
/// those who manage their schema themselves and set `migrate=false`.
///
/// # Errors
/// [`Error::Configuration`] if `table` is not a name that lockkit takes.
pub fn schema(table: &str) -> Result<String> {
    let mut text = String::new();
    for part in TableName::new(table)?.definition() {
        text.push_str(&part);
        text.push_str(";\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_keep_their_numbers() {
        let permit = |n| Mode::Permit { limit: NonZeroU32::new(n).unwrap() };
        for (m, n) in [
            (Mode::Exclusive, 0),
            (Mode::Shared, -1),
            (permit(1), 1),
            (permit(u32::MAX), 4_294_967_295),
        ] {
            assert_eq!(number(m).unwrap(), n);
            assert_eq!(mode(n), Some(m));
        }
        assert_eq!(mode(INTENT), Some(Mode::Exclusive));
        assert_eq!(mode(-3), None);
        assert_eq!(mode(i64::MAX), None);
    }

    #[test]
    fn names_are_plain() {
        for good in ["lockkit_claims", "a", "_1", &"x".repeat(48)] {
            assert!(TableName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "A", "a b", "a\"b", "a;b", "sqlite_x", "é", &"x".repeat(49)] {
            assert!(TableName::new(bad).is_err(), "{bad}");
        }
    }

    /// FROZEN: a change here is another layout, and needs a migration.
    #[test]
    fn golden_schema() {
        assert_eq!(schema(DEFAULT_NAME).unwrap(), include_str!("golden/schema.sql"));
    }
}
