//! Asking all servers at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::site::Site;
use crate::errors::{Failed, Problem};

/// The answers of a round, as they come in.
pub(super) struct Round<T> {
    answers: mpsc::UnboundedReceiver<(usize, Result<T, Failed>)>,
}

impl<T: Send + 'static> Round<T> {
    /// Asks every server by `ask`, each in a task of its own on the lock thread: nobody waits for
    /// the slowest, and what is sent is driven to its end whoever has lost interest.
    pub(super) fn new<F>(sites: &[Arc<Site>], ask: impl Fn(usize, Arc<Site>) -> F) -> Self
    where
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let (told, answers) = mpsc::unbounded_channel();
        for (at, site) in sites.iter().enumerate() {
            let (told, asking) = (told.clone(), ask(at, Arc::clone(site)));
            // Exchanges are polled inside the lock thread's runtime.
            tokio::spawn(async move {
                let _ = told.send((at, asking.await));
            });
        }
        Self { answers }
    }

    /// The next answer, and whose it is; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Failed>)> {
        self.answers.recv().await
    }
}

/// How many of `n` servers are most of them.
pub(super) fn majority(n: usize) -> usize {
    n / 2 + 1
}

/// Whatever is there most often, and how often.
pub(super) fn most_seen<T: Eq + Hash + Copy>(all: impl Iterator<Item = T>) -> Option<(T, usize)> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

/// The problem of a round that too few servers answered: each with its own.
pub(super) fn too_few(sites: &[Arc<Site>], failed: &[(usize, Problem)], wanted: usize) -> Problem {
    let each =
        |(at, problem): &(usize, Problem)| problem.clone().at(&sites[*at].address).to_string();
    let each: Vec<_> = failed.iter().map(each).collect();
    let text = format!(
        "{} of {} servers failed, and {wanted} are needed: {}",
        failed.len(),
        sites.len(),
        each.join("; ")
    );
    Problem::like(failed.iter().map(|(_, problem)| problem), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majorities_overlap() {
        for n in 3..=9 {
            assert!(2 * majority(n) > n && majority(n) < n);
        }
    }

    #[test]
    fn the_most_frequent_is_found() {
        assert_eq!(most_seen([1, 2, 2, 3].into_iter()), Some((2, 2)));
        assert_eq!(most_seen(std::iter::empty::<u8>()), None);
    }
}
