//! The suite on `rediss:`: TLS in both directions, and a user who may do nothing beyond its
//! prefix and may not manage the server.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::servers::{self, Redis, Started};
use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_redis;
#[path = "on_redis/tls.rs"]
mod tls;

struct TlsRedis;

#[async_trait]
impl Subject for TlsRedis {
    fn name(&self) -> &'static str {
        "redis-tls"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        let server = Redis::builder()
            .tls()
            .user("default off")
            .user("app on >secret ~app:* &app:* +@all -@admin -@dangerous")
            .start()?;
        let files = server.certificates()?;
        let (certificate, key) = files.client();
        let shown = |path: &Path| path.display().to_string();
        let url = format!(
            "rediss://app:secret@{}/0?tls_ca={}&tls_cert={}&tls_key={}&prefix=app:{{space}}:",
            server.address(),
            shown(&files.authority()),
            shown(&certificate),
            shown(&key),
        );
        Ok(Some(Started::new(url, server)))
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        on_redis::connect(url)
    }

    async fn leftovers(&self, url: &ConnectUrl) -> Vec<String> {
        tls::leftovers(url).await
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&TlsRedis)
}
