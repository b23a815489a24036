//! A directory of its own for each test, and the processes that run in it.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, Row, SqliteConnection};
use tempfile::TempDir;

/// Longer than anything here takes; only a test that fails waits for so long.
const LIMIT: Duration = Duration::from_secs(30);

/// The directory of one test.
pub(crate) struct World {
    dir: TempDir,
    jobs: AtomicUsize,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), jobs: AtomicUsize::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// What a command has written into `name`; nothing if it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// The number that a command has written into `name`.
    #[track_caller]
    pub(crate) fn number_in(&self, name: &str) -> u64 {
        self.read(name).trim().parse().unwrap()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str) {
        eventually(&format!("{name} is there"), || self.exists(name) || self.complaint(name));
    }

    /// Fails if a copy has said something instead of doing `what`.
    fn complaint(&self, what: &str) -> bool {
        for number in 0..self.jobs.load(Ordering::Relaxed) {
            let said = self.read(&format!("{number}.err"));
            assert!(!said.contains("lockkit: "), "instead of {what}: {said}");
        }
        false
    }

    /// The process whose number a command has written into `name`.
    #[track_caller]
    pub(crate) fn pid_in(&self, name: &str) -> Pid {
        eventually(&format!("{name} holds a number"), || {
            self.read(name).ends_with('\n') || self.complaint(name)
        });
        Pid::from_raw(self.read(name).trim().parse().unwrap()).unwrap()
    }

    /// `lockkit` with these arguments, in this directory, with nothing of the caller's choice.
    pub(crate) fn lockkit(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkit"));
        command.args(words).current_dir(self.dir.path()).env_remove("LOCKKIT_URL");
        command
    }

    /// `lockkit run FLAGS... key -- sh -c SCRIPT` on this world's file.
    pub(crate) fn run(&self, flags: &[&str], script: &str) -> Job {
        let url = self.url();
        let mut words = vec!["run", "--url", &url];
        words.extend_from_slice(flags);
        words.extend_from_slice(&["key", "--", "sh", "-c", script]);
        self.start(&mut self.lockkit(&words))
    }

    /// Starts a command with its output in files: a pipe might be kept open by others.
    pub(crate) fn start(&self, command: &mut Command) -> Job {
        let number = self.jobs.fetch_add(1, Ordering::Relaxed);
        let paths = [self.path(&format!("{number}.out")), self.path(&format!("{number}.err"))];
        let [out, err] = paths.clone().map(|path| File::create(path).unwrap());
        let process = command.stdout(out).stderr(err).spawn().unwrap();
        Job { process, paths }
    }

    /// Lets a copy come to where it waits for the key. That it has opened the file can be seen
    /// from outside; that it has asked for the key cannot, so it is given some time for that.
    pub(crate) fn let_wait(&self, job: &mut Job) {
        let store = self.path("locks.db");
        let descriptors = format!("/proc/{}/fd", job.pid().as_raw_nonzero());
        eventually("the store is open", || {
            let open = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
            !cfg!(target_os = "linux")
                || open
                    .into_iter()
                    .any(|fd| std::fs::read_link(fd.path()).is_ok_and(|f| f == store))
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(!job.has_ended(), "it does not wait: {}", job.stderr());
    }

    /// How many claims of the key are in the store.
    pub(crate) fn claims(&self) -> i64 {
        self.ask("SELECT count(*) FROM lockkit_claims WHERE key = CAST('key' AS BLOB)")
    }

    /// One number out of the store.
    pub(crate) fn ask(&self, sql: &'static str) -> i64 {
        on_a_runtime(async {
            let mut store = self.store().await;
            sqlx::query(sql).fetch_one(&mut store).await.unwrap().get(0)
        })
    }

    /// Keeps everybody else from writing into the store while `during` runs.
    pub(crate) fn with_store_blocked<T>(&self, during: impl FnOnce() -> T) -> T {
        on_a_runtime(async {
            let mut store = self.store().await;
            sqlx::query("BEGIN IMMEDIATE").execute(&mut store).await.unwrap();
            let done = during();
            sqlx::query("ROLLBACK").execute(&mut store).await.unwrap();
            done
        })
    }

    async fn store(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.path("locks.db"))
            .busy_timeout(Duration::from_secs(10));
        SqliteConnection::connect_with(&options).await.unwrap()
    }
}

fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A process that a test has started; killed with it.
pub(crate) struct Job {
    process: Child,
    paths: [PathBuf; 2],
}

/// How a process has ended.
#[derive(Debug)]
pub(crate) struct End {
    /// `None`: by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Job {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Where to type, if that is a pipe.
    pub(crate) fn stdin(&mut self) -> &mut ChildStdin {
        self.process.stdin.as_mut().unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(&self.paths[1]).unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> End {
        let status = self.status();
        let [stdout, stderr] =
            self.paths.clone().map(|path| std::fs::read_to_string(path).unwrap());
        End { code: status.code(), signal: status.signal(), stdout, stderr }
    }

    fn status(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < LIMIT, "lockkit does not end; it said: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until something is the case.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LIMIT, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process runs; one that has ended and was not reaped does not.
pub(crate) fn runs(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    match stat {
        Ok(stat) => !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'),
        Err(_) if std::fs::exists("/proc/self/stat").unwrap() => false,
        Err(_) => test_kill_process(pid).is_ok(),
    }
}

/// The process that lockkit has started beside the command.
pub(crate) fn warden_of(job: &Job) -> Pid {
    let parent = job.pid().as_raw_nonzero();
    let children = format!("/proc/{parent}/task/{parent}/children");
    let mut found = None;
    eventually("the warden is there", || {
        let pids = std::fs::read_to_string(&children).unwrap();
        found = pids
            .split_whitespace()
            .find(|pid| {
                let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
                words.is_ok_and(|words| words.contains(".warden"))
            })
            .and_then(|pid| Pid::from_raw(pid.parse().unwrap()));
        found.is_some()
    });
    found.unwrap()
}
