//! The lock thread: one per process, for everything that must go on whatever the caller's
//! runtime does.

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::runtime::{Builder, EnterGuard, Handle};

use crate::engine::timers::Timers;
use crate::error::{Error, Result};
use crate::sync::lock;

/// The lock thread, seen from outside.
#[derive(Debug)]
pub(crate) struct LockThread {
    handle: Handle,
    timers: Arc<Timers>,
    process: u32,
}

static THREAD: OnceLock<LockThread> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

thread_local! {
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is the lock thread. Costs no system call.
pub fn on_lock_thread() -> bool {
    // A thread that is ending is not the lock thread, which never ends.
    HERE.try_with(Cell::get).unwrap_or(false)
}

/// The lock thread of this process, started if need be.
///
/// # Errors
/// If it cannot be started (no threads or descriptors left), or if this process was forked from
/// one that had it: threads do not survive a fork, so nothing here would be renewed.
pub(crate) fn lock_thread() -> Result<&'static LockThread> {
    let thread = match THREAD.get() {
        Some(thread) => thread,
        None => start()?,
    };
    if thread.process != std::process::id() {
        return Err(Error::configuration(
            "this process was forked after lockkit had started its thread, which a fork does \
             not copy; start the program anew (exec) in the child before it uses locks",
        ));
    }
    Ok(thread)
}

/// The lock thread, if it runs in this process.
pub(crate) fn running() -> Option<&'static LockThread> {
    THREAD.get().filter(|thread| thread.process == std::process::id())
}

/// The lock thread, if it was ever started, without the look at the process (a system call): only
/// where somebody has looked just before.
pub(crate) fn started() -> Option<&'static LockThread> {
    THREAD.get()
}

/// Makes the lock thread's runtime the current one, if it was started. Without the look at the
/// process (a system call): after a fork nothing comes of it, and nothing bad.
pub(crate) fn context() -> Option<EnterGuard<'static>> {
    THREAD.get().map(|thread| thread.handle.enter())
}

fn start() -> Result<&'static LockThread> {
    let _one_at_a_time = lock(&STARTING);
    if let Some(thread) = THREAD.get() {
        return Ok(thread);
    }
    let failed = |what: &str, e: std::io::Error| Error::unavailable(what).with_source(e);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| failed("cannot start the runtime of the lock thread", e))?;
    let timers = Arc::new(Timers::new().map_err(|e| failed("cannot create a timer", e))?);
    let handle = runtime.handle().clone();
    let on_thread = Arc::clone(&timers);
    std::thread::Builder::new()
        .name("lockkit".to_owned())
        .spawn(move || {
            HERE.set(true);
            runtime.block_on(on_thread.run());
        })
        .map_err(|e| failed("cannot start the lock thread", e))?;
    Ok(THREAD.get_or_init(|| LockThread { handle, timers, process: std::process::id() }))
}

impl LockThread {
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn timers(&self) -> &Arc<Timers> {
        &self.timers
    }

    /// Runs `future` on the lock thread; nobody waits for it.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }
}
