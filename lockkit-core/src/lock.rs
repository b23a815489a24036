//! The trait that every backend implements, and the everyday words on top of it.

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;

use crate::contender::{Claim, Contender};
use crate::core::Core;
use crate::engine::acquire::{Acquire, TryAcquire};
use crate::error::{Error, Result};
use crate::holder::{Holder, Which};
use crate::key::Key;
use crate::request::Request;

/// One lock service. Every backend crate implements this; users call it, mostly as
/// `Arc<dyn DistributedLock>` and through [`LockExt`].
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// What all backends have in common: description, defaults, live claims, events.
    fn core(&self) -> &Core;

    /// Makes the contender of one claim. Does no I/O.
    fn contend(&self, claim: Claim) -> Box<dyn Contender>;

    /// Asks the backend for a sign of life, and whether it would serve this client.
    ///
    /// # Errors
    /// What an acquire would meet: unavailable, permission, configuration.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    async fn ping(&self) -> Result<()>;

    /// Tells who holds `key`; `None` if nobody does.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the backend cannot tell, and what [`ping`](Self::ping) meets.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let _ = key;
        Err(Error::unsupported(self.core().capabilities().name, "inspection of the holder"))
    }

    /// Takes `key` from a holder. The holder notices at its next renewal, so within TTL/3.
    /// Returns whether there was such a holder.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the backend cannot, or has no fences and one is named; and what
    /// [`ping`](Self::ping) meets.
    ///
    /// # Cancel safety
    /// Once polled it may take effect.
    async fn force_release(&self, key: &Key, which: Which) -> Result<bool> {
        let _ = (key, which);
        Err(Error::unsupported(self.core().capabilities().name, "forced release"))
    }

    /// Ends connections and sessions; the last step of [`LockExt::close`]. Default: nothing.
    async fn disconnect(&self) {}

    /// Acquires what `request` asks for. See [`LockExt::acquire`].
    fn acquire_with(&self, request: Request) -> Acquire {
        self.core().acquire(request, |claim| self.contend(claim))
    }

    /// Acquires what `request` asks for if that needs no wait. See [`LockExt::try_acquire`].
    fn try_acquire_with(&self, request: Request) -> TryAcquire {
        TryAcquire::new(self.acquire_with(request.timeout(Duration::ZERO)))
    }
}

/// The everyday words for every [`DistributedLock`].
pub trait LockExt: DistributedLock {
    /// Acquires a key, waiting as long as the request allows (5 s by default).
    ///
    /// # Errors
    /// - [`Error::NotAcquired`]: somebody else has it.
    /// - [`Error::Unavailable`]: the backend did not answer a request that must not wait.
    /// - [`Error::Permission`], [`Error::Configuration`], [`Error::Unsupported`]: at once.
    ///
    /// # Cancel safety
    /// Cancel-safe: dropped at any point it leaves nothing behind; what was sent is undone in
    /// the background. A future that is kept but not polled any more is undone when its time is
    /// up.
    fn acquire(&self, request: impl Into<Request>) -> Acquire {
        self.acquire_with(request.into())
    }

    /// Acquires a key if that needs no wait; `None` if somebody else has it, or waits for it in
    /// this client. One exchange with the store, which `op_timeout` bounds.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but for a busy key.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    fn try_acquire(&self, request: impl Into<Request>) -> TryAcquire {
        self.try_acquire_with(request.into())
    }

    /// Acquires a key as one of many readers.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    fn shared(&self, request: impl Into<Request>) -> Acquire {
        self.acquire_with(request.into().shared())
    }

    /// Acquires one of `limit` permits of a key.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    fn permit(&self, request: impl Into<Request>, limit: NonZeroU32) -> Acquire {
        self.acquire_with(request.into().permit(limit))
    }

    /// Refuses new claims from now on, and waits until what is still being cleaned up behind
    /// dropped futures and guards is done, for at most `deadline`. Guards that live are kept and
    /// renewed. Returns whether everything was done in time.
    ///
    /// # Cancel safety
    /// Cancel-safe; new claims stay refused.
    fn close(&self, deadline: Duration) -> impl Future<Output = bool> + Send {
        async move {
            let clean = self.core().close(deadline).await;
            self.disconnect().await;
            clean
        }
    }
}

impl<T: DistributedLock + ?Sized> LockExt for T {}
