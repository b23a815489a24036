//! One server, and the client that is open for it.

use std::fmt;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::Client;
use lockkit_core::url::Address;

use crate::errors::Problem;
use crate::opener::Opener;

/// One server.
pub(crate) struct Node {
    name: String,
    way: Way,
    open: Mutex<Open>,
    /// One opens, the others wait for that.
    opening: tokio::sync::Mutex<()>,
}

/// How to get a client.
enum Way {
    /// It is the application's own, for better or worse.
    Given(Arc<Client>),
    Opened {
        address: Address,
        opener: Arc<Opener>,
    },
}

#[derive(Default)]
struct Open {
    client: Option<Arc<Client>>,
    /// Grows with each client, so that the failure of an old one does not end its successor.
    generation: u64,
    since: Option<Instant>,
}

/// A client, and which one it is.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) client: Arc<Client>,
    pub(crate) generation: u64,
}

/// A client younger than this is not replaced for being silent: it may be the server that is slow.
const PATIENCE: Duration = Duration::from_millis(500);

impl Node {
    pub(crate) fn new(address: Address, opener: Arc<Opener>) -> Self {
        let name = address.to_string();
        Self::with(name, Way::Opened { address, opener })
    }

    pub(crate) fn given(client: Client) -> Self {
        Self::with("the application's client".to_owned(), Way::Given(Arc::new(client)))
    }

    fn with(name: String, way: Way) -> Self {
        Self { name, way, open: Mutex::default(), opening: tokio::sync::Mutex::new(()) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self) -> Option<Opened> {
        let open = self.open();
        let generation = open.generation;
        open.client.clone().map(|client| Opened { client, generation })
    }

    /// A client for one call or stream.
    pub(crate) async fn client(&self) -> Result<Opened, Problem> {
        let (address, opener) = match &self.way {
            Way::Given(client) => return Ok(Opened { client: Arc::clone(client), generation: 0 }),
            Way::Opened { address, opener } => (address, opener),
        };
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let _one = self.opening.lock().await;
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let client = Arc::new(opener.open(address).await?);
        let mut open = self.open();
        open.generation += 1;
        open.since = Some(Instant::now());
        open.client = Some(Arc::clone(&client));
        Ok(Opened { client, generation: open.generation })
    }

    /// The client of that generation got no answer: the next call opens another one.
    pub(crate) fn doubt(&self, generation: u64) {
        let mut open = self.open();
        let old = open.since.is_none_or(|since| since.elapsed() >= PATIENCE);
        if open.generation == generation && old {
            open.client = None;
        }
    }

    /// Ends what is open.
    pub(crate) fn close(&self) {
        self.open().client = None;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}
