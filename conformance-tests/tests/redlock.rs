//! The suite on `redlock:`, five servers that know nothing of one another.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::servers::{self, Nodes, Started};
use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_redis;
#[path = "on_redis/tcp.rs"]
mod tcp;

struct Redlock;

#[async_trait]
impl Subject for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        let nodes = Nodes::start(5)?;
        let url = format!("redlock://{}?prefix={{space}}:", nodes.hosts());
        Ok(Some(Started::new(url, nodes)))
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        on_redis::connect(url)
    }

    async fn leftovers(&self, url: &ConnectUrl) -> Vec<String> {
        tcp::leftovers(url, || tcp::hosts(url)).await
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&Redlock)
}
