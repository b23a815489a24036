//! The statements. Each is one step: it commits by itself or does nothing.
//!
//! FROZEN as far as their meaning goes: processes of different versions use one file.

use std::sync::Arc;

use lockkit_core::Mode;
use sqlx::AssertSqlSafe;

use super::table::TableName;

/// A statement for one table, ready to be sent any number of times.
#[derive(Debug, Clone)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    fn new(text: String) -> Self {
        Self(text.into())
    }

    /// Safe: the text holds nothing from outside but the name of the table, which was checked.
    pub(super) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }
}

/// The statements for one table.
#[derive(Debug)]
pub(super) struct Statements {
    /// `?1` key, `?2` token, `?3` mode, `?4` label, `?5` boot, `?6` now, `?7` expires: grants the
    /// claim unless somebody is in the way.
    exclusive: Statement,
    shared: Statement,
    permit: Statement,
    /// `?1` key, `?2` token, `?3` boot, `?4` now, `?5` expires: arms the claim anew if it stands.
    /// Never takes time away: an older request may come late.
    pub(super) renew: Statement,
    /// The same, and tells the fence.
    pub(super) rearm: Statement,
    /// The same, but sets the end to exactly `?5`.
    pub(super) linger: Statement,
    /// `?1` key, `?2` token.
    pub(super) release: Statement,
    /// As `release`, and tells the modes of what was there.
    pub(super) release_all: Statement,
    /// `?1` key, `?2` token, `?3` boot, `?4` now, `?5` expires: a writer waits.
    pub(super) intend: Statement,
    /// The same, for a writer that has a row already.
    pub(super) intend_on: Statement,
    /// `?1` key, `?2` token.
    pub(super) intend_no_more: Statement,
    /// `?1` key, `?2` boot, `?3` now: who is there, one row per mode, with the oldest claim.
    pub(super) look: Statement,
    /// `?1` key, `?2` boot, `?3` now.
    pub(super) force: Statement,
    /// The same, only the claim with the fence `?4`.
    pub(super) force_fence: Statement,
    /// The same, only the claim with the token `?4`.
    pub(super) force_token: Statement,
    /// `?1` boot, `?2` now: takes away what is dead, of all keys.
    pub(super) sweep: Statement,
    /// Takes the write lock and writes nothing.
    pub(super) probe: Statement,
    /// `?1` boot: whether the file was used in this run.
    pub(super) known_run: Statement,
    /// `?1` boot, `?2` now, `?3` the wall clock in microseconds: begins a run: moves
    /// the fences ahead, and leaves a row that says so.
    pub(super) begin_run: Statement,
}

impl Statements {
    pub(super) fn new(table: &TableName) -> Self {
        let t = table.as_str();
        let new = |text: String| Statement::new(text.replace("{t}", t));
        let insert = |rivals: &str, more: &str| {
            new(format!(
                "INSERT INTO \"{{t}}\" (key, token, mode, label, boot, since, expires) \
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS (SELECT 1 FROM \"{{t}}\" \
                 WHERE key = ?1 AND boot = ?5 AND expires > ?6 AND {rivals}){more}"
            ))
        };
        let extend = |end: &str, more: &str| {
            new(format!(
                "UPDATE \"{{t}}\" SET expires = {end} WHERE key = ?1 AND token = ?2 AND mode > -2 \
                 AND boot = ?3 AND expires > ?4{more}"
            ))
        };
        let force = |more: &str| {
            new(format!(
                "DELETE FROM \"{{t}}\" WHERE key = ?1 AND mode > -2 AND boot = ?2 \
                 AND expires > ?3{more}"
            ))
        };
        let one = |text: &str| new(text.to_owned());
        Self {
            exclusive: insert("mode <> -2", ""),
            shared: insert("mode <> -1", ""),
            permit: insert(
                "mode <> ?3",
                " AND (SELECT count(*) FROM \"{t}\" WHERE key = ?1 AND boot = ?5 \
                 AND expires > ?6 AND mode = ?3) < ?3",
            ),
            renew: extend("max(expires, ?5)", ""),
            rearm: extend("max(expires, ?5)", " RETURNING id"),
            linger: extend("?5", ""),
            release: one("DELETE FROM \"{t}\" WHERE key = ?1 AND token = ?2"),
            release_all: one("DELETE FROM \"{t}\" WHERE key = ?1 AND token = ?2 RETURNING mode"),
            intend: one("INSERT INTO \"{t}\" (key, token, mode, boot, since, expires) \
                 VALUES (?1, ?2, -2, ?3, ?4, ?5)"),
            intend_on: one("UPDATE \"{t}\" SET expires = ?5 WHERE key = ?1 AND token = ?2 \
                 AND mode = -2 AND boot = ?3 AND expires > ?4"),
            intend_no_more: one("DELETE FROM \"{t}\" WHERE key = ?1 AND token = ?2 AND mode = -2"),
            look: one("SELECT m.mode, m.claims, m.soonest, m.latest, \
                 c.id, c.token, c.label, c.since FROM (SELECT mode, count(*) AS claims, \
                 min(expires) AS soonest, max(expires) AS latest, min(id) AS oldest \
                 FROM \"{t}\" WHERE key = ?1 AND boot = ?2 AND expires > ?3 GROUP BY mode) AS m \
                 JOIN \"{t}\" AS c ON c.id = m.oldest ORDER BY c.id"),
            force: force(""),
            force_fence: force(" AND id = ?4"),
            force_token: force(" AND token = ?4"),
            sweep: one("DELETE FROM \"{t}\" WHERE boot <> ?1 OR expires <= ?2"),
            probe: one("DELETE FROM \"{t}\" WHERE id = -1"),
            known_run: one("SELECT 1 FROM \"{t}\" WHERE key = x'' AND boot = ?1"),
            begin_run: one("INSERT INTO \"{t}\" (id, key, token, mode, boot, since, expires) \
                 SELECT max(?3, 67108864 + coalesce((SELECT seq FROM sqlite_sequence \
                 WHERE name = '{t}'), 0)), x'', x'', -3, ?1, ?2, 9223372036854775807 \
                 WHERE NOT EXISTS (SELECT 1 FROM \"{t}\" WHERE key = x'' AND boot = ?1)"),
        }
    }

    /// The statement that grants a claim of this mode.
    pub(super) fn acquire(&self, mode: Mode) -> &Statement {
        match mode {
            Mode::Shared => &self.shared,
            Mode::Permit { .. } => &self.permit,
            _ => &self.exclusive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::table::DEFAULT_NAME;

    /// FROZEN: change it only knowing that older processes go on using the same file.
    #[test]
    fn golden_statements() {
        let s = Statements::new(&TableName::new(DEFAULT_NAME).unwrap());
        let all = [
            &s.exclusive,
            &s.shared,
            &s.permit,
            &s.renew,
            &s.rearm,
            &s.linger,
            &s.release,
            &s.release_all,
            &s.intend,
            &s.intend_on,
            &s.intend_no_more,
            &s.look,
            &s.force,
            &s.force_fence,
            &s.force_token,
            &s.sweep,
            &s.probe,
            &s.known_run,
            &s.begin_run,
        ];
        let text: String = all.iter().map(|s| format!("{};\n", s.0)).collect();
        assert_eq!(text, include_str!("golden/statements.sql"));
    }
}
