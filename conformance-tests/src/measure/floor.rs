//! The bare commands of a store.

use async_trait::async_trait;

/// A store without a lock library: what any implementation on it has to send at least.
#[async_trait]
pub trait Floor: Send + Sync {
    /// What one task uses.
    ///
    /// # Cancel safety
    /// Not needed: nothing here is dropped.
    async fn open(&self) -> Box<dyn Bare>;
}

/// The two commands. No waiting, no renewal, no events; the fence included.
#[async_trait]
pub trait Bare: Send {
    /// Takes `key` if it is free; whether it was.
    ///
    /// # Cancel safety
    /// Not needed: nothing here is dropped.
    async fn acquire(&mut self, key: &str) -> bool;

    /// Gives `key` back.
    ///
    /// # Cancel safety
    /// Not needed: nothing here is dropped.
    async fn release(&mut self, key: &str);
}
