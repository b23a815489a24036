//! Which server has a key.

mod cluster;
mod named;
mod sentinel;
mod slots;
mod task;
mod watcher;

use std::sync::Arc;
use std::time::Instant;

use redis::ServerError;

use self::cluster::Cluster;
use self::sentinel::Sentinels;
use crate::errors::Problem;
use crate::node::Node;
use crate::opener::Opener;
use crate::target::Servers;

/// The servers of one client, and which of them has which key.
#[derive(Debug)]
pub(crate) enum Fleet {
    /// Always the same one.
    One(Arc<Node>),
    /// The primary that sentinels name.
    Sentinel(Arc<Sentinels>),
    /// Each slot has its own.
    Cluster(Arc<Cluster>),
}

/// Where to try again what a server refused.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) node: Arc<Node>,
    /// Whether that server is only about to get the slot.
    pub(crate) asking: bool,
}

impl Fleet {
    pub(crate) fn new(servers: &Servers, opener: Arc<Opener>) -> Self {
        match servers {
            Servers::One(address) => Self::One(Node::new(address.clone(), opener)),
            Servers::Sentinel { sentinels, master } => {
                Self::Sentinel(Arc::new(Sentinels::new(sentinels, master, opener)))
            }
            Servers::Cluster(seeds) => Self::Cluster(Arc::new(Cluster::new(seeds, opener))),
            Servers::Redlock(_) => unreachable!(),
        }
    }

    /// The server that has `slot`.
    pub(crate) async fn node(&self, slot: u16) -> Result<Arc<Node>, Problem> {
        // What has to be found out is boxed: requests that know their server carry no room for it.
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Sentinel(sentinels) => match sentinels.settled() {
                Some(node) => Ok(node),
                None => Box::pin(sentinels.find()).await,
            },
            Self::Cluster(cluster) => match cluster.settled(slot) {
                Some(node) => Ok(node),
                None => Box::pin(cluster.find(slot)).await,
            },
        }
    }

    /// A request to `node` got no answer: it may not be the right one any more.
    pub(crate) fn doubt(&self, node: &Arc<Node>) {
        match self {
            Self::One(_) => {}
            Self::Sentinel(sentinels) => sentinels.doubt(node),
            Self::Cluster(cluster) => cluster.doubt(node),
        }
    }

    /// Whether `node` was replaced by another primary, so that what it answers now counts for
    /// nothing: the other one does not know of it.
    pub(crate) fn has_replaced(&self, node: &Arc<Node>) -> bool {
        match self {
            Self::One(_) => false,
            Self::Sentinel(sentinels) => sentinels.has_replaced(node),
            // Its nodes hear of a successor before we do, and then refuse.
            Self::Cluster(_) => false,
        }
    }

    /// Learns from what a server refused to do; where else to try it at once, if anywhere.
    pub(crate) async fn learn(
        &self,
        slot: u16,
        node: &Arc<Node>,
        refusal: &ServerError,
    ) -> Option<Redirect> {
        match self {
            Self::One(_) => None,
            Self::Sentinel(sentinels) => sentinels.learn(node, refusal).await,
            Self::Cluster(cluster) => cluster.learn(slot, node, refusal).await,
        }
    }

    /// Whether it is always the same server.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self, Self::One(_))
    }

    /// Whether keys are spread over slots, which may be on the move.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The servers that have keys.
    pub(crate) async fn known(&self) -> Result<Vec<Arc<Node>>, Problem> {
        match self {
            Self::One(node) => Ok(vec![Arc::clone(node)]),
            Self::Sentinel(sentinels) => Ok(vec![sentinels.find().await?]),
            Self::Cluster(cluster) => cluster.known().await,
        }
    }

    /// A server that tells the releases of all keys.
    pub(crate) async fn messenger(&self) -> Result<Arc<Node>, Problem> {
        match self {
            Self::Cluster(cluster) => cluster.messenger().await,
            _ => self.node(0).await,
        }
    }

    /// Resolves when another messenger is to be asked for than `node`, which was given at `since`.
    pub(crate) async fn dismissed(&self, node: &Arc<Node>, since: Instant) {
        match self {
            Self::One(_) => std::future::pending().await,
            Self::Sentinel(sentinels) => sentinels.replaced(node).await,
            Self::Cluster(cluster) => cluster.dismissed(node, since).await,
        }
    }

    /// Closes all connections as soon as nobody waits for an answer on them.
    pub(crate) fn hang_up(&self) {
        match self {
            Self::One(node) => node.hang_up(),
            Self::Sentinel(sentinels) => sentinels.hang_up(),
            Self::Cluster(cluster) => cluster.hang_up(),
        }
    }
}
