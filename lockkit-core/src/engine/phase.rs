//! The life of one claim, as states.

use std::sync::Arc;
use std::task::Waker;

use crate::clock::BootInstant;
use crate::contender::Attempt;
use crate::contender::{Lease, Released, Stage};
use crate::engine::exchange::Exchange;
use crate::error::Error;
use crate::guard::Guard;

/// Where a claim is in its life.
///
/// ```text
/// Fresh -> Asking -> Held -> Releasing -> Ended
///            |        ^  \-> Lingering -> Closing -> Ended
///            v        |  \-> Ended (lost)
///          Waiting -> Offered
/// ```
/// Whatever is dropped, refused or timed out on the way goes through `Closing`, in which the
/// lock thread takes out of the store what may be there.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing was sent.
    Fresh,
    /// The first attempt is under way, polled by the caller.
    Asking {
        exchange: Exchange<Attempt>,
        stage: Stage,
        /// When the lock thread takes it over.
        until: BootInstant,
        waker: Option<Waker>,
    },
    /// The lock thread asks, waits and asks again.
    Waiting { waker: Option<Waker> },
    /// Granted, and not collected by the caller yet: not renewed, given back when its time is
    /// up.
    Offered(Grant),
    /// While it waited, its owner got the key by another claim; not collected yet, and given up
    /// when its time is up.
    Entered { guard: Guard, by: BootInstant },
    /// Failed; the caller has not seen it yet.
    Refused(Error),
    /// Held by a guard.
    Held,
    /// The release is under way, polled by the caller.
    Releasing { exchange: Exchange<Option<Released>>, until: BootInstant, waker: Option<Waker> },
    /// Released, but kept until `min_hold` is over.
    Lingering { until: BootInstant },
    /// The lock thread takes it out of the store.
    Closing,
    /// Over: released, lost, or never granted.
    Ended,
}

/// What the store granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) fence: Option<u64>,
    pub(crate) lease: Lease,
}

/// What is known of a claim that is held.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) lease: Lease,
    pub(crate) granted: BootInstant,
    /// When the next renewal is due.
    pub(crate) renew_at: BootInstant,
    /// Whether one is under way.
    pub(crate) renewing: bool,
    pub(crate) last_error: Option<Arc<Error>>,
}
