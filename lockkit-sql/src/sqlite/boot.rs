//! The time that is stored, and the name of the machine's present run.
//!
//! SQLite has no server whose clock could decide. All processes that can open the file share one
//! machine instead, so its clock since boot (which no one can set, and which counts suspend) is
//! stored, and beside it the id of the run that it counts in: after a restart the clock begins
//! anew, and all rows of earlier runs are dead, as their holders are.

use std::time::Duration;

use lockkit_core::{BootInstant, Error, Result};

/// The name of this run of the machine.
pub(super) type BootId = [u8; 16];

/// One reading of the clock, just before a statement is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// For the lease.
    pub(super) sent: BootInstant,
    /// For the statement: nanoseconds, the same in all processes. Never earlier than `sent`.
    pub(super) stamp: i64,
}

impl Moment {
    /// The stamp `time` from now.
    pub(super) fn after(self, time: Duration) -> i64 {
        self.stamp.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// What turns readings of this process's clock into stamps that all processes share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boot {
    /// The present run.
    pub(super) id: BootId,
    /// How far this process's clock is ahead of the machine's: not zero in a Linux time
    /// namespace of its own.
    ahead: i64,
}

impl Boot {
    /// Asks the operating system.
    pub(super) fn read() -> Result<Self> {
        let id = platform::id().map_err(|e| {
            Error::configuration("the operating system does not tell the id of its present run")
                .with_source(e)
        })?;
        Ok(Self { id, ahead: platform::ahead() })
    }

    /// Reads the clock.
    pub(super) fn moment(&self) -> Moment {
        let sent = BootInstant::now();
        Moment { sent, stamp: platform::stamp(sent).saturating_sub(self.ahead) }
    }
}

#[cfg(all(target_os = "linux", not(lockkit_portable_clock)))]
mod platform {
    use std::io;

    use lockkit_core::BootInstant;

    use super::BootId;

    pub(super) fn id() -> io::Result<BootId> {
        super::parse_id(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?)
            .ok_or_else(|| io::Error::other("the boot id has an unknown form"))
    }

    pub(super) fn ahead() -> i64 {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        super::parse_offset(&offsets)
    }

    pub(super) fn stamp(sent: BootInstant) -> i64 {
        i64::try_from(sent.as_nanos()).unwrap_or(i64::MAX)
    }
}

/// Without a clock since boot that all processes share, the wall clock has to do: a step of it
/// moves expiries, and a restart of the machine frees nothing early.
#[cfg(not(all(target_os = "linux", not(lockkit_portable_clock))))]
mod platform {
    use std::io;
    use std::time::SystemTime;

    use lockkit_core::BootInstant;

    use super::BootId;

    pub(super) fn id() -> io::Result<BootId> {
        Ok(*b"no id of the run")
    }

    pub(super) fn ahead() -> i64 {
        0
    }

    pub(super) fn stamp(_: BootInstant) -> i64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
    }
}

#[allow(dead_code)] // used where there is such a file
fn parse_id(text: &str) -> Option<BootId> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

/// Reads the line `boottime <seconds> <nanoseconds>`; kernels without time namespaces have none.
#[allow(dead_code)] // used where there is such a file
fn parse_offset(text: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix("boottime")).unwrap_or_default();
    let mut words = line.split_whitespace().map(str::parse::<i64>);
    match (words.next(), words.next()) {
        (Some(Ok(seconds)), Some(Ok(nanos))) => {
            seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_text() {
        let id = parse_id("639033d4-818f-486b-8615-930004e2fd92\n").unwrap();
        assert_eq!(id[..4], [0x63, 0x90, 0x33, 0xd4]);
        assert_eq!(parse_id(""), None);
        assert_eq!(parse_id("639033d4-818f"), None);
    }

    #[test]
    fn a_time_namespace_is_taken_out() {
        assert_eq!(
            parse_offset("monotonic           0         0\nboottime   1000  5\n"),
            1_000_000_000_005
        );
        assert_eq!(parse_offset("monotonic 0 0\nboottime -1 0\n"), -1_000_000_000);
        assert_eq!(parse_offset(""), 0);
    }

    #[test]
    fn stamps_grow() {
        let boot = Boot::read().unwrap();
        let (a, b) = (boot.moment(), boot.moment());
        assert!(b.stamp >= a.stamp && b.sent >= a.sent);
    }
}
