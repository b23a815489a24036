//! One of the servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{BootInstant, Mode, Stage, Token};
use redis::Value;
use redis::aio::PubSub;

use super::ballot::{Ballot, Owed};
use super::debts::{Debt, Debts};
use crate::answer;
use crate::dangers::{self, Info};
use crate::errors::{Answered, Failed, Problem};
use crate::fleet::Fleet;
use crate::keys::{Keys, Prefix};
use crate::node::Node;
use crate::opener::{As, Opener};
use crate::rehearsal::{Features, rehearsals};
use crate::request::Request;
use crate::scripts::{self, Script};
use crate::signal::Source;
use crate::store::{For, Store};
use crate::target::{Address, Servers};
use crate::value::millis;

/// One of the servers: its connections, and what it is still owed.
#[derive(Debug)]
pub(crate) struct Site {
    /// Which one of them.
    pub(super) at: usize,
    pub(crate) address: Address,
    pub(crate) store: Arc<Store>,
    pub(super) debts: Debts,
    opener: Arc<Opener>,
    roll: Arc<Roll>,
    admitted: AtomicBool,
}

/// Which server runs under which name, by what tells one run of a server from all others.
#[derive(Debug, Default)]
pub(super) struct Roll(Mutex<HashMap<String, usize>>);

impl Site {
    pub(super) fn new(
        at: usize,
        address: Address,
        opener: &Arc<Opener>,
        roll: &Arc<Roll>,
    ) -> Arc<Self> {
        let servers = Servers::One(address.clone());
        let store = Arc::new(Store::new(Fleet::new(&servers, Arc::clone(opener))));
        let (debts, admitted) = (Debts::default(), AtomicBool::new(false));
        let (opener, roll) = (Arc::clone(opener), Arc::clone(roll));
        Arc::new(Self { at, address, store, debts, opener, roll, admitted })
    }

    /// Asks the server about itself, and refuses it if it cannot vote.
    pub(super) async fn introduce(&self, budget: Duration) -> Result<Option<Info>, Failed> {
        let node = self.node().await.map_err(Failed::never_sent)?;
        let info = dangers::ask(&node, budget).await?;
        if let Some(info) = &info {
            let who = self.address.to_string();
            dangers::refuse(&who, info).map_err(|e| Failed::never_sent(Problem::of(&e)))?;
            self.enrol(info.run_id()).map_err(Failed::never_sent)?;
        }
        self.admitted.store(true, Ordering::Release);
        Ok(info)
    }

    /// Goes through what claims need here.
    pub(super) async fn rehearse(&self, prefix: &Prefix, budget: Duration) -> Result<(), Failed> {
        let token = Token::new();
        let keys = Keys::probe(prefix, token);
        let (base, channel) = (Arc::clone(keys.base()), keys.channel());
        let free = Request::Free { base, token, channel };
        self.send(For::Background, &keys, &free, budget).await?;
        let features = Features { fair: false, hashes: false, owners: false };
        for rehearsal in rehearsals(prefix, features) {
            rehearsal.run(&self.store, budget).await.map_err(|failed| failed.at(&self.address))?;
        }
        Ok(())
    }

    /// Two names of one server would be two votes of it.
    fn enrol(&self, run: &str) -> Result<(), Problem> {
        if run.is_empty() {
            return Ok(());
        }
        let mut roll = self.roll.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *roll.entry(run.to_owned()).or_insert(self.at) == self.at {
            return Ok(());
        }
        Err(Problem::configuration(format!(
            "{} is the same server as another one of them, which would vote twice; name \
             independent servers",
            self.address
        )))
    }

    /// Runs a script here; its one answer.
    pub(super) async fn run(
        &self,
        who: For<'_>,
        script: &'static Script,
        keys: &Keys,
        args: Vec<Vec<u8>>,
        budget: Duration,
    ) -> Result<Value, Failed> {
        let request = Request::Script { script, keys: keys.all().to_vec(), args };
        Ok(self.send(who, keys, &request, budget).await?.first())
    }

    /// Runs a script that answers with yes or no.
    pub(super) async fn decide(
        &self,
        who: For<'_>,
        script: &'static Script,
        keys: &Keys,
        args: Vec<Vec<u8>>,
        budget: Duration,
    ) -> Result<bool, Failed> {
        let answer = self.run(who, script, keys, args, budget).await?;
        answer::done(&answer).map_err(|error| Failed::unanswered(Problem::of(&error)))
    }

