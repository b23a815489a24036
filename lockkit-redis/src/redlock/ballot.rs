//! One claim's token, and what is known of it on each server.
//!
//! Requests may take effect long after they were given up. For a request to ask that is harmless
//! as long as the claim is wanted: asking is idempotent. For a request to take the claim back it is
//! not: it would take a vote that was counted since. So a server is not asked again before it has
//! answered that it took the claim back, and a token that some server was told to take back without
//! an answer is given up for a new one as soon as that server answers again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::{BootInstant, Mode, Token};
use tokio::sync::Notify;

use super::votes::Vote;
use crate::errors::Problem;
use crate::keys::Keys;

/// One token, and what is known of it on each server.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) token: Token,
    pub(super) keys: Keys,
    mode: Mode,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    papers: Vec<Paper>,
    /// Counts the rounds of asking.
    round: u32,
    /// Rounds up to this one brought no quorum.
    lost: u32,
    /// Whether nobody asks again after those.
    last: bool,
    over: Option<Over>,
}

/// That the claim is over, and how it is to be taken back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Over {
    /// Whether those who wait are to be told.
    pub(super) wake: bool,
    /// Until when the servers keep the claim by themselves.
    pub(super) from: BootInstant,
}

/// What is known of the token on one server.
#[derive(Debug, Default)]
struct Paper {
    /// The round of the request to ask that is under way.
    open: Option<u32>,
    /// The answer in this round.
    vote: Option<Vote>,
    asked: bool,
    /// Whether the last answer was that the claim stands.
    stands: bool,
    /// How many requests to ask were not answered: each may take effect yet.
    doubts: u32,
    /// Whether that was followed up, so that it is taken back whenever it does.
    doubted: bool,
    /// Whether a writer's intent may be there.
    intent: bool,
    back: Back,
    /// Whether a request to take it back may come at any time: one that was not answered, or one of
    /// those that look for late effects.
    spoilt: bool,
    trouble: Option<Problem>,
}

/// How far the claim is taken back on one server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Back {
    #[default]
    No,
    UnderWay,
    /// The server has answered; whether the claim was there.
    Done {
        freed: bool,
    },
}

/// A claim that a server is to take back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owed {
    /// With a writer's intent, or as a reader: by the script that looks for all there is.
    pub(super) all: bool,
    /// Whether those who wait are to be told.
    pub(super) wake: bool,
    /// Not earlier.
    pub(super) from: BootInstant,
    /// Whether the server has answered that it is there.
    pub(super) known: bool,
    /// How many requests may bring it there again, or only now.
    pub(super) doubts: u32,
}

impl Owed {
    /// The server has taken it back; whether it may be there again later.
    ///
    /// What was found is a late effect only if it was not known before. That two requests had one
    /// effect cannot be told, and costs no more than looking in vain.
    pub(super) fn is_open_after(&mut self, freed: bool) -> bool {
        if freed && !std::mem::take(&mut self.known) {
            self.doubts = self.doubts.saturating_sub(1);
        }
        self.doubts > 0
    }
}

/// What became of a request to ask.
#[derive(Debug)]
pub(super) enum Asked {
    Answered(Vote),
    /// It never reached the server.
    Unsent(Problem),
    /// It may have, or may yet.
    Unanswered(Problem),
}

/// How many servers have answered that the claim is taken back.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// Where it was.
    pub(super) freed: usize,
    /// Where it was not.
    pub(super) absent: usize,
}

