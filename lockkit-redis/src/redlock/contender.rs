//! One claim on most of the servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{
    Attempt, BootInstant, Claim, Contender, Error, Holder, Lease, Released, Renewal, Result, Stage,
    Wake,
};
use redis::Value;

use super::debts::Debts;
use super::quorum::{Quorum, odd};
use super::round::{Round, most_seen, too_few};
use crate::answer::{self, Answer};
use crate::errors::{Failed, Problem};
use crate::keys::Keys;
use crate::scripts::{self, Script};
use crate::signal::Listening;
use crate::store::For;
use crate::value::millis;

/// One claim on most of the servers.
#[derive(Debug)]
pub(crate) struct QuorumContender {
    quorum: Arc<Quorum>,
    claim: Claim,
    keys: Keys,
    listening: Option<Listening>,
    /// Servers, as bits, that have not answered a request for the claim: it may take effect yet.
    silent: Arc<AtomicU64>,
}

/// What a round of asking came to.
struct Votes {
    sent: BootInstant,
    granted: usize,
    busy: Vec<(Option<Holder>, Option<Duration>)>,
    failed: Vec<(usize, Problem)>,
    /// What no further asking will change.
    refused: Option<Error>,
}

impl Votes {
    fn new(sent: BootInstant) -> Self {
        Self { sent, granted: 0, busy: Vec::new(), failed: Vec::new(), refused: None }
    }

    fn count(&mut self, at: usize, answer: std::result::Result<Value, Failed>, claim: &Claim) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failed) => return self.failed.push((at, failed.problem)),
        };
        match answer::attempt(&claim.key, claim.mode, &answer) {
            Ok(Answer::Granted { .. }) => self.granted += 1,
            Ok(Answer::Busy { holder, free_in }) => self.busy.push((holder, free_in)),
            Err(error) if error.is_retryable() => self.failed.push((at, odd(&error))),
            Err(error) => self.refused = Some(error),
        }
    }
}

/// How often a claim is asked for anew when the votes were split.
const SPLITS: u32 = 6;

/// The pause after split votes: at random, so that those who split them come apart.
const SPLIT_PAUSE: (u64, u64) = (3, 40);

impl QuorumContender {
    pub(crate) fn new(quorum: Arc<Quorum>, claim: Claim) -> Self {
        let keys = quorum.keys(&claim.key);
        Self { quorum, claim, keys, listening: None, silent: Arc::default() }
    }

    fn token(&self) -> Vec<u8> {
        self.claim.token.to_string().into_bytes()
    }

    /// How long one server may take: far less than the TTL, so that time is left when a slow one's
    /// vote is needed.
    fn patience(&self, budget: Duration) -> Duration {
        let most = Duration::from_millis(500);
        budget.min((self.claim.ttl / 8).max(Duration::from_millis(75)).min(most))
    }

    /// Runs a script on all servers.
    fn round(
        &self,
        renewal: bool,
        script: &'static Script,
        args: Vec<Vec<u8>>,
        patience: Duration,
    ) -> Round<Value> {
        Round::new(&self.quorum.sites, |_, site| {
            let (keys, args) = (self.keys.clone(), args.clone());
            async move {
                let who = if renewal { For::Renewal } else { For::Background };
                site.run(who, script, &keys, args, patience).await
            }
        })
    }

    /// Asks all servers, until the outcome is certain.
    ///
    /// A writer that waits leaves its intent, which keeps new readers back.
    async fn ask(&self, stage: Stage, patience: Duration) -> Votes {
        let args = vec![
            self.keys.channel(),
            self.token(),
            answer::mode_word(self.claim.mode).into_bytes(),
            millis(self.claim.ttl).to_string().into_bytes(),
            if stage == Stage::Wait { b"wait".to_vec() } else { b"try".to_vec() },
            b"0".to_vec(),
            b"string".to_vec(),
            Vec::new(),
            self.claim.label.as_deref().unwrap_or_default().as_bytes().to_vec(),
            Vec::new(),
        ];
        // The deadline counts from before the first request.
        let sent = BootInstant::now();
        let all = (1_u64 << self.quorum.sites.len()) - 1;
        self.silent.fetch_or(all, Ordering::AcqRel);
        let token = self.claim.token;
        let mut round = Round::new(&self.quorum.sites, |at, site| {
            let (keys, args, silent) = (self.keys.clone(), args.clone(), Arc::clone(&self.silent));
            async move {
                site.debts.forgive(token);
                let who = For::Background;
                let answer = site.run(who, &scripts::ASK, &keys, args, patience).await;
                if answer.as_ref().map_or_else(|failed| !failed.may_have_effect, |_| true) {
                    silent.fetch_and(!(1 << at), Ordering::AcqRel);
                }
                answer
            }
        });
        let mut votes = Votes::new(sent);
        while let Some((at, answer)) = round.next().await {
            votes.count(at, answer, &self.claim);
            let most = self.quorum.majority();
            if votes.granted >= most || votes.granted + round.open() < most {
                break;
            }
        }
        votes
    }

