//! Opening connections: address, TLS, user, database.

use std::path::Path;
use std::time::Duration;

use lockkit_core::Error;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo,
    RedisConnectionInfo, TlsCertificates, Value,
};

use crate::errors::Problem;
use crate::target::{Access, Address, TlsFiles};

/// Opens connections of one client to whatever server.
#[derive(Debug)]
pub(crate) struct Opener {
    access: Access,
    timeout: Duration,
}

/// Which user a connection belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    /// The one whose locks they are.
    Client,
    /// The same, and only if the server says that it is a primary.
    Primary,
    /// The one that sentinels know.
    SentinelClient,
}

impl Opener {
    pub(crate) fn new(access: Access, timeout: Duration) -> Self {
        Self { timeout: access.connect_timeout.unwrap_or(timeout), access }
    }

    /// A connection whose driver runs on the runtime that this is polled in.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        who: As,
    ) -> Result<MultiplexedConnection, Problem> {
        let open = async {
            let client = self.client(address, who).await?;
            let config = AsyncConnectionConfig::new()
                // Whoever asks has a deadline of its own; a timer per request would cost more
                // than the request.
                .set_response_timeout(None)
                .set_connection_timeout(Some(self.timeout));
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connection.await.map_err(|e| Problem::new(address, e))?;
            if who == As::Primary {
                check_role(address, &mut connection).await?;
            }
            Ok(connection)
        };
        self.in_time(address, open).await
    }

    /// How long a server may take to let somebody in.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection for messages.
    pub(crate) async fn subscriber(&self, address: &Address, who: As) -> Result<PubSub, Problem> {
        let open = async {
            let client = self.client(address, who).await?;
            client.get_async_pubsub().await.map_err(|e| Problem::new(address, e))
        };
        self.in_time(address, open).await
    }

    async fn in_time<T>(
        &self,
        address: &Address,
        open: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        tokio::time::timeout(self.timeout, open).await.unwrap_or_else(|_| {
            let text = format!("{address} let nobody in within {:?}", self.timeout);
            Err(Problem::unavailable(text))
        })
    }

    async fn client(&self, address: &Address, who: As) -> Result<Client, Problem> {
        if let Some(given) = &self.access.given {
            // Certificates that it was made with are in it; rustls needs a provider all the same.
            install_provider();
            return Client::open(given.clone()).map_err(|e| Problem::new(address, e));
        }
        let (host, port) = (address.host.clone(), address.port);
        let tls = self.access.tls.as_ref();
        let addr = match tls {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        };
        let mut user = RedisConnectionInfo::default().set_lib_name("lockkit", VERSION);
        let (name, password) = match who {
            As::Client | As::Primary => {
                user = user.set_db(self.access.database);
                (&self.access.username, &self.access.password)
            }
            As::SentinelClient => (&self.access.sentinel_username, &self.access.sentinel_password),
        };
        if let Some(name) = name {
            user = user.set_username(name);
        }
        if let Some(password) = password {
            user = user.set_password(password);
        }
        let made = addr.into_connection_info().map(|info| {
            let tcp = TcpSettings::default().set_nodelay(true);
            info.set_tcp_settings(tcp).set_redis_settings(user)
        });
        let info = made.map_err(|e| Problem::new(address, e))?;
        match tls {
            Some(files) => {
                let certificates = read(files).await?;
                // The error may quote what is in the files.
                Client::build_with_tls(info, certificates).map_err(|_| {
                    Problem::configuration(
                        "the TLS files do not hold what they should: PEM certificates in `tls_ca` \
                         and `tls_cert`, and the private key of the latter in `tls_key`",
                    )
                })
            }
            None => Client::open(info).map_err(|e| Problem::new(address, e)),
        }
    }
}

/// Refuses a server that says that it is a replica. One that does not tell this user is taken at
/// the word of those who named it.
async fn check_role(
    address: &Address,
    connection: &mut MultiplexedConnection,
) -> Result<(), Problem> {
    let answer = connection.send_packed_command(&redis::cmd("ROLE")).await;
    match answer.and_then(Value::extract_error) {
        Ok(Value::Array(role)) if role.first().is_some_and(|r| is(r, "slave")) => {
            Err(Problem::unavailable(format!("{address} says that it is a replica")))
        }
        Err(error) if error.is_unrecoverable_error() => Err(Problem::new(address, error)),
        _ => Ok(()),
    }
}

fn is(value: &Value, text: &str) -> bool {
    crate::answer::text(value).is_ok_and(|said| said == text)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Without one, or with two of them linked in, rustls would panic.
fn install_provider() {
    // An error means that the program has chosen one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Reads the files anew each time: certificates are replaced while programs run.
async fn read(files: &TlsFiles) -> Result<TlsCertificates, Problem> {
    install_provider();
    let files = files.clone();
    let read = tokio::task::spawn_blocking(move || {
        let root_cert = files.ca.as_deref().map(|path| file("tls_ca", path)).transpose()?;
        let client_tls = match &files.client {
            Some((cert, key)) => Some(ClientTlsConfig {
                client_cert: file("tls_cert", cert)?,
                client_key: file("tls_key", key)?,
            }),
            None => None,
        };
        Ok(TlsCertificates { client_tls, root_cert })
    });
    read.await.unwrap_or_else(|_| Err(Problem::unavailable("the TLS files could not be read")))
}

fn file(name: &str, path: &Path) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|e| {
        Problem::configuration(format!("`{name}`: cannot read `{}`: {e}", path.display()))
    })
}

/// Refuses, at construction and without I/O on the network, files that are not there.
pub(crate) fn check_files(files: Option<&TlsFiles>) -> lockkit_core::Result<()> {
    let Some(files) = files else { return Ok(()) };
    for (name, path) in files.named() {
        file(name, path).map_err(Error::from)?;
    }
    Ok(())
}
