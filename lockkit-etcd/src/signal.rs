//! Wake-ups: one stream of watches for all waiters of a client, while somebody waits.

mod watch;
mod watcher;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkit_core::{Bell, Wake};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::fleet::Fleet;
use watch::Watch;
use watcher::Watcher;

/// What a waiter waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// That one key goes.
    Key(Vec<u8>),
    /// That so many keys go that lie in a range and are older than the waiter's own.
    Older { range: Range<Vec<u8>>, than: i64, count: usize },
}

/// Wake-ups of one client.
#[derive(Debug)]
pub(crate) struct Signal {
    line: Arc<Line>,
    fleet: Arc<Fleet>,
    ids: AtomicI64,
}

/// The way to the task that watches, if it runs.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<Option<UnboundedSender<Command>>>);

/// What the task is told.
#[derive(Debug)]
pub(crate) enum Command {
    Add(Watch),
    Cancel(i64),
}

impl Signal {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Self {
        Self { line: Arc::default(), fleet, ids: AtomicI64::new(1) }
    }

    /// Watches for what happens to `target` from the revision `from` on. Nothing gets lost between
    /// the answer that told the revision and the watch.
    pub(crate) fn watch(&self, target: Target, from: i64) -> Watching {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let bell = Arc::new(Bell::new());
        let broken = Arc::new(AtomicBool::new(false));
        let watch = Watch::new(id, target.clone(), from, Arc::clone(&bell), Arc::clone(&broken));
        let start = |commands| {
            let watcher =
                Watcher::new(Arc::downgrade(&self.line), Arc::clone(&self.fleet), commands);
            // Waiters are polled inside the lock thread's runtime.
            tokio::spawn(watcher.run());
        };
        self.line.send(Command::Add(watch), start);
        Watching { id, target, bell, broken, line: Arc::clone(&self.line) }
    }
}

impl Line {
    fn sender(&self) -> MutexGuard<'_, Option<UnboundedSender<Command>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, command: Command, start: impl FnOnce(UnboundedReceiver<Command>)) {
        let mut sender = self.sender();
        let command = match &*sender {
            Some(open) => match open.send(command) {
                Ok(()) => return,
                Err(refused) => refused.0,
            },
            None => command,
        };
        let (open, commands) = unbounded_channel();
        // The other end is in our hands.
        let _ = open.send(command);
        *sender = Some(open);
        drop(sender);
        start(commands);
    }

    /// Closes the way if nothing is on it; whether it did.
    fn end(&self, commands: &UnboundedReceiver<Command>) -> bool {
        let mut sender = self.sender();
        if commands.is_empty() {
            *sender = None;
            return true;
        }
        false
    }
}

/// One watch; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Watching {
    id: i64,
    target: Target,
    bell: Arc<Bell>,
    broken: Arc<AtomicBool>,
    line: Arc<Line>,
}

impl Watching {
    pub(crate) fn listen(&self) -> Wake {
        self.bell.listen()
    }

    /// Whether the server has ended it, or never began.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whether it still watches for `target`.
    pub(crate) fn is_for(&self, target: &Target) -> bool {
        self.target == *target && !self.is_broken()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(open) = &*self.line.sender() {
            // An error means that nothing is watched any more.
            let _ = open.send(Command::Cancel(self.id));
        }
    }
}
