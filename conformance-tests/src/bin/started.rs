//! A subject whose servers the suite starts, for the tests of the suite itself: the memory
//! backend, with a Redis server beside it that every client looks at. It writes down what happens
//! in the file `STARTED_LOG`.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::servers::{Fault, Program, Redis, Resp, Result, Started};
use conformance_tests::{Midway, Subject, async_trait};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Error, Memory};

/// Writes one line: who, and what.
fn note(what: &str) -> std::io::Result<()> {
    let path = std::env::var_os("STARTED_LOG").unwrap_or_default();
    let mut log = std::fs::File::options().create(true).append(true).open(path)?;
    log.write_all(format!("{} {what}\n", std::process::id()).as_bytes())
}

fn is_told(word: &str) -> bool {
    std::env::var("STARTED_DOES").is_ok_and(|does| does == word)
}

struct WithServer;

#[async_trait]
impl Subject for WithServer {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn start(&self) -> Result<Option<Started>> {
        if is_told("miss-its-server") {
            Program { name: "no-such-server", package: "its-package" }.find()?;
        }
        let server = Redis::start()?;
        note(&format!("starts {}", server.process().pid()))?;
        Ok(Some(Started::new(format!("memory:{{space}}-{}", server.port()), server)))
    }

    fn midway(&self) -> Option<Midway> {
        let act = |started: &Started| {
            note("midway")?;
            if is_told("fail-midway") {
                return Err(Fault::new("it is told to fail"));
            }
            let server = started.servers::<Redis>().ok_or_else(|| Fault::new("no Redis"))?;
            server.command(&["SET", "midway", "1"]).map(drop)
        };
        Some(Midway { name: "names::of_this_subject", act })
    }

    async fn connect(&self, url: &ConnectUrl) -> lockkit_core::Result<Arc<dyn DistributedLock>> {
        let look = || -> Result<String> {
            let port = url.rest().rsplit('-').next().and_then(|port| port.parse().ok());
            let port: u16 = port.ok_or_else(|| Fault::new("no port"))?;
            let mut server = Resp::tcp(([127, 0, 0, 1], port).into())?;
            Ok(server.call(&["EXISTS", "midway"])?.text())
        };
        let seen = look().map_err(|fault| Error::unavailable(fault.to_string()))?;
        note(&format!("sees {seen}")).map_err(|error| Error::unavailable(error.to_string()))?;
        Ok(Arc::new(Memory::from_url(url)?))
    }

    fn processes(&self) -> std::result::Result<(), &'static str> {
        Err("the store lives in one process")
    }
}

fn main() -> ExitCode {
    conformance_tests::main(&WithServer)
}
