//! Writes fences into the claims that they belong to.
//!
//! A plain claim is set by one bare command, before its fence is known, so that acquiring costs
//! one round trip and no script. Whoever inspects the key or releases it by force wants to see
//! the fence. So a claim that stands for longer than a moment gets it written into its value;
//! most claims are over before that, and cost nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lockkit_core::{BootInstant, Token};

use crate::request::Request;
use crate::scripts;
use crate::store::{For, Store};

/// After which time a claim gets its fence.
pub(crate) const AFTER: Duration = Duration::from_millis(10);

/// How long writing one may take.
const BUDGET: Duration = Duration::from_secs(1);

/// The claims whose fences are not in the store yet.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    /// In the order of their grants.
    notes: Vec<Note>,
    running: bool,
}

/// A claim and its fence.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) granted: BootInstant,
    pub(crate) over: Over,
    pub(crate) slot: u16,
    pub(crate) base: Vec<u8>,
    pub(crate) token: Token,
    pub(crate) fence: u64,
}

/// Set when a claim is over: nothing is written into it any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Over(Arc<AtomicBool>);

impl Over {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Notes {
    /// Has the fence written when the claim has stood for a moment.
    pub(crate) fn add(&self, store: &Arc<Store>, note: Note) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.notes.push(note);
        if !std::mem::replace(&mut pending.running, true) {
            // Claims are granted inside the lock thread's runtime.
            tokio::spawn(run(Arc::downgrade(store)));
        }
    }

    /// Those whose moment has come, and how long it is to the next; `None` if there is none.
    fn due(&self) -> (Vec<Note>, Option<Duration>) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = BootInstant::now();
        let young = pending.notes.iter().position(|note| now < note.granted + AFTER);
        let count = young.unwrap_or(pending.notes.len());
        let mut due: Vec<_> = pending.notes.drain(..count).collect();
        due.retain(|note| !note.over.0.load(Ordering::Acquire));
        let next = pending.notes.first().map(|note| (note.granted + AFTER).since(now));
        pending.running = next.is_some() || !due.is_empty();
        (due, next)
    }
}

async fn run(store: Weak<Store>) {
    let mut pause = Some(AFTER);
    while let Some(time) = pause {
        tokio::time::sleep(time).await;
        let Some(store) = store.upgrade() else { return };
        let (due, next) = store.notes.due();
        pause = next.or_else(|| (!due.is_empty()).then_some(Duration::ZERO));
        for note in due {
            // What fails is written by the first renewal.
            let request = Request::Script {
                script: &scripts::RECORD,
                keys: vec![note.base],
                args: vec![note.token.to_string().into(), note.fence.to_string().into()],
            };
            let _ = store.exchange(note.slot, For::Background, &request, BUDGET).await;
        }
    }
}