    async fn send(
        &self,
        who: For<'_>,
        keys: &Keys,
        request: &Request,
        budget: Duration,
    ) -> Result<Answered, Failed> {
        let answered = self.store.exchange(keys.slot(), who, request, budget).await;
        self.debts.note(answered.is_ok());
        answered.map_err(|failed| failed.at(&self.address))
    }

    /// Asks for a claim, once it is known that the server may vote: that is asked at its first use.
    pub(super) async fn ask(
        &self,
        keys: &Keys,
        args: Vec<Vec<u8>>,
        budget: Duration,
    ) -> Result<Answered, Failed> {
        if !self.admitted.load(Ordering::Acquire) {
            let introduced = self.introduce(budget).await;
            // Nothing was asked for yet.
            introduced.map_err(|failed| Failed::never_sent(failed.at(&self.address).problem))?;
        }
        let keys_of_it = keys.all().to_vec();
        let request = Request::Script { script: &scripts::ASK, keys: keys_of_it, args };
        self.send(For::Background, keys, &request, budget).await
    }

    /// Takes a claim back; whether it was there.
    pub(super) async fn take_back(
        &self,
        ballot: &Ballot,
        owed: Owed,
        budget: Duration,
    ) -> Result<bool, Failed> {
        let (keys, token) = (&ballot.keys, ballot.token);
        let channel = if owed.wake { keys.channel() } else { keys.quiet_channel() };
        let request = if owed.all {
            let args =
                vec![channel, token.to_string().into(), b"0".to_vec(), Vec::new(), Vec::new()];
            Request::Script { script: &scripts::WITHDRAW, keys: keys.all().to_vec(), args }
        } else {
            Request::Free { base: Arc::clone(keys.base()), token, channel }
        };
        let answered = self.send(For::Background, keys, &request, budget).await?;
        let sent_twice = answered.sent_twice;
        match answer::done(&answered.first()) {
            Ok(false) if sent_twice => {
                let text = format!("the connection to {} broke", self.address);
                Err(Failed::unanswered(Problem::unavailable(text)))
            }
            Ok(freed) => Ok(freed),
            Err(error) => Err(Failed::unanswered(Problem::of(&error))),
        }
    }

    /// Has a claim taken back: at once, and if that fails, later. Called inside the lock thread's
    /// runtime.
    pub(super) fn settle(
        self: &Arc<Self>,
        ballot: &Arc<Ballot>,
        owed: Owed,
        ttl: Duration,
        budget: Duration,
    ) {
        let debt = Debt::new(ballot, owed, ttl);
        if self.debts.is_silent() || owed.from > BootInstant::now() {
            // One task tells it everything, when it answers again.
            return Debts::owe(self, vec![debt]);
        }
        let site = Arc::clone(self);
        tokio::spawn(async move {
            let left = debt.pay(&site, budget).await;
            Debts::owe(&site, left);
        });
    }

    /// The connections, for questions about the server itself.
    async fn node(&self) -> Result<Arc<Node>, Problem> {
        self.store.fleet.node(0).await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.debts.nudge();
    }
}

/// What the script that asks for a claim is given.
pub(super) fn ask(
    keys: &Keys,
    token: Token,
    mode: Mode,
    ttl: Duration,
    stage: Stage,
    label: &str,
) -> Vec<Vec<u8>> {
    vec![
        keys.channel(),
        token.to_string().into_bytes(),
        answer::mode_word(mode).into_bytes(),
        millis(ttl).to_string().into_bytes(),
        // A writer that waits leaves its intent, which keeps new readers back.
        if stage == Stage::Wait { b"wait".to_vec() } else { b"try".to_vec() },
        // No queue; strings; no owner.
        b"0".to_vec(),
        b"string".to_vec(),
        Vec::new(),
        label.as_bytes().to_vec(),
        Vec::new(),
    ]
}

#[async_trait]
impl Source for Site {
    async fn open(&self) -> Result<PubSub, Problem> {
        self.opener.subscriber(&self.address, As::Client).await
    }
}
