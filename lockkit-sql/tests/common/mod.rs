//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub)] // every test binary uses its own part

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkit_core::{Attempt, Claim, Contender, DistributedLock, Key, Lease, Mode, Settings, Stage};
use lockkit_sql::SqliteLock;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};

pub const BUDGET: Duration = Duration::from_secs(5);

/// The statements as they are sent, in the order of the golden file.
pub const STATEMENTS: &str = include_str!("../../src/sqlite/golden/statements.sql");

pub fn statement(number: usize) -> &'static str {
    STATEMENTS.lines().nth(number).unwrap()
}

pub const ACQUIRE: usize = 0;
pub const RENEW: usize = 3;

/// A directory with a database in it.
pub struct File {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl File {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        Self { dir, path }
    }

    pub fn lock(&self) -> SqliteLock {
        SqliteLock::open(&self.path, Settings::default()).unwrap()
    }

    /// A connection of the application's own.
    pub async fn raw(&self) -> SqliteConnection {
        raw(&self.path).await
    }

    pub fn delete(&self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            let _ = std::fs::remove_file(path);
        }
    }

    /// Every row but the one of the run: mode and token.
    pub async fn rows(&self) -> Vec<(i64, Vec<u8>)> {
        sqlx::query_as("SELECT mode, token FROM lockkit_claims WHERE mode <> -3 ORDER BY id")
            .fetch_all(&mut self.raw().await)
            .await
            .unwrap()
    }
}

pub async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

pub fn permit(limit: u32) -> Mode {
    Mode::Permit { limit: NonZeroU32::new(limit).unwrap() }
}

pub fn claim(key: &str, mode: Mode, ttl: Duration) -> Claim {
    Claim::new(Key::new(key).unwrap(), mode, ttl)
}

pub fn contend(lock: &SqliteLock, key: &str, mode: Mode, ttl_ms: u64) -> Box<dyn Contender> {
    lock.contend(claim(key, mode, Duration::from_millis(ttl_ms)))
}

/// One attempt that does not wait: the fence and the lease, or `None` if the key is busy.
pub async fn try_once(contender: &mut Box<dyn Contender>) -> Option<(u64, Lease)> {
    match contender.attempt(Stage::Try, BUDGET).await.unwrap() {
        Attempt::Granted { fence, lease } => Some((fence.unwrap(), lease)),
        Attempt::Busy { .. } => None,
    }
}

/// Asks until `true`, and tells how long that took; fails after ten seconds.
pub async fn eventually(mut ask: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !ask().await {
        assert!(start.elapsed() < Duration::from_secs(10), "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}
