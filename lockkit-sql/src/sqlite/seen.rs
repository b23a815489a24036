//! What a look at a key shows, and what follows for a claim that wants it.

use std::time::Duration;

use lockkit_core::{Error, Holder, Key, Mode, Result, Token};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::table::{self, INTENT};

/// The live claims of one key, by mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    groups: Vec<Group>,
    now: i64,
}

/// The live claims of one mode, and the oldest of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    number: i64,
    mode: Mode,
    claims: i64,
    /// When the first and the last of them end.
    soonest: i64,
    latest: i64,
    fence: i64,
    token: Option<Token>,
    label: Option<String>,
    since: i64,
}

impl Seen {
    /// Reads the rows of the statement `look`, which come in the order of the oldest claims.
    pub(super) fn read(rows: &[SqliteRow], now: i64) -> Result<Self, sqlx::Error> {
        let groups = rows.iter().map(Group::read).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { groups: groups.into_iter().flatten().collect(), now })
    }

    /// The mode of a claim that cannot be at the key at the same time as one of `wanted`: not
    /// now, and not by waiting either.
    fn other_family(&self, wanted: Mode) -> Option<Mode> {
        self.groups.iter().map(|group| group.mode).find(|mode| !mode.same_family(wanted))
    }

    /// Whether somebody is in the way of a claim of the mode `wanted`. The statement that grants
    /// decides; this tells whether asking it is worth it.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the key is in use in a way that waiting does not help against.
    pub(super) fn blocks(&self, key: &Key, wanted: Mode) -> Result<bool> {
        if let Some(other) = self.other_family(wanted) {
            return Err(Error::configuration(format!(
                "`{key}` is in use as {other}, and cannot be taken as {wanted} at the same time"
            )));
        }
        Ok(self.free_in(wanted).is_some())
    }

    /// After which time nobody is in the way any more if nobody renews; `None` if nobody is.
    pub(super) fn free_in(&self, wanted: Mode) -> Option<Duration> {
        let end = |group: &Group| match wanted {
            Mode::Exclusive => (group.number != INTENT).then_some(group.latest),
            Mode::Shared => (group.mode != Mode::Shared).then_some(group.latest),
            Mode::Permit { limit } => {
                (group.claims >= i64::from(limit.get())).then_some(group.soonest)
            }
            _ => Some(group.latest),
        };
        let end = self.groups.iter().filter_map(end).max()?;
        Some(between(self.now, end))
    }

    /// Whether readers hold the key.
    pub(super) fn is_read(&self) -> bool {
        self.groups.iter().any(|group| group.number != INTENT && group.mode == Mode::Shared)
    }

    /// Who holds the key.
    pub(super) fn holder(&self) -> Option<Holder> {
        let held = || self.groups.iter().filter(|group| group.number != INTENT);
        let oldest = held().min_by_key(|group| group.fence)?;
        let mut holder = Holder::new(oldest.mode);
        holder.fence = u64::try_from(oldest.fence).ok();
        holder.token = oldest.token;
        holder.label.clone_from(&oldest.label);
        holder.held_for = Some(between(oldest.since, self.now));
        holder.expires_in = held().map(|g| g.latest).max().map(|end| between(self.now, end));
        holder.holders = held().map(|g| usize::try_from(g.claims).unwrap_or(0)).sum();
        Some(holder)
    }
}

impl Group {
    /// `None` for a mode that this version does not know.
    fn read(row: &SqliteRow) -> Result<Option<Self>, sqlx::Error> {
        let number = row.try_get(0)?;
        let Some(mode) = table::mode(number) else { return Ok(None) };
        let token: Vec<u8> = row.try_get(5)?;
        Ok(Some(Self {
            number,
            mode,
            claims: row.try_get(1)?,
            soonest: row.try_get(2)?,
            latest: row.try_get(3)?,
            fence: row.try_get(4)?,
            token: Token::from_slice(&token),
            label: row.try_get(6)?,
            since: row.try_get(7)?,
        }))
    }
}

fn between(earlier: i64, later: i64) -> Duration {
    Duration::from_nanos(u64::try_from(later.saturating_sub(earlier)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn permit(limit: u32) -> Mode {
        Mode::Permit { limit: NonZeroU32::new(limit).unwrap() }
    }

    fn group(number: i64, claims: i64, soonest: i64, latest: i64) -> Group {
        let mode = table::mode(number).unwrap();
        let token = Some(Token::new());
        let (fence, since) = (7 - number, 10);
        Group { number, mode, claims, soonest, latest, fence, token, label: None, since }
    }

    fn seen(groups: Vec<Group>) -> Seen {
        Seen { groups, now: 100 }
    }

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    #[test]
    fn nobody_is_in_the_way_of_anybody() {
        let nobody = seen(vec![]);
        for mode in [Mode::Exclusive, Mode::Shared, permit(1)] {
            assert!(!nobody.blocks(&key(), mode).unwrap());
        }
        assert_eq!(nobody.holder(), None);
    }

    #[test]
    fn a_waiting_writer_is_in_the_way_of_readers_only() {
        let seen = seen(vec![group(-1, 2, 200, 300), group(INTENT, 1, 900, 900)]);
        assert_eq!(seen.free_in(Mode::Exclusive), Some(Duration::from_nanos(200)));
        assert_eq!(seen.free_in(Mode::Shared), Some(Duration::from_nanos(800)));
        assert!(seen.blocks(&key(), permit(3)).is_err());
        let holder = seen.holder().unwrap();
        assert_eq!((holder.mode, holder.holders), (Mode::Shared, 2));
        assert_eq!(holder.expires_in, Some(Duration::from_nanos(200)));
        assert_eq!(holder.held_for, Some(Duration::from_nanos(90)));
    }

    #[test]
    fn permits_run_out_at_the_limit() {
        let seen = seen(vec![group(3, 3, 150, 400)]);
        assert_eq!(seen.free_in(permit(3)), Some(Duration::from_nanos(50)));
        let error = seen.blocks(&key(), permit(4)).unwrap_err().to_string();
        assert!(error.contains("permit of 3") && error.contains("permit of 4"), "{error}");
        let error = seen.blocks(&key(), Mode::Exclusive).unwrap_err().to_string();
        assert!(error.contains("permit of 3") && error.contains("exclusive"), "{error}");
    }
}
