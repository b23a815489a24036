//! What the claims of one client share: where the table is, and the connections to it.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lockkit_core::{Key, Result};
use sqlx::sqlite::SqliteConnectOptions;

use super::boot::Boot;
use super::lane::{Lane, Turn};
use super::open;
use super::seen::Seen;
use super::signal::Signal;
use super::statements::Statements;
use super::table::TableName;
use super::url::SqliteOptions;

/// Where the table is.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) connect: SqliteConnectOptions,
    /// Whether to switch the file to write-ahead logging; a file of the application's stays as
    /// the application made it.
    pub(super) wal: bool,
    pub(super) table: TableName,
    pub(super) statements: Statements,
    pub(super) options: SqliteOptions,
    pub(super) boot: Boot,
}

impl Place {
    /// A place that [`open`](open::open) knows how to reach. `path` is absolute.
    pub(super) fn new(
        path: PathBuf,
        connect: Option<SqliteConnectOptions>,
        options: SqliteOptions,
    ) -> Result<Self> {
        let table = TableName::new(&options.table)?;
        let wal = connect.is_none();
        let connect = connect.unwrap_or_else(|| open::own_options(&path));
        Ok(Self {
            connect: open::lane_options(connect.filename(&path), options.migrate),
            path,
            wal,
            statements: Statements::new(&table),
            table,
            options,
            boot: Boot::read()?,
        })
    }
}

/// The options of the connections stay out: an encryption key is a pragma among them.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("path", &self.path)
            .field("table", &self.table.as_str())
            .finish_non_exhaustive()
    }
}

/// How often one client looks for dead claims of keys that nobody asks for any more.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// What the claims of one client share.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) place: Place,
    /// Attempts and releases. All that inserts or deletes a claim goes through it, in order.
    pub(super) writer: Lane,
    /// What moves the end of a claim. A renewal must not wait behind attempts.
    pub(super) renewer: Lane,
    /// What only reads.
    pub(super) reader: Lane,
    pub(super) signal: Signal,
    swept: AtomicI64,
}

impl Store {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            writer: Lane::default(),
            renewer: Lane::default(),
            reader: Lane::default(),
            signal: Signal::default(),
            swept: AtomicI64::new(0),
        }
    }

    /// Who is at `key` now.
    pub(super) async fn look(&self, key: &Key, budget: Duration) -> Result<Seen> {
        let mut turn = self.reader.enter(&self.place, budget).await?;
        loop {
            let now = self.place.boot.moment();
            let query = sqlx::query(self.place.statements.look.sql())
                .bind(key.as_str().as_bytes())
                .bind(&self.place.boot.id[..])
                .bind(now.stamp);
            match turn.rows(query).await.and_then(|rows| Seen::read(&rows, now.stamp)) {
                Ok(_) if !turn.is_current() => turn.refresh().await?,
                Ok(seen) => return Ok(seen),
                Err(error) => turn.again(error).await?,
            }
        }
    }

    /// Now and then takes away dead claims of all keys: those of processes that were killed, on
    /// keys that nobody has asked for since. Nobody waits for its success.
    pub(super) async fn sweep(&self, turn: &mut Turn<'_>) {
        let now = self.place.boot.moment().stamp;
        let last = self.swept.load(Ordering::Relaxed);
        let every = i64::try_from(SWEEP_EVERY.as_nanos()).unwrap_or(i64::MAX);
        if last != 0 && now.saturating_sub(last) < every {
            return;
        }
        self.swept.store(now, Ordering::Relaxed);
        let query =
            sqlx::query(self.place.statements.sweep.sql()).bind(&self.place.boot.id[..]).bind(now);
        let _ = turn.execute(query).await;
    }

    pub(super) async fn close(&self) {
        self.writer.close().await;
        self.renewer.close().await;
        self.reader.close().await;
    }
}
