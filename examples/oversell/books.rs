//! The stock and its books: a SQLite file. It is what the lock protects, not the lock.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Row, SqlitePool};

use crate::Result;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS stock (round TEXT PRIMARY KEY, pieces INTEGER NOT NULL, fence INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS sales (round TEXT NOT NULL, instance INTEGER NOT NULL, fence INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS refusals (round TEXT NOT NULL, instance INTEGER NOT NULL, fence INTEGER NOT NULL)";

/// The books of one round.
#[derive(Debug, Clone)]
pub(crate) struct Books {
    pool: SqlitePool,
    round: String,
}

/// What the books say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) left: i64,
    pub(crate) sold: i64,
    pub(crate) refused: i64,
}

/// Who writes, and under which fence (0: none).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) instance: u32,
    pub(crate) fence: i64,
}

impl Books {
    pub(crate) async fn open(path: &Path, round: &str, connections: u32) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(15));
        let pool =
            SqlitePoolOptions::new().max_connections(connections).connect_with(options).await?;
        Ok(Self { pool, round: round.to_owned() })
    }

    /// Begins the round with `stock` pieces.
    pub(crate) async fn begin(&self, stock: u32) -> Result<()> {
        sqlx::raw_sql(TABLES).execute(&self.pool).await?;
        sqlx::query("INSERT INTO stock (round, pieces, fence) VALUES (?, ?, 0)")
            .bind(&self.round)
            .bind(stock)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Reads how many pieces are left.
    pub(crate) async fn left(&self) -> Result<i64> {
        let row = sqlx::query("SELECT pieces FROM stock WHERE round = ?");
        Ok(row.bind(&self.round).fetch_one(&self.pool).await?.try_get(0)?)
    }

    /// Writes a sale after which `left` pieces are left, whatever has happened since `left` was
    /// read: this is the mistake that a lock is for. With `fenced`, a write under an older fence
    /// than one that was seen before is refused, and that is written down too. Returns whether
    /// the sale was made.
    pub(crate) async fn sell(&self, left: i64, entry: Entry, fenced: bool) -> Result<bool> {
        let mut step = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let update = "UPDATE stock SET pieces = ?1, fence = max(fence, ?2) \
                      WHERE round = ?3 AND (NOT ?4 OR fence <= ?2)";
        let done = sqlx::query(update)
            .bind(left)
            .bind(entry.fence)
            .bind(&self.round)
            .bind(fenced)
            .execute(&mut *step)
            .await?;
        let made = done.rows_affected() == 1;
        let line = if made {
            "INSERT INTO sales (round, instance, fence) VALUES (?, ?, ?)"
        } else {
            "INSERT INTO refusals (round, instance, fence) VALUES (?, ?, ?)"
        };
        let line = sqlx::query(line).bind(&self.round).bind(entry.instance).bind(entry.fence);
        line.execute(&mut *step).await?;
        step.commit().await?;
        Ok(made)
    }

    /// Counts.
    pub(crate) async fn totals(&self) -> Result<Totals> {
        let count = "SELECT (SELECT pieces FROM stock WHERE round = ?1), \
                     (SELECT count(*) FROM sales WHERE round = ?1), \
                     (SELECT count(*) FROM refusals WHERE round = ?1)";
        let row = sqlx::query(count).bind(&self.round).fetch_one(&self.pool).await?;
        Ok(Totals { left: row.try_get(0)?, sold: row.try_get(1)?, refused: row.try_get(2)? })
    }

    /// How many sales others than `instance` have made.
    pub(crate) async fn sold_by_others(&self, instance: u32) -> Result<i64> {
        let count = "SELECT count(*) FROM sales WHERE round = ? AND instance <> ?";
        let row = sqlx::query(count).bind(&self.round).bind(instance).fetch_one(&self.pool).await?;
        Ok(row.try_get(0)?)
    }

    pub(crate) async fn close(self) {
        self.pool.close().await;
    }
}
