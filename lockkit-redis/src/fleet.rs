//! Which server has a key.

use std::sync::Arc;

use redis::ServerError;

use crate::errors::Problem;
use crate::node::Node;
use crate::opener::Opener;
use crate::target::Servers;

/// The servers of one client, and which of them has which key.
#[derive(Debug)]
pub(crate) enum Fleet {
    /// Always the same one.
    One(Arc<Node>),
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
            _ => unreachable!(),
        }
    }

    /// The server that has `slot`.
    pub(crate) async fn node(&self, _slot: u16) -> Result<Arc<Node>, Problem> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
        }
    }

    /// Learns from what a server refused to do; where else to try it at once, if anywhere.
    pub(crate) async fn learn(
        &self,
        _slot: u16,
        _node: &Arc<Node>,
        _refusal: &ServerError,
    ) -> Option<Redirect> {
        match self {
            Self::One(_) => None,
        }
    }

    /// Whether it is always the same server.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self, Self::One(_))
    }

    /// The servers that have keys.
    pub(crate) async fn known(&self) -> Result<Vec<Arc<Node>>, Problem> {
        Ok(self.nodes())
    }

    /// The servers known now.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
        }
    }

    /// Closes all connections as soon as nobody waits for an answer on them.
    pub(crate) fn hang_up(&self) {
        for node in self.nodes() {
            node.hang_up();
        }
    }
}
