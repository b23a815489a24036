//! Keeps cases that load the machine away from all others.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// The machine, shared with light cases or for one heavy case alone.
#[derive(Debug)]
pub(crate) struct Turn {
    _shared: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Turn {
    pub(crate) fn wait(alone: bool) -> Self {
        if alone {
            let guard = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
            return Self { _shared: None, _alone: Some(guard) };
        }
        let guard = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Self { _shared: Some(guard), _alone: None }
    }
}
