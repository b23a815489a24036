//! Opening a connection: the file, its journal, the table, the run of the machine.

use std::time::{Duration, Instant};

use lockkit_core::{Error, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Row, SqliteConnection};

use super::errors::{self, Kind};
use super::file::{FileId, check_access, check_file_system, check_single_path};
use super::lane::Open;
use super::store::Place;

/// How long SQLite itself waits for another process's lock, on the connection's own thread,
/// before the lane hears of it, which goes on by itself. Short: a request whose time is up must
/// not sit in the way, and SQLite sleeps for longer from try to try.
const BUSY_TIMEOUT: Duration = Duration::from_millis(10);

/// How our own connections are opened. The journal's mode is set later: switching it fails when
/// processes race, and has to be tried again.
///
/// `synchronous=NORMAL` writes a commit to the operating system but does not wait for the disk.
/// A crash of the process loses nothing. After a power cut the last claims may be missing, but
/// they are dead then anyway, since the machine's run ended; that no fence comes twice is up to
/// [`ensure_run`], whose commit does wait.
///
/// A commit writes whole pages, and a claim is a hundred bytes: a file that does not exist yet
/// gets small pages. The log is moved into the file less often, which is when the disk is waited
/// for.
pub(super) fn own_options(path: &std::path::Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .page_size(1024)
        .synchronous(SqliteSynchronous::Normal)
        .pragma("wal_autocheckpoint", "4000")
}

/// What every connection of a lane needs, whoever chose the rest.
pub(super) fn lane_options(options: SqliteConnectOptions, migrate: bool) -> SqliteConnectOptions {
    options
        .create_if_missing(migrate)
        .busy_timeout(BUSY_TIMEOUT)
        .thread_name(|id| format!("lockkit-sqlite-{id}"))
        .disable_statement_logging()
}

/// Opens a connection, ready for the statements of the lanes.
pub(super) async fn open(place: &Place, deadline: Instant) -> Result<Open> {
    tokio::time::timeout_at(deadline.into(), open_soon(place, deadline)).await.unwrap_or_else(
        |_| {
            Err(Error::unavailable(format!(
                "the database `{}` could not be opened in time",
                place.path.display()
            )))
        },
    )
}

async fn open_soon(place: &Place, deadline: Instant) -> Result<Open> {
    if !place.options.any_filesystem {
        check_file_system(&place.path).await?;
    }
    check_single_path(&place.path).await?;
    check_access(&place.path)?;
    loop {
        let error = match try_open(place).await {
            Ok(Some(open)) => return Ok(open),
            // The file was just created, or another one came in its place: once more, to be sure
            // which one is open.
            Ok(None) => continue,
            Err(Failed::Sql(error)) => error,
            Err(Failed::Told(error)) => return Err(error),
        };
        let pause = Duration::from_millis(fastrand::u64(2..20));
        let again = matches!(errors::kind(&error), Kind::Busy | Kind::Moved);
        if !again || Instant::now() + pause >= deadline {
            return Err(explain_missing(place, error));
        }
        tokio::time::sleep(pause).await;
    }
}

