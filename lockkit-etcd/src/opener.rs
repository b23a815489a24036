//! Opening clients: address, TLS, user.

use std::path::Path;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use lockkit_core::Error;
use lockkit_core::url::{Address, TlsFiles};

use crate::errors::Problem;
use crate::target::Access;

/// Opens clients for whatever server.
#[derive(Debug)]
pub(crate) struct Opener {
    access: Access,
    timeout: Duration,
}

/// A connection that is silent for longer than both together is given up. The server ends those
/// that ask more often than every five seconds.
const PROVE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

impl Opener {
    pub(crate) fn new(access: Access, timeout: Duration) -> Self {
        Self { timeout: access.connect_timeout.unwrap_or(timeout), access }
    }

    /// A client of one server alone, whose connection lives on the runtime that this is polled
    /// in. The balancer of a client of several sends a share of all requests to servers that are
    /// down.
    pub(crate) async fn open(&self, address: &Address) -> Result<Client, Problem> {
        let options = self.options().await?;
        let scheme = if self.access.tls.is_some() { "https" } else { "http" };
        let open = Client::connect([format!("{scheme}://{address}")], Some(options));
        match tokio::time::timeout(self.timeout, open).await {
            Ok(opened) => opened.map_err(|e| match self.access.tls {
                // What is wrong with certificates is found here.
                Some(_) if matches!(e, etcd_client::Error::TransportError(_)) => bad_files(),
                _ => Problem::of(address, e),
            }),
            Err(_) => {
                let text = format!("{address} let nobody in within {:?}", self.timeout);
                Err(Problem::not_sent(text))
            }
        }
    }

    async fn options(&self) -> Result<ConnectOptions, Problem> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.timeout)
            .with_keep_alive(PROVE.0, PROVE.1)
            // Without a leader nothing is decided: better an error than silence.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.access.user {
            options = options.with_user(name, password);
        }
        if let Some(files) = &self.access.tls {
            options = options.with_tls(read(files).await?);
        }
        Ok(options)
    }
}

/// Reads the files anew each time: certificates are replaced while programs run.
async fn read(files: &TlsFiles) -> Result<TlsOptions, Problem> {
    let files = files.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut tls = TlsOptions::new();
        tls = match &files.ca {
            Some(path) => tls.ca_certificate(Certificate::from_pem(file("tls_ca", path)?)),
            None => tls.with_native_roots(),
        };
        if let Some((cert, key)) = &files.client {
            tls = tls.identity(Identity::from_pem(file("tls_cert", cert)?, file("tls_key", key)?));
        }
        Ok(tls)
    });
    read.await.unwrap_or_else(|_| Err(Problem::not_sent("the TLS files could not be read")))
}

fn bad_files() -> Problem {
    // The error may quote what is in the files.
    Problem::configuration(
        "the TLS files do not hold what they should: PEM certificates in `tls_ca` and \
         `tls_cert`, and the private key of the latter in `tls_key`",
    )
}

fn file(name: &str, path: &Path) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|e| {
        Problem::configuration(format!("`{name}`: cannot read `{}`: {e}", path.display()))
    })
}

/// Refuses, at construction and without I/O on the network, files that are not there.
pub(crate) fn check_files(files: Option<&TlsFiles>) -> lockkit_core::Result<()> {
    for (name, path) in files.into_iter().flat_map(TlsFiles::named) {
        file(name, path).map_err(Error::from)?;
    }
    Ok(())
}
