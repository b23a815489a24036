//! Who waits on which channel.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkit_core::{Bell, Core, Token, Wake};
use tokio::sync::{Notify, watch};

use crate::errors::Problem;

/// For how long a channel stays subscribed that nobody waits on: where a key is handed from
/// waiter to waiter, the next one comes at once.
pub(super) const LINGER: Duration = Duration::from_millis(200);

/// Who waits on which channel, for all subscriptions of a client.
#[derive(Debug)]
pub(super) struct Topics {
    core: Core,
    quorum: usize,
    state: Mutex<State>,
    /// One for each subscription: something changed.
    changed: Vec<Notify>,
}

#[derive(Debug)]
struct State {
    topics: HashMap<Vec<u8>, Topic>,
    /// Which subscriptions have a task.
    running: Vec<bool>,
}

#[derive(Debug)]
struct Topic {
    waiters: HashMap<Token, Bell>,
    /// Which subscriptions the server has confirmed, and how many: for those who wait for that.
    by: HashSet<usize>,
    confirmed: watch::Sender<usize>,
    /// Since when nobody waits.
    idle_since: Option<Instant>,
    /// Which subscriptions have told a release of which the others have not heard yet, and when
    /// the last of them did.
    told: (HashSet<usize>, Instant),
}

/// For how long a release counts that too few subscriptions tell: on some servers the claim may
/// not have been, and what the last ones tell is no news.
const TOGETHER: Duration = Duration::from_millis(20);

impl Topics {
    pub(super) fn new(core: Core, subscriptions: usize, quorum: usize) -> Self {
        let changed = (0..subscriptions).map(|_| Notify::new()).collect();
        let state = State { topics: HashMap::new(), running: vec![false; subscriptions] };
        Self { core, quorum, state: Mutex::new(state), changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribing failed. Without a right to it, waiters only have the poll; whoever waits should
    /// know.
    pub(super) fn trouble(&self, problem: &Problem) {
        if problem.is_permission() {
            self.core.warn(format!(
                "releases are not noticed at once, because subscribing to them is refused: \
                 {problem}"
            ));
        }
    }

    pub(super) fn quorum(&self) -> usize {
        self.quorum
    }

    pub(super) fn add(&self, channel: &[u8], token: Token) {
        let mut state = self.state();
        let topic = state.topics.entry(channel.to_vec()).or_insert_with(|| Topic {
            waiters: HashMap::new(),
            by: HashSet::new(),
            confirmed: watch::Sender::new(0),
            idle_since: None,
            told: (HashSet::new(), Instant::now()),
        });
        topic.waiters.insert(token, Bell::new());
        topic.idle_since = None;
        let new = topic.by.len() < self.changed.len();
        drop(state);
        if new {
            self.tell();
        }
    }

    pub(super) fn remove(&self, channel: &[u8], token: Token) {
        let mut state = self.state();
        let Some(topic) = state.topics.get_mut(channel) else { return };
        topic.waiters.remove(&token);
        if topic.waiters.is_empty() {
            topic.idle_since.get_or_insert_with(Instant::now);
        }
    }

    fn tell(&self) {
        for changed in &self.changed {
            changed.notify_one();
        }
    }

    pub(super) fn wake(&self, channel: &[u8], token: Token) -> Wake {
        let state = self.state();
        let bell = state.topics.get(channel).and_then(|topic| topic.waiters.get(&token));
        bell.map_or_else(Wake::never, Bell::listen)
    }

    pub(super) fn confirmed(&self, channel: &[u8]) -> Option<watch::Receiver<usize>> {
        self.state().topics.get(channel).map(|topic| topic.confirmed.subscribe())
    }

    /// The subscriptions without a task; the caller starts them now.
    pub(super) fn idle(&self) -> Vec<usize> {
        let mut state = self.state();
        let idle = state.running.iter_mut().enumerate().filter(|(_, running)| !**running);
        idle.map(|(at, running)| {
            *running = true;
            at
        })
        .collect()
    }

    /// The task of a subscription wants to end, or ended: whether it may, because nobody waits.
    pub(super) fn end(&self, at: usize, whatever: bool) -> bool {
        let mut state = self.state();
        let end = whatever || state.topics.is_empty();
        state.running[at] &= !end;
        end
    }

    /// Something changed for the subscription `at`.
    pub(super) async fn changed(&self, at: usize) {
        self.changed[at].notified().await;
    }

    /// What the subscription `at` has yet to subscribe and to unsubscribe, given what it has.
    pub(super) fn difference(&self, has: &HashSet<Vec<u8>>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut state = self.state();
        let over = |topic: &Topic| topic.idle_since.is_some_and(|at| at.elapsed() >= LINGER);
        state.topics.retain(|_, topic| !over(topic));
        let add = state.topics.keys().filter(|c| !has.contains(*c)).cloned().collect();
        let drop = has.iter().filter(|c| !state.topics.contains_key(*c)).cloned().collect();
        (add, drop)
    }

    /// Whether some channel is only kept for a while.
    pub(super) fn lingers(&self) -> bool {
        self.state().topics.values().any(|topic| topic.idle_since.is_some())
    }

    /// The server has confirmed these. What was published before is lost, so all waiters ask.
    pub(super) fn confirm(&self, at: usize, channels: &[Vec<u8>]) {
        let mut state = self.state();
        for channel in channels {
            let Some(topic) = state.topics.get_mut(channel) else { continue };
            topic.by.insert(at);
            topic.confirmed.send_replace(topic.by.len());
            topic.waiters.values().for_each(Bell::ring);
        }
    }

    /// The connection of a subscription is gone.
    pub(super) fn disconnected(&self, at: usize) {
        for topic in self.state().topics.values_mut() {
            if topic.by.remove(&at) {
                topic.confirmed.send_replace(topic.by.len());
            }
        }
    }

    /// A message came by the subscription `at`: it wakes the waiter that it names, or, once so many
    /// have told it as are needed for a claim, all of the channel.
    pub(super) fn deliver(&self, at: usize, channel: &[u8], payload: &[u8]) {
        let mut state = self.state();
        let Some(topic) = state.topics.get_mut(channel) else { return };
        if payload.is_empty() {
            if self.quorum == 1 || topic.told_by(at, self.quorum) {
                topic.waiters.values().for_each(Bell::ring);
            }
        } else if let Some(token) = std::str::from_utf8(payload).ok().and_then(|t| t.parse().ok()) {
            topic.waiters.get(&token).into_iter().for_each(Bell::ring);
        }
    }
}

impl Topic {
    /// Whether with this one enough subscriptions have told a release.
    fn told_by(&mut self, at: usize, quorum: usize) -> bool {
        let (told, last) = &mut self.told;
        let now = Instant::now();
        if now.duration_since(*last) > TOGETHER {
            told.clear();
        }
        *last = now;
        told.insert(at);
        let enough = told.len() >= quorum;
        if enough {
            told.clear();
        }
        enough
    }
}
