//! A cluster: each slot has its own server.
//!
//! Its servers say themselves when a slot is elsewhere, so nothing runs in the background: the
//! map is drawn when it is first needed, and anew whenever a server says that it is wrong or does
//! not answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, ServerError, ServerErrorKind};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Redirect;
use super::slots::{self, SLOTS, View};
use super::task::Task;
use crate::errors::Problem;
use crate::node::{Lane, Node};
use crate::opener::Opener;
use crate::target::Address;

/// The least time from one map to the next.
const GAP: Duration = Duration::from_millis(100);

/// How long a server may take to draw a map before another one is asked as well.
const NEXT: Duration = Duration::from_millis(50);

/// How long a request waits for a new map before it tries the old one.
const PATIENCE: Duration = Duration::from_millis(250);

/// The pause before something is tried again that is about to change.
const PAUSE: Duration = Duration::from_millis(20);

/// For how long a server that did not answer is not the one to listen to.
const SHUNNED: Duration = Duration::from_secs(5);

/// A slot that nobody has, as far as is known.
const NOBODY: u16 = u16::MAX;

/// A cluster, as far as it is known.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    opener: Arc<Opener>,
    state: Mutex<State>,
    /// Told when the map changes or a server does not answer.
    changed: watch::Sender<()>,
}

type Drawing = watch::Receiver<Option<Result<(), Problem>>>;

#[derive(Debug)]
struct State {
    members: Vec<Member>,
    /// Which member has which slot.
    owners: Vec<u16>,
    epoch: u64,
    /// When the drawing of the map began.
    drawn: Option<Instant>,
    /// When the last attempt at one began.
    begun: Option<Instant>,
    drawing: Option<Drawing>,
    task: Task,
}

/// A server: one that has slots, is about to get some, or is named by the URL.
#[derive(Debug)]
struct Member {
    node: Arc<Node>,
    has_slots: bool,
    /// When it last did not answer.
    failed: Option<Instant>,
}

impl Member {
    fn new(node: Arc<Node>) -> Self {
        Self { node, has_slots: false, failed: None }
    }
}

