//! From a URL to a backend.

use std::sync::Arc;

use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Error, Memory, Require, Result};

/// Every scheme that a backend of this version answers to.
const KNOWN: &str = "`memory:`, `sqlite:`, `redis:`, `rediss:`, `redis+sentinel:`, \
                     `redis+cluster:`, `redlock:`, `etcd:` and `etcds:`";

/// Schemes whose backends are planned: no reason to look for a typing mistake.
const PLANNED: [&str; 4] = ["zk", "postgres", "postgresql", "mysql"];

/// Opens the backend that `url` names, and asks it for a sign of life.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use lockkit::LockExt;
///
/// let lock = lockkit::connect("memory:").await?;
/// let guard = lock.acquire("order:lock:1001").await?;
/// guard.release().await
/// # }).unwrap();
/// ```
///
/// # Errors
/// - [`Error::Configuration`]: the URL is wrong, names a scheme that nobody knows, one whose
///   feature is not compiled in (the message names it) or one that this version does not have
///   yet; or what the URL leads to is not a lock store.
/// - [`Error::Unavailable`] and [`Error::Permission`]: what the backend answered. The first is
///   not retried here: whoever starts before its lock service does can call again.
///
/// No message holds more of the URL than its scheme and the names of its parameters.
///
/// # Cancel safety
/// Cancel-safe.
pub async fn connect(url: &str) -> Result<Arc<dyn DistributedLock>> {
    connect_with(url, Require::nothing()).await
}

/// As [`connect`], and refuses a backend that lacks what the use case demands, before anything
/// is sent to it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use lockkit::Require;
///
/// let error = lockkit::connect_with("memory:", Require::cp().fair()).await.unwrap_err();
/// assert!(error.to_string().contains("fair"));
/// # });
/// ```
///
/// # Errors
/// [`Error::Unsupported`] that lists all demands that are not met; else as [`connect`].
///
/// # Cancel safety
/// Cancel-safe.
pub async fn connect_with(url: &str, require: Require) -> Result<Arc<dyn DistributedLock>> {
    let lock = open(&ConnectUrl::parse(url)?)?;
    require.check(lock.core().capabilities())?;
    lock.core().check_settings()?;
    lock.ping().await?;
    Ok(lock)
}

/// Makes the backend; no I/O.
fn open(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    match url.scheme() {
        "memory" => Ok(Arc::new(Memory::from_url(url)?)),
        "sqlite" => sqlite(url),
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" | "redlock" => redis(url),
        "etcd" | "etcds" => etcd(url),
        planned if PLANNED.contains(&planned) => Err(Error::configuration(format!(
            "this version of lockkit has no backend for `{planned}:` yet; it has {KNOWN}"
        ))),
        unknown => Err(Error::configuration(format!(
            "unknown scheme `{unknown}:`; this version of lockkit has {KNOWN}"
        ))),
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(lockkit_sql::SqliteLock::from_url(url)?))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    Err(not_compiled_in(url, "sqlite"))
}

#[cfg(feature = "redis")]
fn redis(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(lockkit_redis::RedisLock::from_url(url)?))
}

#[cfg(not(feature = "redis"))]
fn redis(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    Err(not_compiled_in(url, "redis"))
}

#[cfg(feature = "etcd")]
fn etcd(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(lockkit_etcd::EtcdLock::from_url(url)?))
}

#[cfg(not(feature = "etcd"))]
fn etcd(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    Err(not_compiled_in(url, "etcd"))
}

#[cfg(not(all(feature = "sqlite", feature = "redis", feature = "etcd")))]
fn not_compiled_in(url: &ConnectUrl, feature: &str) -> Error {
    Error::configuration(format!(
        "`{}:` is not compiled in; enable feature `{feature}` of the crate `lockkit`",
        url.scheme()
    ))
}
