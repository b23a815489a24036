//! The shared suite that every lockkit backend must pass, and what measures backends.
//!
//! A backend is registered by a test target without a harness that implements [`Subject`] and
//! calls [`main`]:
//!
//! ```no_run
//! use std::sync::Arc;
//! use conformance_tests::{Subject, async_trait};
//! use lockkit_core::{DistributedLock, Memory, Result, url::ConnectUrl};
//!
//! struct InMemory;
//!
//! #[async_trait]
//! impl Subject for InMemory {
//!     fn name(&self) -> &'static str {
//!         "memory"
//!     }
//!     fn url(&self) -> &'static str {
//!         "memory:{space}"
//!     }
//!     async fn connect(&self, url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
//!         Ok(Arc::new(Memory::from_url(url)?))
//!     }
//!     fn processes(&self) -> Result<(), &'static str> {
//!         Err("the store lives in one process")
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     conformance_tests::main(&InMemory)
//! }
//! ```
//!
//! Every case runs in a process of its own, with its own lock thread and its own key space, so
//! that what it leaves behind can be counted exactly and a case that hangs can be ended.
//!
//! A backend that needs servers starts them once, before all cases ([`Subject::start`]): see
//! [`servers`].
//!
//! | Variable | What it does |
//! | --- | --- |
//! | `LOCKKIT_URL_<NAME>` | another URL for the backend `<NAME>` (upper case, `-` as `_`); `{space}` and `{dir}` stand for a name and a directory that are fresh for each case. No servers are then started, and nothing is done to any |
//! | `LOCKKIT_UPDATE_RUNS` | writes the backend's column of `RUNS.md` instead of comparing it |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a library of tests: a panic is how a case fails, and the output is the product"
)]

mod alone;
mod bed;
mod case;
pub mod cases;
mod check;
mod child;
mod leaks;
pub mod measure;
mod polls;
mod runner;
mod runs;
mod scratch;
pub mod servers;
mod space;
mod stall;
mod subject;
mod suspend;

pub use async_trait::async_trait;
pub use bed::Test;
pub use case::{Case, Need};
pub use runner::main;
pub use runs::table_matches_registry;
pub use subject::{Midway, Subject};
