//! One watch: what it looks at, and when it rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etcd_client::{Event, EventType, KeyValue, WatchFilterType, WatchOptions};
use lockkit_core::Bell;

use super::Target;

/// One watch.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(super) id: i64,
    target: Target,
    /// The revision from which on nothing was seen yet.
    next: i64,
    /// How many keys must go until it rings.
    open: usize,
    bell: Arc<Bell>,
    broken: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new(
        id: i64,
        target: Target,
        from: i64,
        bell: Arc<Bell>,
        broken: Arc<AtomicBool>,
    ) -> Self {
        let open = match &target {
            Target::Key(_) => 1,
            Target::Older { count, .. } => *count,
        };
        Self { id, target, next: from, open, bell, broken }
    }

    /// What to ask the server for.
    pub(super) fn request(&self) -> (Vec<u8>, WatchOptions) {
        let options = WatchOptions::new()
            .with_watch_id(self.id)
            .with_start_revision(self.next)
            .with_filters([WatchFilterType::NoPut]);
        match &self.target {
            Target::Key(key) => (key.clone(), options),
            Target::Older { range, .. } => {
                (range.start.clone(), options.with_range(range.end.clone()).with_prev_key())
            }
        }
    }

    /// Something happened.
    pub(super) fn see(&mut self, event: &Event) {
        let Some(kv) = event.kv() else { return };
        if event.event_type() != EventType::Delete {
            return;
        }
        let age = event.prev_kv().map(KeyValue::create_revision);
        self.gone(kv.mod_revision(), age);
    }

    /// A key went at a revision; its own create revision, if that is known.
    fn gone(&mut self, at: i64, created: Option<i64>) {
        if at < self.next {
            // Seen before the stream was opened anew; several keys may go in one revision.
            return;
        }
        let counts = match &self.target {
            Target::Key(_) => true,
            Target::Older { than, .. } => created.is_none_or(|created| created < *than),
        };
        if counts {
            self.open = self.open.saturating_sub(1);
        }
        if self.open == 0 {
            self.bell.ring();
        }
    }

    /// All that happened up to a revision was seen.
    pub(super) fn seen_to(&mut self, revision: i64) {
        self.next = self.next.max(revision + 1);
    }

    /// It watches no more: whoever waits looks for itself.
    pub(super) fn fail(self) {
        self.broken.store(true, Ordering::Release);
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use lockkit_core::Wake;

    fn rung(wake: &mut Wake) -> bool {
        let mut woken = std::pin::pin!(wake.woken());
        woken.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    fn watch(target: Target) -> (Watch, Wake) {
        let bell = Arc::new(Bell::new());
        let wake = bell.listen();
        (Watch::new(1, target, 10, bell, Arc::default()), wake)
    }

    #[test]
    fn a_key_rings_when_it_goes() {
        let (mut watch, mut wake) = watch(Target::Key(b"a".to_vec()));
        watch.gone(9, None);
        assert!(!rung(&mut wake), "that was before");
        watch.gone(10, None);
        assert!(rung(&mut wake));
    }

    #[test]
    fn older_keys_are_counted() {
        let range = b"a/".to_vec()..b"a0".to_vec();
        let (mut watch, mut wake) = watch(Target::Older { range, than: 5, count: 2 });
        watch.gone(10, Some(3));
        watch.gone(11, Some(6));
        assert!(!rung(&mut wake), "one of them is younger");
        watch.seen_to(11);
        watch.gone(10, Some(3));
        assert!(!rung(&mut wake), "the same one again");
        watch.gone(12, Some(4));
        assert!(rung(&mut wake));
    }

    #[test]
    fn a_failure_wakes() {
        let (watch, mut wake) = watch(Target::Key(b"a".to_vec()));
        let broken = Arc::clone(&watch.broken);
        watch.fail();
        assert!(rung(&mut wake) && broken.load(Ordering::Acquire));
    }
}
