//! The parent's side of a child process.

use std::process::Stdio;
use std::time::Duration;

use lockkit_core::BootInstant;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::URL;
use super::order::{Ask, Order};
use crate::bed::PATIENCE;
use crate::check::{eventually, within};

/// A client in another process. Killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: tokio::process::Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it said and nobody asked for yet.
    said: Vec<Said>,
}

/// A line of a child: what happened to which guard, when it happened.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) id: String,
    pub(crate) word: String,
    pub(crate) at: BootInstant,
    pub(crate) rest: String,
}

impl Said {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let (id, word) = (words.next()?.to_owned(), words.next()?.to_owned());
        let at = BootInstant::from_nanos(words.next()?.parse().ok()?);
        Some(Self { id, word, at, rest: words.next().unwrap_or_default().to_owned() })
    }

    /// The fence of a grant.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.rest.parse().ok()
    }
}

impl Child {
    pub(crate) async fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.env(URL, url).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("a process of this binary");
        let orders = process.stdin.take().expect("piped");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut child = Self { process, orders, lines, said: Vec::new() };
        child.hear("child", "ready", PATIENCE).await;
        child
    }

    pub(crate) async fn tell(&mut self, order: Order) {
        let line = format!("{order}\n");
        self.orders.write_all(line.as_bytes()).await.expect("a child that listens");
    }

    /// Waits until it says `word` about `id`; what it says besides is kept.
    pub(crate) async fn hear(&mut self, id: &str, word: &str, limit: Duration) -> Said {
        let deadline = BootInstant::now() + limit;
        loop {
            let found = self.said.iter().position(|said| said.id == id && said.word == word);
            if let Some(at) = found {
                return self.said.remove(at);
            }
            let left = deadline.since(BootInstant::now());
            let Ok(line) = tokio::time::timeout(left, self.lines.next_line()).await else {
                panic!("no `{id} {word}` within {limit:?}, only {:?}", self.said);
            };
            let Ok(Some(line)) = line else {
                panic!("the child ended before `{id} {word}`; it said {:?}", self.said);
            };
            self.said.push(Said::parse(&line).unwrap_or_else(|| panic!("child: {line}")));
        }
    }

    /// Acquires there, and waits for the grant.
    pub(crate) async fn acquire(&mut self, id: &str, ask: Ask) -> Said {
        self.tell(Order::Acquire { id: id.to_owned(), ask }).await;
        self.hear(id, "acquired", PATIENCE).await
    }

    /// Releases there; gives `ok` or what was wrong.
    pub(crate) async fn release(&mut self, id: &str) -> Said {
        self.tell(Order::Release { id: id.to_owned() }).await;
        self.hear(id, "released", PATIENCE).await
    }

    /// Whether it believes to hold `id`.
    pub(crate) async fn is_held(&mut self, id: &str) -> bool {
        self.tell(Order::Held { id: id.to_owned() }).await;
        self.hear(id, "held", PATIENCE).await.rest == "true"
    }

    fn pid(&self) -> Pid {
        let pid = self.process.id().and_then(|pid| i32::try_from(pid).ok());
        pid.and_then(Pid::from_raw).expect("a process that was not reaped")
    }

    /// SIGSTOP, and waits until it stands.
    pub(crate) async fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).expect("our own child");
        let stat = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        let stopped = || std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") T "));
        eventually(PATIENCE, "the child stops", stopped).await;
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("our own child");
    }

    /// SIGKILL, also when stopped, and waits for its end.
    pub(crate) async fn kill(&mut self) {
        within(PATIENCE, "the child dies", self.process.kill()).await.expect("our own child");
    }

    /// Tells it to end, and waits for its end.
    pub(crate) async fn exit(&mut self) {
        self.tell(Order::Exit).await;
        within(PATIENCE, "the child ends", self.process.wait()).await.expect("our own child");
    }
}
