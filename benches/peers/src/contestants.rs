//! What is compared: each with one client for all tasks, a TTL of 30 s, as its documentation
//! recommends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use distributed_lock_core::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::RedisLockProvider;
use lockkit::{DistributedLock, LockExt, Request};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};
use rslock::LockManager;

pub const TTL: Duration = Duration::from_secs(30);

/// How long a contended acquire may wait before it counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A way to lock.
#[async_trait]
pub trait Contestant: Send + Sync {
    fn name(&self) -> &'static str;

    /// Acquires, tells `held`, holds for `hold`, and releases; whether it was acquired.
    async fn cycle(&self, key: &str, hold: Duration, held: &mut (dyn FnMut() + Send)) -> bool;
}

async fn working(hold: Duration) {
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
}

/// `SET NX PX` and a compare-and-delete script; asks again after a millisecond.
pub struct Bare {
    connection: MultiplexedConnection,
    release: Script,
}

impl Bare {
    pub async fn new(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let release = Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
             return 0",
        );
        Self { connection, release }
    }
}

#[async_trait]
impl Contestant for Bare {
    fn name(&self) -> &'static str {
        "bare commands"
    }

    async fn cycle(&self, key: &str, hold: Duration, held: &mut (dyn FnMut() + Send)) -> bool {
        let (key, token) = (format!("bare:{key}"), lockkit::Token::new().to_string());
        let mut connection = self.connection.clone();
        loop {
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(&token).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
            let answer: Value = set.query_async(&mut connection).await.expect("an answer");
            if answer == Value::Okay {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        held();
        working(hold).await;
        let mut invocation = self.release.key(&key);
        let freed: i64 =
            invocation.arg(&token).invoke_async(&mut connection).await.expect("an answer");
        freed == 1
    }
}

pub struct Lockkit {
    name: &'static str,
    lock: Arc<dyn DistributedLock>,
}

impl Lockkit {
    pub async fn new(name: &'static str, url: &str) -> Self {
        Self { name, lock: lockkit::connect(url).await.expect("a connection") }
    }
}

#[async_trait]
impl Contestant for Lockkit {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn cycle(&self, key: &str, hold: Duration, held: &mut (dyn FnMut() + Send)) -> bool {
        let request = Request::new(key).ttl(TTL).timeout(PATIENCE);
        let Ok(guard) = self.lock.acquire(request).await else { return false };
        held();
        working(hold).await;
        guard.release().await.is_ok()
    }
}

pub struct Rslock(LockManager);

impl Rslock {
    pub fn new(url: &str) -> Self {
        let mut manager = LockManager::new(vec![url]);
        // Its own pause; as many tries as the others have time for.
        let pause = Duration::from_millis(200);
        manager.set_retry((PATIENCE.as_millis() / pause.as_millis()) as u32, pause);
        Self(manager)
    }
}

#[async_trait]
impl Contestant for Rslock {
    fn name(&self) -> &'static str {
        "rslock"
    }

    async fn cycle(&self, key: &str, hold: Duration, held: &mut (dyn FnMut() + Send)) -> bool {
        let key = format!("rslock:{key}");
        let Ok(lock) = self.0.lock(key.as_bytes(), TTL).await else { return false };
        held();
        working(hold).await;
        self.0.unlock(&lock).await;
        true
    }
}

pub struct DistributedLockCrate(RedisLockProvider);

impl DistributedLockCrate {
    pub async fn new(url: &str) -> Self {
        let provider = RedisLockProvider::builder().url(url).expiry(TTL).build().await;
        Self(provider.expect("a connection"))
    }
}

#[async_trait]
impl Contestant for DistributedLockCrate {
    fn name(&self) -> &'static str {
        "distributed-lock"
    }

    async fn cycle(&self, key: &str, hold: Duration, held: &mut (dyn FnMut() + Send)) -> bool {
        let lock = self.0.create_lock(&format!("dl:{key}"));
        let Ok(handle) = lock.acquire(Some(PATIENCE)).await else { return false };
        held();
        working(hold).await;
        handle.release().await.is_ok()
    }
}
