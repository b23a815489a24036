//! The client may be used from an executor that is not tokio's: connecting, waiting, releasing,
//! inspecting and closing need no runtime of the caller.

#![cfg(feature = "sqlite")]
#![cfg(test)] // for clippy: the helpers here may panic as the tests may

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use lockkit::{Key, LockExt, Request, connect};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is: this thread, which sleeps in between.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn no_runtime_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let key = Key::new("k").unwrap();
    let (a, b) = block_on(async { (connect(&url).await.unwrap(), connect(&url).await.unwrap()) });
    let guard = block_on(a.acquire("k")).unwrap();
    assert!(block_on(b.inspect(&key)).unwrap().is_some());
    let busy = block_on(b.acquire(Request::new("k").timeout(Duration::from_millis(100))));
    assert!(busy.unwrap_err().is_not_acquired());
    let waiter = std::thread::spawn(move || {
        let guard = block_on(b.acquire("k")).unwrap();
        assert_eq!(block_on(guard.run(async { 42 })).unwrap(), 42);
        drop(guard);
        assert!(block_on(b.close(Duration::from_secs(5))));
    });
    block_on(guard.release()).unwrap();
    waiter.join().unwrap();
    assert!(block_on(a.inspect(&key)).unwrap().is_none());
    assert!(block_on(a.close(Duration::from_secs(5))));
}
