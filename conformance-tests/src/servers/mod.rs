//! Real servers for tests: started, stopped, killed, cut off, and ended with the test.
//!
//! Every server has a directory of its own and listens on loopback ports of its own, so any
//! number of them run beside each other. A server that is missing or does not start is an error
//! that says why; nothing is ever skipped.
//!
//! Everything here blocks the calling thread for as long as it takes, milliseconds mostly, and
//! needs no runtime. Dropping a server ends it.

mod certificates;
mod cluster;
mod etcd;
mod fault;
mod http;
mod launch;
mod nodes;
mod ports;
mod process;
mod program;
mod proxy;
mod redis;
mod resp;
mod sentinels;
mod spawner;
mod started;
mod wait;

pub use certificates::Certificates;
pub use cluster::{Cluster, ClusterBuilder, SlotMove};
pub use etcd::{Etcd, EtcdBuilder, EtcdCluster, EtcdClusterBuilder, EtcdKey, EtcdLease};
pub use fault::{Fault, Result};
pub use launch::Launch;
pub use nodes::Nodes;
pub use ports::{free_port, on_free_port};
pub use process::{Data, Process};
pub use program::Program;
pub use proxy::{Action, Cut, Framing, Hits, Proxy, Rule, Toward};
pub use redis::{Redis, RedisBuilder};
pub use resp::{Reply, Resp};
pub use sentinels::{Sentinels, SentinelsBuilder};
pub use started::Started;
pub use wait::{eventually, until};
