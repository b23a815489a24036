//! Certificates in PEM files, as URL parameters name them.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::url::Params;

/// Certificates in PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who signs the server's certificate; the system's authorities if not given.
    pub ca: Option<PathBuf>,
    /// The client's own certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Takes `tls_ca`, `tls_cert` and `tls_key`; `None` if there is no TLS (`on`). `how` says what
    /// turns it on.
    ///
    /// # Errors
    /// [`Error::Configuration`] for files without TLS, and for a certificate without its key.
    pub fn read(params: &mut Params, on: bool, how: &str) -> Result<Option<Self>> {
        let [ca, cert, key] = ["tls_ca", "tls_cert", "tls_key"].map(|name| params.text(name));
        let (ca, cert, key) =
            (ca?.map(PathBuf::from), cert?.map(PathBuf::from), key?.map(PathBuf::from));
        if !on && (ca.is_some() || cert.is_some() || key.is_some()) {
            return Err(Error::configuration(format!(
                "TLS files are given for a connection without TLS; {how}"
            )));
        }
        let client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(Error::configuration(
                    "`tls_cert` and `tls_key` go together: the client's certificate and its key",
                ));
            }
        };
        Ok(on.then_some(Self { ca, client }))
    }

    /// The files that are named, each with its parameter.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let ca = self.ca.iter().map(|path| ("tls_ca", path.as_path()));
        let client = self
            .client
            .iter()
            .flat_map(|(cert, key)| [("tls_cert", cert.as_path()), ("tls_key", key.as_path())]);
        ca.chain(client)
    }
}
