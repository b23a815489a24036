//! What a backend costs, next to the bare commands of its store in the same run.
//!
//! Machines are noisy: a rate says little, and one pair of rates proves nothing. So floor and
//! lock take turns on the same store, round after round, and what counts is the ratio of the
//! medians over all rounds, with the spread beside it.

mod floor;
mod report;
mod rounds;
mod usage;
mod workload;

pub use floor::{Bare, Floor};
pub use report::{Line, table};
pub use rounds::{ROUNDS, compare};
pub use usage::Usage;
pub use workload::{Round, Workload};
