//! The servers as one store: sends a request to the right one, over the right connection, and
//! follows what the servers say about where it belongs.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use lockkit_core::on_lock_thread;
use redis::{RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::errors::{Answered, Failed, Problem};
use crate::fleet::Fleet;
use crate::node::{Lane, Node};
use crate::notes::Notes;
use crate::request::{Form, Request};
use crate::slow::SlowLanes;

/// How often a request follows a hint of a server to another one.
const REDIRECTS: u32 = 4;

/// How long a runtime may take to show that it still runs tasks.
const SIGN_OF_LIFE: Duration = Duration::from_millis(25);

/// The servers as one store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) fleet: Fleet,
    pub(crate) notes: Notes,
    pub(crate) slow: SlowLanes,
    closed: AtomicBool,
}

/// For whom a request is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum For<'a> {
    /// A caller, if it drives this itself; its runtime.
    Caller(Option<&'a Handle>),
    /// The watchdog.
    Renewal,
    /// Nobody who could drive it.
    Background,
}

impl Store {
    pub(crate) fn new(fleet: Fleet) -> Self {
        let (notes, slow, closed) = (Notes::default(), SlowLanes::new(), AtomicBool::new(false));
        Self { fleet, notes, slow, closed }
    }

    /// Sends `request` and returns one answer for each of its commands.
    ///
    /// The first answer is never an error; those behind it may be. Off the lock thread, where
    /// the engine bounds the time, `budget` begins when the lock thread takes over.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        slot: u16,
        who: For<'_>,
        request: &Request,
        budget: Duration,
    ) -> Result<Answered, Failed> {
        let result = self.open_exchange(slot, who, request, budget).await;
        if self.is_closed() {
            // Clean-up behind the client's end: nothing stays open for it.
            self.fleet.hang_up();
        }
        result
    }

    /// Closes all connections, now and again after each exchange from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.fleet.hang_up();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    async fn open_exchange(
        self: &Arc<Self>,
        slot: u16,
        who: For<'_>,
        request: &Request,
        budget: Duration,
    ) -> Result<Answered, Failed> {
        // What callers do not drive themselves is boxed: their requests need not carry the room.
        let lane = match who {
            _ if matches!(request, Request::Replicated { .. }) => {
                return Box::pin(in_time(budget, self.call_slowly(slot, request))).await;
            }
            For::Caller(Some(home)) if !on_lock_thread() => {
                let mut call = pin!(self.call(slot, Lane::Caller(home), request));
                let result = match until_taken_over(call.as_mut()).await {
                    Some(result) => result,
                    None => Box::pin(taken_over(call, home, budget)).await,
                };
                match result {
                    // The guard came from a runtime that is no more.
                    Err(failed) if failed.problem.is_runtime_ended() => Lane::Work,
                    result => return result,
                }
            }
            For::Renewal => Lane::Renewals,
            _ => Lane::Work,
        };
        Box::pin(in_time(budget, self.call(slot, lane, request))).await
    }

    /// Sends a request on a connection of which it may keep everybody else away.
    async fn call_slowly(&self, slot: u16, request: &Request) -> Result<Answered, Failed> {
        let turn = self.slow.turn().await;
        self.call(slot, Lane::Slow(turn.at), request).await
    }

    async fn call(&self, slot: u16, lane: Lane<'_>, request: &Request) -> Result<Answered, Failed> {
        let mut node = self.fleet.node(slot).await.map_err(Failed::never_sent)?;
        let (mut form, mut redirects, mut sent_twice) = (Form::default(), 0, false);
        loop {
            let mut doubt = Doubt { fleet: &self.fleet, node: &node, dispelled: false };
            let answered = node.line(lane).send(request.commands(form)).await;
            let Answered { mut values, sent_twice: again } =
                answered.map_err(|failed| failed.after(sent_twice))?;
            sent_twice |= again;
            doubt.dispelled = true;
            drop(doubt);
            if form.asking {
                values = values.into_iter().skip(1).step_by(2).collect();
            }
            let refusal = match values.first() {
                Some(Value::ServerError(refusal)) => refusal.clone(),
                Some(_) if self.fleet.has_replaced(&node) => {
                    let text =
                        format!("{} answered when it was no primary any more", node.address());
                    return Err(Failed::unanswered(Problem::unavailable(text)));
                }
                Some(_) => return Ok(Answered { values, sent_twice }),
                None => {
                    let text = format!("{} answered with nothing", node.address());
                    return Err(Failed::unanswered(Problem::unavailable(text)));
                }
            };
            let unknown = refusal.kind() == Some(ServerErrorKind::NoScript);
            if unknown && request.has_text() && !form.in_full {
                form.in_full = true;
                continue;
            }
            let redirect = Box::pin(self.fleet.learn(slot, &node, &refusal)).await;
            match redirect.filter(|_| redirects < REDIRECTS) {
                Some(redirect) => {
                    redirects += 1;
                    node = redirect.node;
                    form.asking = redirect.asking;
                }
                None => {
                    let problem = Problem::new(node.address(), RedisError::from(refusal));
                    // It was refused, and that is an answer.
                    return Err(Failed::never_sent(problem).after(sent_twice));
                }
            }
        }
    }
}

/// Has the server looked for anew unless it answers.
struct Doubt<'a> {
    fleet: &'a Fleet,
    node: &'a Arc<Node>,
    dispelled: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.dispelled {
            self.fleet.doubt(self.node);
        }
    }
}

type Answers = Result<Answered, Failed>;

/// The lock thread goes on with what a caller began. Either the server is slow, or the runtime
/// that should drive the connection is blocked or gone.
async fn taken_over(
    mut call: Pin<&mut impl Future<Output = Answers>>,
    home: &Handle,
    budget: Duration,
) -> Answers {
    if let Ok(result) = timeout(budget / 2, call.as_mut()).await {
        return result;
    }
    let alive = timeout(SIGN_OF_LIFE, home.spawn(async {})).await;
    if !matches!(alive, Ok(Ok(()))) {
        return Err(Failed::unanswered(Problem::unavailable(
            "the caller's runtime does not run its tasks, so its connection stands still",
        )));
    }
    in_time(budget, call).await
}

async fn in_time(budget: Duration, call: impl Future<Output = Answers>) -> Answers {
    timeout(budget, call).await.unwrap_or_else(|_| {
        Err(Failed::unanswered(Problem::unavailable(format!("no answer within {budget:?}"))))
    })
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
