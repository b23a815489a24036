//! The floors of `etcd:`: a transaction that creates a key under a lease that is there, and a delete;
//! and the lock service of the server itself. One connection for all tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance_tests::async_trait;
use conformance_tests::measure::{Bare, Floor};
use conformance_tests::servers::Etcd;
use etcd_client::{Client, Compare, CompareOp, LockOptions, PutOptions, Txn, TxnOp};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Token};
use lockkit_etcd::EtcdLock;

/// In seconds; longer than all of it takes, since nobody extends these leases.
const TTL: i64 = 600;

/// More than there are tasks in a round.
const LEASES: usize = 32;

/// The server: one of its own, or the one that `LOCKKIT_URL_ETCD` names.
pub(crate) struct Place {
    host: String,
    _server: Option<Etcd>,
}

/// Whose leases the lock service is given.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Leases {
    /// All tasks share one. On one key they would be one contender.
    Shared,
    /// Each task has its own.
    OfTasks,
    /// Each lock has its own, granted and revoked with it.
    OfLocks,
}

impl Place {
    pub(crate) fn new() -> Self {
        if let Ok(url) = std::env::var("LOCKKIT_URL_ETCD") {
            let host = url.trim_start_matches("etcd://").to_owned();
            return Self { host, _server: None };
        }
        let server = Etcd::start().expect("an etcd");
        Self { host: server.address().to_string(), _server: Some(server) }
    }

    pub(crate) fn lock(&self) -> Arc<dyn DistributedLock> {
        let url = ConnectUrl::parse(&format!("etcd://{}?prefix=floor:", self.host));
        Arc::new(EtcdLock::from_url(&url.expect("a URL")).expect("a URL"))
    }

    async fn client(&self) -> Client {
        Client::connect([&self.host], None).await.expect("a client")
    }

    pub(crate) async fn pair(&self) -> Arc<dyn Floor> {
        let client = self.client().await;
        let lease = grant(&client).await;
        Arc::new(PairFloor { client, lease })
    }

    pub(crate) async fn service(&self, whose: Leases) -> Arc<dyn Floor> {
        let client = self.client().await;
        let mut leases = Vec::new();
        for _ in 0..LEASES {
            leases.push(grant(&client).await);
        }
        Arc::new(ServiceFloor { client, whose, leases, next: AtomicUsize::new(0) })
    }
}

async fn grant(client: &Client) -> i64 {
    client.lease_client().grant(TTL, None).await.expect("a lease").id()
}

struct PairFloor {
    client: Client,
    lease: i64,
}

struct PairBare {
    client: Client,
    lease: i64,
}

#[async_trait]
impl Floor for PairFloor {
    async fn open(&self) -> Box<dyn Bare> {
        Box::new(PairBare { client: self.client.clone(), lease: self.lease })
    }
}

#[async_trait]
impl Bare for PairBare {
    async fn acquire(&mut self, key: &str) -> bool {
        let put = PutOptions::new().with_lease(self.lease);
        let create = Txn::new()
            .when([Compare::version(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, Token::new().to_string(), Some(put))]);
        self.client.txn(create).await.expect("an answer").succeeded()
    }

    async fn release(&mut self, key: &str) {
        let deleted = self.client.delete(key, None).await.expect("an answer").deleted();
        assert_eq!(deleted, 1, "the floor lost a claim");
    }
}

struct ServiceFloor {
    client: Client,
    whose: Leases,
    leases: Vec<i64>,
    next: AtomicUsize,
}

struct ServiceBare {
    client: Client,
    whose: Leases,
    lease: i64,
    held: Vec<u8>,
}

#[async_trait]
impl Floor for ServiceFloor {
    async fn open(&self) -> Box<dyn Bare> {
        let turn = match self.whose {
            Leases::OfTasks => self.next.fetch_add(1, Ordering::Relaxed) % LEASES,
            _ => 0,
        };
        let (client, lease) = (self.client.clone(), self.leases[turn]);
        Box::new(ServiceBare { client, whose: self.whose, lease, held: Vec::new() })
    }
}

#[async_trait]
impl Bare for ServiceBare {
    async fn acquire(&mut self, key: &str) -> bool {
        if let Leases::OfLocks = self.whose {
            self.lease = grant(&self.client).await;
        }
        let options = LockOptions::new().with_lease(self.lease);
        let mut service = self.client.lock_client();
        self.held = service.lock(key, Some(options)).await.expect("an answer").key().to_vec();
        true
    }

    async fn release(&mut self, _key: &str) {
        let mut service = self.client.lock_client();
        service.unlock(std::mem::take(&mut self.held)).await.expect("an answer");
        if let Leases::OfLocks = self.whose {
            self.client.lease_client().revoke(self.lease).await.expect("an answer");
        }
    }
}
