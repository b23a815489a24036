//! A backend between the engine and a real one that loses, delays and hangs exchanges.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::clock::BootInstant;
use crate::contender::{Attempt, Claim, Contender, Released, Renewal, Stage};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::holder::{Holder, Which};
use crate::key::Key;
use crate::lock::DistributedLock;
use crate::sync::lock;
use crate::token::Token;

/// What goes wrong with one exchange.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing.
    None,
    /// The request never leaves: an error at once.
    Refuse,
    /// The request takes effect, and its answer is lost: an error.
    LoseAnswer,
    /// The request takes effect after this time, and is answered then.
    Delay(Duration),
    /// The request takes effect, and the answer comes this much later.
    DelayAnswer(Duration),
    /// The request never leaves and is never answered.
    Hang,
    /// The request takes effect and is never answered.
    HangAfter,
    /// An error that retrying cannot mend.
    Deny,
    /// The exchange waits for [`Faulty::let_go`], then takes effect.
    Hold,
}

/// Which exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// `attempt`.
    Attempt(Stage),
    /// `renew`.
    Renew,
    /// `release`.
    Release,
    /// `linger`.
    Linger,
}

/// What came of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It has not ended (yet), or it was given up.
    Open,
    /// The store granted, extended, freed or kept.
    Yes,
    /// The store was busy, or did not have the claim.
    No,
    /// An error.
    Error,
}

/// One exchange in the log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Exchanged {
    /// The claim.
    pub token: Token,
    /// Its key.
    pub key: Key,
    /// What was asked.
    pub op: Op,
    /// When it was begun.
    pub begun: BootInstant,
    /// What came of it.
    pub outcome: Outcome,
}

/// Wraps a backend: injects faults into its exchanges, and keeps a log of them.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn DistributedLock>,
    script: Arc<Script>,
}

#[derive(Debug, Default)]
struct Script {
    faults: Mutex<Faults>,
    log: Mutex<Vec<Exchanged>>,
    logged: Notify,
    go: Notify,
    late: Mutex<Option<Duration>>,
}

#[derive(Debug, Default)]
struct Faults {
    next: VecDeque<(Op, Fault)>,
    every: Vec<(Op, Fault)>,
}

impl Faulty {
    /// Wraps `inner`; without a fault at first.
    pub fn new(inner: Arc<dyn DistributedLock>) -> Arc<Self> {
        Arc::new(Self { inner, script: Arc::default() })
    }

    /// Puts `fault` on the next exchange of this kind that has none yet. Several calls line up.
    pub fn next(&self, op: Op, fault: Fault) {
        lock(&self.script.faults).next.push_back((op, fault));
    }

    /// Puts `fault` on every exchange of this kind from now on; [`Fault::None`] ends that.
    pub fn every(&self, op: Op, fault: Fault) {
        let mut faults = lock(&self.script.faults);
        faults.every.retain(|(o, _)| *o != op);
        faults.every.push((op, fault));
    }

    /// Puts `fault` on every exchange of every kind; [`Fault::None`] ends that.
    pub fn all(&self, fault: &Fault) {
        for stage in [Stage::Try, Stage::First, Stage::Wait] {
            self.every(Op::Attempt(stage), fault.clone());
        }
        for op in [Op::Renew, Op::Release, Op::Linger] {
            self.every(op, fault.clone());
        }
    }

    /// Says that requests may take effect late, for this long after they were given up.
    pub fn set_late_effects(&self, late: Duration) {
        *lock(&self.script.late) = Some(late);
    }

    /// Lets all exchanges go on that wait under [`Fault::Hold`].
    pub fn let_go(&self) {
        self.script.go.notify_waiters();
    }

    /// All exchanges so far.
    pub fn log(&self) -> Vec<Exchanged> {
        lock(&self.script.log).clone()
    }

    /// How many exchanges of this kind there were so far.
    pub fn count(&self, op: Op) -> usize {
        lock(&self.script.log).iter().filter(|e| e.op == op).count()
    }

    /// Waits until `enough` says so of the log; it is asked again after each exchange that
    /// begins or ends.
    pub async fn logged(&self, mut enough: impl FnMut(&[Exchanged]) -> bool) {
        loop {
            let mut logged = std::pin::pin!(self.script.logged.notified());
            logged.as_mut().enable();
            if enough(&lock(&self.script.log)) {
                return;
            }
            logged.await;
        }
    }
}

