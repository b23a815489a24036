//! The suite on `sqlite:`, every case in a file of its own.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};
use lockkit_sql::SqliteLock;

struct Sqlite;

#[async_trait]
impl Subject for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn url(&self) -> &'static str {
        "sqlite:{dir}/locks.db"
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        Ok(Arc::new(SqliteLock::from_url(url)?))
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&Sqlite)
}
