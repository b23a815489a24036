//! Waiting for a server that tells nobody when it is ready.

use std::time::{Duration, Instant};

use super::{Fault, Result};

/// The pause between two looks: short beside what servers take, long beside what a look costs.
const PAUSE: Duration = Duration::from_millis(4);

/// Calls `look` until it gives something, or for `limit`.
///
/// # Errors
/// After `limit`: `what`, and what the last look said.
pub fn eventually<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return Ok(value),
            Err(fault) if start.elapsed() > limit => {
                return Err(fault.during(&format!("{what}: not within {limit:?}")));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Calls `look` until it says yes, or for `limit`.
///
/// # Errors
/// After `limit`: `what`. At once: a fault of the look itself.
pub fn until(what: &str, limit: Duration, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !look().map_err(|fault| fault.during(what))? {
        if start.elapsed() > limit {
            return Err(Fault::new(format!("{what}: not within {limit:?}")));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
