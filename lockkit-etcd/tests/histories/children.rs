//! Starting the processes, stopping them, and hearing what they tell.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::child;
use crate::record::{Pass, Stall};

/// What is heard from a process.
#[derive(Debug)]
pub(crate) enum Heard {
    Ready,
    Told(Pass),
    Stood(Stall),
    /// All its tasks have ended, and nothing is left to clean up.
    Done,
    /// Its output has ended before that.
    Gone(usize),
}

fn read(number: usize, line: &str) -> Option<Heard> {
    let pass = || Pass::from_line(number, line).map(Heard::Told);
    let stood = || Stall::from_line(number, line).map(Heard::Stood);
    let word = || match line.rsplit(' ').next() {
        Some("ready") => Some(Heard::Ready),
        Some("done") => Some(Heard::Done),
        _ => None,
    };
    pass().or_else(stood).or_else(word)
}

/// What all of them told.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) passes: Vec<Pass>,
    pub(crate) stalls: Vec<Stall>,
}

/// One process. Killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts it; what it tells comes to `heard`.
    pub(crate) fn start(
        number: usize,
        url: &str,
        seed: u64,
        deaf: bool,
        heard: Sender<Heard>,
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["child::child", "--exact", "--nocapture"])
            .env(child::URL, url)
            .env(child::NUMBER, number.to_string())
            .env(child::SEED, seed.to_string());
        if deaf {
            command.env(child::DEAF, "");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            let mut done = false;
            for line in lines.map_while(Result::ok) {
                let Some(told) = read(number, &line) else { continue };
                done |= matches!(told, Heard::Done);
                // Nobody listens any more after a failure.
                let _ = heard.send(told);
            }
            if !done {
                let _ = heard.send(Heard::Gone(number));
            }
        });
        Self { child }
    }

    /// Stops it where it is (SIGSTOP), or lets it go on (SIGCONT).
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks its tasks to end.
    pub(crate) fn finish(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hears the processes until `enough` is so; what they told is added to `history`.
pub(crate) fn hear(
    heard: &Receiver<Heard>,
    history: &mut History,
    patience: Duration,
    mut enough: impl FnMut(&Heard) -> bool,
) {
    loop {
        let news = heard.recv_timeout(patience).expect("somebody says something");
        match &news {
            Heard::Told(pass) => history.passes.push(pass.clone()),
            Heard::Stood(stall) => history.stalls.push(stall.clone()),
            Heard::Gone(number) => panic!("the process {number} has ended"),
            Heard::Ready | Heard::Done => {}
        }
        if enough(&news) {
            return;
        }
    }
}
