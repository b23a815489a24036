//! One claim on most of the servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{
    Attempt, BootInstant, Claim, Contender, Lease, Released, Renewal, Result, Stage, Token, Wake,
};

use super::ballot::{Asked, Ballot, Over, Owed};
use super::debts::{Debt, Debts};
use super::quorum::Quorum;
use super::round::{Round, too_few};
use super::site;
use super::votes::{Vote, Votes};
use crate::answer::{self, Answer};
use crate::errors::{Failed, Problem};
use crate::scripts;
use crate::signal::Listening;
use crate::store::For;
use crate::value::millis;

/// One claim on most of the servers.
#[derive(Debug)]
pub(crate) struct QuorumContender {
    quorum: Arc<Quorum>,
    claim: Claim,
    ballot: Arc<Ballot>,
    listening: Option<Listening>,
}

/// How often a claim is asked for anew when the votes were split.
const SPLITS: u32 = 6;

/// The pause after split votes, at random so that those who split them come apart; the upper end
/// doubles with each.
const SPLIT_PAUSE: (u64, u64) = (1, 4);

/// How long one server's vote is waited for when most of the others have answered.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(75), Duration::from_millis(500));

impl QuorumContender {
    pub(crate) fn new(quorum: Arc<Quorum>, claim: Claim) -> Self {
        let ballot = ballot(&quorum, &claim, claim.token);
        Self { quorum, claim, ballot, listening: None }
    }

    /// How long a minority is waited for: far less than the TTL, so that time is left when a slow
    /// one's vote is needed. Below a quorum of answers there is nothing better to do than to wait,
    /// for as long as an exchange may take.
    fn patience(&self) -> Duration {
        (self.claim.ttl / 8).clamp(PATIENCE.0, PATIENCE.1)
    }

    /// Asks all servers, until the outcome is certain; what is still under way then goes on, and
    /// what it brings is taken back unless the claim is held.
    async fn round(&self, stage: Stage, end: BootInstant) -> (BootInstant, Votes) {
        // The deadline counts from before the first request.
        let sent = BootInstant::now();
        let budget = end.since(sent).max(LEAST);
        let (round, asked) = self.ballot.begin(stage == Stage::Wait);
        for at in asked {
            self.ask(at, round, stage, budget);
        }
        let most = self.quorum.majority();
        let look = |enough: fn(&Votes) -> bool| {
            move |ballot: &Ballot| Some(Votes::new(ballot.votes(), most)).filter(enough)
        };
        let patience = self.patience().min(budget);
        if let Some(votes) = self.ballot.until(patience, look(Votes::is_certain)).await {
            return (sent, votes);
        }
        let rest = end.since(BootInstant::now());
        let heard = self.ballot.until(rest, look(|v| v.is_certain() || v.is_heard())).await;
        let mut votes = heard.unwrap_or_else(|| Votes::new(self.ballot.votes(), most));
        if !votes.is_certain() {
            votes.close(&Problem::unavailable(format!("no answer within {budget:?}")));
        }
        (sent, votes)
    }

    fn ask(&self, at: usize, round: u32, stage: Stage, budget: Duration) {
        let (site, ballot) = (Arc::clone(&self.quorum.sites[at]), Arc::clone(&self.ballot));
        let (key, mode, ttl) = (self.claim.key.clone(), self.claim.mode, self.claim.ttl);
        let label = self.claim.label.as_deref().unwrap_or_default();
        let args = site::ask(&ballot.keys, ballot.token, mode, ttl, stage, label);
        // Exchanges are polled inside the lock thread's runtime.
        tokio::spawn(async move {
            let answered = site.ask(&ballot.keys, args, budget).await;
            let sent_twice = answered.as_ref().is_ok_and(|answered| answered.sent_twice);
            let asked = match answered {
                Ok(answered) => match answer::attempt(&key, mode, &answered.first()) {
                    Ok(Answer::Granted { .. }) => Asked::Answered(Vote::Granted),
                    Ok(Answer::Busy { holder, free_in }) => {
                        Asked::Answered(Vote::Busy { holder, free_in })
                    }
                    Err(error) if error.is_retryable() => {
                        Asked::Unanswered(Problem::of(&error).at(&site.address))
                    }
                    Err(error) => Asked::Answered(Vote::Misfit(Problem::of(&error))),
                },
                Err(Failed { problem, may_have_effect: true }) => Asked::Unanswered(problem),
                Err(Failed { problem, .. }) => Asked::Unsent(problem),
            };
            if let Some(owed) = ballot.answered(at, round, asked, sent_twice) {
                site.settle(&ballot, owed, ttl, budget);
            }
        });
    }

