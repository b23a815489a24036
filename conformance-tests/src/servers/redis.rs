//! One Redis server.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::certificates::Certificates;
use super::{Fault, Launch, Process, Program, Reply, Resp, Result, on_free_port, ports};

const SERVER: Program = Program { name: "redis-server", package: "redis-server" };

/// The user by whom the test bed itself looks at a server that has users.
const BED: &str = "lockkit-bed";

/// How a Redis server is to be. Without further words: in memory only, for everybody, no TLS.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RedisBuilder {
    lines: Vec<String>,
    args: Vec<String>,
    guarded: bool,
    tls: bool,
    pub(super) sentinel: bool,
}

impl RedisBuilder {
    /// Adds a line to its configuration file: `name value`.
    pub fn set(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Adds an argument to its command line.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Writes each change to a file before it is answered, so that a killed server knows it again
    /// after its restart. (`set("appendfsync", "everysec")` behind this is as fast as memory, and
    /// survives a kill just so: only a machine that falls loses a second.)
    pub fn append_only(self) -> Self {
        self.set("appendonly", "yes").set("appendfsync", "always")
    }

    /// Accepts TLS connections only, and only with the certificate of [`Redis::certificates`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets the password of the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.guarded = true;
        self.set("requirepass", password)
    }

    /// Adds or changes a user: `name on >password ~keys* &channels* +@all`, as `ACL SETUSER` takes
    /// it. `default off` leaves only the users that are named.
    pub fn user(mut self, rule: &str) -> Self {
        self.guarded = true;
        self.set("user", rule)
    }

    /// Copies what `primary` has, which may have a password but no TLS.
    pub fn replica_of(mut self, primary: &Redis) -> Self {
        if primary.guarded {
            self.guarded = true;
            self = self.set("masteruser", BED).set("masterauth", BED);
        }
        self.set("replicaof", format!("127.0.0.1 {}", primary.port))
    }

    /// Sets how many bytes it may use, and what it does about more: a `maxmemory-policy`, as
    /// `noeviction` or `allkeys-lru`.
    pub fn max_memory(self, bytes: u64, policy: &str) -> Self {
        self.set("maxmemory", bytes).set("maxmemory-policy", policy)
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    /// If `redis-server` is missing or does not start (with what it wrote); with TLS also if
    /// `openssl` is missing or fails.
    pub fn start(&self) -> Result<Redis> {
        on_free_port(|port| self.start_at(port))
    }

    fn start_at(&self, port: u16) -> Result<Redis> {
        let launch = Launch::new(SERVER)?;
        let data = launch.data();
        let socket = launch.lasting().join("redis.sock");
        let certificates =
            self.tls.then(|| Certificates::make(launch.lasting()).map(Arc::new)).transpose()?;
        let text = self.configuration(port, &data, &socket, certificates.as_deref());
        let mode = self.sentinel.then_some("--sentinel");
        let launch = launch
            .file("redis.conf", text)
            .arg(data.join("redis.conf"))
            .args(mode)
            .args(&self.args);
        let admin = Admin { socket, guarded: self.guarded };
        let ready = admin.clone();
        let process = Process::start(launch, move || {
            let answer = ready.connect()?.call(&["PING"])?.checked()?;
            (answer.text() == "PONG").then_some(()).ok_or_else(|| Fault::new(answer.text()))
        })?;
        Ok(Redis { process, port, admin, guarded: self.guarded, certificates })
    }

    fn configuration(
        &self,
        port: u16,
        data: &Path,
        socket: &Path,
        certificates: Option<&Certificates>,
    ) -> String {
        // Replicas are served at once, not after waiting for more of them.
        let mut text = String::from("bind 127.0.0.1\nsave \"\"\nrepl-diskless-sync-delay 0\n");
        let _ = writeln!(text, "dir {}\nunixsocket {}", data.display(), socket.display());
        if let Some(made) = certificates {
            let (certificate, key) = made.server();
            let (authority, certificate, key) =
                (made.authority().display().to_string(), certificate.display(), key.display());
            let _ = writeln!(
                text,
                "port 0\ntls-port {port}\ntls-auth-clients yes\ntls-ca-cert-file {authority}\n\
                 tls-cert-file {certificate}\ntls-key-file {key}"
            );
        } else {
            let _ = writeln!(text, "port {port}");
        }
        if self.guarded {
            let _ = writeln!(text, "user {BED} on >{BED} ~* &* +@all");
        }
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// A way in that no port, proxy, certificate or password of a test bars.
#[derive(Debug, Clone)]
struct Admin {
    socket: PathBuf,
    guarded: bool,
}

impl Admin {
    fn connect(&self) -> Result<Resp> {
        let mut connection = Resp::unix(&self.socket)?;
        if self.guarded {
            connection.call(&["AUTH", BED, BED])?.checked()?;
        }
        Ok(connection)
    }
}

/// A Redis server of a test's own, on a loopback port of its own. Ended when dropped.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    admin: Admin,
    guarded: bool,
    certificates: Option<Arc<Certificates>>,
}

impl Redis {
    /// Starts one as it comes: in memory only, for everybody.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// One that is to be told more before it starts.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// The process, to be stopped, killed and started again.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The port that it listens at; with TLS, only for that.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ports::at(self.port)
    }

    /// The files for TLS.
    ///
    /// # Errors
    /// If it has no TLS.
    pub fn certificates(&self) -> Result<&Certificates> {
        self.certificates.as_deref().ok_or_else(|| Fault::new("this server has no TLS"))
    }

    /// Runs one command on a connection of its own, which passes by its port, its TLS and its
    /// passwords.
    ///
    /// # Errors
    /// If it is not there, does not answer within 10 s, or answers with an error.
    pub fn command(&self, command: &[&str]) -> Result<Reply> {
        let answer = self.connect().and_then(|mut connection| connection.call(command)?.checked());
        answer.map_err(|fault| fault.during(&format!("`{}`", command.join(" "))))
    }

    /// A connection as [`command`](Self::command) uses it, for several commands or for messages.
    ///
    /// # Errors
    /// If it is not there.
    pub fn connect(&self) -> Result<Resp> {
        self.admin.connect()
    }

    /// One line of `INFO`; `None` if it has no such line.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn info(&self, name: &str) -> Result<Option<String>> {
        let text = self.command(&["INFO", "everything"])?.text();
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned()))
    }

    /// What it is at the moment: `master`, `slave` or `sentinel`.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn role(&self) -> Result<String> {
        Ok(self.command(&["ROLE"])?.members().first().map(Reply::text).unwrap_or_default())
    }
}
