//! The suite on `etcd:`, one server for all cases, a prefix for each.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::{self, Etcd, Started};
use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_etcd;

struct OneEtcd;

#[async_trait]
impl Subject for OneEtcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        let server = Etcd::start()?;
        let url = format!("etcd://{}?prefix={{space}}:", server.address());
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
    conformance_tests::main(&OneEtcd)
}
