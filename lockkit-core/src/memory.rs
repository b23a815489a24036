//! The memory backend: all clients in one process. For tests, examples and doctests, and the
//! model of what a store does.

mod contender;
mod store;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;

use crate::capability::{Capabilities, Consistency, Fencing, LeaseKind};
use crate::clock::{BootInstant, Clock};
use crate::contender::{Claim, Contender};
use crate::core::Core;
use crate::error::Result;
use crate::holder::{Holder, Which};
use crate::key::Key;
use crate::lock::DistributedLock;
use crate::settings::Settings;
use crate::sync::lock;
use crate::url::{ConnectUrl, decode};
use contender::MemoryContender;
use store::Store;

/// A lock service in the memory of this process.
#[derive(Debug)]
pub struct Memory {
    core: Core,
    store: Arc<Mutex<Store>>,
}

const CAPABILITIES: Capabilities = {
    let promise = "never two holders: all clients are in one process, and so is the store";
    let mut c = Capabilities::new("memory", Consistency::Cp(promise), LeaseKind::Expires);
    c.smallest_ttl = Duration::from_millis(20);
    c.fencing = Fencing::Strict;
    c.shared = true;
    c.permits = true;
    c.inspection = true;
    c.forced_release = true;
    c.push = true;
    c
};

impl Memory {
    /// A client of a new store that nobody else has.
    pub fn new() -> Self {
        Self::on(Arc::default(), false, Settings::default(), Clock::default())
    }

    /// The client that a URL describes. `memory:` and `memory:NAME` name stores that all clients
    /// of this process share while one of them lives. `fair=true` gives the store a queue; all
    /// clients of a store must agree on it.
    ///
    /// # Errors
    /// [`Error::Configuration`](crate::Error::Configuration) for an unknown or a wrong parameter.
    pub fn from_url(url: &ConnectUrl) -> Result<Self> {
        let name = decode("the name of the store", url.rest())?;
        let mut params = url.clone().into_params();
        let settings = Settings::default().read(&mut params)?;
        let fair = params.flag("fair")?.unwrap_or(false);
        params.finish("memory")?;
        Ok(Self::on(named(name, fair), fair, settings, Clock::default()))
    }

    /// Another client of the same store.
    #[must_use]
    pub fn another_client(&self) -> Self {
        let fair = self.core.capabilities().fair;
        Self::on(Arc::clone(&self.store), fair, self.core.settings().clone(), Clock::default())
    }

    /// A client of a new store, with these defaults and on this clock.
    #[cfg(feature = "testing")]
    pub fn with(settings: Settings, clock: Clock) -> Self {
        Self::on(Arc::default(), false, settings, clock)
    }

    /// A client of a new store that keeps a queue.
    #[must_use]
    pub fn fair() -> Self {
        Self::on(Arc::default(), true, Settings::default(), Clock::default())
    }

    fn on(store: Arc<Mutex<Store>>, fair: bool, settings: Settings, clock: Clock) -> Self {
        let mut capabilities = CAPABILITIES.clone();
        capabilities.fair = fair;
        Self { core: Core::with_clock(capabilities, settings, clock), store }
    }

    /// How many claims and places the store has, over all keys.
    #[cfg(feature = "testing")]
    pub fn entries(&self) -> usize {
        lock(&self.store).entries(BootInstant::now())
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

fn named(name: String, fair: bool) -> Arc<Mutex<Store>> {
    type Stores = Mutex<HashMap<(String, bool), Weak<Mutex<Store>>>>;
    static STORES: OnceLock<Stores> = OnceLock::new();
    let mut stores = lock(STORES.get_or_init(Stores::default));
    stores.retain(|_, store| store.strong_count() > 0);
    if let Some(store) = stores.get(&(name.clone(), fair)).and_then(Weak::upgrade) {
        return store;
    }
    let store = Arc::default();
    stores.insert((name, fair), Arc::downgrade(&store));
    store
}

#[async_trait]
impl DistributedLock for Memory {
    fn core(&self) -> &Core {
        &self.core
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let fair = self.core.capabilities().fair;
        Box::new(MemoryContender::new(Arc::clone(&self.store), claim, fair))
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        Ok(lock(&self.store).inspect(key, BootInstant::now()))
    }

    async fn force_release(&self, key: &Key, which: Which) -> Result<bool> {
        Ok(lock(&self.store).force_release(key, which, BootInstant::now()))
    }
}
