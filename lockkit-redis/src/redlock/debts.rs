//! What a server is still to be told: that a claim is over.
//!
//! A server that was dead, hanging or late when a claim ended keeps the claim's vote until its TTL
//! is over, and a request that it never answered may take effect long after it was given up. So
//! the end is told again, by one task for each server, until the server has heard it or the claim
//! has run out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lockkit_core::{BootInstant, Token};

use super::site::Site;
use crate::keys::Keys;

/// What one server is still to be told.
#[derive(Debug, Default)]
pub(crate) struct Debts(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    owed: HashMap<Token, Debt>,
    running: bool,
}

#[derive(Debug, Clone)]
struct Debt {
    keys: Keys,
    /// When the claim has run out anyway.
    until: BootInstant,
    next: BootInstant,
    pause: Duration,
    /// Whether a request may be under way that has its effect only after the server has heard
    /// the end: then it is told until the claim has run out.
    in_doubt: bool,
}

/// How many claims are remembered: beyond that, their TTLs end them.
const MOST: usize = 10_000;

/// The pauses between two attempts grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How long one attempt may take.
const BUDGET: Duration = Duration::from_millis(500);

impl Debts {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `site` is to be told that a claim is over.
    pub(super) fn owe(
        site: &Arc<Site>,
        token: Token,
        keys: &Keys,
        until: BootInstant,
        in_doubt: bool,
    ) {
        let mut book = site.debts.book();
        if book.owed.len() >= MOST {
            return;
        }
        let next = BootInstant::now() + PAUSES.0;
        let debt = Debt { keys: keys.clone(), until, next, pause: PAUSES.0, in_doubt };
        book.owed.insert(token, debt);
        if !std::mem::replace(&mut book.running, true) {
            drop(book);
            tokio::spawn(run(Arc::downgrade(site)));
        }
    }

    /// The claim is asked for again, so it is not over.
    pub(super) fn forgive(&self, token: Token) {
        self.book().owed.remove(&token);
    }

    /// What is due, and when the next is; `None` if nothing is owed any more.
    fn due(&self) -> Option<(Vec<(Token, Debt)>, BootInstant)> {
        let mut book = self.book();
        let now = BootInstant::now();
        book.owed.retain(|_, debt| now < debt.until);
        book.running = !book.owed.is_empty();
        let mut due = Vec::new();
        for (token, debt) in book.owed.iter_mut().filter(|(_, debt)| debt.next <= now) {
            due.push((*token, debt.clone()));
            debt.pause = (debt.pause * 2).min(PAUSES.1);
            debt.next = now + debt.pause;
        }
        let next = book.owed.values().map(|debt| debt.next).min()?;
        Some((due, next))
    }

    /// The server has heard it.
    fn heard(&self, token: Token) {
        let mut book = self.book();
        if book.owed.get(&token).is_some_and(|debt| !debt.in_doubt) {
            book.owed.remove(&token);
        }
    }
}

async fn run(site: Weak<Site>) {
    loop {
        let Some(site) = site.upgrade() else { return };
        if site.store.is_closed() {
            site.debts.book().running = false;
            return;
        }
        let Some((due, next)) = site.debts.due() else { return };
        for (token, debt) in due {
            let channel = debt.keys.channel();
            match site.withdraw(&debt.keys, token, channel, BUDGET).await {
                Ok(_) => site.debts.heard(token),
                // The others would not be heard either.
                Err(_) => break,
            }
        }
        drop(site);
        let pause = next.since(BootInstant::now()).clamp(Duration::from_millis(5), PAUSES.0);
        tokio::time::sleep(pause).await;
    }
}
