//! All servers of a cluster: calls go to the one that served last, and from there to the next.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use etcd_client::{Client, Error as EtcdError};
use lockkit_core::{BootInstant, Error, on_lock_thread};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

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

    /// Asks one server, the next one too when it does not answer within its share of `budget`, and
    /// so on: the first answer counts. Whatever `ask` asks for must be right when it takes effect
    /// twice, and late.
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
        // Once around, and once again where it began: that connection may just have been an old one.
        let mut tries = self.nodes.len() + 1;
        let (mut doubtful, mut refreshed, mut last) = (false, false, None);
        let mut asked = Vec::new();
        loop {
            let now = Instant::now();
            if tries > 0 && now < until {
                tries -= 1;
                asked.push(Try::new(self.first(), &ask));
            }
            let patience = if tries > 0 { (now + slice).min(until) } else { until };
            let inline = if on_lock_thread() {
                None
            } else {
                // The engine bounds the time: a timer would wake the lock thread for nothing.
                until_taken_over(pin!(first_of(&mut asked))).await
            };
            let ended = match inline {
                Some(ended) => Ok(ended),
                None => timeout_at(patience, first_of(&mut asked)).await,
            };
            let ended = match ended {
                Ok(Some(ended)) => ended,
                Ok(None) => break,
                Err(_) => {
                    if let Some(silent) = asked.last() {
                        last = Some(silent.silence(slice));
                        self.avoid(silent.turn);
                    }
                    if patience < until {
                        continue;
                    }
                    break;
                }
            };
            let Ended { turn, client, sent, result } = ended;
            let problem = match result {
                Ok(value) => {
                    doubtful |= asked.iter().any(Try::was_sent);
                    asked.iter().for_each(Try::doubt);
                    return Ok(Answered { value, sent, doubtful });
                }
                Err(problem) => problem,
            };
            match (problem.verdict(), client) {
                (Verdict::Refused | Verdict::NoLease, _) => {
                    doubtful |= asked.iter().any(Try::was_sent);
                    return Err(Failed { problem, doubtful });
                }
                (Verdict::StaleToken, Some(client)) if !refreshed => {
                    refreshed = true;
                    tries += 1;
                    // What is wrong with the user is what the next try says.
                    let _ = timeout_at(until, client.refresh_token()).await;
                }
                (Verdict::StaleToken, _) => return Err(Failed { problem, doubtful }),
                (verdict, _) => {
                    doubtful |= verdict == Verdict::Unknown;
                    self.avoid(turn);
                }
            }
            last = Some(problem);
        }
        for silent in &asked {
            doubtful |= silent.was_sent();
            silent.doubt();
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

/// What a server said, and by which client; `None` if there is none.
type Said<T> = (Option<Arc<Client>>, Result<T, Problem>);

/// One server that was asked.
struct Try<'a, T> {
    node: Arc<Node>,
    turn: usize,
    /// When the request was sent, in nanoseconds after boot, and by which client; zero if it was
    /// not sent.
    sent: Arc<AtomicU64>,
    generation: Arc<AtomicU64>,
    asking: Pin<Box<dyn Future<Output = Said<T>> + Send + 'a>>,
}

/// How that ended.
struct Ended<T> {
    turn: usize,
    client: Option<Arc<Client>>,
    sent: BootInstant,
    result: Result<T, Problem>,
}

impl<'a, T> Try<'a, T> {
    fn new<F>(
        (node, turn): (Arc<Node>, usize),
        ask: &'a (impl Fn(Arc<Client>) -> F + Send + Sync),
    ) -> Self
    where
        F: Future<Output = Result<T, EtcdError>> + Send + 'a,
    {
        let (sent, generation) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let asking = {
            let (node, sent, generation) =
                (Arc::clone(&node), Arc::clone(&sent), Arc::clone(&generation));
            async move {
                let opened = match node.client().await {
                    Ok(opened) => opened,
                    Err(problem) => return (None, Err(problem)),
                };
                generation.store(opened.generation, Ordering::Release);
                sent.store(BootInstant::now().as_nanos(), Ordering::Release);
                let answer = ask(Arc::clone(&opened.client)).await;
                (Some(opened.client), answer.map_err(|error| Problem::of(&node.name(), error)))
            }
        };
        Self { node, turn, sent, generation, asking: Box::pin(asking) }
    }

    fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire) > 0
    }

    /// It has not answered until now.
    fn silence(&self, slice: Duration) -> Problem {
        let name = self.node.name();
        if self.was_sent() {
            Problem::silent(format!("{name} did not answer within {slice:?}"))
        } else {
            Problem::not_sent(format!("{name} let nobody in within {slice:?}"))
        }
    }

    /// It has not answered at all.
    fn doubt(&self) {
        if self.was_sent() {
            self.node.doubt(self.generation.load(Ordering::Acquire));
        }
    }
}

/// The result; or `None` as soon as the lock thread polls.
async fn until_taken_over<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if on_lock_thread() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// The first of those that ends, which is taken out; `None` if there are none.
async fn first_of<T>(asked: &mut Vec<Try<'_, T>>) -> Option<Ended<T>> {
    poll_fn(|cx| {
        if asked.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..asked.len() {
            if let Poll::Ready((client, result)) = asked[at].asking.as_mut().poll(cx) {
                let Try { turn, sent, .. } = asked.remove(at);
                let sent = BootInstant::from_nanos(sent.load(Ordering::Acquire));
                return Poll::Ready(Some(Ended { turn, client, sent, result }));
            }
        }
        Poll::Pending
    })
    .await
}
