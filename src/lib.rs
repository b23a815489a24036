#![doc = include_str!("../README.md")]
//!
//! # Where to start
//! [`connect`] turns a URL into an `Arc<dyn `[`DistributedLock`]`>`; [`LockExt`] has the everyday
//! words (`acquire`, `try_acquire`, `shared`, `permit`, `close`); [`Guard`] is what they return.
//! Who writes a backend finds the other half in [`backend`].

mod connect;

pub use connect::{connect, connect_with};
pub use lockkit_core::{
    Acquire, BootInstant, Capabilities, Capability, Consistency, DistributedLock, Error, Event,
    EventKind, Events, Failure, Fencing, Guard, Holder, Interrupted, Key, LeaseKind, LockExt,
    LossReason, Lost, Memory, Mode, NotAcquired, Owner, Request, Require, Result, Settings,
    Subject, Token, TryAcquire, Wait, Which,
};
#[cfg(feature = "etcd")]
pub use lockkit_etcd::EtcdLock;
#[cfg(feature = "redis")]
pub use lockkit_redis::RedisLock;
#[cfg(feature = "sqlite")]
pub use lockkit_sql::SqliteLock;

/// What a backend is made of, for those who write one.
pub mod backend {
    pub use lockkit_core::{
        Attempt, Bell, Claim, Clock, Contender, Core, Lease, Released, Renewal, SharedLease, Stage,
        Wake, encoding, url,
    };
}
