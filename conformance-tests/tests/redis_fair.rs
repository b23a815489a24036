//! The suite on `redis:` with a queue in the server.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::servers::{self, Redis, Started};
use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_redis;
#[path = "on_redis/tcp.rs"]
mod tcp;

struct FairRedis;

#[async_trait]
impl Subject for FairRedis {
    fn name(&self) -> &'static str {
        "redis-fair"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        let server = Redis::start()?;
        let url = format!("redis://{}/0?prefix={{space}}:&fair=true", server.address());
        Ok(Some(Started::new(url, server)))
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        on_redis::connect(url)
    }

    async fn leftovers(&self, url: &ConnectUrl) -> Vec<String> {
        tcp::leftovers(url, || tcp::hosts(url)).await
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&FairRedis)
}
