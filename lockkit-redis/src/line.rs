//! One connection to one server: made when it is first needed, replaced when it is broken.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::errors::{Answered, Failed, Problem};
use crate::gather::Gather;
use crate::opener::{As, Opener};
use crate::target::Address;

/// One connection to one server. Requests go out in order, and many at a time.
pub(crate) struct Line {
    address: Address,
    opener: Arc<Opener>,
    who: As,
    /// The runtime that drives the connection; the one of the lock thread if not given.
    home: Option<Handle>,
    gather: Gather,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<MultiplexedConnection>,
    /// Counts the connections, so that a broken one is not mistaken for its successor.
    generation: u64,
    opening: Option<watch::Receiver<Option<Outcome>>>,
    failures: u32,
    not_before: Option<Instant>,
}

type Outcome = Result<(MultiplexedConnection, u64), Problem>;

/// The pauses between attempts to connect grow from the first to the second, by half at random.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

impl Line {
    pub(crate) fn new(
        address: Address,
        opener: Arc<Opener>,
        who: As,
        home: Option<Handle>,
    ) -> Arc<Self> {
        let (gather, state) = Default::default();
        Arc::new(Self { address, opener, who, home, gather, state })
    }

    /// Sends some commands, with what others send at the same time; one answer each, which may be
    /// an error of the server.
    ///
    /// When all whose commands left together have dropped this, the connection counts as broken:
    /// nobody here gives up an exchange for another reason than that its time is over.
    pub(crate) async fn send(self: &Arc<Self>, commands: Vec<Cmd>) -> Result<Answered, Failed> {
        let send = |all| {
            let line = Arc::clone(self);
            async move { line.send_now(all).await }.boxed()
        };
        self.gather.add(commands).answers(send).await
    }

    /// A connection that the server closed while it was idle is replaced without a word: what
    /// fails at once is sent once more. Nearly always nothing was sent the first time, but when
    /// the connection broke in this very moment, that cannot be told.
    async fn send_now(self: Arc<Self>, commands: Vec<Cmd>) -> Result<Answered, Failed> {
        let count = commands.len();
        let mut pipeline = redis::Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let mut sent_twice = false;
        loop {
            let (mut connection, generation) = match self.open_connection() {
                Some(open) => open,
                None => {
                    let connected = self.connect().await;
                    connected.map_err(|p| Failed::never_sent(p).after(sent_twice))?
                }
            };
            let mut broken = Broken { line: &self, generation, disarmed: false };
            let sending = pin!(connection.send_packed_commands(&pipeline, 0, count));
            let (result, at_once) = noting_the_first_poll(sending).await;
            let error = match result {
                Ok(values) => {
                    broken.disarmed = true;
                    return Ok(Answered { values, sent_twice });
                }
                Err(error) => error,
            };
            drop(broken);
            if !at_once || std::mem::replace(&mut sent_twice, true) {
                return Err(Failed::unanswered(Problem::new(&self.address, error)));
            }
        }
    }

    fn open_connection(&self) -> Option<(MultiplexedConnection, u64)> {
        let state = self.state();
        state.open.as_ref().map(|open| (open.clone(), state.generation))
    }

    /// The connection, opened if need be. All who need it meanwhile share one attempt.
    async fn connect(self: &Arc<Self>) -> Outcome {
        let (mut opening, attempt) = {
            let mut state = self.state();
            if let Some(open) = &state.open {
                return Ok((open.clone(), state.generation));
            }
            match &state.opening {
                Some(opening) => (opening.clone(), None),
                None => {
                    let (told, opening) = watch::channel(None);
                    state.opening = Some(opening.clone());
                    let pause = state.not_before.map(|at| at.duration_since(Instant::now()));
                    let attempt = Attempt { line: Arc::clone(self), told, done: false };
                    (opening, Some(attempt.run(pause.unwrap_or_default())))
                }
            }
        };
        // Outside of the lock: a runtime that has ended drops at once what it is given.
        if let Some(attempt) = attempt {
            match &self.home {
                Some(home) => drop(home.spawn(attempt)),
                // Exchanges are polled inside the lock thread's runtime.
                None => drop(tokio::spawn(attempt)),
            }
        }
        // An error means that the runtime which should have opened it is gone.
        let outcome = opening.wait_for(Option::is_some).await.ok().and_then(|o| o.clone());
        outcome.unwrap_or_else(|| Err(Problem::runtime_ended()))
    }

    /// Has the next request open a new connection, unless that has happened already.
    fn discard(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            let open = state.open.take();
            drop(state);
            drop(open);
        }
    }

    /// Has the next request open a new connection; requests under way keep theirs.
    pub(crate) fn hang_up(&self) {
        let open = self.state().open.take();
        drop(open);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Opening a connection; dropped on the way (its runtime ended), others may try.
struct Attempt {
    line: Arc<Line>,
    told: watch::Sender<Option<Outcome>>,
    done: bool,
}

impl Attempt {
    async fn run(mut self, pause: Duration) {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let opened = self.line.opener.connect(&self.line.address, self.line.who).await;
        let mut state = self.line.state();
        state.opening = None;
        self.done = true;
        let outcome = match opened {
            Ok(connection) => {
                state.generation += 1;
                state.open = Some(connection.clone());
                state.failures = 0;
                state.not_before = None;
                Ok((connection, state.generation))
            }
            Err(problem) => {
                let pause = (PAUSES.0 * 2_u32.saturating_pow(state.failures)).min(PAUSES.1);
                state.failures = (state.failures + 1).min(16);
                state.not_before =
                    Some(Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0));
                Err(problem)
            }
        };
        drop(state);
        self.told.send_replace(Some(outcome));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.done {
            self.line.state().opening = None;
        }
    }
}

/// Takes the connection for broken unless an answer came.
struct Broken<'a> {
    line: &'a Line,
    generation: u64,
    disarmed: bool,
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        if !self.disarmed {
            self.line.discard(self.generation);
        }
    }
}

/// The result, and whether it was there at the first poll.
async fn noting_the_first_poll<T>(mut future: Pin<&mut impl Future<Output = T>>) -> (T, bool) {
    let mut first = true;
    poll_fn(|cx| {
        let was_first = std::mem::take(&mut first);
        match future.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready((result, was_first)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
