//! What a server is still to be told: that a claim is over.
//!
//! A server that was dead, hanging or late when a claim ended keeps the claim's vote until its TTL
//! is over, and a request that it never answered may take effect long after it was given up. So
//! the end is told again, by one task for each server, until the server has heard it or the claim
//! has run out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lockkit_core::BootInstant;
use tokio::sync::Notify;

use super::ballot::{Ballot, Owed};
use super::site::Site;

/// What one server is still to be told.
#[derive(Debug, Default)]
pub(super) struct Debts {
    book: Mutex<Book>,
    /// Whether it did not answer the last time.
    silent: AtomicBool,
    /// Held by the task that tells, which holds nothing else while it pauses.
    more: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Book {
    owed: Vec<Debt>,
    running: bool,
}

/// One claim that a server is to take back.
#[derive(Debug)]
pub(super) struct Debt {
    ballot: Arc<Ballot>,
    owed: Owed,
    /// When the claim has run out anyway.
    until: BootInstant,
    next: BootInstant,
    pause: Duration,
}

/// How many claims are remembered: beyond that, their TTLs end them.
const MOST: usize = 4096;

/// The pauses between two attempts grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// The longest pause between two looks for what a server may have done after it was told.
const LONGEST: Duration = Duration::from_secs(60);

/// How long one attempt may take.
const BUDGET: Duration = Duration::from_millis(500);

impl Debt {
    /// `ttl`: of the claim, as it may have begun anew just now.
    pub(super) fn new(ballot: &Arc<Ballot>, owed: Owed, ttl: Duration) -> Self {
        let now = BootInstant::now();
        let next = owed.from.max(now);
        Self { ballot: Arc::clone(ballot), owed, until: next + ttl, next, pause: PAUSES.0 }
    }

    /// Tells the server now; what is left to be told later.
    pub(super) async fn pay(mut self, site: &Arc<Site>, budget: Duration) -> Vec<Self> {
        let at = site.at;
        let answer = site.take_back(&self.ballot, self.owed, budget).await;
        match answer {
            Ok(freed) => {
                let follows = self.ballot.heard(at, freed);
                let rest = self.until.since(BootInstant::now());
                let mut left: Vec<_> =
                    follows.map(|owed| Self::new(&self.ballot, owed, rest)).into_iter().collect();
                if self.owed.is_open_after(freed) {
                    self.put_off(LONGEST);
                    left.push(self);
                }
                left
            }
            Err(failed) => {
                self.ballot.unheard(at, failed.problem, failed.may_have_effect);
                self.put_off(PAUSES.1);
                vec![self]
            }
        }
    }

    fn put_off(&mut self, longest: Duration) {
        self.next = BootInstant::now() + self.pause.mul_f64(0.5 + fastrand::f64());
        self.pause = (self.pause * 2).min(longest);
    }
}

impl Debts {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server did not answer the last time.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// Whether the server has answered.
    pub(super) fn note(&self, answered: bool) {
        if self.silent.swap(!answered, Ordering::AcqRel) && answered {
            self.more.notify_one();
        }
    }

    /// Something has changed that the task should look at: the client may be closed, or gone.
    pub(super) fn nudge(&self) {
        self.more.notify_one();
    }

    /// Has `site` told later. Called inside the lock thread's runtime.
    pub(super) fn owe(site: &Arc<Site>, debts: Vec<Debt>) {
        if debts.is_empty() {
            return;
        }
        let mut book = site.debts.book();
        for debt in debts {
            if book.owed.len() >= MOST {
                // The oldest has run for longest.
                let oldest = book.owed.remove(0);
                oldest.ballot.ran_out(site.at);
            }
            book.owed.push(debt);
        }
        let begin = !std::mem::replace(&mut book.running, true);
        drop(book);
        if begin {
            tokio::spawn(run(Arc::downgrade(site)));
        } else {
            site.debts.more.notify_one();
        }
    }

    /// Takes out what is due, and how long it is to the next; `None` if nothing is owed.
    fn due(&self, at: usize) -> Option<(Vec<Debt>, Duration)> {
        let mut book = self.book();
        let now = BootInstant::now();
        let over: Vec<_> = book.owed.extract_if(.., |debt| now >= debt.until).collect();
        let due: Vec<_> = book.owed.extract_if(.., |debt| now >= debt.next).collect();
        let next = book.owed.iter().map(|debt| debt.next.since(now)).min();
        book.running = next.is_some() || !due.is_empty();
        drop(book);
        for debt in over {
            debt.ballot.ran_out(at);
        }
        match next {
            None if due.is_empty() => None,
            next => Some((due, next.unwrap_or_default())),
        }
    }
}

async fn run(weak: Weak<Site>) {
    let mut silence = PAUSES.0;
    loop {
        let Some(site) = weak.upgrade() else { return };
        if site.store.is_closed() {
            // Whoever closes a client wants nothing opened any more.
            let mut book = site.debts.book();
            book.owed.clear();
            book.running = false;
            return;
        }
        let Some((due, next)) = site.debts.due(site.at) else { return };
        let (mut left, mut pause) = (Vec::new(), next);
        let mut due = due.into_iter();
        if due.len() > 0 {
            pause = Duration::ZERO;
        }
        for debt in due.by_ref() {
            left.extend(debt.pay(&site, BUDGET).await);
            if site.debts.is_silent() {
                // The others would not be heard either.
                pause = silence.mul_f64(0.5 + fastrand::f64());
                silence = (silence * 2).min(PAUSES.1);
                break;
            }
            silence = PAUSES.0;
        }
        left.extend(due);
        site.debts.book().owed.extend(left);
        let more = Arc::clone(&site.debts.more);
        drop(site);
        if !pause.is_zero() {
            // What is owed anew may be due at once.
            let _ = tokio::time::timeout(pause, more.notified()).await;
        }
    }
}
