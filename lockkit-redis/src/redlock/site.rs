//! One of the servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::Token;
use redis::Value;
use redis::aio::PubSub;

use super::debts::Debts;
use crate::errors::{Failed, Problem};
use crate::fleet::Fleet;
use crate::keys::Keys;
use crate::node::Node;
use crate::opener::{As, Opener};
use crate::request::Request;
use crate::scripts::{self, Script};
use crate::signal::Source;
use crate::store::{For, Store};
use crate::target::{Address, Servers};

/// One of the servers: its connections, and what it is still owed.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) address: Address,
    pub(crate) store: Arc<Store>,
    pub(super) debts: Debts,
    opener: Arc<Opener>,
}

impl Site {
    pub(super) fn new(address: Address, opener: &Arc<Opener>) -> Arc<Self> {
        let servers = Servers::One(address.clone());
        let store = Arc::new(Store::new(Fleet::new(&servers, Arc::clone(opener))));
        Arc::new(Self { address, store, debts: Debts::default(), opener: Arc::clone(opener) })
    }

    /// Runs a script here; its one answer.
    pub(super) async fn run(
        &self,
        who: For<'_>,
        script: &'static Script,
        keys: &Keys,
        args: Vec<Vec<u8>>,
        budget: Duration,
    ) -> Result<Value, Failed> {
        let request = Request::Script { script, keys: keys.all().to_vec(), args };
        let values = self.store.exchange(keys.slot(), who, &request, budget).await?;
        Ok(values.into_iter().next().unwrap_or(Value::Nil))
    }

    /// Takes a claim away. `channel` is empty where nobody is to be woken.
    pub(super) async fn withdraw(
        &self,
        keys: &Keys,
        token: Token,
        channel: Vec<u8>,
        budget: Duration,
    ) -> Result<Value, Failed> {
        let args = vec![channel, token.to_string().into(), b"0".to_vec(), Vec::new(), Vec::new()];
        self.run(For::Background, &scripts::WITHDRAW, keys, args, budget).await
    }

    /// The connections, for questions about the server itself.
    pub(super) async fn node(&self) -> Result<Arc<Node>, Problem> {
        self.store.fleet.node(0).await
    }
}

#[async_trait]
impl Source for Site {
    async fn open(&self) -> Result<PubSub, Problem> {
        self.opener.subscriber(&self.address, As::Client).await
    }
}
