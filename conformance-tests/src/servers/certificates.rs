//! Certificates for one test, made by `openssl`.

use std::path::{Path, PathBuf};

use super::{Program, Result};

/// Makes them.
const OPENSSL: Program = Program { name: "openssl", package: "openssl" };

/// Written out, so that nothing depends on how the system's own configuration looks.
const CONFIGURATION: &str = "[req]
distinguished_name = name
prompt = no
[name]
CN = lockkit test
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
";

/// An authority that nobody else trusts, and one certificate each for a server on 127.0.0.1
/// (also `localhost`) and for a client. PEM files, valid for two days.
#[derive(Debug, Clone)]
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Makes them in `directory`, which must outlive their use.
    ///
    /// # Errors
    /// If `openssl` is missing or fails.
    pub fn make(directory: &Path) -> Result<Self> {
        let made = Self { directory: directory.to_owned() };
        std::fs::write(made.file("openssl.cnf"), CONFIGURATION)?;
        made.certify("authority", &["-x509", "-days", "2", "-extensions", "authority"])?;
        for who in ["server", "client"] {
            let (authority, key) = (made.text("authority.pem"), made.text("authority.key"));
            let by = ["-x509", "-days", "2", "-extensions", who, "-CA", &authority, "-CAkey", &key];
            made.certify(who, &by)?;
        }
        Ok(made)
    }

    /// The certificate of the authority: what whoever connects must trust.
    pub fn authority(&self) -> PathBuf {
        self.file("authority.pem")
    }

    /// The certificate and the key of the server.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.file("server.pem"), self.file("server.key"))
    }

    /// The certificate and the key of the client.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.file("client.pem"), self.file("client.key"))
    }

    fn certify(&self, who: &str, how: &[&str]) -> Result<()> {
        let configuration = self.text("openssl.cnf");
        let (key, certificate) =
            (self.text(&format!("{who}.key")), self.text(&format!("{who}.pem")));
        let subject = format!("/CN=lockkit test {who}");
        let new = [
            "req",
            "-config",
            &configuration,
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            &subject,
            "-keyout",
            &key,
            "-out",
            &certificate,
        ];
        OPENSSL.run(&[&new, how].concat()).map(drop)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_string_lossy().into_owned()
    }
}
