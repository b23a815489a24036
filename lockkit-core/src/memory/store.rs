//! The store itself: a state machine that takes the time as an argument.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::contender::Claim;
use crate::error::{Error, Result};
use crate::holder::{Holder, Which};
use crate::key::Key;
use crate::mode::Mode;
use crate::token::Token;
use crate::wake::{Bell, Wake};

/// All keys of one store.
#[derive(Debug, Default)]
pub(super) struct Store {
    keys: HashMap<Key, Entry>,
    /// The last fence, of whatever key: it outlives the entries.
    fence: u64,
}

/// One key.
#[derive(Debug, Default)]
struct Entry {
    held: Vec<Held>,
    /// Places of waiters: of a fair store, in order; else of writers that wait for readers.
    places: VecDeque<Place>,
    /// Rung for everybody who waits without a place.
    bell: Bell,
}

#[derive(Debug)]
struct Held {
    token: Token,
    mode: Mode,
    fence: u64,
    label: Option<Arc<str>>,
    since: BootInstant,
    expires: BootInstant,
}

#[derive(Debug)]
struct Place {
    token: Token,
    mode: Mode,
    expires: BootInstant,
    /// Whether it is a place in a queue; else it only holds new readers back.
    queued: bool,
    bell: Bell,
}

/// How a claim waits when the key is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Not at all: nothing is left in the store.
    No,
    /// In no order; only a writer among readers leaves word, so that no new ones come in.
    Somewhere,
    /// In the store's queue.
    InLine,
}

/// How long a place stands that is not asked for again: waiters ask every half second.
const PLACE: Duration = Duration::from_secs(2);

/// The answer to an attempt.
#[derive(Debug)]
pub(super) enum Answer {
    Granted { fence: u64 },
    Busy { wake: Wake, holder: Option<Holder>, free_in: Option<Duration> },
}

impl Store {
    /// Grants the claim, or says why not; a claim that must wait gets what `waits` says.
    pub(super) fn attempt(
        &mut self,
        claim: &Claim,
        waits: Waits,
        now: BootInstant,
    ) -> Result<Answer> {
        let entry = self.keys.entry(claim.key.clone()).or_default();
        entry.purge(now);
        if let Some(held) = entry.held.iter_mut().find(|held| held.token == claim.token) {
            held.expires = now + claim.ttl;
            return Ok(Answer::Granted { fence: held.fence });
        }
        if let Some(other) = entry.other_family(claim.mode) {
            self.forget_if_empty(&claim.key);
            return Err(Error::other_family(&claim.key, other, claim.mode));
        }
        if entry.grants(claim.token, claim.mode) {
            entry.places.retain(|p| p.token != claim.token);
            self.fence += 1;
            entry.held.push(Held {
                token: claim.token,
                mode: claim.mode,
                fence: self.fence,
                label: claim.label.clone(),
                since: now,
                expires: now + claim.ttl,
            });
            // Readers and permits behind it may go too.
            entry.ring();
            return Ok(Answer::Granted { fence: self.fence });
        }
        let wake = entry.wait(claim, waits, now);
        Ok(Answer::Busy { wake, holder: entry.holder(now), free_in: entry.free_in(now) })
    }

    /// Moves the end of a claim that stands; never makes one.
    pub(super) fn extend(&mut self, claim: &Claim, until: BootInstant, now: BootInstant) -> bool {
        let Some(entry) = self.keys.get_mut(&claim.key) else { return false };
        let held = entry.held.iter_mut().find(|h| h.token == claim.token && h.expires > now);
        let Some(held) = held else { return false };
        held.expires = until;
        true
    }

    /// Takes the claim and its place out; whether the claim was held.
    pub(super) fn release(&mut self, claim: &Claim, now: BootInstant) -> bool {
        self.remove(&claim.key, now, |held| held.token == claim.token, Some(claim.token))
    }

    pub(super) fn force_release(&mut self, key: &Key, which: Which, now: BootInstant) -> bool {
        let hit = |held: &Held| match which {
            Which::Whoever => true,
            Which::Fence(fence) => held.fence == fence,
            Which::Token(token) => held.token == token,
        };
        self.remove(key, now, hit, None)
    }

    pub(super) fn inspect(&mut self, key: &Key, now: BootInstant) -> Option<Holder> {
        let entry = self.keys.get_mut(key)?;
        entry.purge(now);
        let holder = entry.holder(now);
        self.forget_if_empty(key);
        holder
    }

