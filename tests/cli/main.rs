//! The command-line tool, as its users see it: real processes, real signals, a real file.

#![allow(clippy::unwrap_used)]

mod contention;
mod descendants;
mod exits;
mod loss;
mod signals;
mod terminal;
mod usage;
mod world;