impl Ballot {
    pub(super) fn new(servers: usize, token: Token, keys: Keys, mode: Mode) -> Self {
        let papers = (0..servers).map(|_| Paper::default()).collect();
        let state = Mutex::new(State { papers, round: 0, lost: 0, last: false, over: None });
        Self { token, keys, mode, state, changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` gives something, but at most for `limit`.
    pub(super) async fn until<T>(
        &self,
        limit: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Option<T> {
        let looking = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(found) = look(self) {
                    return found;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, looking).await.ok()
    }

    /// Whether a request to take this token back may come at any time, where nothing else hinders
    /// the server from voting.
    pub(super) fn is_spoilt(&self) -> bool {
        self.state().papers.iter().any(|p| p.spoilt && matches!(p.back, Back::Done { .. }))
    }

    /// Whether the vote of a server stays until the claim is over. It does not where a request to
    /// take it back is under way, or will be sent as soon as an old question is answered.
    pub(super) fn counts(&self, at: usize) -> bool {
        let state = self.state();
        let paper = &state.papers[at];
        let in_vain = paper.open.is_some_and(|round| round <= state.lost);
        paper.back == Back::No && !paper.spoilt && !in_vain
    }

    /// Whether this claim is over, so that no request to ask counts any more.
    pub(super) fn is_over(&self) -> bool {
        self.state().over.is_some()
    }

    /// Whether nothing of it can still come to any server.
    pub(super) fn is_clean(&self) -> bool {
        let idle = |p: &Paper| {
            let doubted = p.doubts > 0 || p.doubted;
            p.open.is_none() && p.back != Back::UnderWay && !p.spoilt && !doubted
        };
        self.state().papers.iter().all(idle)
    }

    /// The end was told; who tells it again finds nothing.
    pub(super) fn conclude(&self) {
        for paper in &mut self.state().papers {
            if let Back::Done { freed } = &mut paper.back {
                *freed = false;
            }
        }
    }

    /// Begins a round: its number, and which servers are to be asked. `stays`: a writer leaves its
    /// intent.
    pub(super) fn begin(&self, stays: bool) -> (u32, Vec<usize>) {
        let mut state = self.state();
        state.round += 1;
        state.last = false;
        let round = state.round;
        let mut asked = Vec::with_capacity(state.papers.len());
        for (at, paper) in state.papers.iter_mut().enumerate() {
            if paper.open.is_some() || paper.back == Back::UnderWay || paper.spoilt {
                let problem = || Problem::unavailable("an earlier request is to be answered first");
                paper.vote = Some(Vote::Failed(paper.trouble.clone().unwrap_or_else(problem)));
                continue;
            }
            paper.open = Some(round);
            paper.vote = None;
            paper.back = Back::No;
            paper.asked = true;
            paper.intent |= stays && self.mode == Mode::Exclusive;
            asked.push(at);
        }
        (round, asked)
    }

    /// What a server answered in `round`; whether it has to take the claim back again.
    /// `sent_twice`: the request may take effect once more.
    pub(super) fn answered(
        &self,
        at: usize,
        round: u32,
        answer: Asked,
        sent_twice: bool,
    ) -> Option<Owed> {
        let mut state = self.state();
        let (current, lost, last, over) = (state.round, state.lost, state.last, state.over);
        let paper = &mut state.papers[at];
        paper.open = None;
        paper.doubts += u32::from(sent_twice);
        let vote = match answer {
            Asked::Answered(vote) => {
                paper.trouble = None;
                paper.stands = matches!(vote, Vote::Granted);
                vote
            }
            Asked::Unsent(problem) => Vote::Failed(problem),
            Asked::Unanswered(problem) => {
                paper.doubts += 1;
                Vote::Failed(problem)
            }
        };
        if let Vote::Failed(problem) = &vote {
            paper.trouble = Some(problem.clone());
        }
        if round == current {
            paper.vote = Some(vote);
        }
        let owed = match over {
            Some(over) => paper.end(self.mode, over),
            None if round <= lost => paper.lose(self.mode, last),
            None => None,
        };
        drop(state);
        self.changed.notify_waiters();
        owed
    }

    /// The answers of this round so far.
    pub(super) fn votes(&self) -> Vec<Option<Vote>> {
        self.state().papers.iter().map(|paper| paper.vote.clone()).collect()
    }

    /// The round brought no quorum: which servers are to take the claim back. `last`: nobody asks
    /// again, and nobody will say that the claim is over.
    pub(super) fn lose(&self, last: bool) -> Vec<(usize, Owed)> {
        let mut state = self.state();
        (state.lost, state.last) = (state.round, last);
        let mode = self.mode;
        let papers = state.papers.iter_mut().enumerate();
        papers.filter_map(|(at, paper)| Some((at, paper.lose(mode, last)?))).collect()
    }

    /// The claim is over: which servers are to take it back now. What is still to be answered
    /// follows by itself.
    pub(super) fn end(&self, over: Over) -> Vec<(usize, Owed)> {
        let mut state = self.state();
        let first = state.over.is_none();
        state.over = Some(over);
        let mode = self.mode;
        let papers = state.papers.iter_mut().enumerate();
        papers
            .filter_map(|(at, paper)| {
                if first && let Back::Done { freed } = &mut paper.back {
                    // That was a vote in vain, not the claim.
                    *freed = false;
                }
                Some((at, paper.end(mode, over)?))
            })
            .collect()
    }

    /// The servers keep the claim by themselves for a while. What is still to be answered is
    /// taken back then, and what was never answered too: where that is looked for.
    pub(super) fn keep(&self, until: BootInstant) -> Vec<(usize, Owed)> {
        let mut state = self.state();
        state.over = Some(Over { wake: true, from: until });
        let papers = state.papers.iter_mut().enumerate();
        papers
            .filter(|(_, paper)| paper.doubts > 0)
            .map(|(at, paper)| {
                let doubts = std::mem::take(&mut paper.doubts);
                paper.doubted = true;
                (at, Owed { all: true, wake: true, from: until, known: true, doubts })
            })
            .collect()
    }

    /// Nobody will ask again, whatever happened before.
    pub(super) fn abandon(&self) {
        let over = Over { wake: false, from: BootInstant::now() };
        self.state().over.get_or_insert(over);
    }

    /// A server has taken the claim back; what it is still to be told.
    pub(super) fn heard(&self, at: usize, freed: bool) -> Option<Owed> {
        let mut state = self.state();
        let over = state.over;
        let paper = &mut state.papers[at];
        if paper.back == Back::UnderWay {
            // What stood, and is not there now, was freed by an earlier request without an answer:
            // that it was lost before is less likely, and its holder would know by its deadline.
            let freed = freed || (paper.stands && paper.spoilt);
            paper.back = Back::Done { freed: freed && over.is_some() };
            paper.stands = false;
        }
        paper.trouble = None;
        let owed = over.and_then(|over| paper.end(self.mode, over));
        drop(state);
        self.changed.notify_waiters();
        owed
    }

    /// A server has not said that it took the claim back. `in_doubt`: it may do so later.
    pub(super) fn unheard(&self, at: usize, problem: Problem, in_doubt: bool) {
        let mut state = self.state();
        let paper = &mut state.papers[at];
        paper.spoilt |= in_doubt;
        paper.trouble = Some(problem);
        drop(state);
        self.changed.notify_waiters();
    }

    /// The claim has run out on this server, whoever was told what.
    pub(super) fn ran_out(&self, at: usize) {
        let mut state = self.state();
        let paper = &mut state.papers[at];
        if paper.back == Back::UnderWay {
            paper.back = Back::Done { freed: false };
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether no server is just taking the claim back.
    pub(super) fn is_settled(&self) -> bool {
        self.state().papers.iter().all(|paper| paper.back != Back::UnderWay)
    }

    /// How many servers have answered that the claim is taken back, once it is over.
    pub(super) fn told(&self) -> Told {
        let mut told = Told::default();
        for paper in &self.state().papers {
            match paper.back {
                Back::Done { freed: true } => told.freed += 1,
                Back::Done { freed: false } => told.absent += 1,
                Back::No if !paper.asked => told.absent += 1,
                Back::No | Back::UnderWay => {}
            }
        }
        told
    }

    /// What hinders those servers that have not answered that.
    pub(super) fn troubles(&self) -> Vec<(usize, Problem)> {
        let state = self.state();
        let papers = state.papers.iter().enumerate();
        papers
            .filter(|(_, p)| p.asked && !matches!(p.back, Back::Done { .. }))
            .map(|(at, paper)| {
                let silent = || Problem::unavailable("no answer in time");
                (at, paper.trouble.clone().unwrap_or_else(silent))
            })
            .collect()
    }
}

impl Paper {
    /// A vote in vain goes back, a writer's intent stays: the writer still waits. What was not
    /// answered is asked for again, unless this was the last time.
    fn lose(&mut self, mode: Mode, last: bool) -> Option<Owed> {
        let in_doubt = last && self.doubts > 0;
        if !(self.stands || in_doubt) || self.open.is_some() || self.back != Back::No {
            return None;
        }
        self.back = Back::UnderWay;
        self.spoilt |= in_doubt;
        self.doubted |= in_doubt;
        let doubts = if in_doubt { std::mem::take(&mut self.doubts) } else { 0 };
        let all = mode != Mode::Exclusive;
        let from = BootInstant::now();
        Some(Owed { all, wake: false, from, known: self.stands, doubts })
    }

    fn end(&mut self, mode: Mode, over: Over) -> Option<Owed> {
        let idle = self.open.is_none() && self.back != Back::UnderWay && self.asked;
        let done = matches!(self.back, Back::Done { .. });
        if !idle || (done && !self.intent && self.doubts == 0) {
            return None;
        }
        let doubts = std::mem::take(&mut self.doubts);
        self.doubted |= doubts > 0;
        let intent = std::mem::take(&mut self.intent);
        let Over { wake, from } = over;
        if !done {
            self.back = Back::UnderWay;
        }
        let all = intent || mode != Mode::Exclusive;
        Some(Owed { all, wake, from, known: self.stands, doubts })
    }
}