#[async_trait]
impl DistributedLock for Faulty {
    fn core(&self) -> &Core {
        self.inner.core()
    }

    fn contend(&self, claim: Claim) -> Box<dyn Contender> {
        let (token, key) = (claim.token, claim.key.clone());
        let inner = self.inner.contend(claim);
        let subject = Subject { token, key, script: Arc::clone(&self.script) };
        Box::new(FaultyContender { inner, subject })
    }

    async fn ping(&self) -> Result<()> {
        self.inner.ping().await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        self.inner.inspect(key).await
    }

    async fn force_release(&self, key: &Key, which: Which) -> Result<bool> {
        self.inner.force_release(key, which).await
    }

    async fn disconnect(&self) {
        self.inner.disconnect().await;
    }
}

#[derive(Debug)]
struct FaultyContender {
    inner: Box<dyn Contender>,
    subject: Subject,
}

/// The claim that exchanges are logged for, and the faults that meet them.
#[derive(Debug)]
struct Subject {
    token: Token,
    key: Key,
    script: Arc<Script>,
}

impl Script {
    fn fault(&self, op: Op) -> Fault {
        let mut faults = lock(&self.faults);
        if let Some(at) = faults.next.iter().position(|(o, _)| *o == op) {
            return faults.next.remove(at).map_or(Fault::None, |(_, fault)| fault);
        }
        let every = faults.every.iter().find(|(o, _)| *o == op);
        every.map_or(Fault::None, |(_, fault)| fault.clone())
    }

    fn begin(&self, token: Token, key: Key, op: Op) -> usize {
        let at = {
            let mut log = lock(&self.log);
            let begun = BootInstant::now();
            log.push(Exchanged { token, key, op, begun, outcome: Outcome::Open });
            log.len() - 1
        };
        self.logged.notify_waiters();
        at
    }

    fn end(&self, at: usize, outcome: Outcome) {
        lock(&self.log)[at].outcome = outcome;
        self.logged.notify_waiters();
    }

    /// What happens before the request takes effect.
    async fn before(&self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::Refuse => Err(Error::unavailable("injected: the request was not sent")),
            Fault::Deny => Err(Error::permission("injected: not allowed")),
            Fault::Hang => std::future::pending().await,
            Fault::Hold => {
                self.go.notified().await;
                Ok(())
            }
            Fault::Delay(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What happens after it took effect.
    async fn after(&self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::LoseAnswer => Err(Error::unavailable("injected: the answer was lost")),
            Fault::HangAfter => std::future::pending().await,
            Fault::DelayAnswer(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Subject {
    /// Runs `real`, which does nothing before it is polled, with the fault that is due.
    async fn exchange<T>(
        &self,
        op: Op,
        real: impl Future<Output = Result<T>>,
        good: impl FnOnce(&T) -> bool,
    ) -> Result<T> {
        let at = self.script.begin(self.token, self.key.clone(), op);
        let fault = self.script.fault(op);
        let result = async {
            self.script.before(&fault).await?;
            let answer = real.await?;
            self.script.after(&fault).await?;
            Ok(answer)
        }
        .await;
        let outcome = match &result {
            Ok(answer) if good(answer) => Outcome::Yes,
            Ok(_) => Outcome::No,
            Err(_) => Outcome::Error,
        };
        self.script.end(at, outcome);
        result
    }
}

#[async_trait]
impl Contender for FaultyContender {
    fn late_effects(&self) -> Duration {
        lock(&self.subject.script.late).unwrap_or_else(|| self.inner.late_effects())
    }

    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt> {
        let granted = |answer: &Attempt| matches!(answer, Attempt::Granted { .. });
        self.subject.exchange(Op::Attempt(stage), self.inner.attempt(stage, budget), granted).await
    }

    async fn renew(&mut self, budget: Duration) -> Result<Renewal> {
        let extended = |answer: &Renewal| matches!(answer, Renewal::Extended(_));
        self.subject.exchange(Op::Renew, self.inner.renew(budget), extended).await
    }

    async fn release(&mut self, budget: Duration) -> Result<Released> {
        let freed = |answer: &Released| *answer == Released::Freed;
        self.subject.exchange(Op::Release, self.inner.release(budget), freed).await
    }

    async fn linger(&mut self, rest: Duration, budget: Duration) -> Result<Option<Released>> {
        let kept = |answer: &Option<Released>| *answer == Some(Released::Freed);
        self.subject.exchange(Op::Linger, self.inner.linger(rest, budget), kept).await
    }
}
