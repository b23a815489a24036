//! One exchange with a store, which any thread can drive.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::engine::thread;
use crate::error::{Error, Result};

/// A future that is polled and dropped inside the lock thread's runtime context, whichever
/// thread does it: its timers and sockets belong there, so it can move there at any time, and
/// it survives the end of the caller's runtime.
pub(crate) struct Exchange<T>(Option<Pin<Box<dyn Future<Output = Result<T>> + Send>>>);

/// How much longer than its budget an exchange is left alone before it is given up.
const GRACE: Duration = Duration::from_millis(50);

impl<T> Exchange<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }

    /// Polls it; must not be called again once it was ready.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let _context = thread::context();
        // A driver that panics must not take the lock thread or the claim's clean-up with it.
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        let result = match polled {
            Ok(polled) => std::task::ready!(polled),
            Err(_) => Err(Error::unavailable("the backend panicked, which is a bug in it")),
        };
        self.0 = None;
        Poll::Ready(result)
    }

    /// Drives it to its end on the lock thread; gives it up only when it exceeds its budget by
    /// far, which counts as a request without an answer.
    pub(crate) async fn finish(mut self, budget: Duration) -> Result<T> {
        let limit = budget + GRACE;
        match tokio::time::timeout(limit, std::future::poll_fn(|cx| self.poll(cx))).await {
            Ok(result) => result,
            Err(_) => Err(Error::unavailable(format!("no answer within {budget:?}"))),
        }
    }
}

impl<T> Drop for Exchange<T> {
    fn drop(&mut self) {
        if let Some(future) = self.0.take() {
            // Pooled connections and timers need a runtime to be dropped in.
            let _context = thread::context();
            drop(future);
        }
    }
}

impl<T> fmt::Debug for Exchange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}
