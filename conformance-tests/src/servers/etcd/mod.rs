//! One etcd server.

mod base64;
mod cluster;
mod gateway;
mod network;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use self::gateway::Gateway;
use super::certificates::Certificates;
use super::{Fault, Launch, Process, Program, Result, on_free_port, ports};

pub use cluster::{EtcdCluster, EtcdClusterBuilder};
pub use store::{EtcdKey, EtcdLease};

const SERVER: Program = Program { name: "etcd", package: "etcd-server" };

/// The user who may do everything, and its password: the test bed's own, where there are users.
const ROOT: (&str, &str) = ("root", "lockkit-bed");

/// Where the bed comes in: in the directory for data, where the server runs. The form of a host
/// with a port is asked for; the whole of it is the name.
const SOCKET: &str = "bed.sock:0";

/// A server's peers reach it that much above its clients.
const PEER: u16 = 10_000;

/// How an etcd server is to be. Without further words: one member, for everybody, no TLS; quick
/// to elect a leader, so that leases can be as short as 1 s.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct EtcdBuilder {
    args: Vec<String>,
    users: Vec<User>,
    tls: bool,
}

/// Somebody who may read and write what begins with `prefix`.
#[derive(Debug, Clone)]
struct User {
    name: String,
    password: String,
    prefix: String,
}

/// What a member is called, and how the others are found.
#[derive(Debug, Clone)]
struct Membership {
    name: String,
    /// The URL that its peers know it by.
    peer_url: String,
    /// All of them: `name=URL,name=URL`.
    cluster: String,
    variables: Vec<(&'static str, String)>,
}

impl Membership {
    fn alone(port: u16) -> Self {
        let (name, peer_url) = ("alone".to_owned(), format!("http://{}", ports::at(port + PEER)));
        let cluster = format!("{name}={peer_url}");
        Self { name, peer_url, cluster, variables: Vec::new() }
    }
}

impl EtcdBuilder {
    /// Adds an argument to its command line.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Accepts TLS connections only, and only with the certificate of [`Etcd::certificates`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Adds a user who may read and write the keys that begin with `prefix`, and no others. With
    /// the first one, whoever comes must say who they are.
    pub fn user(mut self, name: &str, password: &str, prefix: &str) -> Self {
        let [name, password, prefix] = [name, password, prefix].map(str::to_owned);
        self.users.push(User { name, password, prefix });
        self
    }

    /// Sets how long the tokens live that users get for their passwords; in whole seconds. The
    /// server's own default is five minutes, and using a token makes it live longer.
    pub fn token_ttl(self, ttl: Duration) -> Self {
        self.arg("--auth-token-ttl").arg(ttl.as_secs().to_string())
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    /// If `etcd` is missing or does not start (with what it wrote); with TLS also if `openssl` is
    /// missing or fails.
    pub fn start(&self) -> Result<Etcd> {
        let server = on_free_port(|port| self.start_at(port, Membership::alone(port)))?;
        self.add_users(&server)?;
        Ok(server)
    }

    fn start_at(&self, port: u16, membership: Membership) -> Result<Etcd> {
        let mut launch = Launch::new(SERVER)?.socket(SOCKET);
        let gateway = Gateway::new(launch.data().join(SOCKET));
        let certificates =
            self.tls.then(|| Certificates::make(launch.lasting()).map(Arc::new)).transpose()?;
        let scheme = if self.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", ports::at(port));
        for (option, value) in [
            ("--name", membership.name),
            ("--data-dir", "store".to_owned()),
            ("--listen-client-urls", format!("{url},unix://{SOCKET}")),
            ("--advertise-client-urls", url),
            ("--listen-peer-urls", format!("http://{}", ports::at(port + PEER))),
            ("--initial-advertise-peer-urls", membership.peer_url),
            ("--initial-cluster", membership.cluster),
            ("--heartbeat-interval", "50".to_owned()),
            ("--election-timeout", "500".to_owned()),
            // Passwords that cost nothing to check.
            ("--bcrypt-cost", "4".to_owned()),
        ] {
            launch = launch.arg(option).arg(value);
        }
        if let Some(made) = certificates.as_deref() {
            let (certificate, key) = made.server();
            launch =
                launch.arg("--client-cert-auth").arg("--trusted-ca-file").arg(made.authority());
            launch = launch.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        }
        for (name, value) in membership.variables {
            launch = launch.variable(name, value);
        }
        let asked = gateway.clone();
        let process = Process::start(launch.args(&self.args), move || {
            // It says so only when there is a leader, and when that has confirmed a read.
            asked.page("/health").map(drop)
        })?;
        Ok(Etcd { process, port, gateway, certificates })
    }

    /// Makes the users, if there are to be any.
    fn add_users(&self, server: &Etcd) -> Result<()> {
        if self.users.is_empty() {
            return Ok(());
        }
        let call = |method: &str, body| server.gateway.call(method, &body);
        let (root, password) = ROOT;
        call("auth/user/add", json!({ "name": root, "password": password }))?;
        call("auth/role/add", json!({ "name": root }))?;
        call("auth/user/grant", json!({ "user": root, "role": root }))?;
        for User { name, password, prefix } in &self.users {
            let (key, end) = (base64::encode(prefix), base64::encode(store::behind(prefix)));
            let permission = json!({ "permType": "READWRITE", "key": key, "range_end": end });
            call("auth/user/add", json!({ "name": name, "password": password }))?;
            call("auth/role/add", json!({ "name": name }))?;
            call("auth/role/grant", json!({ "name": name, "perm": permission }))?;
            call("auth/user/grant", json!({ "user": name, "role": name }))?;
        }
        call("auth/enable", json!({}))?;
        server.gateway.guard();
        Ok(())
    }
}

/// An etcd server of a test's own, on a loopback port of its own. Ended when dropped.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    port: u16,
    gateway: Gateway,
    certificates: Option<Arc<Certificates>>,
}

impl Etcd {
    /// Starts one as it comes: for everybody, no TLS.
    ///
    /// # Errors
    /// As [`EtcdBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// One that is to be told more before it starts.
    pub fn builder() -> EtcdBuilder {
        EtcdBuilder::default()
    }

    /// The process, to be stopped, killed and started again. It keeps what it has answered, also
    /// over a kill. A member of a cluster starts only when most of the others run.
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

    /// The user who may do everything, and its password, where there are users.
    pub fn root(&self) -> (&'static str, &'static str) {
        ROOT
    }
}
