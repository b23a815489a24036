//! Clients of a test's own server, and what is asked of them.
#![allow(dead_code, unreachable_pub)] // every test binary uses its own part

use std::time::{Duration, Instant};

use conformance_tests::servers::{Redis, Reply};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Error, Guard, Key, LockExt, Request};
use lockkit_redis::RedisLock;

/// What a machine with other work may take between an event and whoever notices it.
pub const SLACK: Duration = Duration::from_millis(300);

/// The longest pause between two questions of a waiter.
pub const POLL: Duration = Duration::from_millis(500);

/// How long anything may take that is expected to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A client of `server`, with these parameters in its URL.
pub fn client(server: &Redis, params: &str) -> RedisLock {
    client_at(&url(server, params))
}

pub fn url(server: &Redis, params: &str) -> String {
    format!("redis://{}/0?{params}", server.address())
}

pub fn client_at(url: &str) -> RedisLock {
    RedisLock::from_url(&ConnectUrl::parse(url).unwrap()).unwrap()
}

/// A request whose TTL is no reason for anything.
pub fn long(key: &str) -> Request {
    Request::new(key).ttl(Duration::from_secs(60)).timeout(PATIENCE)
}

/// A claim that ends by itself after so many milliseconds.
pub fn dying(key: &str, ttl_ms: u64) -> Request {
    Request::new(key).ttl(Duration::from_millis(ttl_ms)).renew(false).timeout(PATIENCE)
}

pub async fn grant(lock: &RedisLock, request: Request) -> Guard {
    lock.acquire(request).await.unwrap_or_else(|e| panic!("should be granted: {e}"))
}

/// It must be free.
pub async fn grant_free(lock: &RedisLock, request: Request, why: &str) -> Guard {
    let answer = lock.try_acquire(request).await.unwrap_or_else(|e| panic!("free: {why}: {e}"));
    answer.unwrap_or_else(|| panic!("should be free: {why}"))
}

/// It must be busy, and nothing else be wrong.
pub async fn refused(lock: &RedisLock, request: Request, why: &str) {
    match lock.try_acquire(request).await {
        Ok(None) => {}
        Ok(Some(guard)) => panic!("should be busy: {why}, but {guard:?}"),
        Err(e) => panic!("should be busy: {why}, but: {e}"),
    }
}

/// The request can never succeed, and says so at once.
pub async fn misconfigured(lock: &RedisLock, request: Request, why: &str) -> String {
    let start = Instant::now();
    match lock.acquire(request).await {
        Err(Error::Configuration(failure)) => {
            assert!(start.elapsed() < Duration::from_secs(1), "{why}: told late");
            failure.to_string()
        }
        other => panic!("{why}: should be a configuration error, but: {other:?}"),
    }
}

/// What `future` gives, unless it takes longer than `limit`.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// Looks every few milliseconds until `look` says yes.
pub async fn eventually(limit: Duration, what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until so many claims wait for `name`: in this client's line, or in the server's.
pub async fn waiting(lock: &RedisLock, name: &str, count: usize) {
    let (key, start) = (Key::new(name).unwrap(), Instant::now());
    while lock.core().waiting() != count {
        let seen = lock.inspect(&key).await.unwrap();
        if seen.is_some_and(|holder| holder.waiting == Some(count)) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{count} never waited for `{name}`");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Runs a command on a connection of its own.
pub fn ask(server: &Redis, command: &[&str]) -> Reply {
    server.command(command).unwrap()
}

/// All that lies at a key, byte by byte, without its TTL.
pub fn dump(server: &Redis, key: &str) -> Vec<u8> {
    let dump = ask(server, &["DUMP", key]);
    assert!(!dump.bytes().is_empty(), "`{key}` is gone");
    dump.bytes().to_vec()
}

pub fn exists(server: &Redis, key: &str) -> bool {
    ask(server, &["EXISTS", key]).number() == Some(1)
}
