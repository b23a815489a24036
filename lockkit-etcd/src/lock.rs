//! The backend as users have it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{Claim, Contender, Core, DistributedLock, Holder, Key, Result, Settings, Which};

use crate::capabilities::capabilities;
use crate::client::Client;
use crate::contender::EtcdContender;
use crate::fleet::Fleet;
use crate::keys::Prefix;
use crate::node::Node;
use crate::opener::{Opener, check_files};
use crate::options::EtcdOptions;
use crate::target::{self, Target};

/// Locks in etcd, one server or a cluster.
///
/// Clones are the same client.
///
/// - CP: what most of the members have written stands. The fence is the create revision of the
///   claim's key, which grows for ever.
/// - Claims wait in one queue, first come, first served, whatever client they belong to.
/// - All claims of a client with the same TTL share one lease; closing or dropping the client
///   revokes it behind the last of them. etcd counts in whole seconds: TTLs are rounded up, and the
///   server may grant more (one and a half of its election timeout at least).
/// - Keys may be deleted by hand: the holder is told within TTL/3.
#[derive(Clone)]
pub struct EtcdLock {
    client: Arc<Client>,
}

impl EtcdLock {
    /// Locks at the servers that `url` names: `etcd://[user:password@]h1,h2,h3`, or with TLS
    /// `etcds://…`. Parameters: [`Settings::PARAMETERS`], what [`EtcdOptions`] says, `username`,
    /// `password`, `connect_timeout`, `tls_ca`, `tls_cert`, `tls_key`. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Configuration`](lockkit_core::Error::Configuration) for a URL that names no
    /// servers, for wrong parameters, and for TLS files that cannot be read.
    pub fn from_url(url: &ConnectUrl) -> Result<Self> {
        let Target { servers, access, settings, options } = target::read(url)?;
        check_files(access.tls.as_ref())?;
        let prefix = Prefix::new(&options.prefix)?;
        let core = Core::new(capabilities(), settings);
        let opener = Arc::new(Opener::new(access, core.op_timeout()));
        let nodes = servers.into_iter().map(|server| Node::new(server, Arc::clone(&opener)));
        Ok(Self::new(core, Fleet::new(nodes.collect()), prefix))
    }

    /// Locks through a client that the application has, and on its connection. Sends nothing.
    ///
    /// That connection lives on the runtime that the client was made on: while that runtime is
    /// blocked nothing is renewed, and when it has ended everything is lost. A client of several
    /// endpoints sends a share of all requests to those that are down. [`from_url`](Self::from_url)
    /// has neither weakness. Make the client with `with_require_leader(true)`, with
    /// `with_auto_token_refresh(true)` if it has a user, and with a connect timeout.
    ///
    /// # Errors
    /// [`Error::Configuration`](lockkit_core::Error::Configuration) for a prefix that cannot be
    /// one.
    pub fn from_client(
        client: etcd_client::Client,
        settings: Settings,
        options: EtcdOptions,
    ) -> Result<Self> {
        let prefix = Prefix::new(&options.prefix)?;
        let core = Core::new(capabilities(), settings);
        Ok(Self::new(core, Fleet::new(vec![Node::given(client)]), prefix))
    }

    fn new(core: Core, fleet: Fleet, prefix: Prefix) -> Self {
        Self { client: Arc::new(Client::new(core, fleet, prefix)) }
    }
}

impl fmt::Debug for EtcdLock {
    /// Without addresses, users and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLock").finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for EtcdLock {
    fn core(&self) -> &Core {
        &self.client.core
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        Box::new(EtcdContender::new(Arc::clone(&self.client), claim))
    }

    async fn ping(&self) -> Result<()> {
        let client = Arc::clone(&self.client);
        self.core().run(async move { client.ping().await }).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let (client, key) = (Arc::clone(&self.client), key.clone());
        self.core().run(async move { client.inspect(&key).await }).await
    }

    async fn force_release(&self, key: &Key, which: Which) -> Result<bool> {
        let (client, key) = (Arc::clone(&self.client), key.clone());
        self.core().run(async move { client.force(&key, which).await }).await
    }

    async fn disconnect(&self) {
        let client = Arc::clone(&self.client);
        let close = async move {
            client.close().await;
            Ok(())
        };
        // An error would be that of a process that was forked: the leases are its parent's.
        let _ = self.core().run(close).await;
    }
}
