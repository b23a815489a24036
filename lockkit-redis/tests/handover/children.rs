//! Waiters in other processes: this test binary, run for one function.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use conformance_tests::servers::Redis;
use lockkit_core::{DistributedLock, LockExt};

use crate::clients::*;

const URL: &str = "LOCKKIT_TEST_URL";
const WAITERS: &str = "LOCKKIT_TEST_WAITERS";

/// The key that is handed over.
pub(crate) const KEY: &str = "order:lock:1001";

/// A process whose waiters each hold the key once. Killed and reaped when dropped.
pub(crate) struct Waiters {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Waiters {
    /// Starts it; its waiters come one after the other.
    pub(crate) fn start(server: &Redis, params: &str, count: usize) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["children::child", "--exact", "--nocapture"])
            .env(URL, url(server, params))
            .env(WAITERS, count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, said }
    }

    pub(crate) fn hear(&mut self, word: &str) {
        let heard = self.said.by_ref().any(|line| line.unwrap().contains(word));
        assert!(heard, "the child ended before it said `{word}`");
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

/// What the children do.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let count: usize = std::env::var(WAITERS).unwrap().parse().unwrap();
    let lock = client_at(&url);
    let mut waiters = Vec::new();
    for n in 1..=count {
        let acquire = lock.acquire(long(KEY).wait_forever());
        waiters.push(tokio::spawn(async move { acquire.await.unwrap().release().await.unwrap() }));
        queued(&lock, n).await;
    }
    println!("all wait");
    for waiter in waiters {
        waiter.await.unwrap();
    }
    println!("all were in");
    // Until the parent has counted.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Waits until so many of this client wait, each with a subscription behind it.
async fn queued(lock: &lockkit_redis::RedisLock, count: usize) {
    let start = Instant::now();
    let waits = || {
        let fair = lock.core().capabilities().fair;
        fair || lock.core().waiting() == count
    };
    while !waits() {
        assert!(start.elapsed() < PATIENCE, "{count} never waited");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
