//! Wake-ups: how a store tells a waiter that asking again may be worth it.

use tokio::sync::watch;

/// The sending side of wake-ups; a backend keeps one per key or per predecessor.
#[derive(Debug)]
pub struct Bell(watch::Sender<()>);

impl Bell {
    /// A bell that nobody listens to yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Wakes everybody who got a [`Wake`] of this bell before now.
    pub fn ring(&self) {
        self.0.send_replace(());
    }

    /// A receiver that is woken by every ring from now on. Take it *before* asking the store:
    /// a ring between the question and the wait is then not lost.
    pub fn listen(&self) -> Wake {
        Wake(Some(self.0.subscribe()))
    }

    /// How many receivers there are.
    pub fn listeners(&self) -> usize {
        self.0.receiver_count()
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

/// An owned receiver of wake-ups. A hint, nothing more: it may come without a reason, and it may
/// get lost, so every wait has a poll behind it.
#[derive(Debug)]
pub struct Wake(Option<watch::Receiver<()>>);

impl Wake {
    /// Never wakes: the store has no notifications, only the poll is left.
    pub fn never() -> Self {
        Self(None)
    }

    /// Waits for the next ring, or for the end of the bell.
    ///
    /// # Cancel safety
    /// Cancel-safe: a ring that came is seen by the next call.
    pub async fn woken(&mut self) {
        match &mut self.0 {
            // An error means that the bell is gone. Its reason may concern this waiter.
            Some(receiver) => {
                if receiver.changed().await.is_err() {
                    self.0 = None;
                }
            }
            None => std::future::pending().await,
        }
    }
}
