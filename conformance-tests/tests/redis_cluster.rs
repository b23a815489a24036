//! The suite on `redis+cluster:`, three primaries among which the keys are spread.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::{self, Cluster, Started};
use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_redis;
#[path = "on_redis/tcp.rs"]
mod tcp;

struct ClusterRedis;

#[async_trait]
impl Subject for ClusterRedis {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        // No node counts as down, however long the machine stands still.
        let cluster = Cluster::builder().node_timeout(Duration::from_secs(30)).start()?;
        let url = format!("redis+cluster://{}?prefix={{space}}:", cluster.hosts());
        Ok(Some(Started::new(url, cluster)))
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        on_redis::connect(url)
    }

    async fn leftovers(&self, url: &ConnectUrl) -> Vec<String> {
        tcp::leftovers(url, || tcp::hosts(url)).await
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&ClusterRedis)
}
