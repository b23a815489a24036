//! What the claims of one client share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lockkit_core::{BootInstant, Claim, Core, Holder, Key, Result, Token, Which};
use redis::aio::PubSub;

use crate::answer;
use crate::clock::ServerClock;
use crate::dangers;
use crate::errors::{Answered, Failed, Problem, no_fences};
use crate::keys::{Keys, Prefix};
use crate::node::Node;
use crate::opener::{As, Opener};
use crate::options::{Layout, RedisOptions};
use crate::rehearsal::{Features, STAYS, rehearsals};
use crate::request::Request;
use crate::scripts::{self, Script};
use crate::signal::{Signal, Source};
use crate::store::{For, Store};

/// What the claims of one client share.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) core: Core,
    pub(crate) store: Arc<Store>,
    pub(crate) signal: Signal,
    pub(crate) clock: ServerClock,
    pub(crate) prefix: Prefix,
    pub(crate) options: RedisOptions,
}

impl Client {
    pub(crate) fn new(
        core: Core,
        store: Store,
        opener: Arc<Opener>,
        prefix: Prefix,
        options: RedisOptions,
    ) -> Self {
        let store = Arc::new(store);
        let source: Arc<dyn Source> = Arc::new(Messages::new(&store, opener));
        let (signal, clock) = (Signal::new(core.clone(), vec![source], 1), ServerClock::default());
        Self { core, store, signal, clock, prefix, options }
    }

    pub(crate) fn keys(&self, key: &Key) -> Keys {
        Keys::new(&self.prefix, key)
    }

    /// Whether claims like this are set and freed by the leanest means: no owner, no queue.
    pub(crate) fn is_plain(&self, claim: &Claim) -> bool {
        claim.mode == lockkit_core::Mode::Exclusive
            && claim.owner.is_none()
            && self.options.layout == Layout::String
            && !self.options.fair
    }

    /// The channel on which Redisson tells releases, where its layout is shared.
    pub(crate) fn redisson_channel(&self, keys: &Keys) -> Vec<u8> {
        match self.options.layout {
            Layout::Hash => keys.redisson_channel(),
            Layout::String => Vec::new(),
        }
    }

    /// Runs a script for which nobody's own future is polled.
    async fn run(
        &self,
        script: &'static Script,
        keys: &Keys,
        args: Vec<Vec<u8>>,
        budget: Duration,
    ) -> Result<Answered, Failed> {
        let request = Request::Script { script, keys: keys.all().to_vec(), args };
        self.store.exchange(keys.slot(), For::Background, &request, budget).await
    }

    /// Goes once through all that a claim needs, so that a missing right is found now and not at
    /// the first release; then looks for what would bite later.
    pub(crate) async fn ping(&self) -> Result<()> {
        let budget = self.core.op_timeout();
        for node in self.store.fleet.known().await? {
            let Some(info) = dangers::ask(&node, budget).await? else { continue };
            let who = node.address().to_string();
            dangers::refuse(&who, &info)?;
            for danger in dangers::dangers(&who, &info, false) {
                self.core.warn(danger);
            }
        }
        self.probe(budget).await
    }

    async fn probe(&self, budget: Duration) -> Result<()> {
        let token = Token::new();
        let keys = Keys::probe(&self.prefix, token);
        let set = Request::Set {
            base: Arc::clone(keys.base()),
            value: token.to_string().into(),
            ttl: STAYS,
            fence: true,
            look: true,
        };
        let set = self.store.exchange(keys.slot(), For::Background, &set, budget).await?;
        // Of what is asked behind the claim: the time, and who holds it.
        for answer in set.values {
            answer.extract_error().map_err(|error| Problem::new(&"the server", error))?;
        }
        let free = Request::Script {
            script: &scripts::FREE,
            keys: vec![keys.base().to_vec()],
            args: vec![token.to_string().into(), keys.channel()],
        };
        self.store.exchange(keys.slot(), For::Background, &free, budget).await?;
        let features = Features {
            fair: self.options.fair,
            hashes: self.options.layout == Layout::Hash,
            owners: true,
        };
        let rehearsals = rehearsals(&self.prefix, features).into_iter();
        let rehearsed = rehearsals.map(|rehearsal| rehearsal.run(&self.store, budget));
        let rehearsed = futures_util::future::join_all(rehearsed).await;
        rehearsed.into_iter().collect::<Result<(), Failed>>()?;
        Ok(())
    }

