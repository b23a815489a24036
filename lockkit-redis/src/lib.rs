//! Redis backends of lockkit.
//!
//! [`RedisLock`] is one server, the primary behind Sentinel, a cluster or a quorum (Redlock),
//! chosen by a URL:
//!
//! ```no_run
//! # async fn example() -> lockkit_core::Result<()> {
//! use lockkit_core::{LockExt, url::ConnectUrl};
//! use lockkit_redis::RedisLock;
//!
//! let lock = RedisLock::from_url(&ConnectUrl::parse("redis://localhost/0?ttl=10s")?)?;
//! let guard = lock.acquire("order:lock:1001").await?;
//! // ... work, telling whatever is protected the number `guard.fence()` ...
//! guard.release().await
//! # }
//! ```
//!
//! | folder or file | what it is |
//! | --- | --- |
//! | `target`, `options`, `keys`, `value`, `scripts` | what a URL says, and what is stored |
//! | `opener`, `line`, `gather`, `node`, `fleet`, `store` | from one connection to many servers |
//! | `contender`, `client`, `notes`, `clock`, `dangers` | a claim on one server |
//! | `redlock` | a claim on most of several servers |
//! | `signal` | wake-ups |

mod answer;
mod capabilities;
mod client;
mod clock;
mod contender;
mod dangers;
mod errors;
mod fleet;
mod gather;
mod keys;
mod line;
mod lock;
mod node;
mod notes;
mod opener;
mod options;
mod redlock;
mod rehearsal;
mod request;
mod scripts;
mod signal;
mod slow;
mod store;
mod target;
mod value;

pub use lock::RedisLock;
pub use options::{Layout, RedisOptions};
