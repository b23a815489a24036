//! The primary that sentinels name.
//!
//! A server that was the primary may take writes for ten seconds after another one has become it,
//! and loses them. So it is not enough to look for a new one when the old one fails: while the
//! client is used, the sentinels are listened to and asked again and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ServerError, ServerErrorKind};
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};

use super::Redirect;
use super::named::{self, LastWord, Named};
use super::task::Task;
use super::watcher;
use crate::errors::Problem;
use crate::line::Line;
use crate::node::{Lane, Node};
use crate::opener::{As, Opener};
use crate::target::Address;

/// How long the other sentinels are waited for when one has answered: one of them may know more.
const GRACE: Duration = Duration::from_millis(50);

/// How long a request waits for sentinels that do not answer before it goes to the last primary
/// that is known.
const PATIENCE: Duration = Duration::from_millis(250);

/// For how long an unused client goes on listening: longer than from one renewal to the next of
/// a claim with the default TTL.
const IDLE: Duration = Duration::from_secs(15);

/// The primary that sentinels name, and how they are asked.
#[derive(Debug)]
pub(crate) struct Sentinels {
    sentinels: Vec<(Address, Arc<Line>)>,
    master: Arc<str>,
    opener: Arc<Opener>,
    state: Mutex<State>,
    /// Told when the primary changes.
    changed: watch::Sender<()>,
}

type Asking = watch::Receiver<Option<Result<(), Problem>>>;

#[derive(Debug)]
struct State {
    last_word: LastWord,
    /// The server that was named, once it has let us in as the primary. Another object whenever
    /// another one is named: what an earlier term of the same server answers is not taken for an
    /// answer of the present one.
    primary: Option<Arc<Node>>,
    /// The same before it has.
    candidate: Option<Arc<Node>>,
    /// How often there was reason to doubt that it is still the primary.
    doubts: u64,
    /// Up to which of them the sentinels were asked since.
    cleared: u64,
    asking: Option<Asking>,
    /// Whether to ask again after that.
    again: bool,
    used: Instant,
    round: Task,
    watcher: Task,
}

