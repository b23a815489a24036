//! All servers of a cluster: calls go to the one that served last, and from there to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, Error as EtcdError};
use lockkit_core::{BootInstant, Error};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::errors::{Problem, Verdict};
use crate::node::Node;

/// All servers of a cluster.
#[derive(Debug)]
pub(crate) struct Fleet {
    nodes: Vec<Arc<Node>>,
    /// Where calls go first: grows, and is taken modulo the number of servers.
    preferred: AtomicUsize,
    /// Rung when that changes.
    pub(crate) moved: Notify,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) value: T,
    /// Just before the request that it answers was sent.
    pub(crate) sent: BootInstant,
    /// Whether an earlier try of the same call may have its effect yet.
    pub(crate) doubtful: bool,
}

/// A call without an answer, or with a refusal.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) problem: Problem,
    /// Whether one of its tries may have had its effect, or have it yet.
    pub(crate) doubtful: bool,
}

impl Failed {
    /// Whether it is for the want of the lease that the call named.
    pub(crate) fn lacks_lease(&self) -> bool {
        self.problem.verdict() == Verdict::NoLease
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.problem.into()
    }
}

/// The least time that a server gets before the next one is asked.
const SLICE: Duration = Duration::from_millis(40);

impl Fleet {
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        let nodes = nodes.into_iter().map(Arc::new).collect();
        Self { nodes, preferred: AtomicUsize::new(0), moved: Notify::new() }
    }

    /// The server that calls go to first, and the turn that this is.
    pub(crate) fn first(&self) -> (Arc<Node>, usize) {
        let turn = self.preferred.load(Ordering::Acquire);
        (Arc::clone(self.at(turn)), turn)
    }

    fn at(&self, turn: usize) -> &Arc<Node> {
        &self.nodes[turn % self.nodes.len()]
    }

    /// The server of that turn did not serve: the next one is the first now.
    pub(crate) fn avoid(&self, turn: usize) {
        let next = turn.wrapping_add(1);
        let moved = self
            .preferred
            .compare_exchange(turn, next, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if moved && self.nodes.len() > 1 {
            self.moved.notify_waiters();
        }
    }

    /// How long one server may take of `budget`.
    pub(crate) fn slice(&self, budget: Duration) -> Duration {
        match u32::try_from(self.nodes.len()) {
            Ok(n) if n > 1 => (budget / n).max(SLICE).min(budget),
            _ => budget,
        }
    }

    /// Calls one server after the other until one answers, within `budget`. Whatever `ask` asks
    /// for must be right when it takes effect twice, and late.
    pub(crate) async fn call<T, F>(
        &self,
        budget: Duration,
        ask: impl Fn(Arc<Client>) -> F + Send + Sync,
    ) -> Result<Answered<T>, Failed>
    where
        F: Future<Output = Result<T, EtcdError>> + Send,
    {
        let until = Instant::now() + budget;
        let slice = self.slice(budget);
        let mut doubtful = false;
        let mut last = None;
        let mut refreshed = false;
        // Once around, and once again where it began: that connection may just have been an old one.
        let mut tries = self.nodes.len() + 1;
        while tries > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            tries -= 1;
            let (node, turn) = self.first();
            let slice = if tries == 0 { left } else { slice.min(left) };
            let opened = match timeout(slice, node.client()).await {
                Ok(Ok(opened)) => opened,
                Ok(Err(problem)) if problem.is_final() => return Err(Failed { problem, doubtful }),
                Ok(Err(problem)) => {
                    self.avoid(turn);
                    last = Some(problem);
                    continue;
                }
                Err(_) => {
                    self.avoid(turn);
                    let text = format!("{} let nobody in within {slice:?}", node.name());
                    last = Some(Problem::not_sent(text));
                    continue;
                }
            };
            let sent = BootInstant::now();
            let error = match timeout(slice, ask(Arc::clone(&opened.client))).await {
                Ok(Ok(value)) => return Ok(Answered { value, sent, doubtful }),
                Ok(Err(error)) => error,
                Err(_) => {
                    doubtful = true;
                    node.doubt(opened.generation);
                    self.avoid(turn);
                    let text = format!("{} did not answer within {slice:?}", node.name());
                    last = Some(Problem::silent(text));
                    continue;
                }
            };
            let problem = Problem::of(&node.name(), error);
            match problem.verdict() {
                Verdict::Refused | Verdict::NoLease => return Err(Failed { problem, doubtful }),
                Verdict::StaleToken if refreshed => return Err(Failed { problem, doubtful }),
                Verdict::StaleToken => {
                    refreshed = true;
                    tries += 1;
                    // What is wrong with the user is what the next try says.
                    let left = until.saturating_duration_since(Instant::now());
                    let _ = timeout(left, opened.client.refresh_token()).await;
                }
                verdict => {
                    doubtful |= verdict == Verdict::Unknown;
                    self.avoid(turn);
                }
            }
            last = Some(problem);
        }
        let problem =
            last.unwrap_or_else(|| Problem::not_sent("there was no time to ask etcd for anything"));
        Err(Failed { problem, doubtful })
    }

    /// Ends all connections; the next call opens them anew.
    pub(crate) fn close(&self) {
        for node in &self.nodes {
            node.close();
        }
    }
}
