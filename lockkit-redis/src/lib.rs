//! Redis backends of lockkit.

mod answer;
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
mod request;
mod scripts;
mod signal;
mod slow;
mod store;
mod target;
mod value;

pub use lock::RedisLock;
pub use options::{Layout, RedisOptions};