    /// Takes back whatever was granted, on every server, and waits for those that answer in time.
    async fn undo(&self, patience: Duration) {
        self.tell_all(Vec::new(), patience, |_| false).await;
    }

    /// Tells all servers that the claim is over, until `enough`; those that do not hear it are
    /// owed it. How many had the claim, and how many had not.
    async fn tell_all(
        &self,
        channel: Vec<u8>,
        patience: Duration,
        enough: impl Fn((usize, usize)) -> bool,
    ) -> (usize, usize, Vec<(usize, Problem)>) {
        let (token, until) = (self.claim.token, BootInstant::now() + self.claim.ttl);
        let mut round = Round::new(&self.quorum.sites, |at, site| {
            let keys = self.keys.clone();
            let (channel, silent) = (channel.clone(), Arc::clone(&self.silent));
            async move {
                let answer = site.withdraw(&keys, token, channel, patience).await;
                let in_doubt = silent.load(Ordering::Acquire) & (1 << at) != 0;
                if answer.is_err() || in_doubt {
                    Debts::owe(&site, token, &keys, until, in_doubt);
                }
                answer
            }
        });
        let (mut freed, mut absent, mut failed) = (0, 0, Vec::new());
        while let Some((at, answer)) = round.next().await {
            match answer.map(|answer| answer::done(&answer)) {
                Ok(Ok(true)) => freed += 1,
                Ok(Ok(false)) => absent += 1,
                Ok(Err(error)) => failed.push((at, odd(&error))),
                Err(error) => failed.push((at, error.problem)),
            }
            if enough((freed, absent)) {
                break;
            }
        }
        (freed, absent, failed)
    }

    /// What to say when there is no quorum: who has the key, or that too few answered.
    fn no_quorum(&self, votes: Votes, wake: Wake) -> Result<Attempt> {
        if let Some(error) = votes.refused {
            return Err(error);
        }
        let most = self.quorum.majority();
        if votes.failed.len() > self.quorum.sites.len() - most {
            return Err(too_few(&self.quorum.sites, &votes.failed, most).into());
        }
        let holder = self.holder(&votes);
        // When so many could be free that a quorum is.
        let mut free: Vec<_> = votes.busy.iter().filter_map(|(_, free_in)| *free_in).collect();
        free.sort_unstable();
        let free_in = free.get(most.saturating_sub(votes.granted + 1)).or(free.last()).copied();
        Ok(Attempt::Busy { wake, holder, free_in })
    }

    /// Whom most of those servers name that are busy.
    fn holder(&self, votes: &Votes) -> Option<Holder> {
        let seen = || votes.busy.iter().filter_map(|(holder, _)| holder.as_ref());
        let (token, _) = most_seen(seen().map(|holder| holder.token))?;
        let mut holder = seen().find(|holder| holder.token == token)?.clone();
        holder.fence = None;
        Some(holder)
    }

    /// Whether nobody has a quorum: then asking again soon is worth it.
    fn is_split(&self, votes: &Votes) -> bool {
        let tokens = votes.busy.iter().map(|(holder, _)| holder.as_ref().map(|h| h.token));
        let best = most_seen(tokens).map_or(0, |(_, count)| count);
        let silent =
            self.quorum.sites.len() - votes.granted - votes.busy.len() - votes.failed.len();
        votes.refused.is_none()
            && votes.granted + votes.busy.len() >= self.quorum.majority()
            && best + silent + votes.failed.len() < self.quorum.majority()
    }

