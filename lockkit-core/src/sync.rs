//! Locking that survives a panic elsewhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::sync::Notify;

/// Locks `mutex`, also after a panic of another thread: no critical section here leaves its
/// data half-changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes all who wait. A waker that panics (it is the caller's) must not keep what follows from
/// being done.
pub(crate) fn ring(bell: &Notify) {
    let _ = catch_unwind(AssertUnwindSafe(|| bell.notify_waiters()));
}

/// As [`lock`], but `None` if somebody has it.
pub(crate) fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