enum Failed {
    Sql(sqlx::Error),
    Told(Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

async fn try_open(place: &Place) -> Result<Option<Open>, Failed> {
    let before = FileId::of(&place.path);
    let mut connection = place.connect.connect().await?;
    if place.wal {
        switch_to_wal(&mut connection).await?;
    } else {
        refuse_exclusive(place, &mut connection).await?;
    }
    ensure_schema(place, &mut connection).await?;
    ensure_run(place, &mut connection).await?;
    let file = before.filter(|_| before == FileId::of(&place.path));
    Ok(file.map(|file| Open { connection, file }))
}

async fn switch_to_wal(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mode: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
    if mode != "wal" {
        connection.execute("PRAGMA journal_mode = WAL").await?;
    }
    Ok(())
}

/// Of the application's options this one cannot be kept, and they do not tell it beforehand.
async fn refuse_exclusive(place: &Place, connection: &mut SqliteConnection) -> Result<(), Failed> {
    let mode: String =
        sqlx::query_scalar("PRAGMA locking_mode").fetch_one(&mut *connection).await?;
    if mode != "exclusive" {
        return Ok(());
    }
    Err(Failed::Told(Error::configuration(format!(
        "the pool opens `{}` with `locking_mode = EXCLUSIVE`: its first connection would keep all \
         others out, which renew and release; leave the locking mode at `NORMAL`",
        place.path.display()
    ))))
}

/// Creates table, index and trigger where they are missing, and refuses others of these names.
async fn ensure_schema(place: &Place, connection: &mut SqliteConnection) -> Result<(), Failed> {
    if schema_is_there(place, connection).await? {
        return Ok(());
    }
    if !place.options.migrate {
        return Err(Failed::Told(Error::configuration(format!(
            "`{}` has no complete table `{}`, and `migrate=false` forbids to create it; create it \
             with the SQL that `schema()` prints",
            place.path.display(),
            place.table.as_str()
        ))));
    }
    let mut sql = String::from("BEGIN IMMEDIATE;");
    for part in place.table.definition() {
        // The definitions begin with `CREATE TABLE`, `CREATE INDEX`, `CREATE TRIGGER`.
        let (verb, rest) = part.split_at(part.find('"').unwrap_or(0));
        sql.push_str(&format!("{verb}IF NOT EXISTS {rest};"));
    }
    sql.push_str("COMMIT");
    // When one of these fails or is cut short, the caller drops the connection, which rolls back.
    connection.execute(AssertSqlSafe(sql)).await?;
    Ok(())
}

/// Whether all parts are there. A part that is not ours is an error.
async fn schema_is_there(place: &Place, connection: &mut SqliteConnection) -> Result<bool, Failed> {
    let names = place.table.parts();
    let rows = sqlx::query("SELECT name, sql FROM sqlite_schema WHERE name IN (?1, ?2, ?3)")
        .bind(&names[0])
        .bind(&names[1])
        .bind(&names[2])
        .fetch_all(connection)
        .await?;
    let definition = place.table.definition();
    for row in &rows {
        let (name, sql): (String, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
        let ours = names.iter().position(|n| *n == name).map(|at| bare(&definition[at]));
        if ours != sql.map(|sql| bare(&sql)) {
            return Err(Failed::Told(Error::configuration(format!(
                "`{}` has a `{name}` that is not lockkit's, or of another version; choose another \
                 name with `table=`, or compare it with what `schema()` prints",
                place.path.display()
            ))));
        }
    }
    Ok(rows.len() == names.len())
}

/// The definition without comments, white space and quotes: tools for migrations touch them.
fn bare(sql: &str) -> String {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let text = code.flat_map(str::chars).filter(|c| !c.is_whitespace() && *c != '"');
    text.collect::<String>().to_ascii_lowercase()
}

/// Makes sure that the fences of this run of the machine are above those of all earlier ones.
///
/// A power cut takes the last commits, and with them the last numbers. So the first use in a new
/// run moves the sequence ahead by 2^26, or to the wall clock in microseconds if that is more, so
/// that a file that was deleted and created anew goes on above the old one. 2^26 claims would be
/// 300 GB of log that never reached the disk, though the kernel writes within half a minute. The
/// commit of the step waits for the disk, and in WAL mode no other process sees it before.
async fn ensure_run(place: &Place, connection: &mut SqliteConnection) -> Result<(), Failed> {
    let known = sqlx::query(place.statements.known_run.sql())
        .bind(&place.boot.id[..])
        .fetch_all(&mut *connection)
        .await?;
    if !known.is_empty() {
        return Ok(());
    }
    let usual: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await?;
    connection.execute("PRAGMA synchronous = FULL").await?;
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    sqlx::query(place.statements.begin_run.sql())
        .bind(&place.boot.id[..])
        .bind(place.boot.moment().stamp)
        .bind(i64::try_from(wall.as_micros()).unwrap_or(0))
        .execute(&mut *connection)
        .await?;
    connection.execute(AssertSqlSafe(format!("PRAGMA synchronous = {usual}"))).await?;
    Ok(())
}

/// With `migrate=false` a file that is not there has a reason of its own.
fn explain_missing(place: &Place, error: sqlx::Error) -> Error {
    let missing = !place.options.migrate
        && !place.path.exists()
        && place.path.parent().is_some_and(std::path::Path::is_dir);
    if !missing {
        return errors::explain(&place.path, error);
    }
    Error::configuration(format!(
        "`{}` does not exist, and `migrate=false` forbids to create it",
        place.path.display()
    ))
    .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn definitions_are_compared_without_their_looks() {
        let ours = "CREATE TABLE \"t\" (\n  id INTEGER, -- the fence\n  key BLOB\n)";
        assert_eq!(bare(ours), bare("create table t(id integer,key blob)"));
        assert_ne!(bare(ours), bare("create table t(id integer,key text)"));
    }
}
