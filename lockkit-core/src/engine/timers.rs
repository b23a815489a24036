//! The watchdog's queue: what is due when, in the order of time, for the whole process.
//!
//! The clock counts suspend, and so does what wakes the lock thread: a `timerfd` on
//! `CLOCK_BOOTTIME`. Arming is lazy: an entry later than the armed instant wakes nobody, and
//! removing the earliest entry leaves the timer armed, so that acquiring and releasing in a loop
//! makes no system call here.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::clock::BootInstant;
use crate::engine::thread;
use crate::sync::lock;

/// Something that wants to be told when its time has come.
pub(crate) trait Due: Send + Sync + 'static {
    fn slot(&self) -> &Slot;

    /// Called on the lock thread. Returns when it wants to be told next.
    fn due(self: Arc<Self>, now: BootInstant) -> Option<BootInstant>;
}

/// The place of one entry in the queue.
#[derive(Debug)]
pub(crate) struct Slot {
    id: u64,
    /// For when it is queued; zero if it is not, [`TOLD`] if it was taken out to be told.
    /// Changed only under the queue's mutex.
    at: AtomicU64,
}

const TOLD: u64 = u64::MAX;

impl Slot {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), at: AtomicU64::new(0) }
    }

    /// A number that no other entry of this process has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// The queue and the alarm behind it.
pub(crate) struct Timers {
    queue: Mutex<Queue>,
    alarm: alarm::Alarm,
}

struct Queue {
    entries: BTreeMap<(u64, u64), Arc<dyn Due>>,
    /// For when the alarm is set; `u64::MAX` if it is not.
    armed: u64,
}

impl Timers {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            queue: Mutex::new(Queue { entries: BTreeMap::new(), armed: u64::MAX }),
            alarm: alarm::Alarm::new()?,
        })
    }

    /// Makes sure that `entry` is told at `at` or before. An entry that is told too early says
    /// when it wants to be told again, so a later `at` than the queued one costs nothing.
    pub(crate) fn schedule<D: Due>(&self, entry: &Arc<D>, at: BootInstant) {
        let mut queue = lock(&self.queue);
        let slot = entry.slot();
        let old = slot.at.load(Ordering::Relaxed);
        let at = at.as_nanos().max(1);
        if old != 0 && old <= at {
            return;
        }
        let erased: Arc<dyn Due> =
            queue.entries.remove(&(old, slot.id)).unwrap_or_else(|| Arc::clone(entry) as _);
        slot.at.store(at, Ordering::Relaxed);
        queue.entries.insert((at, slot.id), erased);
        if at < queue.armed {
            queue.armed = at;
            self.alarm.set(at);
        }
    }

    /// Forgets an entry.
    pub(crate) fn cancel(&self, slot: &Slot) {
        let removed = {
            let mut queue = lock(&self.queue);
            let at = slot.at.swap(0, Ordering::Relaxed);
            if at == 0 { None } else { queue.entries.remove(&(at, slot.id)) }
        };
        drop(removed);
    }

    /// How many entries are queued.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn len(&self) -> usize {
        lock(&self.queue).entries.len()
    }

    /// Tells every entry in time. Runs on the lock thread, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut alarm = self.alarm.listen();
        loop {
            let now = BootInstant::now();
            while let Some(entry) = self.pop(now) {
                // A panic (in a waker, say) ends neither the thread nor the other claims.
                let told = Arc::clone(&entry);
                let next = catch_unwind(AssertUnwindSafe(|| told.due(now))).unwrap_or(None);
                match next {
                    Some(next) if next != BootInstant::FAR_FUTURE => self.requeue(entry, next),
                    _ => {}
                }
            }
            if self.rearm() {
                alarm.rung().await;
            }
        }
    }

    fn pop(&self, now: BootInstant) -> Option<Arc<dyn Due>> {
        let mut queue = lock(&self.queue);
        let first = queue.entries.first_entry()?;
        if first.key().0 > now.as_nanos() {
            return None;
        }
        let entry = first.remove();
        entry.slot().at.store(TOLD, Ordering::Relaxed);
        Some(entry)
    }

    fn requeue(&self, entry: Arc<dyn Due>, at: BootInstant) {
        let mut queue = lock(&self.queue);
        let at = at.as_nanos().max(1);
        // While it was being told, somebody may have cancelled it or scheduled it for sooner.
        let old = entry.slot().at.load(Ordering::Relaxed);
        if old <= at {
            return;
        }
        queue.entries.remove(&(old, entry.slot().id));
        entry.slot().at.store(at, Ordering::Relaxed);
        queue.entries.insert((at, entry.slot().id), entry);
    }

    /// Sets the alarm for the earliest entry; `false` if that is due already.
    fn rearm(&self) -> bool {
        let mut queue = lock(&self.queue);
        let first = queue.entries.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
        queue.armed = first;
        if first <= BootInstant::now().as_nanos() {
            return false;
        }
        self.alarm.set(first);
        true
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timers")
    }
}

