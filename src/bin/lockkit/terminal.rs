//! Lends the terminal to a command that wants to read it.
//!
//! The command is in a process group of its own, so the terminal stops it (SIGTTIN, SIGTTOU)
//! when it reads, or changes the terminal's modes. Only then is the terminal lent, and not at
//! once: other members of a pipeline keep it, and Ctrl-C reaches them too.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::exit::say;

/// The controlling terminal, and who has it.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: Option<File>,
    group: Pid,
    /// The modes before it was lent.
    lent: Option<Option<Termios>>,
    wanted: bool,
}

impl Terminal {
    /// The controlling terminal, if there is one, for the command in `group`.
    pub(crate) fn of(group: Pid) -> Self {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok();
        Self { tty, group, lent: None, wanted: false }
    }

    /// The command was stopped by `signal`.
    pub(crate) fn stopped(&mut self, signal: i32) {
        if signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw() {
            self.wanted = true;
            self.lend();
            if self.wanted {
                say("the command waits for the terminal, and lockkit is in the background");
            }
        } else if signal == Signal::TSTP.as_raw() && self.lent.is_some() {
            refuse_to_stop();
            self.go_on();
        }
    }

    /// Lends the terminal if the command waits for it and lockkit has come to the foreground.
    pub(crate) fn lend(&mut self) {
        let Some(tty) = self.tty.as_ref().filter(|_| self.wanted) else { return };
        let Ok(foreground) = tcgetpgrp(tty) else { return };
        if foreground == getpgrp() {
            self.lent = Some(tcgetattr(tty).ok());
            if tcsetpgrp(tty, self.group).is_err() {
                self.lent = None;
                return;
            }
        } else if foreground != self.group {
            return;
        }
        self.wanted = false;
        self.go_on();
    }

    /// Takes the terminal back from a command that has ended. `killed`: by a signal, so that it
    /// cannot have put the modes in order.
    pub(crate) fn take_back(&mut self, killed: bool) {
        let (Some(tty), Some(modes)) = (&self.tty, self.lent.take()) else { return };
        if tcgetpgrp(tty).is_ok_and(|foreground| foreground != self.group) {
            return;
        }
        // lockkit is in the background now: unblocked, SIGTTOU would stop it.
        let mut blocked = SigSet::empty();
        blocked.add(NixSignal::SIGTTOU);
        let Ok(before) = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
        let _ = tcsetpgrp(tty, getpgrp());
        if let Some(modes) = modes.filter(|_| killed) {
            let _ = tcsetattr(tty, OptionalActions::Now, &modes);
        }
        let _ = before.thread_set_mask();
    }

    fn go_on(&self) {
        let _ = kill_process_group(self.group, Signal::CONT);
    }
}

/// Says why Ctrl-Z does nothing.
pub(crate) fn refuse_to_stop() {
    say("not suspended: the lock would be lost");
}
