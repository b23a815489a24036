//! All that claims need of a server, gone through once on keys of no lock, so that a right that
//! is missing is found when a client connects, and not at the first renewal or release.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{Mode, Token};

use crate::answer::mode_word;
use crate::errors::Failed;
use crate::keys::{Keys, Prefix};
use crate::request::Request;
use crate::scripts::{self, Script};
use crate::store::{For, Store};
use crate::value::millis;

/// What the claims of a client may be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// Waiters have places.
    pub(crate) fair: bool,
    /// All claims are hashes, and Redisson is told of releases.
    pub(crate) hashes: bool,
    /// Owners are counted by the server.
    pub(crate) owners: bool,
}

/// Scripts to be run one after the other, each with what it is given.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    keys: Keys,
    steps: Vec<(&'static Script, Vec<Vec<u8>>)>,
}

impl Rehearsal {
    /// Runs the scripts, up to the first that fails. That one may have stopped half-way, so
    /// everything it could have made is deleted then.
    pub(crate) async fn run(self, store: &Arc<Store>, budget: Duration) -> Result<(), Failed> {
        let (keys, slot) = (self.keys.all().to_vec(), self.keys.slot());
        for (script, args) in self.steps {
            let step = Request::Script { script, keys: keys.clone(), args };
            let step = store.exchange(slot, For::Background, &step, budget).await;
            if let Err(failed) = step {
                let delete = Request::Delete { keys };
                let _ = store.exchange(slot, For::Background, &delete, budget).await;
                return Err(failed);
            }
        }
        Ok(())
    }
}

/// How long a key stays of which the rest of a rehearsal is not carried out.
pub(crate) const STAYS: Duration = Duration::from_secs(1);

/// One rehearsal for each kind of claim; they do not meet, so they may run side by side.
pub(crate) fn rehearsals(prefix: &Prefix, features: Features) -> Vec<Rehearsal> {
    let mut kinds = vec![(Mode::Exclusive, ""), (Mode::Shared, "")];
    if features.owners {
        kinds.push((Mode::Exclusive, "rehearsal"));
    }
    kinds.into_iter().map(|(mode, owner)| rehearse(prefix, features, mode, owner)).collect()
}

fn rehearse(prefix: &Prefix, features: Features, mode: Mode, owner: &str) -> Rehearsal {
    let keys = Keys::probe(prefix, Token::new());
    let (holder, waiter) = (Token::new().to_string(), Token::new().to_string());
    let flag = |flag| if flag { "1" } else { "0" };
    let layout = if features.hashes { "hash" } else { "string" };
    let redisson = if features.hashes { keys.redisson_channel() } else { Vec::new() };
    let (channel, fair, stays) = (keys.channel(), flag(features.fair), millis(STAYS).to_string());
    let args = |texts: &[&str]| texts.iter().map(|t| t.as_bytes().to_vec()).collect::<Vec<_>>();
    let ask = |token: &str, mode, stage, owner| {
        let texts = [token, &*mode_word(mode), &*stays, stage, fair, layout, owner, ""];
        [vec![channel.clone()], args(&texts), vec![redisson.clone()]].concat()
    };
    let withdraw = |token: &str| {
        let rest = [redisson.clone(), mode_word(mode).into_bytes()];
        [vec![channel.clone()], args(&[token, fair]), rest.to_vec()].concat()
    };
    let steps = vec![
        (&*scripts::ASK, ask(&holder, mode, "try", owner)),
        // It has to wait, or is the same owner's.
        (&*scripts::ASK, ask(&waiter, Mode::Exclusive, "wait", owner)),
        (&*scripts::LOOK, Vec::new()),
        (&*scripts::RENEW, args(&[&*holder, &*stays, ""])),
        (&*scripts::WITHDRAW, withdraw(&waiter)),
        (&*scripts::WITHDRAW, withdraw(&holder)),
    ];
    Rehearsal { keys, steps }
}
