//! Requests that are made at the same time leave together.
//!
//! A driver that writes each request by itself spends most of its time in the kernel. So where many
//! are under way, a request steps back once behind whatever else is ready to run on its thread, and
//! whoever comes back first sends all that have come together meanwhile, as one pipeline. Among few,
//! a request leaves at once: to step back may then mean to be moved to another thread.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use redis::{Cmd, Value};

use crate::errors::{Answered, Failed};

/// Sends commands; one answer each.
pub(crate) type Send = BoxFuture<'static, Result<Answered, Failed>>;

/// Where requests of one connection come together.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    open: Mutex<Option<Arc<Batch>>>,
    /// How many requests wait for their answers.
    under_way: AtomicUsize,
}

/// From how many requests on they step back.
const MANY: usize = 5;

/// How many commands leave together at most: answers of a pipeline come when all are there.
const MOST: usize = 16;

/// Requests that leave together.
struct Batch(Mutex<State>);

enum State {
    /// Not sent yet. `None`: whoever asked has gone.
    Open { requests: Vec<Option<Vec<Cmd>>>, commands: usize },
    /// Sent; who waits for answers, and where those begin.
    Sent { sending: Send, waiting: Vec<Option<Waker>>, starts: Vec<usize> },
    /// Answered; each takes its own answers out.
    Done { result: Result<Answered, Failed>, starts: Vec<usize> },
}

impl Gather {
    /// Adds a request to those that leave next.
    pub(crate) fn add(&self, commands: Vec<Cmd>) -> Gathered<'_> {
        let count = commands.len();
        let mut open = lock(&self.open);
        if let Some(batch) = &*open
            && let State::Open { requests, commands: total } = &mut *lock(&batch.0)
            && *total + count <= MOST
        {
            *total += count;
            requests.push(Some(commands));
            return Gathered::new(self, Arc::clone(batch), requests.len() - 1, count);
        }
        let state = State::Open { requests: vec![Some(commands)], commands: count };
        let batch = Arc::new(Batch(Mutex::new(state)));
        *open = Some(Arc::clone(&batch));
        Gathered::new(self, batch, 0, count)
    }

    /// Nothing is added to `batch` any more.
    fn close(&self, batch: &Arc<Batch>) {
        let mut open = lock(&self.open);
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, batch)) {
            *open = None;
        }
    }
}

/// One request among those that leave together.
pub(crate) struct Gathered<'a> {
    gather: &'a Gather,
    batch: Arc<Batch>,
    at: usize,
    count: usize,
    /// Whether it has stepped back, or need not.
    stepped: bool,
    sent: bool,
    done: bool,
}

impl<'a> Gathered<'a> {
    fn new(gather: &'a Gather, batch: Arc<Batch>, at: usize, count: usize) -> Self {
        let others = gather.under_way.fetch_add(1, Ordering::Relaxed);
        Self { gather, batch, at, count, stepped: others < MANY - 1, sent: false, done: false }
    }

    /// Waits for the answers. `send` is called by whoever of the batch comes first.
    pub(crate) async fn answers(
        mut self,
        send: impl Fn(Vec<Cmd>) -> Send,
    ) -> Result<Answered, Failed> {
        std::future::poll_fn(|cx| self.poll(cx, &send)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        send: &impl Fn(Vec<Cmd>) -> Send,
    ) -> Poll<Result<Answered, Failed>> {
        if !std::mem::replace(&mut self.stepped, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !std::mem::replace(&mut self.sent, true) {
            self.gather.close(&self.batch);
        }
        let polled = self.batch.poll(self.at, self.count, cx, send);
        self.done = polled.is_ready();
        polled
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        self.gather.under_way.fetch_sub(1, Ordering::Relaxed);
        if !self.done {
            self.batch.leave(self.at);
        }
    }
}

impl Batch {
    /// Looks for the answers to the request `at`; sends the batch if nobody has.
    ///
    /// Whoever looks last is woken by the connection, and then wakes the others: no more wake-ups
    /// than that, for a task that is woken without need may be moved to another thread.
    fn poll(
        &self,
        at: usize,
        count: usize,
        cx: &mut Context<'_>,
        send: &impl Fn(Vec<Cmd>) -> Send,
    ) -> Poll<Result<Answered, Failed>> {
        let mut state = lock(&self.0);
        if let State::Open { requests, .. } = &mut *state {
            *state = State::sent(std::mem::take(requests), send);
        }
        let mut woken = Vec::new();
        if let State::Sent { sending, waiting, starts } = &mut *state {
            let Poll::Ready(result) = sending.as_mut().poll(cx) else {
                waiting[at] = Some(cx.waker().clone());
                return Poll::Pending;
            };
            waiting[at] = None;
            woken = std::mem::take(waiting);
            *state = State::Done { result, starts: std::mem::take(starts) };
        }
        let answers = match &mut *state {
            State::Done { result: Ok(Answered { values, sent_twice }), starts } => {
                let from = starts[at].min(values.len());
                let to = (from + count).min(values.len());
                let own = values[from..to].iter_mut();
                let values = own.map(|value| std::mem::replace(value, Value::Nil)).collect();
                Ok(Answered { values, sent_twice: *sent_twice })
            }
            State::Done { result: Err(failed), .. } => Err(failed.clone()),
            // Not reachable: it was sent above.
            State::Open { .. } | State::Sent { .. } => {
                Ok(Answered { values: Vec::new(), sent_twice: false })
            }
        };
        drop(state);
        woken.into_iter().flatten().for_each(Waker::wake);
        Poll::Ready(answers)
    }

    /// Whoever asked for `at` is gone.
    fn leave(&self, at: usize) {
        let mut state = lock(&self.0);
        let woken = match &mut *state {
            // It must not leave later, when nobody expects it any more.
            State::Open { requests, .. } => {
                requests[at] = None;
                return;
            }
            // It may have been the one that the connection would wake.
            State::Sent { waiting, .. } => {
                waiting[at] = None;
                std::mem::take(waiting)
            }
            State::Done { .. } => return,
        };
        if let State::Sent { waiting, .. } = &mut *state {
            waiting.resize_with(woken.len(), || None);
        }
        drop(state);
        woken.into_iter().flatten().for_each(Waker::wake);
    }
}

impl State {
    fn sent(requests: Vec<Option<Vec<Cmd>>>, send: &impl Fn(Vec<Cmd>) -> Send) -> Self {
        let (mut all, mut starts) = (Vec::new(), Vec::with_capacity(requests.len()));
        let waiting = requests.iter().map(|_| None).collect();
        for request in requests {
            starts.push(all.len());
            all.append(&mut request.unwrap_or_default());
        }
        Self::Sent { sending: send(all), waiting, starts }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