    /// Tells when the server's clock has stepped between two grants.
    pub(crate) fn watch_clock(&self, micros: u64, sent: BootInstant, received: BootInstant) {
        if !self.store.fleet.is_one() {
            // Another server may have answered, with another clock.
            return;
        }
        if let Some((by, back)) = self.clock.note(micros, sent, received) {
            let way = if back { "back" } else { "ahead" };
            self.core.warn(format!(
                "the clock of the Redis server has stepped {way} by {by:?}: claims may have ended \
                 early or late, and fences went with it; let clocks be slewed, not set",
            ));
        }
    }

    pub(crate) async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let (keys, budget) = (self.keys(key), self.core.op_timeout());
        let mut tries = 0;
        loop {
            let seen = self.run(&scripts::LOOK, &keys, Vec::new(), budget).await?;
            let seen = answer::look(&seen.first())?;
            // A claim of ours gets its fence written a moment after its grant.
            let early = seen.as_ref().is_some_and(|holder| {
                let young = |held: Duration| held < crate::notes::AFTER * 4;
                self.options.fences
                    && holder.fence.is_none()
                    && holder.token.is_some()
                    && holder.held_for.is_some_and(young)
            });
            if !early || tries == FENCE_TRIES {
                return Ok(seen);
            }
            tries += 1;
            tokio::time::sleep(crate::notes::AFTER).await;
        }
    }

    pub(crate) async fn force(&self, key: &Key, which: Which) -> Result<bool> {
        let (keys, budget) = (self.keys(key), self.core.op_timeout());
        let (how, value) = match which {
            Which::Fence(_) if !self.options.fences => return Err(no_fences(&self.core)),
            Which::Fence(fence) => ("fence", fence.to_string()),
            Which::Token(token) => ("token", token.to_string()),
            _ => ("any", String::new()),
        };
        let args = || {
            let redisson = self.redisson_channel(&keys);
            vec![keys.channel(), how.into(), value.clone().into(), redisson]
        };
        for _ in 0..=FENCE_TRIES {
            let answered = self.run(&scripts::FORCE, &keys, args(), budget).await?;
            let (sent_twice, answer) = (answered.sent_twice, answered.first());
            if answer::number(Some(&answer))? != FENCE_UNKNOWN {
                let done = answer::done(&answer)?;
                if sent_twice && !done {
                    return Err(lockkit_core::Error::unavailable(format!(
                        "the connection broke while `{key}` was freed: whoever was meant does not \
                         hold it now, and perhaps did not before"
                    )));
                }
                return Ok(done);
            }
            tokio::time::sleep(crate::notes::AFTER).await;
        }
        Err(lockkit_core::Error::unavailable(format!(
            "the holder of `{key}` has not told its fence yet; inspect it, and name its token"
        )))
    }
}

/// How often to look again for a fence that was not written yet.
const FENCE_TRIES: u32 = 8;

/// What `force.lua` answers if it is asked for a fence that the store does not know yet.
const FENCE_UNKNOWN: i64 = -3;

/// Subscriptions at whatever server tells the releases: the one that has the keys, or any one of
/// a cluster, whose servers pass messages on.
#[derive(Debug)]
struct Messages {
    store: Arc<Store>,
    opener: Arc<Opener>,
    /// The server that was asked last, and when.
    at: Mutex<Option<(Arc<Node>, Instant)>>,
}

impl Messages {
    fn new(store: &Arc<Store>, opener: Arc<Opener>) -> Self {
        Self { store: Arc::clone(store), opener, at: Mutex::default() }
    }

    fn at(&self) -> MutexGuard<'_, Option<(Arc<Node>, Instant)>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Source for Messages {
    async fn open(&self) -> Result<PubSub, Problem> {
        let node = self.store.fleet.messenger().await?;
        *self.at() = Some((Arc::clone(&node), Instant::now()));
        let opened = self.opener.subscriber(node.address(), As::Client).await;
        opened.inspect_err(|_| self.store.fleet.doubt(&node))
    }

    async fn moved(&self) {
        let at = self.at().clone();
        match at {
            Some((node, since)) => self.store.fleet.dismissed(&node, since).await,
            None => std::future::pending().await,
        }
    }
}
