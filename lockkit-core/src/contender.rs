//! What a backend author writes: one claim in one store.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::BootInstant;
use crate::error::Result;
use crate::holder::Holder;
use crate::key::Key;
use crate::mode::Mode;
use crate::request::Owner;
use crate::shared_lease::SharedLease;
use crate::token::Token;
use crate::wake::Wake;

/// What a claim is: fixed from its first attempt to its release.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim {
    /// The key.
    pub key: Key,
    /// The identity of this claim: the store grants, renews and releases by it alone.
    pub token: Token,
    /// How the key is to be held.
    pub mode: Mode,
    /// The TTL that was asked for. A server may grant another one.
    pub ttl: Duration,
    /// For inspection only; equal labels mean nothing.
    pub label: Option<Arc<str>>,
    /// Who re-enters; the core counts re-entry within the client, so only backends with stored
    /// re-entrancy look at it.
    pub owner: Option<Owner>,
}

impl Claim {
    /// A claim with a new token and nothing optional. The engine makes those of acquires; this
    /// is for whoever drives a [`Contender`] by hand.
    pub fn new(key: Key, mode: Mode, ttl: Duration) -> Self {
        Self { key, token: Token::new(), mode, ttl, label: None, owner: None }
    }
}

/// One claim in one store, from first attempt to release.
///
/// # Contract for implementers
/// - The engine calls one method at a time and, unless one exceeds its budget by far, lets each
///   call end by itself. A call that *is* dropped counts as a request without an answer.
/// - `budget` is how long the call may take; return [`Error::Unavailable`](crate::Error) when it
///   is used up.
/// - A request that was sent and not answered may have taken effect, now or later: every method
///   must be right when the store is in either state.
/// - Errors that retrying cannot mend (permission, wrong schema, another family of claims on
///   the key) must not be `Unavailable`, and a busy key must not be an error.
/// - Futures are polled inside the lock thread's runtime context, whichever thread polls them.
#[async_trait]
pub trait Contender: Debug + Send + 'static {
    /// Asks the store for the key. The decision is one atomic step of the store.
    ///
    /// Idempotent per token: when an earlier attempt has taken effect, this finds the claim and
    /// re-arms its full TTL in the same step.
    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt>;

    /// Extends the claim, and proves from the store that it still stands.
    ///
    /// Never re-creates: a claim that is not there is [`Renewal::Gone`].
    async fn renew(&mut self, budget: Duration) -> Result<Renewal>;

    /// Takes the claim, its place in a queue and all that belongs to it out of the store.
    ///
    /// Idempotent, compares the token, right in every state: never sent, waiting, held, gone.
    async fn release(&mut self, budget: Duration) -> Result<Released>;

    /// How long after it was given up a request without an answer may still take effect: for so
    /// long the engine looks for it after the clean-up. Default: for as long as its lease could
    /// matter, which is right for every store behind a network.
    fn late_effects(&self) -> Duration {
        Duration::MAX
    }

    /// Instead of a release: leaves the claim in the store for exactly `rest` from now, to go
    /// away by itself then, even if this process is gone. `None` means that this store cannot
    /// (its leases die with the process).
    async fn linger(&mut self, rest: Duration, budget: Duration) -> Result<Option<Released>> {
        let _ = (rest, budget);
        Ok(None)
    }
}

/// How far an attempt may go when the key is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The caller will not wait: when busy, leave nothing in the store.
    Try,
    /// The caller may wait: a place in the queue may be taken.
    First,
    /// The caller waits: the wake-up must be confirmed before the store is asked.
    Wait,
}

/// The answer to an attempt.
#[derive(Debug)]
pub enum Attempt {
    /// The claim stands.
    Granted {
        /// The fence, if the backend has fences.
        fence: Option<u64>,
        /// How long it stands.
        lease: Lease,
    },
    /// Somebody else has the key.
    Busy {
        /// Wakes when asking again may be worth it.
        wake: Wake,
        /// Who was seen, where the answer tells it without a further round trip.
        holder: Option<Holder>,
        /// After which time the key is free at the latest if nobody renews.
        free_in: Option<Duration>,
    },
}

/// The answer to a renewal.
#[derive(Debug)]
pub enum Renewal {
    /// The claim stands, for this long.
    Extended(Lease),
    /// The store no longer has the claim.
    Gone,
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The claim was there, and is gone now.
    Freed,
    /// There was no such claim (any more).
    NotFound,
}

/// How long a claim stands.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Lease {
    /// The instant just before the request that was acknowledged left this process, never the
    /// instant of the answer.
    pub sent: BootInstant,
    /// What the store granted from then on.
    pub ttl: Duration,
    /// The session, lease or connection that carries the claim, if others share its fate.
    pub shared: Option<SharedLease>,
}

impl Lease {
    /// A lease of this claim alone.
    pub fn new(sent: BootInstant, ttl: Duration) -> Self {
        Self { sent, ttl, shared: None }
    }

    /// The claim ends when `shared` ends.
    #[must_use]
    pub fn on(mut self, shared: SharedLease) -> Self {
        self.shared = Some(shared);
        self
    }
}
