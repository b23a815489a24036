//! Other users of the same server: lock clients of other languages under the same name, and data.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod clients;
#[path = "neighbours/data.rs"]
mod data;
#[path = "neighbours/redis_py.rs"]
mod redis_py;
#[path = "neighbours/redisson.rs"]
mod redisson;
