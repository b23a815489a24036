//! The connections of one client to one server.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Handle, Id};

use crate::line::Line;
use crate::opener::{As, Opener};
use crate::target::Address;

/// The connections of one client to one server, each opened when it is first needed.
#[derive(Debug)]
pub(crate) struct Node {
    address: Address,
    opener: Arc<Opener>,
    who: As,
    renewals: Arc<Line>,
    work: Arc<Line>,
    /// Those on which it is waited for replicas, which keeps everything else on them waiting.
    slow: [Arc<Line>; SLOW],
    /// One per runtime from which the client is used, the last used last.
    callers: Mutex<Vec<(Id, Arc<Line>)>>,
}

/// Which connection a request goes over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lane<'a> {
    /// The one of the caller's runtime, for what callers wait for: an answer then wakes the
    /// caller without a detour over another thread.
    Caller(&'a Handle),
    /// The one for renewals, which must never wait behind anything else.
    Renewals,
    /// The one for everything else that the lock thread does.
    Work,
    /// One of those that only one request at a time goes over.
    Slow(usize),
}

/// How many connections there are for requests that keep a connection waiting.
pub(crate) const SLOW: usize = 4;

/// Of how many runtimes a connection is kept. Those of runtimes that ended are closed anyway, but
/// nobody tells.
const RUNTIMES: usize = 32;

impl Node {
    pub(crate) fn new(address: Address, opener: Arc<Opener>) -> Arc<Self> {
        Self::new_as(address, opener, As::Client)
    }

    pub(crate) fn new_as(address: Address, opener: Arc<Opener>, who: As) -> Arc<Self> {
        let line = || Line::new(address.clone(), Arc::clone(&opener), who, None);
        let (renewals, work, slow) = (line(), line(), std::array::from_fn(|_| line()));
        Arc::new(Self { address, opener, who, renewals, work, slow, callers: Mutex::default() })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn line(&self, lane: Lane<'_>) -> Arc<Line> {
        match lane {
            Lane::Caller(home) => self.callers_line(home),
            Lane::Renewals => Arc::clone(&self.renewals),
            Lane::Work => Arc::clone(&self.work),
            Lane::Slow(at) => Arc::clone(&self.slow[at % SLOW]),
        }
    }

    fn callers_line(&self, home: &Handle) -> Arc<Line> {
        let id = home.id();
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = callers.iter().position(|(runtime, _)| *runtime == id) {
            return Arc::clone(&callers[at].1);
        }
        if callers.len() == RUNTIMES {
            callers.remove(0);
        }
        let (address, opener) = (self.address.clone(), Arc::clone(&self.opener));
        let line = Line::new(address, opener, self.who, Some(home.clone()));
        callers.push((id, Arc::clone(&line)));
        line
    }

    /// Closes all connections as soon as nobody waits for an answer on them.
    pub(crate) fn hang_up(&self) {
        self.renewals.hang_up();
        self.work.hang_up();
        self.slow.iter().for_each(|line| line.hang_up());
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, line) in callers.iter() {
            line.hang_up();
        }
    }
}
