//! Wake-ups: one subscription per server, however many keys are waited for.
//!
//! Pub/sub forgets: what is published while nobody is subscribed is gone. So a waiter asks the
//! store only once its subscription is confirmed, everybody is woken after a subscription was
//! made anew, and behind every wait there is a poll.

mod subscriber;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{Core, Token, Wake};

pub(crate) use self::subscriber::Source;
use self::topics::Topics;

/// The wake-ups of one client.
#[derive(Debug)]
pub(crate) struct Signal {
    topics: Arc<Topics>,
    sources: Vec<Arc<dyn Source>>,
}

impl Signal {
    /// Wake-ups from all of `sources`, of which `quorum` have to confirm a subscription; `core`
    /// is told what stands in the way.
    pub(crate) fn new(core: Core, sources: Vec<Arc<dyn Source>>, quorum: usize) -> Self {
        Self { topics: Arc::new(Topics::new(core, sources.len(), quorum)), sources }
    }

    /// Begins to listen for `token` on a channel; dropped, it ends that.
    pub(crate) fn listen(&self, channel: Vec<u8>, token: Token) -> Listening {
        let listening = Listening { topics: Arc::clone(&self.topics), channel, token };
        self.topics.add(&listening.channel, token);
        for at in self.topics.idle() {
            if let Some(source) = self.sources.get(at) {
                subscriber::start(&self.topics, Arc::clone(source), at);
            }
        }
        listening
    }
}

/// One waiter's place on a channel.
#[derive(Debug)]
pub(crate) struct Listening {
    topics: Arc<Topics>,
    channel: Vec<u8>,
    token: Token,
}

impl Listening {
    /// Waits until the subscription is confirmed, but at most `patience`: behind it there is the
    /// poll. Returns what wakes from then on.
    pub(crate) async fn ready(&self, patience: Duration) -> Wake {
        let wake = self.topics.wake(&self.channel, self.token);
        let Some(mut confirmed) = self.topics.confirmed(&self.channel) else { return wake };
        let quorum = self.topics.quorum();
        let _ = tokio::time::timeout(patience, confirmed.wait_for(|n| *n >= quorum)).await;
        wake
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.topics.remove(&self.channel, self.token);
    }
}
