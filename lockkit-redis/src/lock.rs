//! The backend as users have it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{Claim, Contender, Core, DistributedLock, Holder, Key, Result, Settings, Which};

use crate::capabilities::capabilities;
use crate::client::Client;
use crate::contender::RedisContender;
use crate::fleet::Fleet;
use crate::keys::Prefix;
use crate::opener::{Opener, check_files};
use crate::options::RedisOptions;
use crate::redlock::{Quorum, QuorumContender};
use crate::store::Store;
use crate::target::{self, Servers, Target};

/// Locks in Redis: one server, the primary behind Sentinel, a cluster, or a quorum of servers.
///
/// Clones are the same client.
///
/// - All of these are AP: the capability says under which failure two holders are possible, and
///   the fence, where there is one, lets the protected store refuse the older of them.
/// - `wait_replicas` has replicas confirm a claim before it counts: with too few of them in time,
///   it is undone and reported. That narrows what a failover can forget and does not close it:
///   renewals are not confirmed, and a replica without the claim may be promoted all the same.
/// - Every key and channel begins with the prefix. A released key leaves nothing behind.
/// - Keys may be deleted by hand: the holder is told within TTL/3.
#[derive(Clone)]
pub struct RedisLock {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    /// A claim stands on one server.
    One(Arc<Client>),
    /// A claim stands on most of several.
    Most(Arc<Quorum>),
}

impl RedisLock {
    /// Locks at the servers that `url` names: `redis://[user:password@]host[:port][/db]`,
    /// `rediss://…`, `redis+sentinel://h1,h2,h3/name`, `redis+cluster://h1,h2` or
    /// `redlock://h1,h2,h3`. Parameters: [`Settings::PARAMETERS`], what [`RedisOptions`] says,
    /// `username`, `password`, `db`, `connect_timeout`, `tls_ca`, `tls_cert`, `tls_key`, and where
    /// the scheme does not say it, `tls=true`; for Sentinel `sentinel_username` and
    /// `sentinel_password`. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Configuration`](lockkit_core::Error::Configuration) for a URL that names no servers, for wrong parameters, and for TLS
    /// files that cannot be read.
    pub fn from_url(url: &ConnectUrl) -> Result<Self> {
        Self::new(target::read(url)?)
    }

    /// Locks at the server that `client` is for, with its address, user, database and TLS
    /// certificates. Opens connections of its own: a renewal that waited behind the application's
    /// commands would lose the lock. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Configuration`](lockkit_core::Error::Configuration) for a prefix that cannot be one.
    pub fn from_client(
        client: &redis::Client,
        settings: Settings,
        options: RedisOptions,
    ) -> Result<Self> {
        Self::new(Target::of_client(client, settings, options))
    }

    fn new(target: Target) -> Result<Self> {
        let Target { servers, access, settings, options } = target;
        check_files(access.tls.as_ref())?;
        let prefix = Prefix::new(&options.prefix)?;
        let core = Core::new(capabilities(&servers, &options), settings);
        let opener = Arc::new(Opener::new(access, core.op_timeout()));
        let inner = if let Servers::Redlock(addresses) = &servers {
            Inner::Most(Arc::new(Quorum::new(core, addresses, &opener, prefix)))
        } else {
            let store = Store::new(Fleet::new(&servers, Arc::clone(&opener)));
            Inner::One(Arc::new(Client::new(core, store, opener, prefix, options)))
        };
        Ok(Self { inner })
    }
}

impl fmt::Debug for RedisLock {
    /// Without addresses, users and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.core().capabilities().name;
        f.debug_struct("RedisLock").field("backend", &name).finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn core(&self) -> &Core {
        match &self.inner {
            Inner::One(client) => &client.core,
            Inner::Most(quorum) => &quorum.core,
        }
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        match &self.inner {
            Inner::One(client) => Box::new(RedisContender::new(Arc::clone(client), claim)),
            Inner::Most(quorum) => Box::new(QuorumContender::new(Arc::clone(quorum), claim)),
        }
    }

    async fn ping(&self) -> Result<()> {
        let inner = self.inner.clone();
        let ping = async move {
            match &inner {
                Inner::One(client) => client.ping().await,
                Inner::Most(quorum) => quorum.ping().await,
            }
        };
        self.core().run(ping).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let (inner, key) = (self.inner.clone(), key.clone());
        let look = async move {
            match &inner {
                Inner::One(client) => client.inspect(&key).await,
                Inner::Most(quorum) => quorum.inspect(&key).await,
            }
        };
        self.core().run(look).await
    }

    async fn force_release(&self, key: &Key, which: Which) -> Result<bool> {
        let (inner, key) = (self.inner.clone(), key.clone());
        let force = async move {
            match &inner {
                Inner::One(client) => client.force(&key, which).await,
                Inner::Most(quorum) => quorum.force(&key, which).await,
            }
        };
        self.core().run(force).await
    }

    async fn disconnect(&self) {
        match &self.inner {
            Inner::One(client) => client.store.close(),
            Inner::Most(quorum) => quorum.close(),
        }
    }
}
