//! What the claims of one client share.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnResponse};
use lockkit_core::{Core, Key, Result};

use crate::ask::Place;
use crate::fleet::{Answered, Failed, Fleet};
use crate::keys::{Keys, Prefix};
use crate::leases::Leases;
use crate::signal::Signal;

/// What the claims of one client share.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) core: Core,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) leases: Leases,
    pub(crate) signal: Signal,
    prefix: Prefix,
}

impl Client {
    pub(crate) fn new(core: Core, fleet: Fleet, prefix: Prefix) -> Self {
        let fleet = Arc::new(fleet);
        let (leases, signal) = (Leases::new(Arc::clone(&fleet)), Signal::new(Arc::clone(&fleet)));
        Self { core, fleet, leases, signal, prefix }
    }

    pub(crate) fn keys(&self, key: &Key) -> Keys {
        Keys::new(&self.prefix, key)
    }

    /// How long a waiter may take until it asks again.
    pub(crate) fn longest_pause(&self) -> Duration {
        self.core.settings().poll.1 + self.core.op_timeout()
    }

    pub(crate) async fn txn(
        &self,
        txn: Txn,
        budget: Duration,
    ) -> Result<Answered<TxnResponse>, Failed> {
        let ask = |client: Arc<etcd_client::Client>| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        };
        self.fleet.call(budget, ask).await
    }

    /// Takes a claim's own key out; whether it was there. What was sent twice may have found it the
    /// first time.
    pub(crate) async fn delete(&self, key: &[u8], budget: Duration) -> Result<bool, Failed> {
        let ask = |client: Arc<etcd_client::Client>| async move {
            client.kv_client().delete(key, None).await
        };
        let answered = self.fleet.call(budget, ask).await?;
        Ok(answered.value.deleted() > 0 || answered.doubtful)
    }

    /// Where a key stands, as most of the members know it.
    pub(crate) async fn standing(
        &self,
        key: &[u8],
        budget: Duration,
    ) -> Result<Option<Place>, Failed> {
        let ask = |client: Arc<etcd_client::Client>| async move {
            let options = GetOptions::new().with_keys_only();
            client.kv_client().get(key, Some(options)).await
        };
        let answer = self.fleet.call(budget, ask).await?.value;
        let kv = answer.kvs().first();
        Ok(kv.map(|kv| Place { created: kv.create_revision(), lease: kv.lease() }))
    }

    /// Asks whether most of the members answer, and whether the user may do what locks need. What
    /// it may do is checked for both branches of a transaction; this one's writes nothing.
    pub(crate) async fn ping(&self) -> Result<()> {
        let key = self.prefix.probe();
        let never = Compare::version(key.clone(), CompareOp::Less, 0);
        let txn = Txn::new()
            .when([never])
            .and_then([TxnOp::put(key.clone(), Vec::new(), None)])
            .or_else([TxnOp::get(key, Some(GetOptions::new().with_keys_only()))]);
        self.txn(txn, self.core.op_timeout()).await?;
        Ok(())
    }

    /// Ends leases and connections.
    pub(crate) async fn close(&self) {
        self.leases.close(self.core.op_timeout()).await;
        self.fleet.close();
    }
}
