//! The command, as a process that leads a group of its own.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tokio::signal::unix;

use crate::exit;
use crate::tether;

/// The running command.
///
/// It is looked at without being reaped, so that its number, and that of its group, is nobody
/// else's for as long as signals are sent there.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    group: Pid,
    changes: unix::Signal,
}

/// What happened to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has ended, and is not reaped.
    Ended,
    /// This signal has stopped it.
    Stopped(i32),
}

impl Child {
    /// Starts the command, which does not run before it is [released](Self::release); `changes` are the SIGCHLD signals from before it was started.
    pub(crate) fn start(
        command: &[OsString],
        environment: &[(&str, Option<String>)],
        changes: unix::Signal,
    ) -> io::Result<Self> {
        let mut start = tether::command(command);
        for (name, value) in environment {
            match value {
                Some(value) => start.env(name, value),
                None => start.env_remove(name),
            };
        }
        let process = start.process_group(0).spawn()?;
        let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the system gave no process number"))?;
        Ok(Self { process, group, changes })
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Lets it run, after what must be done before that: `first`.
    pub(crate) async fn release(&mut self, first: impl FnOnce(Pid)) {
        if tether::works() {
            // The tether has stopped itself, unless it was killed before.
            self.change().await;
        }
        first(self.group);
        self.signal(Signal::CONT);
    }

    /// Sends a signal to the whole group; to the command alone if it has left its own group.
    pub(crate) fn signal(&self, signal: Signal) {
        if kill_process_group(self.group, signal).is_err() {
            let _ = kill_process(self.group, signal);
        }
    }

    /// Resolves when the command has ended or was stopped. Cancel-safe.
    pub(crate) async fn change(&mut self) -> Change {
        loop {
            if let Some(change) = self.look() {
                return change;
            }
            self.changes.recv().await;
        }
    }

    /// Resolves when the command has ended. Cancel-safe.
    pub(crate) async fn ended(&mut self) {
        while self.change().await != Change::Ended {}
    }

    fn look(&self) -> Option<Change> {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pid(self.group), ended) {
            Ok(None) => {}
            // An error means that there is no such child to wait for.
            Ok(Some(_)) | Err(_) => return Some(Change::Ended),
        }
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.group), stopped).ok().flatten()?;
        status.stopping_signal().map(Change::Stopped)
    }

    /// The status of a command that has ended; `None` if it has not. From here on its number may
    /// become somebody else's.
    pub(crate) fn reap(mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }
}

/// The command's status as an exit code.
pub(crate) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => exit::of_signal(signal),
        (None, None) => exit::INTERNAL,
    }
}

/// The command's status in words.
pub(crate) fn fate(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("the command exited with {code}"),
        Some((None, Some(signal))) => format!("the command was ended by signal {signal}"),
        _ => "the command was sent SIGKILL and has not ended yet".to_owned(),
    }
}
