//! SQL backends of lockkit.
//!
//! | feature | URL | what it is |
//! | --- | --- | --- |
//! | `sqlite` (default) | `sqlite:path` | one row per claim in a table of a local file: [`SqliteLock`] |
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("locks.db");
//! use lockkit_core::{LockExt, Settings};
//! use lockkit_sql::SqliteLock;
//!
//! let lock = SqliteLock::open(path, Settings::default())?;
//! let guard = lock.acquire("order:lock:1001").await?;
//! // ... work, telling whatever is protected the number `guard.fence()` ...
//! guard.release().await?;
//! # Ok::<_, lockkit_core::Error>(())
//! # }).unwrap();
//! ```

#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteLock, SqliteOptions, schema};
