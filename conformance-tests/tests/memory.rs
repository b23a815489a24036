//! The suite on `memory:`.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Memory, Result};

struct InMemory;

#[async_trait]
impl Subject for InMemory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn url(&self) -> &'static str {
        "memory:{space}"
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        Ok(Arc::new(Memory::from_url(url)?))
    }

    fn processes(&self) -> Result<(), &'static str> {
        Err("the store lives in one process")
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&InMemory)
}
