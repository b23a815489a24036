//! What a backend can promise.

use std::fmt;
use std::time::Duration;

/// What a backend promises, and where its promises end.
///
/// Build with [`Capabilities::new`] and set what differs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The backend's name, as in labels and messages.
    pub name: &'static str,
    /// Whether two holders are possible, and when.
    pub consistency: Consistency,
    /// How the store gets rid of a dead holder.
    pub lease: LeaseKind,
    /// The smallest TTL that the backend keeps.
    pub smallest_ttl: Duration,
    /// Whether the store keeps a queue, so that waiters of all clients come in order (FIFO).
    pub fair: bool,
    /// What the fence is worth.
    pub fencing: Fencing,
    /// Whether [`Mode::Shared`](crate::Mode::Shared) is there.
    pub shared: bool,
    /// Whether [`Mode::Permit`](crate::Mode::Permit) is there.
    pub permits: bool,
    /// Whether one owner can re-enter from another process.
    pub stored_reentrancy: bool,
    /// Whether the holder of a key can be inspected.
    pub inspection: bool,
    /// Whether a claim can be released by somebody else.
    pub forced_release: bool,
    /// Whether a release wakes waiters of other clients at once (else they poll).
    pub push: bool,
    /// The least version of the server, where there is one.
    pub least_version: Option<&'static str>,
}

impl Capabilities {
    /// A backend that has none of the optional capabilities.
    pub const fn new(name: &'static str, consistency: Consistency, lease: LeaseKind) -> Self {
        Self {
            name,
            consistency,
            lease,
            smallest_ttl: Duration::from_secs(1),
            fair: false,
            fencing: Fencing::None,
            shared: false,
            permits: false,
            stored_reentrancy: false,
            inspection: false,
            forced_release: false,
            push: false,
            least_version: None,
        }
    }

    /// Whether the backend has `capability`.
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Cp => matches!(self.consistency, Consistency::Cp(_)),
            Capability::Fenced => self.fencing != Fencing::None,
            Capability::StrictlyFenced => self.fencing == Fencing::Strict,
            Capability::Fair => self.fair,
            Capability::Shared => self.shared,
            Capability::Permits => self.permits,
            Capability::StoredReentrancy => self.stored_reentrancy,
            Capability::Inspection => self.inspection,
            Capability::ForcedRelease => self.forced_release,
            Capability::Push => self.push,
        }
    }
}

/// One thing that a user can demand of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Capability {
    /// Never two holders, whatever fails, within the limits that the backend's sentence states.
    Cp,
    /// A fence of any kind.
    Fenced,
    /// A fence that grows whatever happens.
    StrictlyFenced,
    /// First come, first served, across all clients.
    Fair,
    /// Shared mode.
    Shared,
    /// Permits.
    Permits,
    /// Re-entrancy across processes.
    StoredReentrancy,
    /// Inspection of the holder.
    Inspection,
    /// Forced release.
    ForcedRelease,
    /// Push on release.
    Push,
}

impl Capability {
    /// All of them, in the order of the capability table.
    pub const ALL: [Self; 10] = [
        Self::Cp,
        Self::Fenced,
        Self::StrictlyFenced,
        Self::Fair,
        Self::Shared,
        Self::Permits,
        Self::StoredReentrancy,
        Self::Inspection,
        Self::ForcedRelease,
        Self::Push,
    ];
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cp => "consistency under failures (CP)",
            Self::Fenced => "fence",
            Self::StrictlyFenced => "strict fence",
            Self::Fair => "fair (FIFO) queue",
            Self::Shared => "shared mode",
            Self::Permits => "permits",
            Self::StoredReentrancy => "re-entrancy across processes",
            Self::Inspection => "inspection of the holder",
            Self::ForcedRelease => "forced release",
            Self::Push => "push on release",
        })
    }
}

/// Whether two holders are possible, with the sentence that says under which failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// Stays available; the sentence says under which failure two holders are possible.
    Ap(&'static str),
    /// Rather blocks than errs; the sentence says what it takes for granted.
    Cp(&'static str),
}

/// How the store gets rid of a dead holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseKind {
    /// A TTL, on the claim or on a lease that claims share.
    Expires,
    /// A session that the server expires.
    Session,
    /// A database connection: the server frees at the instant it sees the connection die.
    Connection,
}

/// What the fence is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fencing {
    /// Grows with every grant, whatever happens.
    Strict,
    /// Grows unless the server's clock is set back, or another server with a clock that lags
    /// takes over.
    UnlessClockStepsBack,
    /// There is none: `fence()` is `None`.
    None,
}
