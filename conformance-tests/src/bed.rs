//! What a case works with: keys, clients and processes of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkit_core::testing::Faulty;
use lockkit_core::{Capabilities, DistributedLock, LockExt, Mode, Request};

use crate::child::{Ask, Child};
use crate::space::{Space, parse, template};
use crate::subject::Subject;
use crate::suspend::Suspendable;

/// One client: an own connection, an own core.
pub(crate) type Client = Arc<dyn DistributedLock>;

/// What a case works with. Clones are the same.
#[derive(Clone)]
pub struct Test {
    inner: Arc<Inner>,
}

struct Inner {
    subject: &'static dyn Subject,
    space: Space,
    capabilities: Capabilities,
    numbers: AtomicU32,
    left: Mutex<Left>,
}

/// What the leak check looks at when the case is over.
#[derive(Default)]
pub(crate) struct Left {
    pub(crate) keys: Vec<String>,
    pub(crate) clients: Vec<Client>,
    pub(crate) faulty: Vec<Arc<Faulty>>,
}

impl Test {
    pub(crate) fn new(subject: &'static dyn Subject, capabilities: Capabilities) -> Self {
        let (numbers, left) = Default::default();
        let space = Space::fresh(&template(subject));
        Self { inner: Arc::new(Inner { subject, space, capabilities, numbers, left }) }
    }

    /// A key that no other case has, and that must be free when the case is over.
    pub(crate) fn key(&self, word: &str) -> String {
        let key = format!("case:{word}:{}", self.inner.numbers.fetch_add(1, Ordering::Relaxed));
        self.watch_key(&key);
        key
    }

    /// Has the leak check look at `key` too.
    pub(crate) fn watch_key(&self, key: &str) {
        self.left(|left| left.keys.push(key.to_owned()));
    }

    /// A client that shares nothing with the other clients but the store.
    pub(crate) async fn client(&self) -> Client {
        self.client_at(self.inner.space.url()).await
    }

    /// As [`client`](Self::client), with one more parameter in the URL.
    pub(crate) async fn client_with(&self, parameter: &str) -> Client {
        self.client_at(&self.inner.space.url_with(parameter)).await
    }

    async fn client_at(&self, url: &str) -> Client {
        let connected = self.inner.subject.connect(&parse(url)).await;
        let client = connected.unwrap_or_else(|e| panic!("no client: {e}"));
        self.left(|left| left.clients.push(Arc::clone(&client)));
        client
    }

    pub(crate) async fn clients(&self, n: usize) -> Vec<Client> {
        let mut clients = Vec::new();
        for _ in 0..n {
            clients.push(self.client().await);
        }
        clients
    }

    /// A client whose exchanges can be disturbed, and are written down.
    pub(crate) async fn faulty(&self) -> Arc<Faulty> {
        let faulty = Faulty::new(self.client().await);
        self.left(|left| left.faulty.push(Arc::clone(&faulty)));
        faulty
    }

    /// A client whose clock can be moved ahead, as a suspended machine's is.
    pub(crate) async fn suspendable(&self) -> Arc<Suspendable> {
        Suspendable::new(self.client().await)
    }

    /// The same, on a store that nobody has touched yet.
    pub(crate) fn in_fresh_space(&self) -> Self {
        Self::new(self.inner.subject, self.inner.capabilities.clone())
    }

    /// Another process that is a client of the same store.
    pub(crate) async fn child(&self) -> Child {
        Child::start(self.inner.space.url()).await
    }

    /// What a child is to ask for by default.
    pub(crate) fn ask(&self, key: &str) -> Ask {
        Ask::new(key, self.ttl(), PATIENCE)
    }

    /// A request of which only the waiting matters: it outlives any hiccup of the machine.
    pub(crate) fn request(&self, key: &str) -> Request {
        Request::new(key).ttl(CALM).timeout(PATIENCE)
    }

    /// A request of which the end of the TTL matters.
    pub(crate) fn brief(&self, key: &str) -> Request {
        Request::new(key).ttl(self.ttl()).timeout(PATIENCE)
    }

    /// As [`brief`](Self::brief), in this mode.
    pub(crate) fn brief_in(&self, key: &str, mode: Mode) -> Request {
        self.brief(key).mode(mode)
    }

    /// As [`request`](Self::request), in this mode.
    pub(crate) fn request_in(&self, key: &str, mode: Mode) -> Request {
        self.request(key).mode(mode)
    }

    /// The TTL of cases that see it end: short, but one that the backend keeps.
    pub(crate) fn ttl(&self) -> Duration {
        self.inner.capabilities.smallest_ttl.max(Duration::from_millis(600))
    }

    /// A TTL so long that nothing in a case can be explained by its end.
    pub(crate) fn long_ttl(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// Within which time a waiter must notice that a key became free: at once where the store
    /// pushes, at its next poll elsewhere.
    pub(crate) fn prompt(&self) -> Duration {
        if self.inner.capabilities.push { SLACK } else { POLL + SLACK }
    }

    /// By how much a dead claim may outlive its TTL.
    pub(crate) fn granularity(&self) -> Duration {
        self.inner.subject.granularity()
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// A file that all processes of this case see.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.inner.space.file(name)
    }

    pub(crate) fn url(&self) -> &str {
        self.inner.space.url()
    }

    pub(crate) fn subject(&self) -> &'static dyn Subject {
        self.inner.subject
    }

    pub(crate) fn left<R>(&self, f: impl FnOnce(&mut Left) -> R) -> R {
        f(&mut self.inner.left.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Test").field("url", &self.url()).finish_non_exhaustive()
    }
}

/// How long a request of a case waits that is expected to succeed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The TTL where it does not matter.
const CALM: Duration = Duration::from_secs(4);

/// What a machine with other work may take between an event and a thread that notices it.
pub(crate) const SLACK: Duration = Duration::from_millis(300);

/// The longest pause between two questions of a waiter, by default.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// Ends a client in the way that users do.
pub(crate) async fn close(client: &Client) -> bool {
    client.close(Duration::from_secs(8)).await
}
