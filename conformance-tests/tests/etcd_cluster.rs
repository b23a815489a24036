//! The suite on `etcd:` with three members, and another leader in the middle of it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::servers::{self, EtcdCluster, Fault, Started};
use conformance_tests::{Midway, Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

mod on_etcd;

struct EtcdOfThree;

#[async_trait]
impl Subject for EtcdOfThree {
    fn name(&self) -> &'static str {
        "etcd-cluster"
    }

    fn start(&self) -> servers::Result<Option<Started>> {
        let cluster = EtcdCluster::start()?;
        let url = format!("etcd://{}?prefix={{space}}:", cluster.hosts());
        Ok(Some(Started::new(url, cluster)))
    }

    fn midway(&self) -> Option<Midway> {
        let act = |started: &Started| {
            let cluster = started.servers::<EtcdCluster>();
            let cluster = cluster.ok_or_else(|| Fault::new("no cluster"))?;
            cluster.move_leader((cluster.leader()? + 1) % cluster.members().len())
        };
        Some(Midway { name: "another_leader", act })
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
    conformance_tests::main(&EtcdOfThree)
}
