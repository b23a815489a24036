//! Processes of the suite's own binary: clients that can be stopped and killed.

mod order;
mod parent;
mod serve;

pub(crate) use order::{Ask, Order};
pub(crate) use parent::Child;
pub(crate) use serve::{asked_for, serve};

/// Tells the binary to be a client; the value is the URL.
const URL: &str = "LOCKKIT_SUITE_CHILD";
