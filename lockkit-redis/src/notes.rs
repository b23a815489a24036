//! Writes fences into the claims that they belong to.
//!
//! A plain claim is set by one bare command, before its fence is known, so that acquiring costs
//! one round trip and no script. Whoever inspects the key or releases it by force wants to see
//! the fence. So a claim that stands for longer than a moment gets it written into its value;
//! most claims are over before that, and cost nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    notes: HashMap<Token, Note>,
    running: bool,
}

/// The fence of a claim.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) granted: BootInstant,
    pub(crate) slot: u16,
    pub(crate) base: Arc<[u8]>,
    pub(crate) fence: u64,
}

impl Notes {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the fence written when the claim has stood for a moment.
    pub(crate) fn add(&self, store: &Arc<Store>, token: Token, note: Note) {
        let mut pending = self.pending();
        pending.notes.insert(token, note);
        if !std::mem::replace(&mut pending.running, true) {
            drop(pending);
            // Claims are granted inside the lock thread's runtime.
            tokio::spawn(run(Arc::downgrade(store)));
        }
    }

    /// The claim is over, or another one would be written into.
    pub(crate) fn remove(&self, token: Token) {
        let note = self.pending().notes.remove(&token);
        drop(note);
    }

    /// Takes out those whose moment has come; `None` if there was nothing at all.
    fn due(&self) -> Option<Vec<(Token, Note)>> {
        let mut pending = self.pending();
        pending.running = !pending.notes.is_empty();
        let now = BootInstant::now();
        let due = pending.notes.extract_if(|_, note| now >= note.granted + AFTER);
        let due = due.collect();
        pending.running.then_some(due)
    }
}

async fn run(store: Weak<Store>) {
    loop {
        tokio::time::sleep(AFTER).await;
        let Some(store) = store.upgrade() else { return };
        let Some(due) = store.notes.due() else { return };
        for (token, note) in due {
            // What fails is written by the first renewal.
            let request = Request::Script {
                script: &scripts::RECORD,
                keys: vec![note.base.to_vec()],
                args: vec![token.to_string().into(), note.fence.to_string().into()],
            };
            let _ = store.exchange(note.slot, For::Background, &request, BUDGET).await;
        }
    }
}