/// Sleeps until `at`, on the clock that counts suspend. Never returns early.
///
/// # Cancel safety
/// Cancel-safe.
pub(crate) async fn sleep_until(at: BootInstant) {
    let Ok(thread) = thread::lock_thread() else {
        // No lock thread, so nothing is held in this process either: nothing will come due.
        return std::future::pending().await;
    };
    let sleep = Sleep(Arc::new(Sleeper {
        slot: Slot::new(),
        over: AtomicBool::new(false),
        waker: Mutex::new(None),
    }));
    let mut scheduled = false;
    std::future::poll_fn(|cx| sleep.poll(cx, at, thread.timers(), &mut scheduled)).await;
}

struct Sleeper {
    slot: Slot,
    over: AtomicBool,
    waker: Mutex<Option<std::task::Waker>>,
}

impl Due for Sleeper {
    fn slot(&self) -> &Slot {
        &self.slot
    }

    fn due(self: Arc<Self>, _now: BootInstant) -> Option<BootInstant> {
        self.over.store(true, Ordering::Release);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }
}

struct Sleep(Arc<Sleeper>);

impl Sleep {
    fn poll(
        &self,
        cx: &mut Context<'_>,
        at: BootInstant,
        timers: &Timers,
        scheduled: &mut bool,
    ) -> Poll<()> {
        *lock(&self.0.waker) = Some(cx.waker().clone());
        if self.0.over.load(Ordering::Acquire) || BootInstant::now() >= at {
            return Poll::Ready(());
        }
        if !std::mem::replace(scheduled, true) {
            timers.schedule(&self.0, at);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(thread) = thread::running() {
            thread.timers().cancel(&self.0.slot);
        }
    }
}

/// A `timerfd` on the clock that counts suspend; it can be set from any thread.
#[cfg(all(target_os = "linux", not(lockkit_portable_clock)))]
mod alarm {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;

    pub(super) struct Alarm(OwnedFd);

    impl Alarm {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
        }

        /// Rings at `nanos` after boot, or never for `u64::MAX`; replaces what was set.
        pub(super) fn set(&self, nanos: u64) {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let at = if nanos == u64::MAX { zero } else { timespec(nanos) };
            let spec = Itimerspec { it_interval: zero, it_value: at };
            // It cannot fail: the descriptor is ours and the time is in range.
            let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
        }

        /// Needs the runtime's context.
        pub(super) fn listen(&self) -> Listener {
            // Tokio's `AsyncFd` has only unsafe constructors. A pipe's receiving end is, for
            // tokio, any descriptor that can be polled and read, and the "unchecked" constructor
            // is a safe one that does not insist on a real pipe.
            let clone = self.0.try_clone();
            Listener(clone.and_then(Receiver::from_owned_fd_unchecked).ok())
        }
    }

    pub(super) struct Listener(Option<Receiver>);

    impl Listener {
        pub(super) async fn rung(&mut self) {
            let readable = match &self.0 {
                Some(fd) => fd.readable().await.is_ok(),
                None => false,
            };
            match &self.0 {
                // Reading takes the ring off; what it counts does not matter.
                Some(fd) if readable => drop(fd.try_read(&mut [0_u8; 8])),
                // Out of descriptors: look every few milliseconds instead.
                _ => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    }

    fn timespec(nanos: u64) -> Timespec {
        let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
        let rest = i64::try_from(nanos % 1_000_000_000).unwrap_or(0);
        Timespec { tv_sec: seconds, tv_nsec: rest }
    }
}

/// The timer of the runtime, for systems without `timerfd`.
#[cfg(not(all(target_os = "linux", not(lockkit_portable_clock))))]
mod alarm {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::watch;

    use crate::clock::BootInstant;

    pub(super) struct Alarm(Arc<watch::Sender<u64>>);

    impl Alarm {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(Arc::new(watch::Sender::new(u64::MAX))))
        }

        pub(super) fn set(&self, nanos: u64) {
            self.0.send_replace(nanos);
        }

        pub(super) fn listen(&self) -> Listener {
            Listener(self.0.subscribe())
        }
    }

    pub(super) struct Listener(watch::Receiver<u64>);

    impl Listener {
        pub(super) async fn rung(&mut self) {
            loop {
                let at = *self.0.borrow_and_update();
                let left = BootInstant::from_nanos(at).since(BootInstant::now());
                // A far sleep is cut in pieces, since the runtime's timer has its limits.
                tokio::select! {
                    () = tokio::time::sleep(left.min(Duration::from_secs(3600))) => {
                        if BootInstant::now().as_nanos() >= at { return }
                    }
                    _ = self.0.changed() => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn sleeps_are_not_early_and_come_in_order() {
        let start = BootInstant::now();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for ms in [60_u64, 20, 40] {
            let sender = sender.clone();
            tokio::spawn(async move {
                let at = start + Duration::from_millis(ms);
                sleep_until(at).await;
                assert!(BootInstant::now() >= at);
                sender.send(ms).unwrap();
            });
        }
        let order = [receiver.recv().await, receiver.recv().await, receiver.recv().await];
        assert_eq!(order, [Some(20), Some(40), Some(60)]);
    }

    #[tokio::test]
    async fn a_dropped_sleep_leaves_nothing_queued() {
        let far = BootInstant::now() + Duration::from_secs(3600);
        let _ = tokio::time::timeout(Duration::from_millis(5), sleep_until(far)).await;
        let timers = thread::lock_thread().unwrap().timers();
        let queue = lock(&timers.queue);
        assert!(queue.entries.keys().all(|(at, _)| *at != far.as_nanos()));
    }
}
