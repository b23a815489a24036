//! A client on a machine that sleeps: its clock jumps, its timers do not fire.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Claim, Clock, Contender, Core, DistributedLock, Result};

use crate::bed::Client;

/// Another client's store, under a core of its own whose clock can be moved ahead.
#[derive(Debug)]
pub(crate) struct Suspendable {
    inner: Client,
    core: Core,
    clock: Clock,
}

impl Suspendable {
    pub(crate) fn new(inner: Client) -> Arc<Self> {
        let (has, settings) =
            (inner.core().capabilities().clone(), inner.core().settings().clone());
        let clock = Clock::adjustable();
        let core = Core::with_clock(has, settings, clock.clone());
        Arc::new(Self { inner, core, clock })
    }

    pub(crate) fn sleep_through(&self, time: Duration) {
        self.clock.advance(time);
    }
}

#[async_trait]
impl DistributedLock for Suspendable {
    fn core(&self) -> &Core {
        &self.core
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        self.inner.contend(claim)
    }

    async fn ping(&self) -> Result<()> {
        self.inner.ping().await
    }
}
