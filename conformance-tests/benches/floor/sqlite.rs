//! The floor of `sqlite:`: one upsert and one conditional delete, in the same file, with the same
//! pragmas and so with the same durability; the fence (an autoincremented id) is written too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use conformance_tests::async_trait;
use conformance_tests::measure::{Bare, Floor};
use lockkit_core::{DistributedLock, LockExt, Settings, Token};
use lockkit_sql::SqliteLock;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, Executor};
use tokio::sync::Mutex;

const TABLE: &str = "CREATE TABLE floor (
  fence INTEGER PRIMARY KEY AUTOINCREMENT,
  key BLOB NOT NULL UNIQUE,
  token BLOB NOT NULL,
  expires INTEGER NOT NULL
)";

const UPSERT: &str = "INSERT INTO floor (key, token, expires) VALUES (?1, ?2, ?4)
  ON CONFLICT (key) DO UPDATE SET token = ?2, expires = ?4 WHERE expires <= ?3
  RETURNING fence";

const DELETE: &str = "DELETE FROM floor WHERE key = ?1 AND token = ?2";

const TTL_NANOS: i64 = 30_000_000_000;

/// A fresh file.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new(dir: Option<&str>) -> Self {
        let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("lockkit-floor-").tempdir_in(dir);
        Self(dir.expect("a directory"))
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }
}

struct SqliteFloor(Arc<Mutex<SqliteConnection>>);

/// All tasks share a connection: SQLite has one writer at a time, and so has lockkit's client.
struct SqliteBare {
    connection: Arc<Mutex<SqliteConnection>>,
    token: Token,
}

pub(crate) async fn both(place: &Place) -> (Arc<dyn Floor>, Arc<dyn DistributedLock>) {
    let lock = SqliteLock::open(place.file(), Settings::default()).expect("a path");
    // The lock makes the file: page size and journal are its choice.
    let guard = lock.acquire("measure:first").await.expect("an acquire");
    guard.release().await.expect("a release");
    let connection = connect(&place.file()).await;
    (Arc::new(SqliteFloor(Arc::new(Mutex::new(connection)))), Arc::new(lock))
}

async fn connect(file: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .synchronous(SqliteSynchronous::Normal)
        .pragma("wal_autocheckpoint", "4000")
        .disable_statement_logging();
    let mut connection = options.connect().await.expect("a connection");
    connection.execute(TABLE).await.expect("a table");
    connection
}

#[async_trait]
impl Floor for SqliteFloor {
    async fn open(&self) -> Box<dyn Bare> {
        Box::new(SqliteBare { connection: Arc::clone(&self.0), token: Token::new() })
    }
}

#[async_trait]
impl Bare for SqliteBare {
    async fn acquire(&mut self, key: &str) -> bool {
        self.token = Token::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        let now = i64::try_from(now.as_nanos()).expect("a clock before 2262");
        let upsert = sqlx::query(UPSERT)
            .bind(key.as_bytes())
            .bind(self.token.as_bytes().as_slice())
            .bind(now)
            .bind(now + TTL_NANOS);
        // All rows: the first one comes before the commit.
        let rows = upsert.fetch_all(&mut *self.connection.lock().await).await;
        !rows.expect("an upsert").is_empty()
    }

    async fn release(&mut self, key: &str) {
        let delete =
            sqlx::query(DELETE).bind(key.as_bytes()).bind(self.token.as_bytes().as_slice());
        let done = delete.execute(&mut *self.connection.lock().await).await.expect("a delete");
        assert_eq!(done.rows_affected(), 1, "the floor lost a claim");
    }
}
