//! How `lockkit` itself ends, and how it says why.

use std::fmt::Display;
use std::io::Write;

use lockkit::Error;
use rustix::process::Signal;

/// Wrong usage or configuration.
pub(crate) const USAGE: u8 = 64;
/// The backend did not answer, or cannot serve.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A fault of this machine or of lockkit.
pub(crate) const INTERNAL: u8 = 70;
/// Somebody else has the key.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The backend or the file system refuses.
pub(crate) const PERMISSION: u8 = 77;
/// The command exists and cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// The end: a code, and a reason for standard error unless the code says it all.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: u8,
    pub(crate) reason: Option<String>,
}

impl Exit {
    pub(crate) fn new(code: u8, reason: impl Into<String>) -> Self {
        Self { code, reason: Some(reason.into()) }
    }

    pub(crate) fn silent(code: u8) -> Self {
        Self { code, reason: None }
    }

    pub(crate) fn usage(reason: impl Into<String>) -> Self {
        Self::new(USAGE, reason)
    }

    /// A signal that came before the command was started.
    pub(crate) fn signal(signal: Signal, phase: &str) -> Self {
        let number = signal.as_raw();
        Self::new(of_signal(number), format!("ended by signal {number} while {phase}"))
    }

    /// What stopped the lock from being acquired.
    pub(crate) fn not_acquired(error: &Error, conflict: u8) -> Self {
        Self::new(code_of(error, conflict), error.to_string())
    }
}

/// `128 + n`, as shells do.
pub(crate) fn of_signal(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

fn code_of(error: &Error, conflict: u8) -> u8 {
    match error {
        // The key may be free for all we know: the store did not tell.
        Error::NotAcquired(why) if why.last_error.is_some() => UNAVAILABLE,
        Error::NotAcquired(_) => conflict,
        Error::Unavailable(_) => UNAVAILABLE,
        Error::Permission(_) => PERMISSION,
        Error::Configuration(_) | Error::Unsupported(_) => USAGE,
        Error::Lost(_) => LOST,
        _ => INTERNAL,
    }
}

/// One line on standard error; nowhere else, and no matter whether anybody reads it.
pub(crate) fn say(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "lockkit: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code() {
        for (error, code) in [
            (Error::unavailable("x"), 69),
            (Error::permission("x"), 77),
            (Error::configuration("x"), 64),
            (Error::unsupported("memory", "x"), 64),
        ] {
            assert_eq!(Exit::not_acquired(&error, BUSY).code, code, "{error}");
        }
    }

    #[test]
    fn signals_are_counted_from_128() {
        assert_eq!(of_signal(15), 143);
        assert_eq!(of_signal(64), 192);
        assert_eq!(of_signal(1000), 255);
    }
}
