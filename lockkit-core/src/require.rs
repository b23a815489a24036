//! Demands on a backend, checked at start-up.

use crate::capability::{Capabilities, Capability};
use crate::error::{Error, Result};

/// What a use case demands of whatever backend its URL names.
///
/// ```
/// use lockkit_core::{Capability, DistributedLock, Memory, Require};
///
/// let stock = Require::cp().fenced();
/// assert!(stock.check(Memory::new().core().capabilities()).is_ok());
/// assert!(stock.fair().check(Memory::new().core().capabilities()).is_err());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Require {
    wanted: Vec<Capability>,
}

impl Require {
    /// Nothing in particular.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Rather block than have two holders.
    pub fn cp() -> Self {
        Self::default().and(Capability::Cp)
    }

    /// Demands `capability` too.
    pub fn and(mut self, capability: Capability) -> Self {
        if !self.wanted.contains(&capability) {
            self.wanted.push(capability);
        }
        self
    }

    /// A fence of any kind.
    pub fn fenced(self) -> Self {
        self.and(Capability::Fenced)
    }

    /// A fence that grows whatever happens.
    pub fn strictly_fenced(self) -> Self {
        self.and(Capability::StrictlyFenced)
    }

    /// First come, first served, across all clients.
    pub fn fair(self) -> Self {
        self.and(Capability::Fair)
    }

    /// Shared mode.
    pub fn shared(self) -> Self {
        self.and(Capability::Shared)
    }

    /// Permits.
    pub fn permits(self) -> Self {
        self.and(Capability::Permits)
    }

    /// Compares the demands with what a backend has.
    ///
    /// # Errors
    /// [`Error::Unsupported`] that lists everything that is missing.
    pub fn check(&self, capabilities: &Capabilities) -> Result<()> {
        let missing: Vec<String> = self
            .wanted
            .iter()
            .filter(|wanted| !capabilities.has(**wanted))
            .map(ToString::to_string)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::unsupported(capabilities.name, &missing.join(", no ")))
    }
}
