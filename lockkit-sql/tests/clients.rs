//! Clients as applications use them: through the engine, in one process.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use lockkit_core::{
    DistributedLock, Error, EventKind, LockExt, LossReason, Mode, Request, Require, Settings, Which,
};
use lockkit_sql::{SqliteLock, SqliteOptions};
use sqlx::Executor;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

#[tokio::test]
async fn a_lock_behind_the_trait() {
    let file = File::new();
    let lock: Arc<dyn DistributedLock> = Arc::new(file.lock());
    Require::cp().strictly_fenced().check(lock.core().capabilities()).unwrap();
    let guard = lock.acquire(Request::new("order:lock:1001").label("checkout-7")).await.unwrap();
    assert!(guard.is_held() && guard.fence().is_some());
    let rival = file.lock();
    assert!(rival.try_acquire("order:lock:1001").await.unwrap().is_none());
    let busy = rival
        .acquire(Request::new("order:lock:1001").timeout(Duration::from_millis(150)))
        .await
        .unwrap_err();
    assert!(busy.to_string().contains("held by `checkout-7`"), "{busy}");
    guard.release().await.unwrap();
    rival.acquire("order:lock:1001").await.unwrap().release().await.unwrap();
    assert!(lock.close(BUDGET).await);
    assert_eq!(file.rows().await, []);
}

#[tokio::test]
async fn the_watchdog_keeps_a_short_lease() {
    let file = File::new();
    let (lock, rival) = (file.lock(), file.lock());
    let ttl = Duration::from_millis(1500);
    let guard = lock.acquire(Request::new("k").ttl(ttl)).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < 2 * ttl {
        assert!(rival.try_acquire("k").await.unwrap().is_none());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn forced_release_is_told_within_a_third_of_the_ttl() {
    let file = File::new();
    let (lock, other) = (file.lock(), file.lock());
    let guard = lock.acquire(Request::new("k").ttl(Duration::from_secs(3))).await.unwrap();
    let key = guard.key().clone();
    assert!(other.force_release(&key, Which::Fence(guard.fence().unwrap())).await.unwrap());
    let start = Instant::now();
    let lost = guard.lost().await;
    assert!(matches!(lost.reason, LossReason::Gone), "{lost}");
    assert!(start.elapsed() < Duration::from_millis(1800), "{:?}", start.elapsed());
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
}

async fn timed<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let result = work.await;
    (start.elapsed(), result)
}

/// Another connection, as it might be another process's, holds the write lock for longer than the
/// caller waits; the caller's runtime has one thread.
async fn a_locked_database(file: &File, lock: &SqliteLock) {
    lock.ping().await.unwrap();
    let mut foreign = file.raw().await;
    foreign.execute("BEGIN IMMEDIATE").await.unwrap();

    let longest_gap = Arc::new(AtomicU64::new(0));
    let gap = Arc::clone(&longest_gap);
    let ticker = tokio::spawn(async move {
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            gap.fetch_max(last.elapsed().as_millis() as u64, Ordering::Relaxed);
            last = Instant::now();
        }
    });
    let timeout = Duration::from_millis(500);
    let request = Request::new("k").timeout(timeout).op_timeout(Duration::from_millis(200));
    let asked = timed(lock.acquire(request));
    // What the machine itself makes of such a time.
    let ((took, result), (bare, ())) = tokio::join!(asked, timed(tokio::time::sleep(timeout)));
    ticker.abort();
    let error = result.unwrap_err();
    assert!(took >= timeout, "{took:?}");
    let limit = bare.max(timeout) + Duration::from_millis(50);
    assert!(took <= limit, "{took:?}, a bare sleep {bare:?}");
    assert!(longest_gap.load(Ordering::Relaxed) < 400, "the caller's timers went on");
    assert!(error.to_string().contains("has locked the database"), "{error}");

    foreign.execute("ROLLBACK").await.unwrap();
    let start = Instant::now();
    lock.acquire("k").await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(lock.close(BUDGET).await);
    assert_eq!(file.rows().await, []);
}

#[tokio::test]
async fn a_locked_database_costs_no_more_than_the_timeout() {
    let file = File::new();
    a_locked_database(&file, &file.lock()).await;
}

/// The pool waits for five seconds when the database is locked, as sqlx does.
#[tokio::test]
async fn a_locked_database_behind_a_pool_of_the_application() {
    let file = File::new();
    let options = SqliteConnectOptions::new().filename(&file.path).create_if_missing(true);
    let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
    let options = SqliteOptions::default();
    let lock = SqliteLock::from_pool(&pool, Settings::default(), options).unwrap();
    a_locked_database(&file, &lock).await;
}

