//! The timer of the runtime, for systems without `timerfd`: it may not count suspend.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::BootInstant;

pub(in crate::engine) struct Alarm(Arc<watch::Sender<u64>>);

impl Alarm {
    pub(in crate::engine) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(watch::Sender::new(u64::MAX))))
    }

    pub(in crate::engine) fn set(&self, nanos: u64) {
        self.0.send_replace(nanos);
    }

    pub(in crate::engine) fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
    }
}

pub(in crate::engine) struct Listener(watch::Receiver<u64>);

impl Listener {
    pub(in crate::engine) async fn rung(&mut self) {
        loop {
            let at = *self.0.borrow_and_update();
            let left = BootInstant::from_nanos(at).since(BootInstant::now());
            // A far sleep is cut in pieces, since the runtime's timer has its limits.
            tokio::select! {
                () = tokio::time::sleep(left.min(Duration::from_secs(3600))) => {
                    if BootInstant::now().as_nanos() >= at { return }
                }
                _ = self.0.changed() => {}
            }
        }
    }
}
