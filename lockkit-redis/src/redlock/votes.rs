//! Counting votes: pure functions of the answers of one round.

use std::time::Duration;

use lockkit_core::{Holder, Mode, Token};

use super::round::most_seen;
use crate::errors::Problem;

/// What one server answered.
#[derive(Debug, Clone)]
pub(super) enum Vote {
    Granted,
    Busy {
        holder: Option<Holder>,
        free_in: Option<Duration>,
    },
    /// The key cannot be had in this mode, or is no lock's: asking again does not help.
    Misfit(Problem),
    /// No answer that counts.
    Failed(Problem),
}

/// The answers of one round; `None`: not yet.
#[derive(Debug)]
pub(super) struct Votes {
    all: Vec<Option<Vote>>,
    most: usize,
}

impl Votes {
    pub(super) fn new(all: Vec<Option<Vote>>, most: usize) -> Self {
        Self { all, most }
    }

    fn count(&self, is: impl Fn(&Vote) -> bool) -> usize {
        self.all.iter().flatten().filter(|vote| is(vote)).count()
    }

    fn granted(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted))
    }

    /// So many that no majority is left for the contrary.
    fn decides(&self, count: usize) -> bool {
        count > self.all.len() - self.most
    }

    pub(super) fn is_won(&self) -> bool {
        self.granted() >= self.most
    }

    /// Whether no further answer changes the outcome.
    pub(super) fn is_certain(&self) -> bool {
        self.is_won() || self.decides(self.count(|vote| !matches!(vote, Vote::Granted)))
    }

    /// Whether so many have answered that the rest need not be waited for any longer.
    pub(super) fn is_heard(&self) -> bool {
        self.count(|vote| !matches!(vote, Vote::Failed(_))) >= self.most
    }

    /// Those who have not answered have failed.
    pub(super) fn close(&mut self, problem: &Problem) {
        for vote in &mut self.all {
            vote.get_or_insert_with(|| Vote::Failed(problem.clone()));
        }
    }

    /// The problems of the servers that failed, if a quorum fails for them.
    pub(super) fn failed(&self) -> Option<Vec<(usize, Problem)>> {
        let failed: Vec<_> = self.all.iter().enumerate().filter_map(failure).collect();
        self.decides(failed.len()).then_some(failed)
    }

    /// Why the key cannot be had in this mode.
    pub(super) fn misfit(&self) -> Option<Problem> {
        let mut misfits = self.all.iter().flatten().filter_map(|vote| match vote {
            Vote::Misfit(problem) => Some(problem),
            _ => None,
        });
        let first = misfits.next()?;
        self.decides(1 + misfits.count()).then(|| first.clone())
    }

    fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.all.iter().flatten().filter_map(|vote| match vote {
            Vote::Busy { holder, .. } => holder.as_ref(),
            _ => None,
        })
    }

    /// Whom most of those servers name that are busy.
    pub(super) fn holder(&self) -> Option<Holder> {
        // Of equals, one whose token is known tells more.
        let known = self.holders().filter(|holder| holder.token.is_some());
        let (known, all) =
            (most_seen(known.map(identity)), most_seen(self.holders().map(identity)));
        let (identity, _) = known.filter(|(_, n)| all.is_none_or(|(_, m)| *n >= m)).or(all)?;
        let mut holder = self.holders().find(|holder| identity == self::identity(holder))?.clone();
        // Each server has counted for itself.
        holder.fence = None;
        Some(holder)
    }

    /// When so many servers are free, if nobody renews, that a quorum is.
    pub(super) fn free_in(&self) -> Option<Duration> {
        let mut free: Vec<_> = self
            .all
            .iter()
            .flatten()
            .filter_map(|vote| match vote {
                Vote::Busy { free_in, .. } => *free_in,
                _ => None,
            })
            .collect();
        free.sort_unstable();
        free.get(self.most.saturating_sub(self.granted() + 1)).copied()
    }

    /// Whether nobody has a quorum, as far as is seen: then asking again soon is worth it.
    pub(super) fn are_split(&self) -> bool {
        let busy = |vote: &Vote| matches!(vote, Vote::Granted | Vote::Busy { .. });
        let failed = self.count(|vote| !busy(vote));
        // Who is kept out by a writer's intent sees nobody, and is not kept out by split votes.
        let unseen = |vote: &Vote| matches!(vote, Vote::Busy { holder: None, .. });
        let best = most_seen(self.holders().map(identity)).map_or(0, |(_, count)| count);
        self.count(busy) + self.all.iter().filter(|vote| vote.is_none()).count() >= self.most
            && best.max(self.count(unseen)) + failed < self.most
    }
}

