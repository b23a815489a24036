//! One server, and the client that is open for it.

use std::fmt;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::Client;
use lockkit_core::url::Address;
use tokio::sync::watch;

use crate::errors::Problem;
use crate::opener::Opener;

/// One server.
pub(crate) struct Node {
    name: String,
    way: Way,
    open: Mutex<Open>,
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
    /// What comes of an attempt that is under way.
    opening: Option<watch::Receiver<Option<Outcome>>>,
}

type Outcome = Result<Opened, Arc<Problem>>;

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
        Self { name, way, open: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client for one call or stream. All who need one meanwhile share one attempt to open it,
    /// which goes on when they give up: it may take longer than a call.
    pub(crate) async fn client(self: &Arc<Self>) -> Result<Opened, Problem> {
        let (address, opener) = match &self.way {
            Way::Given(client) => return Ok(Opened { client: Arc::clone(client), generation: 0 }),
            Way::Opened { address, opener } => (address, opener),
        };
        let (mut opening, attempt) = {
            let mut open = self.open();
            if let Some(client) = &open.client {
                return Ok(Opened { client: Arc::clone(client), generation: open.generation });
            }
            match &open.opening {
                Some(opening) => (opening.clone(), None),
                None => {
                    let (told, opening) = watch::channel(None);
                    open.opening = Some(opening.clone());
                    let attempt = Attempt { node: Arc::clone(self), told };
                    (opening, Some(attempt.run(address.clone(), Arc::clone(opener))))
                }
            }
        };
        if let Some(attempt) = attempt {
            // Calls are polled inside the lock thread's runtime.
            drop(tokio::spawn(attempt));
        }
        let told = opening.wait_for(Option::is_some).await;
        match told.as_deref() {
            Ok(Some(Ok(opened))) => Ok(opened.clone()),
            Ok(Some(Err(problem))) => Err(problem.again()),
            Ok(None) | Err(_) => Err(Problem::not_sent("the attempt to connect was given up")),
        }
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

/// Opening a client; dropped on the way, others may try.
struct Attempt {
    node: Arc<Node>,
    told: watch::Sender<Option<Outcome>>,
}

impl Attempt {
    async fn run(self, address: Address, opener: Arc<Opener>) {
        let opened = opener.open(&address).await;
        let outcome = opened.map_err(Arc::new).map(|client| {
            let client = Arc::new(client);
            let mut open = self.node.open();
            open.generation += 1;
            open.since = Some(Instant::now());
            open.client = Some(Arc::clone(&client));
            Opened { client, generation: open.generation }
        });
        self.node.open().opening = None;
        self.told.send_replace(Some(outcome));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.told.borrow().is_none() {
            self.node.open().opening = None;
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}
