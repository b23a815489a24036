//! The backend as users have it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{
    Capabilities, Claim, Consistency, Contender, Core, DistributedLock, Fencing, Holder, Key,
    LeaseKind, Result, Which,
};

use crate::client::Client;
use crate::contender::RedisContender;
use crate::fleet::Fleet;
use crate::keys::Prefix;
use crate::opener::{Opener, check_files};
use crate::options::RedisOptions;
use crate::store::Store;
use crate::target::{self, Servers, Target};

/// Locks in Redis.
#[derive(Clone)]
pub struct RedisLock {
    client: Arc<Client>,
}

impl RedisLock {
    /// Locks at the servers that `url` names.
    pub fn from_url(url: &ConnectUrl) -> Result<Self> {
        let Target { servers, access, settings, options } = target::read(url)?;
        check_files(access.tls.as_ref())?;
        let prefix = Prefix::new(&options.prefix)?;
        let core = Core::new(capabilities(&servers, &options), settings);
        let opener = Arc::new(Opener::new(access, core.op_timeout()));
        let store = Store::new(Fleet::new(&servers, Arc::clone(&opener)));
        Ok(Self { client: Arc::new(Client::new(core, store, opener, prefix, options)) })
    }
}

fn capabilities(servers: &Servers, options: &RedisOptions) -> Capabilities {
    let (name, consistency) = match servers {
        Servers::One(_) => ("redis", ONE),
        Servers::Sentinel { .. } => ("redis+sentinel", ONE),
        Servers::Cluster(_) => ("redis+cluster", ONE),
        Servers::Redlock(_) => ("redlock", ONE),
    };
    let mut capabilities = Capabilities::new(name, consistency, LeaseKind::Expires);
    capabilities.smallest_ttl = Duration::from_millis(100);
    capabilities.fencing =
        if options.fences { Fencing::UnlessClockStepsBack } else { Fencing::None };
    capabilities.fair = options.fair;
    capabilities.shared = true;
    capabilities.permits = true;
    capabilities.stored_reentrancy = true;
    capabilities.inspection = true;
    capabilities.forced_release = true;
    capabilities.push = true;
    capabilities.least_version = Some("5.0");
    capabilities
}

const ONE: Consistency =
    Consistency::Ap("two holders are possible after a failover or a restart that forgot the claim");

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock").finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn core(&self) -> &Core {
        &self.client.core
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        Box::new(RedisContender::new(Arc::clone(&self.client), claim))
    }

    async fn ping(&self) -> Result<()> {
        let client = Arc::clone(&self.client);
        self.client.core.run(async move { client.ping().await }).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let (client, key) = (Arc::clone(&self.client), key.clone());
        self.client.core.run(async move { client.inspect(&key).await }).await
    }

    async fn force_release(&self, key: &Key, which: Which) -> Result<bool> {
        let (client, key) = (Arc::clone(&self.client), key.clone());
        self.client.core.run(async move { client.force(&key, which).await }).await
    }

    async fn disconnect(&self) {
        self.client.store.close();
    }
}
