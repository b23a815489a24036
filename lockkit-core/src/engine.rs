//! The engine: what is the same for every backend.
//!
//! The first attempt runs inline, in the caller's own future. Everything that lasts runs on the
//! process's one [lock thread](thread): waits after a busy answer, renewals, losses, and the
//! clean-up behind dropped futures. No exchange with a store is cut in the middle: whoever stops
//! caring hands it over to the lock thread.

pub(crate) mod acquire;
mod alarm;
pub(crate) mod background;
pub(crate) mod backoff;
pub(crate) mod exchange;
pub(crate) mod grant;
pub(crate) mod live;
pub(crate) mod owners;
pub(crate) mod phase;
pub(crate) mod queue;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod schedule;
pub(crate) mod sleep;
pub(crate) mod terms;
pub(crate) mod thread;
pub(crate) mod timers;
pub(crate) mod wait;
