//! The watchdog's queue: what is due when, in the order of time, for the whole process.
//!
//! The clock counts suspend, and so does what wakes the lock thread: a `timerfd` on
//! `CLOCK_BOOTTIME`. Arming is lazy: an entry later than the armed instant wakes nobody, and
//! removing the earliest entry leaves the timer armed, so that acquiring and releasing in a loop
//! makes no system call here.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::clock::BootInstant;
use crate::engine::alarm::Alarm;
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
    alarm: Alarm,
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
            alarm: Alarm::new()?,
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

    /// Whether an entry is queued for exactly this instant.
    #[cfg(test)]
    pub(crate) fn has(&self, at: BootInstant) -> bool {
        lock(&self.queue).entries.keys().any(|(queued, _)| *queued == at.as_nanos())
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