    async fn listen(&mut self, patience: Duration) -> Wake {
        let (quorum, keys, token) = (&self.quorum, &self.keys, self.claim.token);
        let listening =
            self.listening.get_or_insert_with(|| quorum.signal.listen(keys.channel(), token));
        listening.ready(patience).await
    }
}

#[async_trait]
impl Contender for QuorumContender {
    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt> {
        let end = BootInstant::now() + budget;
        let mut wake = Wake::never();
        if stage == Stage::Wait {
            wake = self.listen(budget / 4).await;
        }
        let mut splits = 0;
        loop {
            let patience = self.patience(end.since(BootInstant::now()));
            let votes = self.ask(stage, patience).await;
            let most = self.quorum.majority();
            // The engine looks whether time is left: its margin is the drift that is allowed for.
            if votes.granted >= most {
                self.listening = None;
                return Ok(Attempt::Granted {
                    fence: None,
                    lease: Lease::new(votes.sent, self.claim.ttl),
                });
            }
            if votes.granted > 0 || self.silent.load(Ordering::Acquire) != 0 {
                self.undo(patience).await;
            }
            let pause = Duration::from_millis(fastrand::u64(SPLIT_PAUSE.0..SPLIT_PAUSE.1));
            let again = BootInstant::now() + pause + patience < end;
            if !self.is_split(&votes) || splits == SPLITS || !again {
                return self.no_quorum(votes, wake);
            }
            splits += 1;
            tokio::time::sleep(pause * splits).await;
        }
    }

    async fn renew(&mut self, budget: Duration) -> Result<Renewal> {
        let ttl = millis(self.claim.ttl).to_string().into_bytes();
        let args = vec![self.token(), ttl, Vec::new()];
        let sent = BootInstant::now();
        let mut round = self.round(true, &scripts::RENEW, args, budget);
        let (n, most) = (self.quorum.sites.len(), self.quorum.majority());
        let (mut extended, mut gone, mut failed) = (0, 0, Vec::new());
        while let Some((at, answer)) = round.next().await {
            match answer.map(|answer| answer::done(&answer)) {
                Ok(Ok(true)) => extended += 1,
                Ok(Ok(false)) => gone += 1,
                Ok(Err(error)) => failed.push((at, odd(&error))),
                Err(error) => failed.push((at, error.problem)),
            }
            if extended >= most {
                return Ok(Renewal::Extended(Lease::new(sent, self.claim.ttl)));
            }
            if gone > n - most {
                return Ok(Renewal::Gone);
            }
        }
        Err(too_few(&self.quorum.sites, &failed, most).into())
    }

    async fn release(&mut self, budget: Duration) -> Result<Released> {
        self.listening = None;
        let (n, most) = (self.quorum.sites.len(), self.quorum.majority());
        let enough = |(freed, absent): (usize, usize)| {
            (freed > 0 && freed + absent >= most) || absent > n - most
        };
        let told =
            self.tell_all(self.keys.channel(), self.patience(budget).max(budget / 2), enough);
        let (freed, absent, failed) = told.await;
        if freed + absent < most {
            return Err(too_few(&self.quorum.sites, &failed, most).into());
        }
        Ok(if freed > 0 { Released::Freed } else { Released::NotFound })
    }

    async fn linger(&mut self, rest: Duration, budget: Duration) -> Result<Option<Released>> {
        let args = vec![self.token(), millis(rest).to_string().into_bytes()];
        let mut round = self.round(false, &scripts::LINGER, args, budget);
        let most = self.quorum.majority();
        let (mut kept, mut absent, mut failed) = (0, 0, Vec::new());
        while let Some((at, answer)) = round.next().await {
            match answer.map(|answer| answer::done(&answer)) {
                Ok(Ok(true)) => kept += 1,
                Ok(Ok(false)) => absent += 1,
                Ok(Err(error)) => failed.push((at, odd(&error))),
                Err(error) => failed.push((at, error.problem)),
            }
            if kept >= most {
                return Ok(Some(Released::Freed));
            }
            if absent > self.quorum.sites.len() - most {
                return Ok(Some(Released::NotFound));
            }
        }
        Err(too_few(&self.quorum.sites, &failed, most).into())
    }
}
