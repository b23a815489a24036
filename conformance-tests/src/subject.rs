//! What the suite has to know about a backend.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};

use crate::servers::{self, Started};

/// What is done to the servers in the middle of the suite. The cases behind it must not notice.
#[derive(Debug, Clone, Copy)]
pub struct Midway {
    /// The name under which it is shown, as a trial of its own: `between::name`.
    pub name: &'static str,
    /// What is done.
    pub act: fn(&Started) -> servers::Result<()>,
}

/// A backend under test.
#[async_trait]
pub trait Subject: Sync {
    /// The name of its column in `RUNS.md`.
    fn name(&self) -> &'static str;

    /// Where it is. `{space}` and `{dir}` stand for a name and a directory that are fresh for
    /// each case: use at least one of them, so that no two cases meet.
    ///
    /// Not asked where [`start`](Self::start) gives servers, and empty by default.
    fn url(&self) -> &'static str {
        ""
    }

    /// Starts the servers that a run of the suite needs: called once, before all cases, unless
    /// the user named a server. They live until the last case is over, and are reached by the URL
    /// that stands with them. By default there are none to be started.
    ///
    /// # Errors
    /// Why there are no servers. The run fails with that; nothing is skipped.
    fn start(&self) -> servers::Result<Option<Started>> {
        Ok(None)
    }

    /// Something that is done to the servers when about half of the cases are over, while no case
    /// runs. By default there is nothing.
    fn midway(&self) -> Option<Midway> {
        None
    }

    /// Makes one independent client. A server that is missing is an error: nothing is skipped.
    ///
    /// # Errors
    /// What the backend says.
    ///
    /// # Cancel safety
    /// Not needed: the suite never drops it.
    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>>;

    /// Whether other processes reach the same store; if not, why.
    ///
    /// # Errors
    /// The reason that is shown beside every case which needs them.
    fn processes(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// How many cases run at a time. They mostly wait, so more of them than there are processors;
    /// but few enough that none waits for a processor for long.
    fn at_a_time(&self) -> usize {
        10
    }

    /// How much later than its TTL a dead claim may go, as the backend states it.
    fn granularity(&self) -> Duration {
        Duration::ZERO
    }

    /// What is still in the store although nobody holds or waits, one line each. Asked after
    /// every case. The default knows nothing beyond what [`DistributedLock`] can show.
    ///
    /// # Cancel safety
    /// Not needed: the suite never drops it.
    async fn leftovers(&self, url: &ConnectUrl) -> Vec<String> {
        let _ = url;
        Vec::new()
    }

    /// The checked-in table of what runs.
    fn runs_table(&self) -> PathBuf {
        concat!(env!("CARGO_MANIFEST_DIR"), "/RUNS.md").into()
    }
}