    /// How many claims and places there are.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn entries(&mut self, now: BootInstant) -> usize {
        self.keys.retain(|_, entry| {
            entry.purge(now);
            !entry.is_empty()
        });
        self.keys.values().map(|entry| entry.held.len() + entry.places.len()).sum()
    }

    fn remove(
        &mut self,
        key: &Key,
        now: BootInstant,
        hit: impl Fn(&Held) -> bool,
        place: Option<Token>,
    ) -> bool {
        let Some(entry) = self.keys.get_mut(key) else { return false };
        entry.purge(now);
        let before = entry.held.len();
        entry.held.retain(|held| !hit(held));
        entry.places.retain(|p| Some(p.token) != place);
        let removed = entry.held.len() < before;
        entry.ring();
        self.forget_if_empty(key);
        removed
    }

    fn forget_if_empty(&mut self, key: &Key) {
        if self.keys.get(key).is_some_and(Entry::is_empty) {
            self.keys.remove(key);
        }
    }
}

impl Entry {
    /// Whoever listens to the bell keeps the entry, else a ring would be lost.
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.places.is_empty() && self.bell.listeners() == 0
    }

    fn purge(&mut self, now: BootInstant) {
        self.held.retain(|held| held.expires > now);
        self.places.retain(|place| place.expires > now);
    }

    fn other_family(&self, mode: Mode) -> Option<Mode> {
        let modes = self.held.iter().map(|h| h.mode).chain(self.places.iter().map(|p| p.mode));
        modes.into_iter().find(|other| !other.same_family(mode))
    }

    /// Whether a claim may have the key now, given who holds it and who came before.
    fn grants(&self, token: Token, mode: Mode) -> bool {
        let mut ahead = self.places.iter().take_while(|p| p.queued && p.token != token);
        match mode {
            Mode::Exclusive => self.held.is_empty() && ahead.next().is_none(),
            Mode::Shared => {
                self.held.iter().all(|h| h.mode == Mode::Shared)
                    && ahead.all(|p| p.mode == Mode::Shared)
                    && !self.places.iter().any(|p| !p.queued && p.token != token)
            }
            Mode::Permit { limit } => {
                self.held.len() + ahead.count() < usize::try_from(limit.get()).unwrap_or(usize::MAX)
            }
        }
    }

    /// Where the claim waits: at a place of its own in a queue, or as a writer among readers.
    fn wait(&mut self, claim: &Claim, waits: Waits, now: BootInstant) -> Wake {
        let among_readers =
            claim.mode == Mode::Exclusive && self.held.iter().all(|held| held.mode == Mode::Shared);
        let (queued, expires) = match waits {
            Waits::InLine => (true, now + PLACE.max(claim.ttl)),
            Waits::Somewhere if among_readers => (false, now + PLACE),
            Waits::Somewhere | Waits::No => return self.bell.listen(),
        };
        if let Some(own) = self.places.iter_mut().find(|p| p.token == claim.token) {
            own.expires = expires;
            return own.bell.listen();
        }
        let bell = Bell::new();
        let wake = bell.listen();
        let (token, mode) = (claim.token, claim.mode);
        self.places.push_back(Place { token, mode, expires, queued, bell });
        wake
    }

    /// Wakes whoever may go now; of a queue nobody else.
    fn ring(&self) {
        self.bell.ring();
        for place in &self.places {
            if !place.queued || self.grants(place.token, place.mode) {
                place.bell.ring();
            }
        }
    }

    fn holder(&self, now: BootInstant) -> Option<Holder> {
        let first = self.held.iter().min_by_key(|held| held.since)?;
        let mut holder = Holder::new(first.mode);
        holder.fence = Some(first.fence);
        holder.token = Some(first.token);
        holder.label = first.label.as_deref().map(str::to_owned);
        holder.held_for = Some(now.since(first.since));
        holder.expires_in = self.held.iter().map(|held| held.expires.since(now)).max();
        holder.holders = self.held.len();
        let queued = self.places.iter().filter(|p| p.queued).count();
        holder.waiting = (queued > 0).then_some(queued);
        Some(holder)
    }

    /// When the first of the holders is gone: earlier, nothing changes without a ring.
    fn free_in(&self, now: BootInstant) -> Option<Duration> {
        let held = self.held.iter().map(|h| h.expires);
        let places = self.places.iter().map(|p| p.expires);
        held.chain(places).min().map(|at| at.since(now))
    }
}

#[cfg(test)]
mod tests;
