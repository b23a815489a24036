//! The etcd backend of lockkit.
//!
//! [`EtcdLock`] is one server or a cluster, named by a URL:
//!
//! ```no_run
//! # async fn example() -> lockkit_core::Result<()> {
//! use lockkit_core::{LockExt, url::ConnectUrl};
//! use lockkit_etcd::EtcdLock;
//!
//! let lock = EtcdLock::from_url(&ConnectUrl::parse("etcd://h1,h2,h3?ttl=10s")?)?;
//! let guard = lock.acquire("order:lock:1001").await?;
//! // ... work, telling whatever is protected the number `guard.fence()` ...
//! guard.release().await
//! # }
//! ```
//!
//! Building this crate needs `protoc` with its bundled `.proto` files.
//!
//! | folder or file | what it is |
//! | --- | --- |
//! | `target`, `options`, `keys`, `value` | what a URL says, and what is stored |
//! | `opener`, `node`, `fleet` | from one connection to many servers |
//! | `lease`, `leases`, `keeper` | the leases that claims share |
//! | `ask`, `contender`, `client`, `inspect` | a claim, and who holds a key |
//! | `signal` | wake-ups |

mod ask;
mod capabilities;
mod client;
mod contender;
mod errors;
mod fleet;
mod inspect;
mod keeper;
mod keys;
mod lease;
mod leases;
mod lock;
mod node;
mod opener;
mod options;
mod signal;
mod target;
mod value;

pub use lock::EtcdLock;
pub use options::EtcdOptions;
