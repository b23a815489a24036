//! One Redis server.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::certificates::Certificates;
use super::{
    Fault, Launch, Process, Program, Reply, Resp, Result, eventually, on_free_port, ports,
};

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
    sentinel: bool,
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
        self.guarded |= primary.peer().is_some();
        self = self.as_peer();
        self.set("replicaof", format!("127.0.0.1 {}", primary.port))
    }

    /// The same, but fit to copy others of its kind.
    pub(super) fn as_peer(&self) -> Self {
        let same = self.clone();
        if self.guarded { same.set("masteruser", BED).set("masterauth", BED) } else { same }
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
        Ok(Redis { process, port, admin, certificates })
    }

    fn configuration(
        &self,
        port: u16,
        data: &Path,
        socket: &Path,
        certificates: Option<&Certificates>,
    ) -> String {
        let mut text = String::from("bind 127.0.0.1\nsave \"\"\n");
        if !self.sentinel {
            // Without a file between them, a replica is sent nothing new for up to a second.
            text.push_str("repl-diskless-sync no\n");
        }
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

    /// A Sentinel.
    pub(super) fn sentinel() -> RedisBuilder {
        RedisBuilder { sentinel: true, ..Self::builder() }
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
    pub fn command<A: AsRef<[u8]>>(&self, command: &[A]) -> Result<Reply> {
        let answer = self.connect().and_then(|mut connection| connection.call(command)?.checked());
        answer.map_err(|fault| {
            let words = command.iter().map(|word| word.as_ref().escape_ascii().to_string());
            let shown: String = words.collect::<Vec<_>>().join(" ").chars().take(200).collect();
            fault.during(&format!("`{shown}`"))
        })
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

    /// Waits until it copies `primary`, and until that sends what it writes at once.
    ///
    /// # Errors
    /// After `limit`.
    pub fn wait_until_copying(&self, primary: &Redis, limit: Duration) -> Result<()> {
        eventually("a replica", limit, || self.check_copies(primary))
    }

    /// Fails unless both of them say that it copies `primary`. A primary says so a moment later
    /// than its replica, and sends nothing before that.
    pub(super) fn check_copies(&self, primary: &Redis) -> Result<()> {
        let (own, port) = (self.port.to_string(), primary.port.to_string());
        let role = self.command(&["ROLE"])?;
        let connected = matches!(&role.texts()[..], [word, _, of, state, ..]
            if word == "slave" && *of == port && state == "connected");
        let serves = primary.command(&["ROLE"])?;
        let replicas = serves.members().get(2).map(Reply::members).unwrap_or_default();
        let served = replicas.iter().any(|replica| replica.texts().get(1) == Some(&own));
        if connected && served {
            return Ok(());
        }
        Err(Fault::new(format!("server {own} has the role {role:?}, and {port} has {serves:?}")))
    }

    /// By which user and password others of its kind come in; `None` if nobody asks for any.
    pub(super) fn peer(&self) -> Option<(&'static str, &'static str)> {
        self.admin.guarded.then_some((BED, BED))
    }
}
