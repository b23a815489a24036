//! The cases, one file for each clause of the contract.

mod abandoned;
mod cancel;
mod close;
mod contender;
mod events;
mod exclusion;
mod expiry;
mod faults;
mod fence;
mod forced;
mod handover;
mod inspection;
mod lost;
mod names;
mod options;
mod ownership;
mod permits;
mod processes;
mod reentry;
mod renewal;
mod runtimes;
mod shared;
mod unknown;
mod waiting;

use crate::case::Case;

/// Every case.
pub fn all() -> Vec<Case> {
    [
        abandoned::cases(),
        cancel::cases(),
        close::cases(),
        contender::cases(),
        events::cases(),
        exclusion::cases(),
        expiry::cases(),
        faults::cases(),
        fence::cases(),
        forced::cases(),
        handover::cases(),
        inspection::cases(),
        lost::cases(),
        names::cases(),
        options::cases(),
        ownership::cases(),
        permits::cases(),
        processes::cases(),
        reentry::cases(),
        renewal::cases(),
        runtimes::cases(),
        shared::cases(),
        unknown::cases(),
        waiting::cases(),
    ]
    .concat()
}