impl Sentinels {
    pub(super) fn new(sentinels: &[Address], master: &str, opener: Arc<Opener>) -> Self {
        let line = |address: &Address| {
            let line = Line::new(address.clone(), Arc::clone(&opener), As::SentinelClient, None);
            (address.clone(), line)
        };
        let state = State {
            last_word: LastWord::default(),
            primary: None,
            candidate: None,
            doubts: 0,
            cleared: 0,
            asking: None,
            again: false,
            used: Instant::now(),
            round: Task::default(),
            watcher: Task::default(),
        };
        Self {
            sentinels: sentinels.iter().map(line).collect(),
            master: master.into(),
            opener,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary, if nothing needs to be asked.
    pub(super) fn settled(&self) -> Option<Arc<Node>> {
        let mut state = self.state();
        state.used = Instant::now();
        let sure = state.watcher.runs() && state.doubts == state.cleared;
        state.primary.as_ref().filter(|_| sure).map(Arc::clone)
    }

    /// Asks the sentinels. If none of them answers, the last primary known is used on.
    pub(super) async fn find(self: &Arc<Self>) -> Result<Arc<Node>, Problem> {
        let mut outcome = self.wait().await;
        if self.is_doubted() {
            // Since the questions were sent.
            outcome = self.wait().await;
        }
        match (self.state().primary.clone(), outcome) {
            (Some(primary), _) => Ok(primary),
            (None, Some(Err(problem))) => Err(problem),
            (None, _) => Err(Problem::unavailable("another primary is being made")),
        }
    }

    fn is_doubted(&self) -> bool {
        let state = self.state();
        state.doubts != state.cleared
    }

    /// Waits for what the sentinels say; not for long if there is a server to go to without that.
    async fn wait(self: &Arc<Self>) -> Option<Result<(), Problem>> {
        let (mut asking, limit) = {
            let mut state = self.state();
            state.used = Instant::now();
            if !state.watcher.runs() {
                state.watcher = Task::start(watcher::watch(Arc::downgrade(self)));
            }
            let patience = PATIENCE.min(self.opener.timeout() / 4);
            let limit = if state.primary.is_some() { patience } else { Duration::MAX };
            (self.begin(&mut state), limit)
        };
        let told = timeout(limit, asking.wait_for(Option::is_some)).await.ok()?.ok()?;
        told.clone()
    }

    /// Asks, unless that is being done.
    pub(super) fn ask(self: &Arc<Self>) {
        self.begin(&mut self.state());
    }

    /// Asks again if that is being done: an answer of now may be another one.
    pub(super) fn ask_again(self: &Arc<Self>) {
        let mut state = self.state();
        state.again |= state.asking.is_some();
        self.begin(&mut state);
    }

    /// A sentinel has told of a failover.
    pub(super) fn news(self: &Arc<Self>) {
        let mut state = self.state();
        state.doubts += 1;
        if state.candidate.is_some() {
            // Whoever is being looked at may have been replaced already.
            (state.asking, state.round) = (None, Task::default());
        }
        drop(state);
        self.ask_again();
    }

    /// Begins to ask all sentinels at once. All who need the answer meanwhile share it.
    fn begin(self: &Arc<Self>, state: &mut State) -> Asking {
        if let Some(asking) = &state.asking {
            return asking.clone();
        }
        let (told, asking) = watch::channel(None);
        state.asking = Some(asking.clone());
        let round = Round { sentinels: self.sentinels.clone(), master: Arc::clone(&self.master) };
        let (this, doubts, limit) = (Arc::downgrade(self), state.doubts, self.opener.timeout());
        state.round = Task::start(async move {
            let answers = round.run(limit).await;
            let outcome = Self::conclude(&this, answers, limit).await;
            if let Some(this) = this.upgrade() {
                this.end(doubts);
            }
            told.send_replace(Some(outcome));
        });
        asking
    }

    /// The last step of a round.
    fn end(self: &Arc<Self>, doubts: u64) {
        let mut state = self.state();
        (state.cleared, state.asking) = (doubts, None);
        if std::mem::take(&mut state.again) {
            self.begin(&mut state);
        }
    }

    /// Acts on what was said. Waits without holding on to the client.
    async fn conclude(
        this: &Weak<Self>,
        answers: Vec<Result<Named, Problem>>,
        limit: Duration,
    ) -> Result<(), Problem> {
        let candidate = match this.upgrade() {
            Some(this) => this.hear(answers)?,
            None => None,
        };
        let Some(candidate) = candidate else { return Ok(()) };
        // It lets us in only if it says itself that it is a primary.
        let line = candidate.line(Lane::Work);
        let greeting = timeout(limit, line.send(vec![redis::cmd("PING")])).await;
        let greeting = greeting.map_err(|_| {
            let who = candidate.address();
            Problem::unavailable(format!("{who} did not answer within {limit:?}"))
        })?;
        greeting.map_err(|failed| failed.problem)?;
        if let Some(this) = this.upgrade() {
            this.install(candidate);
        }
        Ok(())
    }

    /// Hears the sentinels; whom to look at before it is used.
    fn hear(&self, answers: Vec<Result<Named, Problem>>) -> Result<Option<Arc<Node>>, Problem> {
        let (mut said, mut problems) = (Vec::new(), Vec::new());
        for answer in answers {
            match answer {
                Ok(named) => said.push(named),
                Err(problem) => problems.push(problem),
            }
        }
        if said.is_empty() {
            return Err(worst(problems));
        }
        let mut state = self.state();
        if !state.last_word.hear(&said, Instant::now()) {
            return Ok(state.candidate.clone());
        }
        state.candidate = state
            .last_word
            .address()
            .map(|address| Node::new_as(address.clone(), Arc::clone(&self.opener), As::Primary));
        let candidate = state.candidate.clone();
        // At once, even if the new one does not let us in: this one is none any more.
        let old = state.primary.take();
        drop(state);
        if let Some(old) = old {
            old.hang_up();
            self.changed.send_replace(());
        }
        Ok(candidate)
    }

    fn install(&self, candidate: Arc<Node>) {
        let mut state = self.state();
        if state.candidate.as_ref().is_some_and(|named| Arc::ptr_eq(named, &candidate)) {
            state.candidate = None;
            state.primary = Some(candidate);
        }
    }

    /// A request to `node` got no answer.
    pub(super) fn doubt(&self, node: &Arc<Node>) {
        let mut state = self.state();
        if state.primary.as_ref().is_some_and(|primary| Arc::ptr_eq(primary, node)) {
            state.doubts += 1;
        }
    }

    /// Whether another server is the primary now.
    pub(super) fn has_replaced(&self, node: &Arc<Node>) -> bool {
        self.state().primary.as_ref().is_none_or(|primary| !Arc::ptr_eq(primary, node))
    }

    /// Resolves when another server is the primary.
    pub(super) async fn replaced(&self, node: &Arc<Node>) {
        let mut changed = self.changed.subscribe();
        while !self.has_replaced(node) {
            // It lives as long as this.
            let _ = changed.changed().await;
        }
    }

    /// Learns from a refusal: a replica was the primary before.
    pub(super) async fn learn(
        self: &Arc<Self>,
        node: &Arc<Node>,
        refusal: &ServerError,
    ) -> Option<Redirect> {
        let replica = [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown];
        if !refusal.kind().is_some_and(|kind| replica.contains(&kind)) {
            return None;
        }
        // Its connections were opened when it was the primary; new ones look again.
        node.hang_up();
        self.doubt(node);
        let primary = self.find().await.ok()?;
        (!Arc::ptr_eq(&primary, node)).then_some(Redirect { node: primary, asking: false })
    }

    /// Ends the watch if nobody has used the client for long; whether it did.
    pub(super) fn rest(&self) -> bool {
        let idle = self.state().used.elapsed() >= IDLE;
        if idle {
            self.sentinels.iter().for_each(|(_, line)| line.hang_up());
        }
        idle
    }

    /// Where sentinels are, and how to get in.
    pub(super) fn doors(&self) -> (Vec<Address>, Arc<Opener>, Arc<str>) {
        let addresses = self.sentinels.iter().map(|(address, _)| address.clone()).collect();
        (addresses, Arc::clone(&self.opener), Arc::clone(&self.master))
    }

    pub(super) fn hang_up(&self) {
        let mut state = self.state();
        let nodes = [state.primary.clone(), state.candidate.clone()];
        let watcher = std::mem::take(&mut state.watcher);
        drop(state);
        drop(watcher);
        nodes.iter().flatten().for_each(|node| node.hang_up());
        self.sentinels.iter().for_each(|(_, line)| line.hang_up());
    }
}

/// What to say if no sentinel names a primary: what can be put right, if any of those that
/// answered says so.
fn worst(mut problems: Vec<Problem>) -> Problem {
    let at = problems.iter().position(Problem::is_permanent);
    match at.or(problems.len().checked_sub(1)) {
        Some(at) => problems.swap_remove(at),
        None => Problem::unavailable("no sentinel answers in time"),
    }
}

/// One question to all sentinels.
struct Round {
    sentinels: Vec<(Address, Arc<Line>)>,
    master: Arc<str>,
}

impl Round {
    /// The answers of all who answer in time.
    async fn run(&self, limit: Duration) -> Vec<Result<Named, Problem>> {
        let mut asked: FuturesUnordered<_> = self.sentinels.iter().map(|s| self.ask(s)).collect();
        let mut until = tokio::time::Instant::now() + limit;
        let mut answers = Vec::with_capacity(asked.len());
        while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
            if answer.is_ok() {
                until = until.min(tokio::time::Instant::now() + GRACE);
            }
            answers.push(answer);
        }
        answers
    }

    async fn ask(&self, (address, line): &(Address, Arc<Line>)) -> Result<Named, Problem> {
        let answered = line.send(named::questions(&self.master)).await;
        named::read(address, &self.master, &answered.map_err(|failed| failed.problem)?.values)
    }
}
