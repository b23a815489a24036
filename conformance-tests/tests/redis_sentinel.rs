//! The suite on `redis+sentinel:`, with a failover in the middle of it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::{self, Fault, Resp, Sentinels, Started};
use conformance_tests::{Midway, Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_redis;
#[path = "on_redis/tcp.rs"]
mod tcp;

struct SentinelRedis;

#[async_trait]
impl Subject for SentinelRedis {
    fn name(&self) -> &'static str {
        "redis-sentinel"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        // The only failover is the one midway, however long the machine stands still.
        let group = Sentinels::builder().down_after(Duration::from_secs(30)).start()?;
        let (hosts, name) = (group.hosts(), group.name());
        let url = format!("redis+sentinel://{hosts}/{name}?prefix={{space}}:");
        Ok(Some(Started::new(url, group)))
    }

    /// Each new client asks all sentinels, which takes a processor more than other servers do.
    fn at_a_time(&self) -> usize {
        6
    }

    fn midway(&self) -> Option<Midway> {
        let act = |started: &Started| {
            let group = started.servers::<Sentinels>();
            group.ok_or_else(none)?.failover()
        };
        Some(Midway { name: "failover", act })
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        on_redis::connect(url)
    }

    async fn leftovers(&self, url: &ConnectUrl) -> Vec<String> {
        let name = url.rest().rsplit('/').next().unwrap_or_default();
        let primary = || {
            let sentinels = tcp::hosts(url)?;
            let mut sentinel = Resp::tcp(*sentinels.first().ok_or_else(none)?)?;
            let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
            let primary = sentinel.call(&command)?.checked()?.texts().join(":");
            Ok(vec![primary.parse().map_err(|_| none())?])
        };
        tcp::leftovers(url, primary).await
    }
}

fn none() -> Fault {
    Fault::new("no Sentinels, or no primary")
}

fn main() -> ExitCode {
    conformance_tests::main(&SentinelRedis)
}