/// A short lock of the database by others is waited out.
#[tokio::test]
async fn a_database_that_is_locked_for_a_while_is_waited_for() {
    let file = File::new();
    let lock = file.lock();
    lock.ping().await.unwrap();
    let mut foreign = file.raw().await;
    foreign.execute("BEGIN IMMEDIATE").await.unwrap();
    let acquire = tokio::spawn(async move { lock.acquire("k").await });
    tokio::time::sleep(Duration::from_millis(700)).await; // the length of the foreign lock
    foreign.execute("COMMIT").await.unwrap();
    acquire.await.unwrap().unwrap().release().await.unwrap();
}

/// A client whose waiters ask every ten seconds: only a wake-up can be faster.
fn patient(file: &File) -> SqliteLock {
    let mut settings = Settings::default();
    settings.poll = (Duration::from_secs(10), Duration::from_secs(10));
    SqliteLock::open(&file.path, settings).unwrap()
}

/// Lets `lock` wait for a key that is held, has it freed, and tells how long the waiter took.
async fn hand_over(lock: &SqliteLock, mode: Mode, free: impl Future<Output = ()>) -> Duration {
    let mut events = lock.core().events();
    let waiter = {
        let lock = lock.clone();
        tokio::spawn(async move {
            let request = Request::new("k").mode(mode).timeout(Duration::from_secs(8));
            let guard = lock.acquire(request).await.unwrap();
            let woken = Instant::now();
            guard.release().await.unwrap();
            woken
        })
    };
    while !matches!(events.recv().await.unwrap().kind, EventKind::Waiting) {}
    // Time for the waiter's first question, and for the noise of the round before.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let freed = Instant::now();
    free.await;
    waiter.await.unwrap().saturating_duration_since(freed)
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_waiters_of_other_clients() {
    let file = File::new();
    let (lock, waiting) = (file.lock(), patient(&file));
    let mut slowest = Duration::ZERO;
    for round in 0..40 {
        let mode = if round % 2 == 0 { Mode::Exclusive } else { Mode::Shared };
        let guard = lock.acquire("k").await.unwrap();
        let took = hand_over(&waiting, mode, async { guard.release().await.unwrap() }).await;
        slowest = slowest.max(took);
    }
    println!("slowest hand-over between clients: {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// The log lies beside the file, not beside the link.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_waiters_behind_a_symbolic_link() {
    let (file, link) = (File::new(), File::new());
    // Before there is a file.
    std::os::unix::fs::symlink(&file.path, &link.path).unwrap();
    let (lock, waiting) = (file.lock(), patient(&link));
    waiting.ping().await.unwrap();
    assert!(file.path.is_file());
    for _ in 0..10 {
        let guard = lock.acquire("k").await.unwrap();
        let free = async { guard.release().await.unwrap() };
        let took = hand_over(&waiting, Mode::Exclusive, free).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// A commit that waits for the disk can be seen only a while after it was written.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_takes_its_time_wakes_as_well() {
    let file = File::new();
    let (lock, waiting) = (file.lock(), patient(&file));
    lock.ping().await.unwrap();
    let mut operator = file.raw().await;
    operator.execute("PRAGMA synchronous = FULL").await.unwrap();
    for _ in 0..40 {
        let mut holder = contend(&lock, "k", Mode::Exclusive, 30_000);
        try_once(&mut holder).await.unwrap();
        let free = async {
            operator.execute("DELETE FROM lockkit_claims WHERE mode = 0").await.unwrap();
        };
        let took = hand_over(&waiting, Mode::Exclusive, free).await;
        assert!(took < Duration::from_secs(4), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_of_two_clients_count_to_the_right_number() {
    let file = File::new();
    let clients = [file.lock(), file.lock()];
    let counter = Arc::new(AtomicU64::new(0));
    let fences = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let (lock, counter, fences) =
                (clients[n % 2].clone(), Arc::clone(&counter), Arc::clone(&fences));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let request = Request::new("k").timeout(Duration::from_secs(60));
                    let guard = lock.acquire(request).await.unwrap();
                    let seen = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::SeqCst);
                    fences.lock().unwrap().push(guard.fence().unwrap());
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 200);
    assert!(fences.lock().unwrap().is_sorted_by(|a, b| a < b));
    assert_eq!(file.rows().await, []);
}

/// What waits for commits must not open again what was closed.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_client_has_no_file_open() {
    let file = File::new();
    let (lock, other) = (file.lock(), file.lock());
    let guard = other.acquire("k").await.unwrap();
    let brief = Request::new("k").timeout(Duration::from_millis(100));
    assert!(lock.acquire(brief).await.unwrap_err().is_not_acquired());
    assert!(lock.close(BUDGET).await);
    // Nor does what is still done behind that leave anything open.
    assert!(other.close(BUDGET).await);
    guard.release().await.unwrap();
    file.raw().await.execute("DELETE FROM lockkit_claims WHERE mode = 0").await.unwrap();
    let open = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let paths = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        paths.filter(|path| path.starts_with(file.dir.path())).collect::<Vec<_>>()
    };
    let start = Instant::now();
    while !open().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", open());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop((lock, other));
}