fn failure((at, vote): (usize, &Option<Vote>)) -> Option<(usize, Problem)> {
    match vote {
        Some(Vote::Failed(problem)) => Some((at, problem.clone())),
        _ => None,
    }
}

/// By what it is told whether two servers name the same holder. Of readers each may name another
/// one, and they hold the key together.
pub(super) fn identity(holder: &Holder) -> (bool, Option<Token>) {
    let shared = holder.mode == Mode::Shared;
    (shared, holder.token.filter(|_| !shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn busy(token: Token, free_in: u64) -> Vote {
        let mut holder = Holder::new(Mode::Exclusive);
        holder.token = Some(token);
        Vote::Busy { holder: Some(holder), free_in: Some(Duration::from_millis(free_in)) }
    }

    fn failed() -> Vote {
        Vote::Failed(Problem::unavailable("dead"))
    }

    fn votes(all: impl IntoIterator<Item = Option<Vote>>) -> Votes {
        let all: Vec<_> = all.into_iter().collect();
        let most = all.len() / 2 + 1;
        Votes::new(all, most)
    }

    #[test]
    fn the_outcome_is_certain_as_soon_as_it_is() {
        let token = Token::new();
        let granted = || Some(Vote::Granted);
        assert!(votes([granted(), granted(), None]).is_won());
        assert!(!votes([granted(), None, None]).is_certain());
        assert!(!votes([granted(), Some(failed()), None]).is_certain());
        assert!(votes([Some(busy(token, 1)), Some(failed()), None]).is_certain());
        // Of four, two against are enough: three are needed.
        assert!(votes([Some(busy(token, 1)), Some(busy(token, 1)), None, None]).is_certain());
        let three = [granted(), granted(), Some(busy(token, 1)), None, None];
        assert!(votes(three.clone()).is_heard() && !votes(three).is_certain());
    }

    #[test]
    fn a_holder_is_no_split() {
        let (a, b) = (Token::new(), Token::new());
        let one = |token| Some(busy(token, 1));
        assert!(!votes([one(a), one(a), Some(Vote::Granted)]).are_split());
        assert!(votes([one(a), one(b), Some(Vote::Granted)]).are_split());
        assert!(votes([one(a), one(b), None]).are_split(), "its own vote is still to come");
        // The other vote of a quorum may be on the server that failed.
        assert!(!votes([one(a), Some(failed()), Some(Vote::Granted)]).are_split());
        assert!(!votes([Some(failed()), Some(failed()), Some(Vote::Granted)]).are_split());
    }

    #[test]
    fn a_quorum_is_free_when_enough_are() {
        let (a, b) = (Token::new(), Token::new());
        let free = votes([Some(busy(a, 30)), Some(busy(a, 10)), Some(busy(b, 20))]).free_in();
        assert_eq!(free, Some(Duration::from_millis(20)));
        let free = votes([Some(Vote::Granted), Some(busy(a, 10)), Some(busy(a, 20))]).free_in();
        assert_eq!(free, Some(Duration::from_millis(10)));
        assert_eq!(votes([Some(busy(a, 30)), Some(failed()), None]).free_in(), None);
    }

    proptest! {
        /// Whatever is still to come.
        #[test]
        fn what_is_certain_stays(kinds in prop::collection::vec(0..4_u8, 3..10)) {
            let token = Token::new();
            let vote = |kind: &u8| match kind {
                0 => None,
                1 => Some(Vote::Granted),
                2 => Some(busy(token, 1)),
                _ => Some(failed()),
            };
            let now = votes(kinds.iter().map(vote));
            let all = |kind: u8| votes(kinds.iter().map(|k| vote(if *k == 0 { &kind } else { k })));
            let (best, worst) = (all(1), all(2));
            prop_assert!(best.is_certain() && worst.is_certain());
            if now.is_certain() {
                prop_assert_eq!(now.is_won(), best.is_won());
                prop_assert_eq!(now.is_won(), worst.is_won());
            } else {
                prop_assert!(best.is_won() && !worst.is_won());
            }
        }
    }
}
