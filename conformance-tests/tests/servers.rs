//! The test bed for servers does what it says.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

#[path = "servers/cluster.rs"]
mod cluster;
#[path = "servers/etcd.rs"]
mod etcd;
#[path = "servers/etcd_cluster.rs"]
mod etcd_cluster;
#[path = "servers/process.rs"]
mod process;
#[path = "servers/proxy.rs"]
mod proxy;
#[path = "servers/redis.rs"]
mod redis;
#[path = "servers/sentinels.rs"]
mod sentinels;
