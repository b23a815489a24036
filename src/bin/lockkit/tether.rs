//! A command that ends with lockkit.
//!
//! The kernel kills a process at the death of its parent only if the process has asked for that
//! itself. So lockkit starts itself in the command's place, asks, and becomes the command: but
//! not before lockkit lets it, by SIGCONT, because the warden must know the group first.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::exit;

/// The first word of the command line that leads here; no business of users.
pub(crate) const WORD: &str = ".tether";

/// This very program, even if its file has been replaced since.
const MYSELF: &str = "/proc/self/exe";

/// Whether commands are started through the tether.
pub(crate) fn works() -> bool {
    cfg!(target_os = "linux") && std::fs::exists(MYSELF).unwrap_or(false)
}

/// How to start `command`: through the tether where that works, else directly.
pub(crate) fn command(command: &[OsString]) -> Command {
    if works() {
        let mut start = Command::new(MYSELF);
        start.arg0("lockkit").arg(WORD).arg(std::process::id().to_string()).args(command);
        return start;
    }
    let (program, args) =
        command.split_first().map_or_else(Default::default, |(p, a)| (p.clone(), a.to_vec()));
    let mut start = Command::new(program);
    start.args(args);
    start
}

/// `.tether PARENT CMD ARGS...`
pub(crate) fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = words.next().and_then(|word| word.to_str()?.parse().ok());
    let (Some(parent), Some(command)) = (parent, words.next()) else {
        exit::say(format_args!("`{WORD}` is for lockkit's own use"));
        return ExitCode::from(exit::USAGE);
    };
    if !tied_to(parent) {
        // It was killed before the tether was there: there is no lock any more.
        return ExitCode::from(exit::of_signal(9));
    }
    let error = Command::new(&command).args(words).exec();
    not_started(&command, &error)
}

/// The exit code for a command that cannot be started; says why.
pub(crate) fn not_started(command: &OsString, error: &std::io::Error) -> ExitCode {
    exit::say(format_args!("cannot run {}: {error}", command.display()));
    ExitCode::from(code(error))
}

/// The exit code for a command that cannot be started.
pub(crate) fn code(error: &std::io::Error) -> u8 {
    match error.kind() {
        ErrorKind::NotFound => exit::NOT_FOUND,
        // No process, no memory: not the command's fault.
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => exit::INTERNAL,
        _ => exit::NOT_EXECUTABLE,
    }
}

#[cfg(target_os = "linux")]
fn tied_to(parent: i32) -> bool {
    use rustix::process::{
        Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
    };

    // Without it the warden is left, which kills the group all the same.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let tied = getppid().map(Pid::as_raw_nonzero).is_some_and(|pid| pid.get() == parent);
    tied && kill_process(getpid(), Signal::STOP).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn tied_to(_: i32) -> bool {
    true
}
