//! The server's own counters.

use std::ops::Sub;

use conformance_tests::servers::Etcd;

/// What a server has done, since it started or between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Keys written and keys deleted.
    pub(crate) puts: u64,
    pub(crate) deletes: u64,
    /// Entries in the log of the cluster, each of which every member writes to its disk.
    pub(crate) entries: u64,
    /// Events that went to watchers.
    pub(crate) events: u64,
    /// Requests: transactions, deletes, and watches that begin or end.
    pub(crate) txns: u64,
    pub(crate) releases: u64,
    pub(crate) watches: u64,
}

impl Counters {
    pub(crate) fn read(server: &Etcd) -> Self {
        let metric = |name: &str| server.metric(name, &[]).unwrap();
        // A method that was never called has no series yet.
        let methods = server.messages_by_method().unwrap();
        let sent = |method: &str| methods.get(method).copied().unwrap_or_default();
        Self {
            puts: metric("etcd_mvcc_put_total"),
            deletes: metric("etcd_mvcc_delete_total"),
            entries: metric("etcd_server_proposals_committed_total"),
            events: metric("etcd_debugging_mvcc_events_total"),
            txns: sent("Txn"),
            releases: sent("DeleteRange"),
            watches: sent("Watch"),
        }
    }

    /// What a server has done since `before`.
    pub(crate) fn since(server: &Etcd, before: Self) -> Self {
        Self::read(server) - before
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            puts: self.puts - before.puts,
            deletes: self.deletes - before.deletes,
            entries: self.entries - before.entries,
            events: self.events - before.events,
            txns: self.txns - before.txns,
            releases: self.releases - before.releases,
            watches: self.watches - before.watches,
        }
    }
}
