//! The suite on `etcds:`: TLS in both directions, and a user who may do nothing beyond its
//! prefix.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::{self, Etcd, Started};
use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_etcd;

struct TlsEtcd;

#[async_trait]
impl Subject for TlsEtcd {
    fn name(&self) -> &'static str {
        "etcd-tls"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        let server = Etcd::builder().tls().user("app", "secret", "app:").start()?;
        let files = server.certificates()?;
        let (certificate, key) = files.client();
        let url = format!(
            "etcds://app:secret@{}?tls_ca={}&tls_cert={}&tls_key={}&prefix=app:{{space}}:",
            server.address(),
            files.authority().display(),
            certificate.display(),
            key.display(),
        );
        Ok(Some(Started::new(url, server)))
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        on_etcd::connect(url)
    }

    fn granularity(&self) -> Duration {
        on_etcd::GRANULARITY
    }

    async fn leftovers(&self, url: &ConnectUrl) -> Vec<String> {
        on_etcd::leftovers(url).await
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&TlsEtcd)
}
