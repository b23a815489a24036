//! The suite on `memory:` with a queue in the store.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::{Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Memory, Result};

struct FairMemory;

#[async_trait]
impl Subject for FairMemory {
    fn name(&self) -> &'static str {
        "memory-fair"
    }

    fn url(&self) -> &'static str {
        "memory:{space}?fair=true"
    }

    async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
        Ok(Arc::new(Memory::from_url(url)?))
    }

    fn processes(&self) -> Result<(), &'static str> {
        Err("the store lives in one process")
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&FairMemory)
}
