//! Waits that are bounded, and failures that say what was expected.

use std::time::{Duration, Instant};

use lockkit_core::{BootInstant, DistributedLock, Error, Guard, LockExt, Request, Result};

/// Asserts a promise of safety: that it is broken is final, also on a machine that stood still.
macro_rules! safe {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            $crate::stall::violated();
            panic!($($text)+);
        }
    };
}
pub(crate) use safe;

/// What `future` gives, unless it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// Waits until `holds` says so.
pub(crate) async fn eventually(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the clock of the leases shows `at`.
pub(crate) async fn until(at: BootInstant) {
    tokio::time::sleep(at.since(BootInstant::now()) + Duration::from_millis(1)).await;
}

/// How long `future` took, and what it gave.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let value = future.await;
    (start.elapsed(), value)
}

/// Acquires what must be granted.
pub(crate) async fn grant<L: DistributedLock + ?Sized>(
    lock: &L,
    request: impl Into<Request>,
) -> Guard {
    lock.acquire(request).await.unwrap_or_else(|e| panic!("should be granted: {e}"))
}

/// Acquires at once what must be free.
pub(crate) async fn grant_free<L: DistributedLock + ?Sized>(
    lock: &L,
    request: impl Into<Request>,
    why: &str,
) -> Guard {
    match lock.try_acquire(request).await {
        Ok(Some(guard)) => guard,
        Ok(None) => panic!("should be free: {why}"),
        Err(e) => panic!("should be free: {why}: {e}"),
    }
}

/// Acquires at once what must be free, and releases it.
pub(crate) async fn free_now<L: DistributedLock + ?Sized>(
    lock: &L,
    request: impl Into<Request>,
    why: &str,
) {
    release(&grant_free(lock, request, why).await).await;
}

/// Tries what must be refused.
pub(crate) async fn refused<L: DistributedLock + ?Sized>(
    lock: &L,
    request: impl Into<Request>,
    why: &str,
) {
    match lock.try_acquire(request).await {
        Ok(None) => {}
        Ok(Some(guard)) => panic!("should be refused: {why}, but {guard:?}"),
        Err(e) => panic!("should be refused as busy: {why}, but: {e}"),
    }
}

/// Tries until it is free, for at most `limit`.
pub(crate) async fn free_within<L: DistributedLock + ?Sized>(
    lock: &L,
    request: impl Into<Request>,
    limit: Duration,
    why: &str,
) -> Guard {
    let (start, request) = (Instant::now(), request.into());
    loop {
        match lock.try_acquire(request.clone()).await {
            Ok(Some(guard)) => return guard,
            Ok(None) => assert!(start.elapsed() < limit, "not free within {limit:?}: {why}"),
            Err(e) if e.is_retryable() => {
                assert!(start.elapsed() < limit, "not free within {limit:?}: {why}: {e}");
            }
            Err(e) => panic!("should become free: {why}: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Releases what must be held to the end.
pub(crate) async fn release(guard: &Guard) {
    guard.release().await.unwrap_or_else(|e| panic!("release of a held guard: {e}"));
}

/// The error of what must fail.
pub(crate) fn error<T: std::fmt::Debug>(result: Result<T>, what: &str) -> Error {
    match result {
        Ok(value) => panic!("{what} should fail, but gave {value:?}"),
        Err(e) => e,
    }
}

/// The result must say that the key was busy.
pub(crate) fn not_acquired(result: Result<Guard>, what: &str) -> Box<lockkit_core::NotAcquired> {
    match error(result, what) {
        Error::NotAcquired(e) => e,
        e => panic!("{what} should say `NotAcquired`, but: {e:?}"),
    }
}

/// The result must say that the claim was lost.
pub(crate) fn is_lost<T: std::fmt::Debug>(result: Result<T>, what: &str) -> lockkit_core::Lost {
    match error(result, what) {
        Error::Lost(lost) => lost,
        e => panic!("{what} should say `Lost`, but: {e:?}"),
    }
}
