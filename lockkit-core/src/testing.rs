//! For tests of backends and of what is built on them.

mod faulty;

pub use faulty::{Exchanged, Fault, Faulty, Op, Outcome};

use crate::engine::thread;

/// How many tasks live on the lock thread of this process: none per held lock, one per waiter,
/// renewal under way or clean-up.
pub fn lock_thread_tasks() -> usize {
    thread::running().map_or(0, |thread| thread.handle().metrics().num_alive_tasks())
}

/// How many entries the watchdog of this process has: one per live claim.
pub fn watchdog_entries() -> usize {
    thread::running().map_or(0, |thread| thread.timers().len())
}
