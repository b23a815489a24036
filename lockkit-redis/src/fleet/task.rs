//! A task that ends with whoever it works for.

use tokio::task::AbortHandle;

/// A task on the lock thread; dropped, it is ended.
#[derive(Debug, Default)]
pub(super) struct Task(Option<AbortHandle>);

impl Task {
    /// Starts one. Whoever needs a server is polled inside the lock thread's runtime.
    pub(super) fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(tokio::spawn(work).abort_handle()))
    }

    /// Whether it is at work.
    pub(super) fn runs(&self) -> bool {
        self.0.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
