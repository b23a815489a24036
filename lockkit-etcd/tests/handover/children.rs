//! Waiters in other processes: this test binary, run for one function.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use conformance_tests::servers::Etcd;
use lockkit_core::{BootInstant, LockExt};

use crate::line::{self, PATIENCE};

const URL: &str = "LOCKKIT_TEST_URL";

/// What stands before what a child tells of a grant.
const MARK: &str = "HELD ";

/// One waiter that was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) from: BootInstant,
    pub(crate) until: BootInstant,
    pub(crate) fence: u64,
}

/// A process with waiters, each of which holds the key once. Killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Waiters {
    process: Child,
    asked: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Waiters {
    /// Starts it, with nobody waiting yet.
    pub(crate) fn start(server: &Etcd) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["children::child", "--exact", "--nocapture"])
            .env(URL, line::url(server))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let asked = process.stdin.take().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, asked, said }
    }

    /// One more gets in line.
    pub(crate) fn one_more(&mut self) {
        self.asked.write_all(b"\n").unwrap();
    }

    /// Waits for the next of its waiters to have been in.
    pub(crate) fn held(&mut self) -> Held {
        let held = self.said.by_ref().find_map(|line| Held::from_line(&line.unwrap()));
        held.expect("the child ended")
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Held {
    fn to_line(self) -> String {
        let Self { from, until, fence } = self;
        format!("{MARK}{} {} {fence}", from.as_nanos(), until.as_nanos())
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut numbers = line.split_once(MARK)?.1.split(' ').map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        let [from, until] = [next()?, next()?].map(BootInstant::from_nanos);
        Some(Self { from, until, fence: next()? })
    }
}

/// `count` waiters in so many processes, one of each in turn.
pub(crate) fn line_up(server: &Etcd, processes: usize, count: usize) -> Vec<Waiters> {
    let mut children: Vec<_> = (0..processes).map(|_| Waiters::start(server)).collect();
    for n in 0..count {
        children[n % processes].one_more();
        line::wait_until_waiting(server, n + 1);
    }
    children
}

/// What the children do, until their parent closes their input or kills them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let lock = line::client(&url);
    let runtime = tokio::runtime::Handle::current();
    let waiter = lock.clone();
    let asked = move || {
        for _ in std::io::stdin().lines() {
            let lock = waiter.clone();
            runtime.spawn(async move {
                let guard = line::acquire(&lock).await;
                let from = BootInstant::now();
                let fence = guard.fence().unwrap();
                let held = Held { from, until: BootInstant::now(), fence };
                guard.release().await.unwrap();
                println!("{}", held.to_line());
            });
        }
    };
    tokio::task::spawn_blocking(asked).await.unwrap();
    assert!(lock.close(PATIENCE).await);
}
