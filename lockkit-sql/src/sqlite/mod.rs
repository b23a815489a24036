//! Locks in a table of a SQLite file, for the processes of one machine.
//!
//! One row per claim. A row is alive while the machine's present run is the one it was written
//! in and its end has not come; the statement that grants checks the live rows of the key, takes
//! away the dead ones and writes the new one, in one step. The row's id is the fence.

mod boot;
mod contender;
mod errors;
mod file;
mod inspect;
mod intent;
mod lane;
mod open;
mod seen;
mod signal;
mod statements;
mod store;
mod table;
mod url;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{
    Capabilities, Claim, Consistency, Contender, Core, DistributedLock, Error, Fencing, Holder,
    Key, LeaseKind, Result, Settings, Which,
};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use self::contender::SqliteContender;
use self::store::{Place, Store};
pub use self::table::schema;
pub use self::url::SqliteOptions;

/// Locks in a table of a SQLite file: the embedded default, for processes of one machine.
///
/// Clones are the same client.
///
/// - The file must lie on a local file system. Machines must not share it, and file systems that
///   machines share are refused.
/// - Containers may share it: mount the directory, never the file alone. SQLite names the files
///   beside it after its path, so a file with a second path, by a mount of its own or by a hard
///   link, is refused. Symbolic links are fine.
/// - The application may keep tables of its own in the same file.
/// - Rows may be deleted by hand: the holder is told within TTL/3, and the key is free. Whoever
///   deletes the file deletes `-wal` and `-shm` beside it as well, as always with SQLite.
/// - Writes of all processes exclude each other for microseconds. A process that is stopped
///   (`SIGSTOP`, a debugger, a frozen container) in the very middle of an acquire, a renewal or a
///   release keeps the file locked until it goes on or is killed: meanwhile nobody gets, renews or
///   frees a key, and holders are told the loss at their deadlines.
/// - The file uses write-ahead logging (a file of a [pool](Self::from_pool) stays as it is).
#[derive(Clone)]
pub struct SqliteLock {
    core: Core,
    store: Arc<Store>,
}

impl SqliteLock {
    /// Locks in the file that `url` names: `sqlite:path`, `sqlite://path` or
    /// `sqlite:///absolute/path`, percent-encoded where it must be. Parameters:
    /// [`Settings::PARAMETERS`] and what [`SqliteOptions`] says. Does no I/O.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a URL that does not name a file, and for wrong parameters.
    pub fn from_url(url: &ConnectUrl) -> Result<Self> {
        let target = url::read(url)?;
        Self::new(Place::new(target.path, None, target.options)?, target.settings)
    }

    /// Locks in the file at `path`, with default options. Does no I/O.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a path that cannot be a file's.
    pub fn open(path: impl AsRef<Path>, settings: Settings) -> Result<Self> {
        Self::open_with(path, settings, SqliteOptions::default())
    }

    /// Locks in the file at `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a path that cannot be a file's, or a name that cannot be a
    /// table's.
    pub fn open_with(
        path: impl AsRef<Path>,
        settings: Settings,
        options: SqliteOptions,
    ) -> Result<Self> {
        Self::new(Place::new(url::absolute(path.as_ref())?, None, options)?, settings)
    }

    /// Locks in the file that `pool` is connected to. Does no I/O.
    ///
    /// Of the pool it takes the options (file, VFS, keys, pragmas, extensions), and opens
    /// connections of its own with them: a renewal that waited for the application to give a
    /// connection back would lose the lock, and SQLite's busy timeout, which may be long there,
    /// must be short here. Journal mode and durability stay as the application has them. The
    /// locking mode must be `NORMAL`; the first use refuses another.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the pool's database is in memory or only read, or if the name
    /// in `options` cannot be a table's.
    pub fn from_pool(
        pool: &SqlitePool,
        settings: Settings,
        options: SqliteOptions,
    ) -> Result<Self> {
        let connect = pool.connect_options();
        refuse_unusable(&connect)?;
        let path = url::absolute(connect.get_filename())?;
        Self::new(Place::new(path, Some((*connect).clone()), options)?, settings)
    }

    fn new(place: Place, settings: Settings) -> Result<Self> {
        let core = Core::new(capabilities(), settings);
        Ok(Self { core, store: Arc::new(Store::new(place)) })
    }
}

/// What SQLite promises.
fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::new("sqlite", CONSISTENCY, LeaseKind::Expires);
    capabilities.smallest_ttl = Duration::from_millis(100);
    capabilities.fencing = Fencing::Strict;
    capabilities.shared = true;
    capabilities.permits = true;
    capabilities.inspection = true;
    capabilities.forced_release = true;
    capabilities.push = signal::PUSH;
    capabilities
}

#[cfg(target_os = "linux")]
const CONSISTENCY: Consistency = Consistency::Cp(
    "never two holders as long as all processes run on one machine and the file lies on its own \
     disk; a deleted file or row is noticed by its holder within TTL/3",
);

#[cfg(not(target_os = "linux"))]
const CONSISTENCY: Consistency = Consistency::Cp(
    "never two holders as long as all processes run on one machine, the file lies on its own \
     disk, and the machine's clock does not step; a deleted file or row is noticed by its holder \
     within TTL/3",
);

/// The options hide what they say, but for their URL, which sqlx panics to make of some paths.
fn refuse_unusable(connect: &SqliteConnectOptions) -> Result<()> {
    let url = connect.clone().filename("x").to_url_lossy();
    let has = |word| url.query().unwrap_or_default().split('&').any(|pair| pair == word);
    if has("mode=memory") {
        return Err(Error::configuration(
            "the pool's database is in memory, where no other process finds it; for locks within \
             this process write `memory:`",
        ));
    }
    if has("mode=ro") || has("immutable=true") {
        return Err(Error::configuration(
            "the pool only reads its database, and locks have to be written",
        ));
    }
    Ok(())
}

impl fmt::Debug for SqliteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLock")
            .field("path", &self.store.place.path)
            .field("table", &self.store.place.table.as_str())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for SqliteLock {
    fn core(&self) -> &Core {
        &self.core
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        Box::new(SqliteContender::new(Arc::clone(&self.store), claim))
    }

    async fn ping(&self) -> Result<()> {
        let (store, budget) = (Arc::clone(&self.store), self.core.op_timeout());
        self.core.run(async move { store.probe(budget).await }).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let (store, key, budget) = (Arc::clone(&self.store), key.clone(), self.core.op_timeout());
        let seen = self.core.run(async move { store.look(&key, budget).await }).await?;
        Ok(seen.holder())
    }

    async fn force_release(&self, key: &Key, which: Which) -> Result<bool> {
        let (store, key, budget) = (Arc::clone(&self.store), key.clone(), self.core.op_timeout());
        self.core.run(async move { store.force(&key, which, budget).await }).await
    }

    async fn disconnect(&self) {
        let (store, budget) = (Arc::clone(&self.store), self.core.op_timeout());
        let close = async move {
            let _ = tokio::time::timeout(budget, store.close()).await;
            Ok(())
        };
        let _ = self.core.run(close).await;
    }
}
