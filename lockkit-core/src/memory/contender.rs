//! One claim in a memory store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::BootInstant;
use crate::contender::{Attempt, Claim, Contender, Lease, Released, Renewal, Stage};
use crate::error::Result;
use crate::memory::store::{Answer, Store, Waits};
use crate::sync::lock;

#[derive(Debug)]
pub(super) struct MemoryContender {
    store: Arc<Mutex<Store>>,
    claim: Claim,
    fair: bool,
}

impl MemoryContender {
    pub(super) fn new(store: Arc<Mutex<Store>>, claim: Claim, fair: bool) -> Self {
        Self { store, claim, fair }
    }
}

#[async_trait]
impl Contender for MemoryContender {
    fn late_effects(&self) -> Duration {
        Duration::ZERO
    }

    async fn attempt(&mut self, stage: Stage, _budget: Duration) -> Result<Attempt> {
        let now = BootInstant::now();
        let waits = match stage {
            Stage::Try => Waits::No,
            Stage::First | Stage::Wait if self.fair => Waits::InLine,
            Stage::First | Stage::Wait => Waits::Somewhere,
        };
        match lock(&self.store).attempt(&self.claim, waits, now)? {
            Answer::Granted { fence } => {
                Ok(Attempt::Granted { fence: Some(fence), lease: Lease::new(now, self.claim.ttl) })
            }
            Answer::Busy { wake, holder, free_in } => Ok(Attempt::Busy { wake, holder, free_in }),
        }
    }

    async fn renew(&mut self, _budget: Duration) -> Result<Renewal> {
        let now = BootInstant::now();
        let ttl = self.claim.ttl;
        Ok(if lock(&self.store).extend(&self.claim, now + ttl, now) {
            Renewal::Extended(Lease::new(now, ttl))
        } else {
            Renewal::Gone
        })
    }

    async fn release(&mut self, _budget: Duration) -> Result<Released> {
        let freed = lock(&self.store).release(&self.claim, BootInstant::now());
        Ok(if freed { Released::Freed } else { Released::NotFound })
    }

    async fn linger(&mut self, rest: Duration, _budget: Duration) -> Result<Option<Released>> {
        let now = BootInstant::now();
        let kept = lock(&self.store).extend(&self.claim, now + rest, now);
        Ok(Some(if kept { Released::Freed } else { Released::NotFound }))
    }
}
