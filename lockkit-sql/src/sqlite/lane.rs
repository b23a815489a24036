//! Connections that are used for one purpose each, one request at a time.
//!
//! A lane is not a pool: it has one connection, and whoever comes waits in line for it. Writers
//! of one SQLite file exclude each other anyway; within a process an async line is cheaper than
//! SQLite's way of waiting, which is to sleep and ask again. One connection also keeps order: a
//! release that follows a dropped request runs after it, whatever became of that request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockkit_core::{Error, Result};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteQueryResult, SqliteRow};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{Mutex, MutexGuard};

use super::errors::{self, Kind};
use super::file::FileId;
use super::open;
use super::store::Place;

/// A statement with its values.
pub(super) type Bound = Query<'static, Sqlite, SqliteArguments>;

/// One connection, opened when first needed, and opened anew when it has become unusable.
#[derive(Debug, Default)]
pub(super) struct Lane {
    slot: Mutex<Option<Open>>,
    /// Whether the client is closed. What still has to be done behind that opens the connection
    /// anew, and leaves none.
    closed: AtomicBool,
}

/// An open connection, and the file that it is open on.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) connection: SqliteConnection,
    pub(super) file: FileId,
}

impl Lane {
    /// Waits in line, and makes sure that there is a connection. Whether it is open on the file
    /// that the path names now, is for the caller to ask, best after the statement:
    /// [`Turn::is_current`].
    pub(super) async fn enter<'a>(
        &'a self,
        place: &'a Place,
        budget: Duration,
    ) -> Result<Turn<'a>> {
        let mut turn = self.line_up(place, budget).await?;
        if turn.slot.is_none() {
            turn.refresh().await?;
        }
        Ok(turn)
    }

    /// Waits in line, and opens nothing.
    pub(super) async fn line_up<'a>(
        &'a self,
        place: &'a Place,
        budget: Duration,
    ) -> Result<Turn<'a>> {
        let deadline = Instant::now() + budget;
        // A timer costs a wake-up of the thread that drives it: only those who wait set one.
        let slot = match self.slot.try_lock() {
            Ok(slot) => slot,
            Err(_) => tokio::time::timeout(budget, self.slot.lock()).await.map_err(|_| {
                Error::unavailable(format!(
                    "earlier requests to the database `{}` took all of {budget:?}",
                    place.path.display()
                ))
            })?,
        };
        Ok(Turn { slot, closed: &self.closed, place, deadline, reopened: false })
    }

    /// Closes the connection. Later requests open one each.
    pub(super) async fn close(&self) {
        // Under way, a turn ends as ever, and its connection is closed here.
        let mut slot = self.slot.lock().await;
        self.closed.store(true, Ordering::Release);
        if let Some(open) = slot.take() {
            let _ = open.connection.close().await;
        }
    }
}

/// A turn on a lane.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    slot: MutexGuard<'a, Option<Open>>,
    closed: &'a AtomicBool,
    place: &'a Place,
    deadline: Instant,
    reopened: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Acquire) {
            *self.slot = None;
        }
    }
}

impl Turn<'_> {
    /// Sends a statement that changes rows or not.
    ///
    /// # Cancel safety
    /// Once polled it may take effect; what is sent later on this lane comes after it.
    pub(super) async fn execute(&mut self, query: Bound) -> Result<SqliteQueryResult, sqlx::Error> {
        query.execute(self.connection()?).await
    }

    /// Sends a statement that gives rows.
    ///
    /// All of them: sqlx's `fetch_one` and `fetch_optional` take the first row for the answer,
    /// which comes before the commit, and do not tell when the commit fails.
    ///
    /// # Cancel safety
    /// As [`execute`](Self::execute).
    pub(super) async fn rows(&mut self, query: Bound) -> Result<Vec<SqliteRow>, sqlx::Error> {
        query.fetch_all(self.connection()?).await
    }

    /// There is one from the beginning of a turn on, until something fails for good.
    fn connection(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        match &mut *self.slot {
            Some(open) => Ok(&mut open.connection),
            None => Err(sqlx::Error::WorkerCrashed),
        }
    }

    /// The file that the connection is open on.
    pub(super) fn file(&self) -> Option<FileId> {
        self.slot.as_ref().map(|open| open.file)
    }

    /// Whether the connection is open on what the path names.
    pub(super) fn is_current(&self) -> bool {
        self.slot.is_some() && self.file() == FileId::of(&self.place.path)
    }

    /// Opens the connection unless it is open on what the path names.
    pub(super) async fn refresh(&mut self) -> Result<()> {
        if !self.is_current() {
            *self.slot = None;
            *self.slot = Some(open::open(self.place, self.deadline).await?);
        }
        Ok(())
    }

    /// After a statement failed: whether it should be sent again. Waits before that if the
    /// database is busy. `Err` if there is no point in it, or no time.
    pub(super) async fn again(&mut self, error: sqlx::Error) -> Result<()> {
        match errors::kind(&error) {
            Kind::Busy => {
                let pause = Duration::from_micros(fastrand::u64(500..3000));
                if Instant::now() + pause >= self.deadline {
                    return Err(errors::explain(&self.place.path, error));
                }
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Kind::Moved if !self.reopened => {
                self.reopened = true;
                *self.slot = None;
                self.refresh().await
            }
            _ => {
                *self.slot = None;
                Err(errors::explain(&self.place.path, error))
            }
        }
    }
}