    fn take_back(&self, owed: Vec<(usize, Owed)>, budget: Duration) {
        for (at, owed) in owed {
            self.quorum.sites[at].settle(&self.ballot, owed, self.claim.ttl, budget);
        }
    }

    /// Another ballot after a release; and another token, where this one may still be taken back.
    fn renew_ballot(&mut self, budget: Duration) {
        let over = self.ballot.is_over();
        if !over && !self.ballot.is_spoilt() {
            return;
        }
        let mut token = self.claim.token;
        if !over || !self.ballot.is_clean() {
            token = Token::new();
            self.end(false, budget);
        }
        self.ballot = ballot(&self.quorum, &self.claim, token);
    }

    /// The claim is over.
    fn end(&self, wake: bool, budget: Duration) {
        self.take_back(self.ballot.end(Over { wake, from: BootInstant::now() }), budget);
    }

    /// What to say when there is no quorum: who has the key, or that too few answered.
    fn no_quorum(&self, votes: &Votes, wake: Wake) -> Result<Attempt> {
        if let Some(failed) = votes.failed() {
            return Err(too_few(&self.quorum.sites, &failed, self.quorum.majority()).into());
        }
        if let Some(problem) = votes.misfit() {
            return Err(problem.into());
        }
        Ok(Attempt::Busy { wake, holder: votes.holder(), free_in: votes.free_in() })
    }

    async fn listen(&mut self, patience: Duration) -> Wake {
        let (quorum, keys, token) = (&self.quorum, &self.ballot.keys, self.claim.token);
        let listening =
            self.listening.get_or_insert_with(|| quorum.signal.listen(keys.channel(), token));
        listening.ready(patience).await
    }

    /// Whether most servers say yes, or so many say no that most cannot; else what went wrong.
    async fn most(&self, mut round: Round<bool>) -> Result<bool> {
        let (n, most) = (self.quorum.sites.len(), self.quorum.majority());
        let (mut yes, mut no, mut failed) = (0, 0, Vec::new());
        while let Some((at, answer)) = round.next().await {
            match answer {
                Ok(true) => yes += 1,
                Ok(false) => no += 1,
                Err(error) => failed.push((at, error.problem)),
            }
            if yes >= most || no > n - most {
                return Ok(yes >= most);
            }
        }
        Err(too_few(&self.quorum.sites, &failed, most).into())
    }
}

fn ballot(quorum: &Quorum, claim: &Claim, token: Token) -> Arc<Ballot> {
    let keys = quorum.keys(&claim.key);
    Arc::new(Ballot::new(quorum.sites.len(), token, keys, claim.mode))
}

/// What an exchange is given at least: with less, it could only be sent in vain.
const LEAST: Duration = Duration::from_millis(1);

/// A little less than the whole time: at its end the engine says that nobody answered, and here it
/// is known who.
fn before_the_end(budget: Duration) -> Duration {
    budget - budget / 8
}

