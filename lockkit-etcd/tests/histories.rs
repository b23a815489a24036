//! Many passes by several processes on a cluster that is never left alone, told by each of them on
//! the one clock of this machine, and what they told put together: at no time did two believe, and
//! fences grew.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

#[path = "histories/checker.rs"]
mod checker;
#[path = "histories/child.rs"]
mod child;
#[path = "histories/children.rs"]
mod children;
#[path = "histories/faults.rs"]
mod faults;
#[path = "histories/made_up.rs"]
mod made_up;
#[path = "histories/record.rs"]
mod record;
#[path = "histories/storm.rs"]
mod storm;
