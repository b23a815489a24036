//! The `Lock` of redis-py, as it comes from its package index, under the same name.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use conformance_tests::servers::Redis;
use lockkit_core::{
    Attempt, Claim, DistributedLock, Key, LockExt, Mode, Released, Renewal, Stage, Token, Which,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::clients::*;

const NAME: &str = "order:lock:1001";

/// A Python that has redis-py; gone with the last test that uses it.
struct Python(tempfile::TempDir);

impl Python {
    async fn with_redis() -> Arc<Self> {
        static MADE: Mutex<Weak<Python>> = Mutex::const_new(Weak::new());
        let mut made = MADE.lock().await;
        if let Some(python) = made.upgrade() {
            return python;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        run(Path::new("python3"), &["-m", "venv", path]).await;
        let python = Arc::new(Self(directory));
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "redis"];
        run(&python.path(), &install).await;
        *made = Arc::downgrade(&python);
        python
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("bin/python")
    }
}

async fn run(program: &Path, args: &[&str]) {
    let output = Command::new(program).args(args).output().await;
    let output = output.unwrap_or_else(|e| panic!("cannot run {}: {e}", program.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {args:?}: {said}", program.display());
}

/// A process with a lock of redis-py.
struct Peer {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _python: Arc<Python>,
}

impl Peer {
    async fn start(server: &Redis) -> Self {
        let python = Python::with_redis().await;
        let mut process = Command::new(python.path())
            .args(["-c", include_str!("peer.py"), &server.port().to_string(), NAME])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut peer = Self { process, orders, answers, _python: python };
        assert_eq!(peer.hear(PATIENCE).await, "ready");
        peer
    }

    async fn tell(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self, limit: Duration) -> String {
        let line = within(limit, "redis-py answers", self.answers.next_line()).await;
        line.unwrap().expect("redis-py goes on")
    }

    async fn does(&mut self, order: &str) -> String {
        self.tell(order).await;
        self.hear(PATIENCE).await
    }
}

/// How long a lock of redis-py sleeps between two attempts.
const SLEEP: Duration = Duration::from_millis(100);

/// A server, a client of ours without a prefix, and a lock of redis-py of the same name.
async fn both(params: &str) -> (Redis, lockkit_redis::RedisLock, Peer) {
    let server = Redis::start().unwrap();
    let lock = client(&server, &format!("prefix=&{params}"));
    let peer = Peer::start(&server).await;
    (server, lock, peer)
}

#[tokio::test]
#[ignore = "installs redis-py: needs python3 with venv, and a package index; scripts/test.sh runs it"]
async fn redis_py_waits_for_our_release() {
    for params in ["", "fair=true", "layout=hash"] {
        let (server, lock, mut peer) = both(params).await;
        let guard = grant(&lock, long(NAME)).await;
        assert_eq!(peer.does("acquire 30 0").await, "refused", "{params}");
        peer.tell("acquire 30 10").await;
        let early = tokio::time::timeout(SLEEP * 3, peer.answers.next_line()).await;
        assert!(early.is_err(), "{params}: it got in beside us: {early:?}");
        guard.release().await.unwrap();
        assert_eq!(peer.hear(SLEEP + SLACK).await, "granted", "{params}");
        refused(&lock, long(NAME), "redis-py holds it").await;
        assert_eq!(peer.does("release").await, "released");
        grant_free(&lock, long(NAME), "redis-py released").await.release().await.unwrap();
        assert!(!exists(&server, NAME));
    }
}

#[tokio::test]
#[ignore = "installs redis-py: needs python3 with venv, and a package index; scripts/test.sh runs it"]
async fn we_wait_for_the_release_of_redis_py() {
    for params in ["", "fair=true", "layout=hash"] {
        let (_server, lock, mut peer) = both(params).await;
        // One that never expires: only the poll can find its end.
        assert_eq!(peer.does("acquire never 0").await, "granted");
        refused(&lock, long(NAME), "redis-py holds it").await;
        refused(&lock, long(NAME).owner("me"), "redis-py holds it").await;
        refused(&lock, long(NAME).shared(), "redis-py holds it").await;
        let acquire = lock.acquire(long(NAME));
        let waiter = tokio::spawn(acquire);
        waiting(&lock, NAME, 1).await;
        assert_eq!(peer.does("owned").await, "owned", "{params}");
        assert_eq!(peer.does("release").await, "released", "{params}: who waits touches nothing");
        let guard = within(POLL + SLACK, "it polls", waiter).await.unwrap().unwrap();
        assert_eq!(peer.does("acquire 30 0").await, "refused", "{params}: we hold it now");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
#[ignore = "installs redis-py: needs python3 with venv, and a package index; scripts/test.sh runs it"]
async fn a_late_release_never_frees_the_others_lock() {
    let (server, lock, mut peer) = both("").await;
    // Ours expires, theirs follows.
    let first = grant(&lock, dying(NAME, 200)).await;
    peer.tell("acquire 30 10").await;
    let taken = peer.hear(Duration::from_millis(200) + SLEEP + SLACK).await;
    assert_eq!(taken, "granted", "after our TTL");
    assert!(first.release().await.unwrap_err().is_lost());
    drop(first);
    assert_eq!(peer.does("owned").await, "owned", "our late release took theirs");
    refused(&lock, long(NAME), "redis-py holds it").await;
    assert_eq!(peer.does("release").await, "released");

    // The same without the engine, which would not even ask.
    let claim = Claim::new(Key::new(NAME).unwrap(), Mode::Exclusive, Duration::from_millis(200));
    let mut late = lock.contend(claim);
    let granted = late.attempt(Stage::Try, PATIENCE).await.unwrap();
    assert!(matches!(granted, Attempt::Granted { .. }), "{granted:?}");
    assert_eq!(peer.does("acquire 30 10").await, "granted", "after our TTL");
    assert!(matches!(late.renew(PATIENCE).await.unwrap(), Renewal::Gone));
    assert_eq!(late.release(PATIENCE).await.unwrap(), Released::NotFound);
    assert_eq!(peer.does("owned").await, "owned", "our late release took theirs");
    assert_eq!(peer.does("release").await, "released");

    // Theirs expires, ours follows.
    assert_eq!(peer.does("acquire 0.2 0").await, "granted");
    let start = Instant::now();
    let second = grant(&lock, long(NAME)).await;
    let took = start.elapsed();
    assert!(took < Duration::from_millis(200) + SLACK, "their TTL ended {took:?} ago");
    let stands = dump(&server, NAME);
    assert_eq!(peer.does("extend 60").await, "LockNotOwnedError");
    assert_eq!(peer.does("release").await, "LockNotOwnedError");
    assert_eq!(dump(&server, NAME), stands, "their late release took ours");
    assert!(second.is_held());
    second.release().await.unwrap();
}

#[tokio::test]
#[ignore = "installs redis-py: needs python3 with venv, and a package index; scripts/test.sh runs it"]
async fn a_killed_redis_py_frees_the_key_within_its_ttl() {
    let (_server, lock, mut peer) = both("").await;
    assert_eq!(peer.does("acquire 1 0").await, "granted");
    let start = Instant::now();
    peer.process.kill().await.unwrap();
    let guard = grant(&lock, long(NAME)).await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1) + SLACK, "it took {took:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
#[ignore = "installs redis-py: needs python3 with venv, and a package index; scripts/test.sh runs it"]
async fn a_lock_of_redis_py_is_seen_and_can_be_forced() {
    let (_server, lock, mut peer) = both("").await;
    let key = Key::new(NAME).unwrap();
    assert_eq!(peer.does("acquire 30 0").await, "granted");
    let holder = lock.inspect(&key).await.unwrap().expect("somebody holds it");
    assert_eq!((holder.mode, holder.holders), (Mode::Exclusive, 1));
    assert_eq!((holder.token, holder.fence, holder.label), (None, None, None));
    let left = holder.expires_in.expect("it has a TTL");
    assert!(left <= Duration::from_secs(30) && left > Duration::from_secs(20), "{left:?}");

    for which in [Which::Token(Token::new()), Which::Fence(0), Which::Fence(1)] {
        assert!(!lock.force_release(&key, which).await.unwrap(), "{which:?} hit a foreign lock");
        assert_eq!(peer.does("owned").await, "owned", "{which:?}");
    }
    let waiter = tokio::spawn(lock.acquire(long(NAME)));
    waiting(&lock, NAME, 1).await;
    assert!(lock.force_release(&key, Which::Whoever).await.unwrap());
    let guard = within(SLACK, "a waiter is told", waiter).await.unwrap().unwrap();
    assert_eq!(peer.does("release").await, "LockNotOwnedError");
    assert!(!lock.force_release(&key, Which::Token(Token::new())).await.unwrap());
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
