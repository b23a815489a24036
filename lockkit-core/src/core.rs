//! What all backends have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::capability::Capabilities;
use crate::clock::{BootInstant, Clock};
use crate::contender::{Claim, Contender};
use crate::engine::acquire::Acquire;
use crate::engine::background::Background;
use crate::engine::live::LiveClaim;
use crate::engine::owners::Owners;
use crate::engine::queue::LocalQueue;
use crate::engine::{schedule, terms, thread};
use crate::error::{Error, Result};
use crate::event::{Emitter, EventKind, Events};
use crate::request::Request;
use crate::settings::Settings;
use crate::sync::lock;

/// What all backends have in common: description, defaults, live claims, events.
///
/// Every backend object owns one. Clones are the same client: they share its local queue, its
/// owners and its event stream.
#[derive(Debug, Clone)]
pub struct Core(Arc<Shared>);

/// Wake-ups get lost; who asks more seldom than this waits for nothing.
const LONGEST_POLL: Duration = Duration::from_secs(3600);

/// The inside of a [`Core`].
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) capabilities: Capabilities,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) queue: LocalQueue,
    pub(crate) owners: Owners,
    pub(crate) events: Emitter,
    pub(crate) background: Background,
    warnings: Mutex<Vec<Arc<str>>>,
    closed: AtomicBool,
    /// Rung when the client is closed.
    pub(crate) closing: Notify,
    /// Since when the store has not answered, in nanoseconds after boot; zero if it does.
    unavailable_since: AtomicU64,
}

impl Core {
    /// The core of a backend that can do `capabilities`, for a client with `settings`.
    pub fn new(capabilities: Capabilities, settings: Settings) -> Self {
        Self::with_clock(capabilities, settings, Clock::default())
    }

    /// As [`Core::new`], on another clock.
    pub fn with_clock(capabilities: Capabilities, mut settings: Settings, clock: Clock) -> Self {
        // Neither spinning nor sums that overflow.
        let (min, max) = settings.poll;
        let min = min.clamp(Duration::from_millis(1), LONGEST_POLL);
        settings.poll = (min, max.clamp(min, LONGEST_POLL));
        Self(Arc::new(Shared {
            events: Emitter::new(capabilities.name),
            capabilities,
            settings,
            clock,
            queue: LocalQueue::default(),
            owners: Owners::default(),
            background: Background::default(),
            warnings: Mutex::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            unavailable_since: AtomicU64::new(0),
        }))
    }

    /// What the backend can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// The client's defaults.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// How long an exchange with the store may take that belongs to no claim (a ping, say).
    pub fn op_timeout(&self) -> Duration {
        let settings = &self.0.settings;
        settings.op_timeout.unwrap_or_else(|| schedule::op_timeout(settings.ttl))
    }

    /// Whether the backend can keep the client's defaults: worth asking at start-up, before every
    /// acquire says so.
    ///
    /// # Errors
    /// [`Error::Configuration`] that says what it keeps.
    pub fn check_settings(&self) -> Result<()> {
        let settings = &self.0.settings;
        terms::check_times(settings.ttl, settings.op_timeout, &self.0.capabilities)
    }

    /// Subscribes to what happens to this client's claims from now on.
    pub fn events(&self) -> Events {
        self.0.events.subscribe()
    }

    /// Tells that something works but is dangerous: what it is, and what would be right.
    pub fn warn(&self, message: impl Into<Arc<str>>) {
        let message = message.into();
        let mut warnings = lock(&self.0.warnings);
        if !warnings.contains(&message) {
            warnings.push(Arc::clone(&message));
        }
        drop(warnings);
        self.0.events.emit(|| (None, EventKind::Warning { message }));
    }

    /// What was warned of so far, each once: also what was found while connecting, before anybody
    /// could listen to the events.
    pub fn warnings(&self) -> Vec<Arc<str>> {
        lock(&self.0.warnings).clone()
    }

    /// How many waiters stand in this client's local queues.
    pub fn waiting(&self) -> usize {
        self.0.queue.len()
    }

    /// How many claims are being cleaned up in the background.
    pub fn cleaning_up(&self) -> usize {
        self.0.background.count()
    }

    /// Runs an exchange with the store that belongs to no claim (a ping, say) on the lock thread,
    /// where the client's connections live: the caller may be on any executor, and a caller that
    /// stops polling keeps no connection from others.
    ///
    /// # Errors
    /// Those of `future`; and if the lock thread cannot be started.
    ///
    /// # Cancel safety
    /// The future goes on when this call is dropped.
    pub async fn run<T>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
    {
        let task = thread::lock_thread()?.handle().spawn(future);
        task.await.unwrap_or_else(|error| {
            Err(Error::unavailable("the backend panicked, which is a bug in it").with_source(error))
        })
    }

    /// Acquires what `request` asks for, through the contender that `contend` makes.
    ///
    /// Returns at once; the future does the work. It is `'static`: it borrows neither the
    /// backend nor the request.
    pub fn acquire(
        &self,
        request: Request,
        contend: impl FnOnce(Claim) -> Box<dyn Contender>,
    ) -> Acquire {
        match terms::resolve(request, &self.0.settings, &self.0.capabilities) {
            Ok((claim, terms)) => {
                let contender = contend(claim.clone());
                Acquire::new(LiveClaim::new(Arc::clone(&self.0), claim, terms, contender))
            }
            Err(error) => Acquire::refused(error),
        }
    }

    /// Refuses new claims from now on and waits for the clean-up, for at most `deadline`;
    /// returns whether it was done. See [`LockExt::close`](crate::LockExt::close).
    pub async fn close(&self, deadline: Duration) -> bool {
        self.0.closed.store(true, Ordering::Release);
        self.0.closing.notify_waiters();
        self.0.background.idle(self.0.clock.now() + deadline).await
    }
}

impl Shared {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether waiters of this client queue locally: not where the store has a queue.
    pub(crate) fn queues_locally(&self) -> bool {
        !self.capabilities.fair
    }

    /// Notes what an exchange with the store came to, for the times without an answer.
    pub(crate) fn note<T>(&self, result: &Result<T>) {
        match result {
            Err(Error::Unavailable(_)) => self.note_silence(),
            _ if self.unavailable_since.load(Ordering::Relaxed) != 0 => self.note_answer(),
            _ => {}
        }
    }

    fn note_silence(&self) {
        let now = self.clock.now().as_nanos();
        let first = self
            .unavailable_since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if first {
            self.events.emit(|| (None, EventKind::Unavailable));
        }
    }

    fn note_answer(&self) {
        let since = self.unavailable_since.swap(0, Ordering::Relaxed);
        if since != 0 {
            let after = self.clock.now().since(BootInstant::from_nanos(since));
            self.events.emit(|| (None, EventKind::Available { after }));
        }
    }
}
