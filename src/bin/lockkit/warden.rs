//! A small process that kills the command's group when lockkit no longer can.
//!
//! It learns the group and, again and again, the time until which the lock certainly stands.
//! When the pipe ends (lockkit was killed), or that time has come (lockkit was stopped), it
//! kills the whole group. The tether alone would end the command itself but not what the command
//! has started: of a shell script, say, only the shell.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use lockkit::BootInstant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// The first word of the command line that leads here; no business of users.
pub(crate) const WORD: &str = ".warden";

/// The warden, as lockkit sees it.
#[derive(Debug)]
pub(crate) struct Warden {
    process: Child,
    pipe: ChildStdin,
    told: BootInstant,
}

impl Warden {
    /// Starts it; `None` if that fails, which leaves the tether.
    pub(crate) fn start() -> Option<Self> {
        let exe = if cfg!(target_os = "linux") {
            "/proc/self/exe".into()
        } else {
            std::env::current_exe().ok()?
        };
        let mut process = Command::new(exe)
            .arg0("lockkit-warden")
            .arg(WORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .ok()?;
        let pipe = process.stdin.take()?;
        // A warden that is stopped must not stop lockkit.
        let flags = rustix::fs::fcntl_getfl(&pipe).ok()?;
        rustix::fs::fcntl_setfl(&pipe, flags | rustix::fs::OFlags::NONBLOCK).ok()?;
        Some(Self { process, pipe, told: BootInstant::FAR_FUTURE })
    }

    /// The group to kill.
    pub(crate) fn watch(&mut self, group: Pid) {
        self.tell(u64::from(group.as_raw_nonzero().get().unsigned_abs()));
    }

    /// Until when the command may run if nothing further is told.
    pub(crate) fn until(&mut self, deadline: BootInstant) {
        if self.told != deadline {
            self.told = deadline;
            self.tell(deadline.as_nanos());
        }
    }

    fn tell(&mut self, number: u64) {
        // Eight bytes go into a pipe whole or not at all.
        let _ = self.pipe.write(&number.to_ne_bytes());
    }
}

/// The command has ended: from here on, nobody is to be killed.
impl Drop for Warden {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // Not every container has a first process that would do this.
        let _ = self.process.wait();
    }
}

/// `.warden`
pub(crate) fn main() -> ExitCode {
    let Ok(pipe) = std::io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut pipe = File::from(pipe);
    // Not to be found under the name of lockkit by who kills that.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"lk-warden");
    if let Some(group) = read(&mut pipe).and_then(group) {
        stand_by(&mut pipe, group);
    }
    ExitCode::SUCCESS
}

fn stand_by(pipe: &mut File, group: Pid) {
    let mut deadline = BootInstant::FAR_FUTURE;
    while comes_within(pipe, deadline.since(BootInstant::now())) {
        match read(pipe) {
            Some(number) => deadline = BootInstant::from_nanos(number),
            None => break,
        }
    }
    let _ = kill_process_group(group, Signal::KILL);
}

/// Whether there is something to read, or the end of it, before `limit` is over.
fn comes_within(pipe: &File, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    loop {
        let mut pipes = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut pipes, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) => return false,
            _ => return true,
        }
    }
}

fn read(pipe: &mut File) -> Option<u64> {
    let mut number = [0; 8];
    pipe.read_exact(&mut number).ok().map(|()| u64::from_ne_bytes(number))
}

fn group(number: u64) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}
