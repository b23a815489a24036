//! The local queue: where the store has none, the waiters of one client come in order, and only
//! the first of them asks the store.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::key::Key;
use crate::mode::Mode;
use crate::sync::lock;

/// The queues of all keys that somebody in this client waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalQueue(Arc<Mutex<HashMap<Key, VecDeque<Arc<Seat>>>>>);

/// A waiter's seat.
#[derive(Debug)]
struct Seat {
    mode: Mode,
    /// Whether the waiter may ask the store.
    turn: AtomicBool,
    /// Rung when the turn comes.
    turned: Notify,
    /// Rung when asking again is worth it.
    nudge: Notify,
}

impl Seat {
    fn new(mode: Mode) -> Self {
        Self { mode, turn: AtomicBool::new(false), turned: Notify::new(), nudge: Notify::new() }
    }

    fn give_turn(&self) {
        self.turn.store(true, Ordering::Release);
        self.turned.notify_one();
    }
}

impl LocalQueue {
    /// Takes a seat at the end of the key's queue.
    pub(crate) fn join(&self, key: &Key, mode: Mode) -> Ticket {
        let seat = Arc::new(Seat::new(mode));
        let mut queues = lock(&self.0);
        let queue = queues.entry(key.clone()).or_default();
        queue.push_back(Arc::clone(&seat));
        if queue.len() == 1 {
            seat.give_turn();
        }
        Ticket { queue: self.clone(), key: key.clone(), seat }
    }

    /// The mode of the first who waits for `key`. All waiters of a key are of one family, since
    /// a claim of another does not get a seat.
    pub(crate) fn first(&self, key: &Key) -> Option<Mode> {
        lock(&self.0).get(key)?.front().map(|seat| seat.mode)
    }

    /// This client has just freed `key`: the first waiter need not wait for its poll.
    pub(crate) fn nudge(&self, key: &Key) {
        if let Some(first) = lock(&self.0).get(key).and_then(VecDeque::front) {
            first.nudge.notify_one();
        }
    }

    /// How many waiters there are, over all keys.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).values().map(VecDeque::len).sum()
    }
}

/// A seat in a queue, given up on drop.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: LocalQueue,
    key: Key,
    seat: Arc<Seat>,
}

impl Ticket {
    /// Waits until this waiter may ask the store.
    pub(crate) async fn turn(&self) {
        while !self.seat.turn.load(Ordering::Acquire) {
            self.seat.turned.notified().await;
        }
    }

    /// Waits until asking again is worth it because this client has freed the key.
    pub(crate) async fn nudged(&self) {
        self.seat.nudge.notified().await;
    }

    /// Lets the next in line ask too: this one has trouble with the store, which must not stop
    /// the others.
    pub(crate) fn pass(&self) {
        let queues = lock(&self.queue.0);
        let Some(queue) = queues.get(&self.key) else { return };
        if let Some(next) = queue.iter().find(|seat| !seat.turn.load(Ordering::Acquire)) {
            next.give_turn();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = lock(&self.queue.0);
        let Some(queue) = queues.get_mut(&self.key) else { return };
        // Mostly it is the first that leaves: a hand-over must not cost more with more waiters.
        if queue.front().is_some_and(|seat| Arc::ptr_eq(seat, &self.seat)) {
            queue.pop_front();
        } else {
            queue.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        }
        match queue.front() {
            Some(first) => first.give_turn(),
            None => drop(queues.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DistributedLock as _, LockExt as _};

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn has_turn(ticket: &Ticket) -> bool {
        ticket.seat.turn.load(Ordering::Acquire)
    }

    #[test]
    fn turns_come_in_order() {
        let queue = LocalQueue::default();
        let (a, b, c) = (
            queue.join(&key(), Mode::Exclusive),
            queue.join(&key(), Mode::Exclusive),
            queue.join(&key(), Mode::Exclusive),
        );
        assert_eq!([has_turn(&a), has_turn(&b), has_turn(&c)], [true, false, false]);
        drop(b);
        assert!(!has_turn(&c));
        drop(a);
        assert!(has_turn(&c));
        drop(c);
        assert!(queue.first(&key()).is_none() && queue.len() == 0);
    }

    #[test]
    fn a_waiter_in_trouble_lets_the_next_one_try() {
        let queue = LocalQueue::default();
        let (a, b, c) = (
            queue.join(&key(), Mode::Exclusive),
            queue.join(&key(), Mode::Exclusive),
            queue.join(&key(), Mode::Exclusive),
        );
        a.pass();
        assert_eq!([has_turn(&a), has_turn(&b), has_turn(&c)], [true, true, false]);
    }

    #[tokio::test]
    async fn the_turn_wakes() {
        let queue = LocalQueue::default();
        let (a, b) = (queue.join(&key(), Mode::Exclusive), queue.join(&key(), Mode::Exclusive));
        let waiting = tokio::spawn(async move {
            b.turn().await;
            b
        });
        tokio::task::yield_now().await;
        drop(a);
        assert!(has_turn(&waiting.await.unwrap()));
    }

    /// Else what it asks for next meets its own seat: busy, or even of another family.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_is_told_has_left_the_line() {
        let lock = crate::Memory::new();
        for _ in 0..2_000 {
            let guard = lock.acquire("k").await.unwrap();
            let waiter = tokio::spawn(lock.acquire("k"));
            while lock.core().waiting() == 0 {
                tokio::task::yield_now().await;
            }
            guard.release().await.unwrap();
            let next = waiter.await.unwrap().unwrap();
            assert_eq!(lock.core().waiting(), 0, "its seat is taken still");
            next.release().await.unwrap();
        }
    }
}
