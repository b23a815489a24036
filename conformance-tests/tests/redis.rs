//! The suite on `redis:`, one server for all cases, a prefix for each.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::servers::{self, Redis, Started};
use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_redis;
#[path = "on_redis/tcp.rs"]
mod tcp;

struct OneRedis;

#[async_trait]
impl Subject for OneRedis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        let server = Redis::start()?;
        let url = format!("redis://{}/0?prefix={{space}}:", server.address());
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
    conformance_tests::main(&OneRedis)
}
