//! How waiters hear that something was committed to the file, by whatever process.
//!
//! One task per client, and only while somebody waits: it watches the file that commits are
//! written to, checks that a commit can be seen, and wakes all waiters of the client, who look
//! for themselves. Where there is nothing to watch with, waiters poll.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use lockkit_core::{Bell, Wake};

use super::store::Store;

/// Whether releases of other processes wake waiters, on this platform.
pub(super) const PUSH: bool = cfg!(target_os = "linux");

/// The bell of one client.
#[derive(Debug, Default)]
pub(super) struct Signal {
    bell: Bell,
    /// Lives as long as the task does, even if its runtime ends.
    task: Mutex<Weak<()>>,
}

impl Store {
    /// A wake-up for every commit from now on.
    pub(super) fn listen(self: &Arc<Self>) -> Wake {
        let wake = self.signal.bell.listen();
        let mut task = self.signal.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.strong_count() == 0 {
            let alive = Arc::new(());
            if platform::start(self, Arc::clone(&alive)) {
                *task = Arc::downgrade(&alive);
            }
        }
        wake
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::{Arc, Store};

    pub(super) fn start(_: &Arc<Store>, _: Arc<()>) -> bool {
        false
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::slice::Iter;
    use std::time::Duration;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;
    use sqlx::Row;
    use tokio::net::unix::pipe::Receiver;

    use super::{Arc, PoisonError, Store, Weak};

    /// How often the task asks itself whether anybody still waits.
    const IDLE: Duration = Duration::from_secs(1);

    /// A commit is written before it can be seen, and with a slow disk long before. So after a
    /// write come several looks, after these pauses, whether or not an earlier one saw a change:
    /// that may have been another commit.
    const LOOKS: [Duration; 6] = [
        Duration::from_millis(1),
        Duration::from_millis(4),
        Duration::from_millis(16),
        Duration::from_millis(64),
        Duration::from_millis(256),
        Duration::from_millis(750),
    ];

    /// How long a look may wait for the lane.
    const LOOK_BUDGET: Duration = Duration::from_secs(1);

    /// Begins to watch, at once, and starts the task. Whether that worked.
    pub(super) fn start(store: &Arc<Store>, alive: Arc<()>) -> bool {
        // Waiters are polled inside the lock thread's runtime, whichever thread polls them.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return false };
        let Ok(watch) = watch(&store.place.path) else { return false };
        runtime.spawn(run(Arc::downgrade(store), watch, alive));
        true
    }

    fn watch(path: &Path) -> Result<OwnedFd, Errno> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let gone = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        // SQLite follows symbolic links first, and names the log after what it finds. The path of
        // the client itself stays: a link that is turned to another file must be noticed.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        // With write-ahead logging, writes to the file itself only move what was committed.
        match inotify::add_watch(&fd, Path::new(&log), gone | WatchFlags::MODIFY) {
            Ok(_) => inotify::add_watch(&fd, path, gone)?,
            Err(_) => inotify::add_watch(&fd, path, gone | WatchFlags::MODIFY)?,
        };
        Ok(fd)
    }

    /// `_alive` tells that the task runs; it is dropped with the task.
    async fn run(store: Weak<Store>, watch: OwnedFd, _alive: Arc<()>) {
        // Tokio's `AsyncFd` has only unsafe constructors. A pipe's receiving end is, for tokio, any
        // descriptor that can be polled and read.
        if let Ok(watch) = Receiver::from_owned_fd_unchecked(watch) {
            watch_until_idle(&store, &watch).await;
        }
        // Whoever waits still, or since just now, asks again, and so begins anew.
        if let Some(store) = store.upgrade() {
            forget_task(&store);
            store.signal.bell.ring();
        }
    }

    /// Ends when nobody waits, and when there is nothing to be seen any more.
    async fn watch_until_idle(store: &Weak<Store>, watch: &Receiver) {
        let mut version = None;
        // What was committed between the beginning of the watch and now is looked for as well.
        let mut pauses = LOOKS.iter();
        loop {
            let Some(now) = look(store).await else { return };
            if version != Some(now) {
                version = Some(now);
                ring(store);
            }
            // What comes in a burst wakes once.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(500..2000))).await;
            pauses = match wait(store, watch, pauses).await {
                Some(pauses) => pauses,
                None => return,
            };
        }
    }

    /// Waits until it is time for the next look. Which pauses come after that one; `None` at the
    /// end.
    async fn wait<'a>(
        store: &Weak<Store>,
        watch: &Receiver,
        mut pauses: Iter<'a, Duration>,
    ) -> Option<Iter<'a, Duration>> {
        loop {
            let pause = pauses.next();
            match tokio::time::timeout(*pause.unwrap_or(&IDLE), watch.readable()).await {
                Ok(Ok(())) if !file_gone(watch) => return Some(LOOKS.iter()),
                Ok(_) => return None,
                Err(_) if pause.is_some() => return Some(pauses),
                Err(_) if someone_waits(store) => {}
                Err(_) => return None,
            }
        }
    }

    /// Reads all events that are there. Whether a watched file went away, or may have.
    fn file_gone(watch: &Receiver) -> bool {
        let gone = ReadFlags::ATTRIB
            | ReadFlags::DELETE_SELF
            | ReadFlags::MOVE_SELF
            | ReadFlags::IGNORED
            | ReadFlags::UNMOUNT;
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let mut events = Reader::new(watch, &mut buffer);
        let mut found = false;
        // Until it would block: only that tells tokio that there is nothing to read any more.
        let end = watch.try_io(|| -> io::Result<()> {
            loop {
                found |= events.next()?.events().intersects(gone);
            }
        });
        found || end.is_err_and(|e| e.kind() != io::ErrorKind::WouldBlock)
    }

    /// A number that changes with every commit of another connection; `None` if it cannot be told
    /// or the client is gone. Opens no connection: waiters have done that, unless the client was
    /// closed since.
    async fn look(store: &Weak<Store>) -> Option<i64> {
        let store = store.upgrade()?;
        let mut turn = store.reader.line_up(&store.place, LOOK_BUDGET).await.ok()?;
        let rows = turn.rows(sqlx::query("PRAGMA data_version")).await.ok()?;
        rows.first()?.try_get(0).ok()
    }

    fn ring(store: &Weak<Store>) {
        if let Some(store) = store.upgrade() {
            store.signal.bell.ring();
        }
    }

    fn someone_waits(store: &Weak<Store>) -> bool {
        store.upgrade().is_some_and(|store| store.signal.bell.listeners() > 0)
    }

    fn forget_task(store: &Store) {
        let mut task = store.signal.task.lock().unwrap_or_else(PoisonError::into_inner);
        *task = Weak::new();
    }
}