impl State {
    fn owner(&self, slot: u16) -> Option<&Member> {
        self.members.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// Whether there is a map newer than the member's last failure.
    fn trusts(&self, member: &Member) -> bool {
        member.failed.is_none_or(|failed| self.drawn.is_some_and(|drawn| failed < drawn))
    }

    fn position(&self, address: &Address) -> Option<usize> {
        self.members.iter().position(|member| member.node.address() == address)
    }

    fn is_due(&self) -> bool {
        self.begun.is_none_or(|begun| begun.elapsed() >= GAP)
    }
}

impl Cluster {
    pub(super) fn new(seeds: &[Address], opener: Arc<Opener>) -> Self {
        let node = |seed: &Address| Node::new(seed.clone(), Arc::clone(&opener));
        let state = State {
            members: seeds.iter().map(|seed| Member::new(node(seed))).collect(),
            owners: vec![NOBODY; usize::from(SLOTS)],
            epoch: 0,
            drawn: None,
            begun: None,
            drawing: None,
            task: Task::default(),
        };
        let (seeds, state) = (seeds.to_vec(), Mutex::new(state));
        Self { seeds, opener, state, changed: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that has `slot`, if nothing needs to be asked.
    pub(super) fn settled(&self, slot: u16) -> Option<Arc<Node>> {
        let state = self.state();
        state.owner(slot).filter(|owner| state.trusts(owner)).map(|owner| Arc::clone(&owner.node))
    }

    /// The server that has `slot`, by a new map if one is due.
    pub(super) async fn find(self: &Arc<Self>, slot: u16) -> Result<Arc<Node>, Problem> {
        let outcome = self.renew(None, Some(slot)).await;
        match (self.state().owner(slot), outcome) {
            (Some(owner), _) => Ok(Arc::clone(&owner.node)),
            (None, Some(Err(problem))) => Err(problem),
            (None, _) => Err(Problem::unavailable(format!(
                "no server of the cluster has slot {slot}, to which the key belongs"
            ))),
        }
    }

    /// Has the map drawn anew if that is due, and waits for it: not for long if it already shows
    /// the slot that is looked for.
    async fn renew(
        self: &Arc<Self>,
        first: Option<Arc<Node>>,
        slot: Option<u16>,
    ) -> Option<Result<(), Problem>> {
        let (mut drawing, limit) = {
            let mut state = self.state();
            let shown = slot.is_some_and(|slot| state.owner(slot).is_some());
            let patience = PATIENCE.min(self.opener.timeout() / 4);
            let limit = if shown { patience } else { Duration::MAX };
            (self.begin(&mut state, first)?, limit)
        };
        let told = timeout(limit, drawing.wait_for(Option::is_some)).await.ok()?.ok()?;
        told.clone()
    }

    /// Begins to draw a map, beginning at the server `first`; `None` if none is due. All who need
    /// it meanwhile share it.
    fn begin(self: &Arc<Self>, state: &mut State, first: Option<Arc<Node>>) -> Option<Drawing> {
        if state.drawing.is_some() || !state.is_due() {
            return state.drawing.clone();
        }
        let (told, drawing) = watch::channel(None);
        let begun = Instant::now();
        (state.begun, state.drawing) = (Some(begun), Some(drawing.clone()));
        let survey = Survey {
            nodes: self.in_order(state, first),
            epoch: state.epoch,
            limit: self.opener.timeout(),
        };
        let this = Arc::downgrade(self);
        state.task = Task::start(async move {
            let outcome = survey.run().await;
            told.send_replace(Some(Self::conclude(&this, outcome, begun)));
        });
        Some(drawing)
    }

    fn conclude(
        this: &Weak<Self>,
        outcome: Result<View, Problem>,
        begun: Instant,
    ) -> Result<(), Problem> {
        let Some(this) = this.upgrade() else { return Ok(()) };
        let mut state = this.state();
        state.drawing = None;
        let left = this.apply(&mut state, outcome?, begun);
        drop(state);
        left.iter().for_each(|member| member.node.hang_up());
        this.changed.send_replace(());
        Ok(())
    }

    /// Whom to ask for a map, and in which order: who is said to know, the others, those named by
    /// the URL, and those that did not answer of late.
    fn in_order(&self, state: &State, first: Option<Arc<Node>>) -> Vec<Arc<Node>> {
        let node = |member: &Member| Arc::clone(&member.node);
        let (mut good, bad): (Vec<_>, Vec<_>) =
            state.members.iter().partition(|member| state.trusts(member));
        fastrand::shuffle(&mut good);
        let seeds = self.seeds.iter().filter(|seed| state.position(seed).is_none());
        let seeds = seeds.map(|seed| Node::new(seed.clone(), Arc::clone(&self.opener)));
        let mut nodes: Vec<_> = first.into_iter().collect();
        nodes.extend(good.into_iter().map(node).chain(seeds).chain(bad.into_iter().map(node)));
        nodes
    }

    /// Makes `view` the map; the members that are none any more.
    fn apply(&self, state: &mut State, view: View, begun: Instant) -> Vec<Member> {
        let mut old: HashMap<_, _> = std::mem::take(&mut state.members)
            .into_iter()
            .map(|member| (member.node.address().clone(), Member { has_slots: false, ..member }))
            .collect();
        state.owners.fill(NOBODY);
        (state.epoch, state.drawn) = (view.epoch, Some(begun));
        for (first, last, address) in view.ranges {
            let at = state.position(&address).unwrap_or_else(|| {
                let member = old.remove(&address).unwrap_or_else(|| self.member(&address));
                state.members.push(member);
                state.members.len() - 1
            });
            state.members[at].has_slots = true;
            let owner = u16::try_from(at).unwrap_or(NOBODY);
            if let Some(range) = state.owners.get_mut(usize::from(first)..=usize::from(last)) {
                range.fill(owner);
            }
        }
        old.into_values().collect()
    }

    fn member(&self, address: &Address) -> Member {
        Member::new(Node::new(address.clone(), Arc::clone(&self.opener)))
    }

    /// The server at `address`, known before or not.
    fn at(&self, state: &mut State, address: &Address) -> usize {
        state.position(address).unwrap_or_else(|| {
            state.members.push(self.member(address));
            state.members.len() - 1
        })
    }

    /// A request to `node` got no answer.
    pub(super) fn doubt(&self, node: &Arc<Node>) {
        let mut state = self.state();
        if let Some(member) = state.members.iter_mut().find(|m| Arc::ptr_eq(&m.node, node)) {
            member.failed = Some(Instant::now());
            drop(state);
            self.changed.send_replace(());
        }
    }

    /// Learns from a refusal, and waits a moment for what is about to change.
    pub(super) async fn learn(
        self: &Arc<Self>,
        slot: u16,
        node: &Arc<Node>,
        refusal: &ServerError,
    ) -> Option<Redirect> {
        use ServerErrorKind as S;
        let asking = match refusal.kind()? {
            S::Moved => false,
            S::Ask => true,
            S::TryAgain => {
                sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
                return self.back_to(slot).await;
            }
            S::ClusterDown | S::MasterDown | S::ReadOnly => {
                self.doubt(node);
                sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
                return self.back_to(slot).await;
            }
            _ => return None,
        };
        let address = slots::hint(node.address(), refusal.details()?)?;
        let mut state = self.state();
        let at = self.at(&mut state, &address);
        let target = Arc::clone(&state.members[at].node);
        if !asking {
            // Where one slot has gone, others may follow; that one has gone for certain.
            if let Some(owner) = state.owners.get_mut(usize::from(slot)) {
                *owner = u16::try_from(at).unwrap_or(NOBODY);
            }
            state.members[at].has_slots = true;
            self.begin(&mut state, Some(Arc::clone(&target)));
        }
        Some(Redirect { node: target, asking })
    }

    async fn back_to(self: &Arc<Self>, slot: u16) -> Option<Redirect> {
        let node = match self.settled(slot) {
            Some(node) => node,
            None => self.find(slot).await.ok()?,
        };
        Some(Redirect { node, asking: false })
    }

    /// All servers that have slots.
    pub(super) async fn known(self: &Arc<Self>) -> Result<Vec<Arc<Node>>, Problem> {
        let known = |state: &State| {
            let with_slots = state.members.iter().filter(|member| member.has_slots);
            with_slots.map(|member| Arc::clone(&member.node)).collect::<Vec<_>>()
        };
        let sure = {
            let state = self.state();
            state.drawn.is_some() && state.members.iter().all(|member| state.trusts(member))
        };
        let outcome = if sure { None } else { self.renew(None, None).await };
        match (known(&self.state()), outcome) {
            (nodes, Some(Err(problem))) if nodes.is_empty() => Err(problem),
            (nodes, _) if nodes.is_empty() => {
                Err(Problem::unavailable("no server of the cluster has any slot"))
            }
            (nodes, _) => Ok(nodes),
        }
    }

    /// Any server: all of them pass on all messages. One that answers, if there is any.
    pub(super) async fn messenger(self: &Arc<Self>) -> Result<Arc<Node>, Problem> {
        let nodes = self.known().await?;
        let state = self.state();
        let shunned = |node: &Arc<Node>| {
            let member = state.members.iter().find(|member| Arc::ptr_eq(&member.node, node));
            member.is_none_or(|m| m.failed.is_some_and(|failed| failed.elapsed() < SHUNNED))
        };
        let good: Vec<_> = nodes.iter().filter(|node| !shunned(node)).collect();
        let any = fastrand::choice(good).or_else(|| fastrand::choice(&nodes));
        any.cloned().ok_or_else(|| Problem::unavailable("the cluster has no servers"))
    }

    /// Resolves when `node` has no slots any more, or has not answered since `since`.
    pub(super) async fn dismissed(&self, node: &Arc<Node>, since: Instant) {
        let mut changed = self.changed.subscribe();
        while self.serves(node, since) {
            // It lives as long as this.
            let _ = changed.changed().await;
        }
    }

    fn serves(&self, node: &Arc<Node>, since: Instant) -> bool {
        let state = self.state();
        let mut members = state.members.iter();
        members.find(|member| Arc::ptr_eq(&member.node, node)).is_some_and(|member| {
            member.has_slots && member.failed.is_none_or(|failed| failed < since)
        })
    }

    pub(super) fn hang_up(&self) {
        let nodes: Vec<_> = self.state().members.iter().map(|m| Arc::clone(&m.node)).collect();
        nodes.iter().for_each(|node| node.hang_up());
    }
}

/// The drawing of one map.
struct Survey {
    nodes: Vec<Arc<Node>>,
    /// Of the map that is there.
    epoch: u64,
    limit: Duration,
}

impl Survey {
    /// The first view of a server that works and knows at least what is known already; else the
    /// newest one.
    async fn run(&self) -> Result<View, Problem> {
        let mut nodes = self.nodes.iter();
        let mut asked = FuturesUnordered::new();
        let mut best: Option<View> = None;
        let mut problems = Vec::new();
        loop {
            asked.extend(nodes.next().map(|node| self.ask(node)));
            let more = nodes.len() > 0;
            let answer = tokio::select! {
                answer = asked.next() => answer,
                () = sleep(NEXT), if more => continue,
            };
            match answer {
                Some(Ok(view)) if view.works && view.epoch >= self.epoch => return Ok(view),
                Some(Ok(view)) => {
                    let rank = |view: &View| (view.works, view.epoch);
                    best = best.filter(|best| rank(best) >= rank(&view)).or(Some(view));
                }
                Some(Err(problem)) => problems.push(problem),
                None => break,
            }
        }
        best.ok_or_else(|| {
            let at = problems.iter().position(Problem::is_permanent);
            match at.or(problems.len().checked_sub(1)) {
                Some(at) => problems.swap_remove(at),
                None => Problem::unavailable("no server of the cluster is known"),
            }
        })
    }

    async fn ask(&self, node: &Arc<Node>) -> Result<View, Problem> {
        let questions = ["SLOTS", "INFO"].map(|what| {
            let mut question = redis::cmd("CLUSTER");
            question.arg(what);
            question
        });
        let who = node.address();
        let answers = timeout(self.limit, node.line(Lane::Work).send(questions.into())).await;
        let answers = answers.map_err(|_| {
            Problem::unavailable(format!("{who} did not answer within {:?}", self.limit))
        })?;
        let answers = answers.map_err(|failed| failed.problem)?.values;
        if let Some(redis::Value::ServerError(error)) = answers.first() {
            let error = RedisError::from(error.clone());
            return Err(if error.to_string().contains("cluster support disabled") {
                Problem::configuration(format!("{who} belongs to no cluster; write `redis:`"))
            } else {
                Problem::new(who, error)
            });
        }
        slots::read(who, &answers)
            .ok_or_else(|| Problem::unavailable(format!("{who} draws no map of its cluster")))
    }
}
