//! Files that are not as they should be: each tells what is wrong, and none is "busy".

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::*;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Error, LockExt, Mode, Renewal, Settings};
use lockkit_sql::{SqliteLock, SqliteOptions, schema};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

fn from_url(url: &str) -> SqliteLock {
    SqliteLock::from_url(&ConnectUrl::parse(url).unwrap()).unwrap()
}

/// What an acquire that would wait says, which must be at once; a ping says the same.
async fn refusal(lock: &SqliteLock) -> Error {
    let start = Instant::now();
    let error = lock.acquire("k").await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let ping = lock.ping().await.unwrap_err();
    assert_eq!(ping.to_string(), error.to_string());
    error
}

fn is_configuration(error: &Error, hint: &str) {
    assert!(matches!(error, Error::Configuration(_)), "{error:?}");
    assert!(error.to_string().contains(hint), "{error}");
}

#[tokio::test]
async fn urls_name_the_right_file() {
    let file = File::new();
    let dir = file.dir.path().display().to_string();
    for (rest, name) in [("a.db", "a.db"), ("b c.db", "b c.db"), ("d%20%C3%A9%3F.db", "d é?.db")] {
        for slashes in ["", "//"] {
            let lock = from_url(&format!("sqlite:{slashes}{dir}/{rest}"));
            assert!(!file.dir.path().join(name).exists(), "no I/O before it is needed");
            lock.acquire("k").await.unwrap().release().await.unwrap();
            assert!(file.dir.path().join(name).exists());
            lock.close(BUDGET).await;
            std::fs::remove_file(file.dir.path().join(name)).unwrap();
        }
    }
    let left: Vec<_> = std::fs::read_dir(file.dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_text_file_is_left_as_it_is() {
    let file = File::new();
    let text = "not a database, and longer than the header of one ".repeat(50);
    std::fs::write(&file.path, &text).unwrap();
    is_configuration(&refusal(&file.lock()).await, "is not a SQLite database");
    assert_eq!(std::fs::read_to_string(&file.path).unwrap(), text);
}

#[tokio::test]
async fn a_damaged_database_is_told() {
    let file = File::new();
    let lock = file.lock();
    lock.ping().await.unwrap();
    lock.close(BUDGET).await;
    let mut bytes = std::fs::read(&file.path).unwrap();
    bytes[1024..].fill(0x5a);
    std::fs::write(&file.path, bytes).unwrap();
    is_configuration(&refusal(&file.lock()).await, "is damaged");
}

#[tokio::test]
async fn somebody_elses_table_is_left_alone() {
    let file = File::new();
    file_with(&file, "CREATE TABLE lockkit_claims (id INTEGER, owner TEXT)").await;
    is_configuration(&refusal(&file.lock()).await, "`table=`");
    let ours = from_url(&format!("sqlite:{}?table=our_locks", file.path.display()));
    ours.acquire("k").await.unwrap().release().await.unwrap();

    // A table of ours without its trigger is not ours.
    let file = File::new();
    file_with(&file, &schema("lockkit_claims").unwrap()).await;
    let sql = "DROP TRIGGER lockkit_claims_reclaim; \
         CREATE TRIGGER lockkit_claims_reclaim AFTER INSERT ON lockkit_claims BEGIN SELECT 1; END";
    file.raw().await.execute(sql).await.unwrap();
    is_configuration(&refusal(&file.lock()).await, "`lockkit_claims_reclaim`");
}

async fn file_with(file: &File, sql: &str) {
    let options = SqliteConnectOptions::new().filename(&file.path).create_if_missing(true);
    let mut raw = options.connect().await.unwrap();
    raw.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

#[tokio::test]
async fn the_application_keeps_tables_in_the_same_file() {
    let file = File::new();
    file_with(&file, "PRAGMA user_version = 7; PRAGMA application_id = 9; CREATE TABLE stock (n)")
        .await;
    file.lock().acquire("k").await.unwrap().release().await.unwrap();
    let mut raw = file.raw().await;
    for (pragma, value) in [("PRAGMA user_version", 7_i64), ("PRAGMA application_id", 9)] {
        assert_eq!(sqlx::query_scalar::<_, i64>(pragma).fetch_one(&mut raw).await.unwrap(), value);
    }
}

#[tokio::test]
async fn paths_that_cannot_be() {
    let file = File::new();
    let lock = SqliteLock::open(file.dir.path().join("no/such/x.db"), Settings::default()).unwrap();
    is_configuration(&refusal(&lock).await, "does not exist");
    assert!(!file.dir.path().join("no").exists());
    let lock = SqliteLock::open(file.dir.path(), Settings::default()).unwrap();
    is_configuration(&refusal(&lock).await, "is a directory");
    std::fs::write(file.dir.path().join("plain"), "x").unwrap();
    let lock = SqliteLock::open(file.dir.path().join("plain/x.db"), Settings::default()).unwrap();
    is_configuration(&refusal(&lock).await, "is not a directory");
}

/// A mount that ends with the test.
#[cfg(target_os = "linux")]
struct Mounted<'a>(&'a Path);

#[cfg(target_os = "linux")]
impl<'a> Mounted<'a> {
    fn bind(from: &Path, to: &'a Path) -> Option<Self> {
        let done = Command::new("mount").arg("--bind").args([from, to]).status();
        done.is_ok_and(|status| status.success()).then_some(Self(to))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// Each path would have a log of its own: two holders of one key.
#[cfg(unix)]
#[tokio::test]
async fn a_second_path_to_the_file_is_refused() {
    let file = File::new();
    let lock = file.lock();
    lock.ping().await.unwrap();
    let other = file.dir.path().join("other.db");
    std::fs::hard_link(&file.path, &other).unwrap();
    for path in [&file.path, &other] {
        let lock = SqliteLock::open(path, Settings::default()).unwrap();
        is_configuration(&refusal(&lock).await, "more than one hard link");
        let pool =
            SqlitePoolOptions::new().connect_lazy_with(SqliteConnectOptions::new().filename(path));
        let options = SqliteOptions::default();
        let lock = SqliteLock::from_pool(&pool, Settings::default(), options).unwrap();
        is_configuration(&refusal(&lock).await, "more than one hard link");
    }
    std::fs::remove_file(&other).unwrap();
    file.lock().acquire("k").await.unwrap().release().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_mount_of_the_file_alone_is_refused() {
    if !rustix::process::getuid().is_root() {
        println!("NOT TESTED: only root can mount; hard links are tested all the same");
        return;
    }
    let (file, container) = (File::new(), tempfile::tempdir().unwrap());
    file.lock().ping().await.unwrap();

    let path = container.path().join("a b.db");
    std::fs::write(&path, "").unwrap();
    let Some(mounted) = Mounted::bind(&file.path, &path) else {
        println!("NOT TESTED: nothing can be mounted here; hard links are tested all the same");
        return;
    };
    let link = container.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for path in [&path, &link] {
        let lock = SqliteLock::open(path, Settings::default()).unwrap();
        is_configuration(&refusal(&lock).await, "mount the directory");
    }
    drop(mounted);

    // The directory, as it should be: one lock.
    let dir = container.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let _mounted = Mounted::bind(file.dir.path(), &dir).unwrap();
    let inside = SqliteLock::open(dir.join("locks.db"), Settings::default()).unwrap();
    let guard = file.lock().acquire("k").await.unwrap();
    assert!(inside.try_acquire("k").await.unwrap().is_none());
    guard.release().await.unwrap();
    inside.acquire("k").await.unwrap().release().await.unwrap();
    assert!(inside.close(BUDGET).await);
}

/// A link that is turned to another file leads newcomers there: the holder is told, and comes
/// back to the file that the others use.
#[cfg(unix)]
#[tokio::test]
async fn a_link_that_is_turned_to_another_file_is_noticed() {
    let file = File::new();
    let link = file.dir.path().join("link.db");
    let turn = |to: &Path| {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(to, &link).unwrap();
    };
    turn(&file.path);
    let lock = SqliteLock::open(&link, Settings::default()).unwrap();
    let mut holder = contend(&lock, "k", Mode::Exclusive, 30_000);
    try_once(&mut holder).await.unwrap();
    assert!(matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Extended(_)));

    let new = file.dir.path().join("new.db");
    turn(&new);
    assert!(!matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Extended(_)));
    try_once(&mut contend(&lock, "k", Mode::Exclusive, 30_000)).await.unwrap();
    let direct = SqliteLock::open(&new, Settings::default()).unwrap();
    assert!(try_once(&mut contend(&direct, "k", Mode::Exclusive, 30_000)).await.is_none());
}

#[tokio::test]
async fn without_migrate_nothing_is_created() {
    let file = File::new();
    let lock = || from_url(&format!("sqlite:{}?migrate=false", file.path.display()));
    is_configuration(&refusal(&lock()).await, "does not exist, and `migrate=false`");
    assert!(!file.path.exists());
    file_with(&file, "CREATE TABLE stock (n)").await;
    is_configuration(&refusal(&lock()).await, "`schema()`");
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&mut file.raw().await)
        .await
        .unwrap();
    assert_eq!(tables, 1);
    // As a tool for migrations may have reformatted it.
    let sql = schema("lockkit_claims").unwrap().replace('"', "").replace("\n  ", "\n\t");
    file.raw().await.execute(AssertSqlSafe(sql)).await.unwrap();
    lock().acquire("k").await.unwrap().release().await.unwrap();
}

/// Runs [`unprivileged`] as somebody whom permissions concern.
fn run_unprivileged(path: &Path) {
    let test = std::env::current_exe().unwrap();
    let mut command = if rustix::process::getuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(test);
        command
    } else {
        Command::new(test)
    };
    let output = command
        .args(["unprivileged", "--exact", "--nocapture"])
        .env("LOCKKIT_TEST_PATH", path)
        .output()
        .expect("`setpriv` is needed to test permissions as root");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn unprivileged() {
    let Some(path) = std::env::var_os("LOCKKIT_TEST_PATH") else { return };
    let lock = SqliteLock::open(path, Settings::default()).unwrap();
    let error = refusal(&lock).await;
    assert!(matches!(error, Error::Permission(_)), "{error:?}");
}

#[tokio::test]
async fn permissions_are_told_from_everything_else() {
    use std::os::unix::fs::PermissionsExt;

    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // A file that can only be read, with a table and without.
    let file = File::new();
    file_with(&file, "CREATE TABLE stock (n)").await;
    mode(file.dir.path(), 0o777);
    mode(&file.path, 0o444);
    run_unprivileged(&file.path);
    mode(&file.path, 0o644);
    let lock = file.lock();
    lock.ping().await.unwrap();
    lock.close(BUDGET).await;
    mode(&file.path, 0o444);
    run_unprivileged(&file.path);
    // A directory that lets nobody create files, and one that lets nobody in.
    let empty = File::new();
    mode(empty.dir.path(), 0o555);
    run_unprivileged(&empty.path);
    mode(empty.dir.path(), 0o000);
    run_unprivileged(&empty.path);
    mode(empty.dir.path(), 0o700);
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_not_for_ever() {
    let file = File::new();
    let pool = |pages: &'static str| {
        let options = SqliteConnectOptions::new()
            .filename(&file.path)
            .create_if_missing(true)
            .page_size(512)
            .pragma("max_page_count", pages);
        SqliteLock::from_pool(
            &SqlitePoolOptions::new().connect_lazy_with(options),
            Settings::default(),
            SqliteOptions::default(),
        )
        .unwrap()
    };
    let lock = pool("30");
    let mut held = Vec::new();
    let error = loop {
        let mut contender =
            contend(&lock, &format!("{:0>400}", held.len()), Mode::Exclusive, 30_000);
        match contender.attempt(lockkit_core::Stage::Try, BUDGET).await {
            Ok(_) => held.push(contender),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    assert!(held.len() > 3);
    assert!(matches!(held[0].renew(BUDGET).await.unwrap(), Renewal::Extended(_)));
    for contender in &mut held {
        contender.release(BUDGET).await.unwrap();
    }
    let mut again = contend(&lock, &format!("{:0>400}", 0), Mode::Exclusive, 30_000);
    assert!(try_once(&mut again).await.is_some());
}

#[tokio::test]
async fn pools_are_understood() {
    let refused = |options: SqliteConnectOptions| {
        let pool = SqlitePoolOptions::new().connect_lazy_with(options);
        SqliteLock::from_pool(&pool, Settings::default(), SqliteOptions::default()).unwrap_err()
    };
    is_configuration(&refused("sqlite::memory:".parse().unwrap()), "`memory:`");
    is_configuration(&refused(SqliteConnectOptions::new()), "`memory:`");
    let file = File::new();
    let read = SqliteConnectOptions::new().filename(&file.path);
    is_configuration(&refused(read.clone().read_only(true)), "only reads");
    is_configuration(&refused(read.immutable(true)), "only reads");

    for journal in [SqliteJournalMode::Wal, SqliteJournalMode::Delete] {
        let file = File::new();
        let options = SqliteConnectOptions::new()
            .filename(&file.path)
            .create_if_missing(true)
            .journal_mode(journal)
            .locking_mode(SqliteLockingMode::Exclusive);
        let pool = SqlitePoolOptions::new().connect_lazy_with(options);
        let lock =
            SqliteLock::from_pool(&pool, Settings::default(), SqliteOptions::default()).unwrap();
        is_configuration(&refusal(&lock).await, "locking_mode");
    }

    // A rollback journal stays one, and excludes as well; the pool itself is not needed.
    let file = File::new();
    let options = SqliteConnectOptions::new().filename(&file.path).create_if_missing(true);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let taken = pool.acquire().await.unwrap();
    let lock = SqliteLock::from_pool(&pool, Settings::default(), SqliteOptions::default()).unwrap();
    let mut holder = contend(&lock, "k", Mode::Exclusive, 30_000);
    try_once(&mut holder).await.unwrap();
    let journal: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut file.raw().await).await.unwrap();
    assert_eq!(journal, "delete");
    let other =
        SqliteLock::from_pool(&pool, Settings::default(), SqliteOptions::default()).unwrap();
    assert!(try_once(&mut contend(&other, "k", Mode::Exclusive, 30_000)).await.is_none());
    assert!(matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Extended(_)));
    drop(taken);
}

/// A key is a pragma among others, and what anybody prints must not hold it.
#[tokio::test]
async fn nothing_tells_the_key_of_a_pool() {
    let file = File::new();
    let options = SqliteConnectOptions::new()
        .filename(&file.path)
        .create_if_missing(true)
        .pragma("key", "'hunter2'");
    let pool = SqlitePoolOptions::new().connect_lazy_with(options);
    let lock = SqliteLock::from_pool(&pool, Settings::default(), SqliteOptions::default()).unwrap();
    let mut contender = contend(&lock, "k", Mode::Exclusive, 30_000);
    try_once(&mut contender).await.unwrap();
    let guard = lock.acquire("g").await.unwrap();
    file.delete();
    std::fs::write(&file.path, "no database any more ".repeat(500)).unwrap();
    let error = refusal(&lock).await;
    let printed = format!("{lock:?} {contender:?} {guard:?} {error} {error:?}");
    assert!(printed.contains("locks.db"), "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
}
