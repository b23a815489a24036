//! What happened to claims: the one stream that logs, spans and metrics are made of.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::error::Error;
use crate::key::Key;
use crate::loss::LossReason;
use crate::mode::Mode;
use crate::token::Token;

/// Something that happened, and to which claim.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// The backend's name.
    pub backend: &'static str,
    /// The claim; `None` when the event concerns the whole client.
    pub claim: Option<Subject>,
    /// What happened.
    pub kind: EventKind,
}

/// The claim that an event is about.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Subject {
    /// Its key. Mind that a label of a metric must not be a key: there are too many.
    pub key: Key,
    /// Its token.
    pub token: Token,
    /// Its mode.
    pub mode: Mode,
}

/// What happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind {
    /// The key was busy, so the claim began to wait. Followed by exactly one of `Acquired`,
    /// `Reentered`, `AcquireFailed` and `AcquireCancelled` with `after_waiting`: plus one, minus
    /// one make the gauge of waiters.
    Waiting,
    /// The claim was granted and collected. Followed by exactly one of `Released`,
    /// `ReleaseMismatch`, `ReleaseGivenUp` and `Lost`: plus one, minus one make the gauge of
    /// claims that are held.
    Acquired {
        /// Whether a `Waiting` came before.
        after_waiting: bool,
        /// From the first poll of the acquire on.
        waited: Duration,
        /// Its fence.
        fence: Option<u64>,
    },
    /// The owner of a claim entered it once more; no exchange with the store.
    Reentered {
        /// Whether a `Waiting` came before.
        after_waiting: bool,
    },
    /// The acquire returned an error.
    AcquireFailed {
        /// Whether a `Waiting` came before.
        after_waiting: bool,
        /// From the first poll of the acquire on.
        waited: Duration,
        /// The error's [`reason`](Error::reason).
        reason: &'static str,
    },
    /// The acquire was dropped before it had a result.
    AcquireCancelled {
        /// Whether a `Waiting` came before.
        after_waiting: bool,
        /// From the first poll of the acquire on.
        waited: Duration,
    },
    /// A renewal was acknowledged.
    Renewed,
    /// A renewal failed and will be tried again until the deadline.
    RenewalFailed {
        /// Why.
        error: Arc<Error>,
    },
    /// The claim was released, and the store acknowledged it.
    Released {
        /// From the grant to the release.
        held: Duration,
    },
    /// A release was not acknowledged; it is tried again for as long as the claim can live.
    ReleaseFailed {
        /// Why.
        error: Arc<Error>,
    },
    /// A release found that the store no longer had the claim.
    ReleaseMismatch {
        /// From the grant to the release.
        held: Duration,
    },
    /// A release was never acknowledged, and the store has got rid of the claim by itself.
    ReleaseGivenUp {
        /// From the grant until it was given up.
        held: Duration,
    },
    /// The claim was held and was lost.
    Lost {
        /// What ended it.
        reason: LossReason,
        /// From the grant to the loss.
        held: Duration,
    },
    /// The store stopped answering. The errors come with the claims that meet them.
    Unavailable,
    /// The store answers again.
    Available {
        /// How long it did not.
        after: Duration,
    },
    /// Something that works now, but is dangerous: an eviction policy, a replica as target.
    Warning {
        /// What, and what would be right.
        message: Arc<str>,
    },
}

/// A receiver of the events of one client. Slow receivers lose the oldest events and are told
/// how many; they never slow a lock down.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    missed: u64,
}

impl Events {
    /// The next event; `None` when the client is gone.
    ///
    /// # Cancel safety
    /// Cancel-safe: no event is lost.
    pub async fn recv(&mut self) -> Option<Event> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(n)) => self.missed += n,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// An event that is already there; `None` if there is none.
    pub fn try_recv(&mut self) -> Option<Event> {
        loop {
            match self.receiver.try_recv() {
                Ok(event) => return Some(event),
                Err(broadcast::error::TryRecvError::Lagged(n)) => self.missed += n,
                Err(_) => return None,
            }
        }
    }

    /// How many events this receiver was too slow for.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// The sending side. Its buffer is made by the first subscription: a client that nobody listens
/// to pays neither memory nor time.
#[derive(Debug)]
pub(crate) struct Emitter {
    backend: &'static str,
    sender: OnceLock<broadcast::Sender<Event>>,
}

impl Emitter {
    /// How many events a receiver may lag behind.
    const CAPACITY: usize = 4096;

    pub(crate) fn new(backend: &'static str) -> Self {
        Self { backend, sender: OnceLock::new() }
    }

    pub(crate) fn subscribe(&self) -> Events {
        let sender = self.sender.get_or_init(|| broadcast::Sender::new(Self::CAPACITY));
        Events { receiver: sender.subscribe(), missed: 0 }
    }

    /// Sends what `make` makes; calls it only if somebody listens or once did.
    pub(crate) fn emit(&self, make: impl FnOnce() -> (Option<Subject>, EventKind)) {
        if let Some(sender) = self.sender.get() {
            let (claim, kind) = make();
            // An error only says that no receiver is left.
            let _ = sender.send(Event { backend: self.backend, claim, kind });
        }
    }
}

impl Subject {
    pub(crate) fn new(key: Key, token: Token, mode: Mode) -> Self {
        Self { key, token, mode }
    }
}