#[async_trait]
impl Contender for QuorumContender {
    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt> {
        let end = BootInstant::now() + before_the_end(budget);
        let mut wake = Wake::never();
        if stage == Stage::Wait {
            wake = self.listen(budget / 4).await;
        }
        self.renew_ballot(budget);
        let mut splits = 0;
        loop {
            let (sent, votes) = self.round(stage, end).await;
            if votes.is_won() {
                // The engine looks whether time is left: its margin is what Redlock allows for
                // the drift of clocks.
                self.listening = None;
                let lease = Lease::new(sent, self.claim.ttl);
                return Ok(Attempt::Granted { fence: None, lease });
            }
            let pause = fastrand::u64(SPLIT_PAUSE.0..=SPLIT_PAUSE.1 << splits);
            let pause = Duration::from_millis(pause);
            let again = BootInstant::now() + pause + self.patience() < end;
            let over = !votes.are_split() || splits == SPLITS || !again;
            self.take_back(self.ballot.lose(over && stage == Stage::Try), budget);
            if over {
                return self.no_quorum(&votes, wake);
            }
            splits += 1;
            tokio::time::sleep(pause).await;
            // Whoever has not taken back its vote is not asked.
            let settled = |ballot: &Ballot| ballot.is_settled().then_some(());
            let _ = self.ballot.until(self.patience() / 4, settled).await;
        }
    }

    async fn renew(&mut self, budget: Duration) -> Result<Renewal> {
        let ttl = millis(self.claim.ttl).to_string().into_bytes();
        let args = vec![self.ballot.token.to_string().into_bytes(), ttl, Vec::new()];
        let sent = BootInstant::now();
        let round = Round::new(&self.quorum.sites, |at, site| {
            let (ballot, args) = (Arc::clone(&self.ballot), args.clone());
            async move {
                if !ballot.counts(at) {
                    return Ok(false);
                }
                let script = &scripts::RENEW;
                let stands = site.decide(For::Renewal, script, &ballot.keys, args, budget).await?;
                // An old question may have been answered meanwhile.
                Ok(stands && ballot.counts(at))
            }
        });
        Ok(if self.most(round).await? {
            Renewal::Extended(Lease::new(sent, self.claim.ttl))
        } else {
            Renewal::Gone
        })
    }

    async fn release(&mut self, budget: Duration) -> Result<Released> {
        self.listening = None;
        self.end(true, budget);
        let (n, most) = (self.quorum.sites.len(), self.quorum.majority());
        let told = |ballot: &Ballot| {
            let told = ballot.told();
            let gone = told.absent > n - most;
            (gone || told.freed + told.absent >= most).then_some(if gone {
                Released::NotFound
            } else {
                Released::Freed
            })
        };
        match self.ballot.until(before_the_end(budget), told).await {
            Some(released) => {
                self.ballot.conclude();
                Ok(released)
            }
            None => Err(too_few(&self.quorum.sites, &self.ballot.troubles(), most).into()),
        }
    }

    /// What may land late is followed here, by what each server is owed.
    fn late_effects(&self) -> Duration {
        Duration::ZERO
    }

    async fn linger(&mut self, rest: Duration, budget: Duration) -> Result<Option<Released>> {
        self.listening = None;
        let until = BootInstant::now() + rest;
        let counts: Vec<_> =
            (0..self.quorum.sites.len()).map(|at| self.ballot.counts(at)).collect();
        self.take_back(self.ballot.keep(until), budget);
        let (token, ttl) = (self.ballot.token.to_string().into_bytes(), self.claim.ttl);
        let args = vec![token, millis(rest).to_string().into_bytes()];
        let round = Round::new(&self.quorum.sites, |at, site| {
            let (ballot, args) = (Arc::clone(&self.ballot), args.clone());
            let counts = counts[at];
            async move {
                if !counts {
                    return Ok(false);
                }
                let script = &scripts::LINGER;
                let kept = site.decide(For::Background, script, &ballot.keys, args, budget).await;
                if kept.is_err() {
                    let (all, wake, known) = (true, true, true);
                    let owed = Owed { all, wake, from: until, known, doubts: 0 };
                    Debts::owe(&site, vec![Debt::new(&ballot, owed, ttl)]);
                }
                kept
            }
        });
        let kept = self.most(round).await?;
        Ok(Some(if kept { Released::Freed } else { Released::NotFound }))
    }
}

impl Drop for QuorumContender {
    fn drop(&mut self) {
        // What is still under way has nobody any more who would want it.
        self.ballot.abandon();
    }
}
