//! Requests that are made at the same time leave together.
//!
//! A driver that writes each request by itself spends most of its time in the kernel. So a request
//! steps back once behind whatever else is ready to run on its thread, and whoever comes back first
//! sends all that have come together meanwhile, as one pipeline. Alone, it costs one more poll.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::{Cmd, Value};

use crate::errors::Failed;

/// Sends commands; one answer each.
pub(crate) type Send = BoxFuture<'static, Result<Vec<Value>, Failed>>;

/// What all of a batch wait for. Each takes its own answers out.
type Answers = Shared<BoxFuture<'static, Result<Arc<Mutex<Vec<Value>>>, Failed>>>;

/// Where requests of one connection come together.
#[derive(Debug, Default)]
pub(crate) struct Gather(Mutex<Option<Arc<Batch>>>);

/// How many commands leave together at most: answers of a pipeline come when all are there.
const MOST: usize = 16;

/// Requests that leave together.
struct Batch(Mutex<State>);

enum State {
    /// Not sent yet. `None`: whoever asked has gone.
    Open { requests: Vec<Option<Vec<Cmd>>>, commands: usize },
    /// Sent; where the answers to each request begin.
    Sent { answers: Answers, starts: Vec<usize> },
}

impl Gather {
    /// Adds a request to those that leave next.
    pub(crate) fn add(&self, commands: Vec<Cmd>) -> Gathered<'_> {
        let count = commands.len();
        let mut open = lock(&self.0);
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
        let mut open = lock(&self.0);
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
    stepped: bool,
    answers: Option<(Answers, usize)>,
}

impl<'a> Gathered<'a> {
    fn new(gather: &'a Gather, batch: Arc<Batch>, at: usize, count: usize) -> Self {
        Self { gather, batch, at, count, stepped: false, answers: None }
    }

    /// Waits for the answers. `send` is called by whoever of the batch comes first.
    pub(crate) async fn answers(
        mut self,
        send: impl Fn(Vec<Cmd>) -> Send,
    ) -> Result<Vec<Value>, Failed> {
        std::future::poll_fn(|cx| self.poll(cx, &send)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        send: &impl Fn(Vec<Cmd>) -> Send,
    ) -> Poll<Result<Vec<Value>, Failed>> {
        if !std::mem::replace(&mut self.stepped, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (gather, batch, at) = (self.gather, &self.batch, self.at);
        let (answers, start) = self.answers.get_or_insert_with(|| {
            gather.close(batch);
            batch.sent(at, send)
        });
        let result = std::task::ready!(Pin::new(answers).poll(cx));
        let (from, to) = (*start, *start + self.count);
        Poll::Ready(result.map(|values| {
            let mut values = lock(&values);
            let to = to.min(values.len());
            values[from.min(to)..to].iter_mut().map(|v| std::mem::replace(v, Value::Nil)).collect()
        }))
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        if self.answers.is_some() {
            return;
        }
        // It must not leave later, when nobody expects it any more.
        if let State::Open { requests, .. } = &mut *lock(&self.batch.0)
            && let Some(request) = requests.get_mut(self.at)
        {
            *request = None;
        }
    }
}

impl Batch {
    /// What the request `at` waits for, and where its answers begin; sends the batch if nobody
    /// has.
    fn sent(&self, at: usize, send: &impl Fn(Vec<Cmd>) -> Send) -> (Answers, usize) {
        let mut state = lock(&self.0);
        let requests = match &mut *state {
            State::Sent { answers, starts } => return (answers.clone(), starts[at]),
            State::Open { requests, .. } => std::mem::take(requests),
        };
        let (mut all, mut starts) = (Vec::new(), Vec::with_capacity(requests.len()));
        for request in requests {
            starts.push(all.len());
            all.append(&mut request.unwrap_or_default());
        }
        let start = starts[at];
        let answers = send(all).map(|r| r.map(|values| Arc::new(Mutex::new(values))));
        let answers = answers.boxed().shared();
        *state = State::Sent { answers: answers.clone(), starts };
        (answers, start)
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
