//! Futures that are stopped between two polls.

use std::pin::Pin;
use std::task::{Context, Poll};

/// How a future ended that was to be polled a number of times.
#[derive(Debug)]
pub(crate) enum Stopped<F: Future> {
    /// It was ready before.
    Ready(F::Output),
    /// It was polled that often and is pending; here it is, to be dropped, kept or forgotten.
    Pending(Pin<Box<F>>),
}

impl<F: Future> Stopped<F> {
    /// Drops a pending future; gives the result of one that was ready.
    pub(crate) fn cancel(self) -> Option<F::Output> {
        match self {
            Self::Ready(output) => Some(output),
            Self::Pending(_) => None,
        }
    }
}

/// Polls `future` as its wake-ups ask for, `polls` times at most, and not once more.
pub(crate) async fn poll_times<F: Future>(future: F, polls: usize) -> Stopped<F> {
    if polls == 0 {
        return Stopped::Pending(Box::pin(future));
    }
    PollTimes { future: Some(Box::pin(future)), left: polls }.await
}

struct PollTimes<F: Future> {
    future: Option<Pin<Box<F>>>,
    left: usize,
}

impl<F: Future> Future for PollTimes<F> {
    type Output = Stopped<F>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Stopped<F>> {
        let this = &mut *self;
        let future = this.future.as_mut().expect("not polled after it was ready");
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Stopped::Ready(output));
        }
        this.left -= 1;
        if this.left > 0 {
            return Poll::Pending;
        }
        Poll::Ready(Stopped::Pending(this.future.take().expect("it was there")))
    }
}
