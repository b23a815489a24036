//! What is particular to locks in Redis.

use std::time::Duration;

use crate::keys::Prefix;

/// What is particular to locks in Redis. The URL parameters have the same names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisOptions {
    /// What stands before every key and channel. Empty to share locks with other languages'
    /// clients under the plain name. No braces; at most 128 bytes. Default: `lockkit:`.
    pub prefix: String,
    /// Whether grants carry a fence (the server's time in microseconds). Default: yes.
    pub fences: bool,
    /// Whether the server keeps a queue, so that the waiters of all clients come in order.
    /// Costs a script for each acquire. All clients of a key should agree: one without it
    /// may overtake. Default: no.
    pub fair: bool,
    /// How exclusive claims without an owner are stored. Default: as strings.
    pub layout: Layout,
    /// How many replicas must confirm a claim before it counts; see
    /// [`RedisLock`](crate::RedisLock). Default: 0.
    pub wait_replicas: u32,
    /// How long they may take for that. Default: 100 ms.
    pub wait_timeout: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: Prefix::DEFAULT.to_owned(),
            fences: true,
            fair: false,
            layout: Layout::default(),
            wait_replicas: 0,
            wait_timeout: Duration::from_millis(100),
        }
    }
}

/// How exclusive claims without an owner are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// A string key, as redis-py, redsync, node-redlock and redislock have it: two bare commands
    /// in one round trip.
    #[default]
    String,
    /// A hash, as Redisson has it, which fails on strings: for fleets with Redisson. Costs a
    /// script for each acquire.
    Hash,
}
