//! Floor and lock in turns.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::DistributedLock;

use super::floor::Floor;
use super::report::Line;
use super::workload::{Round, Workload};

/// How many rounds there are at least.
pub const ROUNDS: usize = 15;

/// Runs `workload` on the floor and on the lock in turns, `rounds` times (at least seven), each
/// for about `time`; who comes first changes from round to round.
///
/// # Panics
/// If the lock or the store fails.
///
/// # Cancel safety
/// Not needed: nothing here is dropped.
pub async fn compare(
    workload: Workload,
    floor: &Arc<dyn Floor>,
    lock: &Arc<dyn DistributedLock>,
    rounds: usize,
    time: Duration,
) -> Line {
    // Connections are opened and caches are filled outside the rounds.
    workload.on_floor(floor, time / 4).await;
    workload.on_lock(lock, time / 4).await;
    let (mut bare, mut locked): (Vec<Round>, Vec<Round>) = Default::default();
    for round in 0..rounds.max(7) {
        if round % 2 == 0 {
            bare.push(workload.on_floor(floor, time).await);
            locked.push(workload.on_lock(lock, time).await);
        } else {
            locked.push(workload.on_lock(lock, time).await);
            bare.push(workload.on_floor(floor, time).await);
        }
    }
    Line::new(workload, &bare, &locked)
}
