//! What the claims of one client share.

use std::sync::Arc;

use lockkit_core::{Core, Holder, Key, Result, Which};

use super::round::{Round, majority, most_seen, too_few};
use super::site::{Roll, Site};
use super::votes::identity;
use crate::answer;
use crate::dangers;
use crate::errors::no_fences;
use crate::keys::{Keys, Prefix};
use crate::opener::Opener;
use crate::scripts;
use crate::signal::{Signal, Source};
use crate::store::For;
use crate::target::Address;

/// Several independent servers as one store.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) core: Core,
    pub(crate) sites: Vec<Arc<Site>>,
    pub(crate) signal: Signal,
    prefix: Prefix,
}

impl Quorum {
    pub(crate) fn new(
        core: Core,
        addresses: &[Address],
        opener: &Arc<Opener>,
        prefix: Prefix,
    ) -> Self {
        let roll = Arc::new(Roll::default());
        let site = |(at, address): (usize, &Address)| Site::new(at, address.clone(), opener, &roll);
        let sites: Vec<_> = addresses.iter().enumerate().map(site).collect();
        let sources = sites.iter().map(|site| Arc::clone(site) as Arc<dyn Source>).collect();
        let signal = Signal::new(core.clone(), sources, majority(addresses.len()));
        Self { core, sites, signal, prefix }
    }

    pub(crate) fn keys(&self, key: &Key) -> Keys {
        Keys::new(&self.prefix, key)
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.sites.len())
    }

    /// Asks each server about itself, and rehearses a claim there: enough must be there, all of
    /// those must let us, and no two may be the same one.
    pub(crate) async fn ping(&self) -> Result<()> {
        let budget = self.core.op_timeout();
        let mut round = Round::new(&self.sites, |_, site| {
            let prefix = self.prefix.clone();
            async move {
                let info = site.introduce(budget).await?;
                site.rehearse(&prefix, budget).await?;
                Ok(info)
            }
        });
        let mut failed = Vec::new();
        while let Some((at, answer)) = round.next().await {
            match answer {
                Ok(Some(info)) => {
                    let who = self.sites[at].address.to_string();
                    for danger in dangers::dangers(&who, &info, true) {
                        self.core.warn(danger);
                    }
                }
                Ok(None) => self.core.warn(format!(
                    "{} does not tell this user who it is (`INFO`), so that nobody sees if another \
                     one of the servers is the same and votes twice",
                    self.sites[at].address
                )),
                // No quorum makes up for a list of servers that is wrong.
                Err(error) if error.problem.is_permanent() => return Err(error.problem.into()),
                Err(error) => failed.push((at, error.problem)),
            }
        }
        if self.sites.len() - failed.len() < self.majority() {
            return Err(too_few(&self.sites, &failed, self.majority()).into());
        }
        for (_, problem) in failed {
            self.core.warn(format!("one of the servers cannot vote: {problem}"));
        }
        Ok(())
    }

    /// Who holds the key on most servers.
    pub(crate) async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let (keys, budget) = (self.keys(key), self.core.op_timeout());
        let mut round = Round::new(&self.sites, |_, site| {
            let keys = keys.clone();
            async move { site.run(For::Background, &scripts::LOOK, &keys, Vec::new(), budget).await }
        });
        let (mut seen, mut failed) = (Vec::new(), Vec::new());
        while let Some((at, answer)) = round.next().await {
            match answer {
                Ok(answer) => seen.push(answer::look(&answer)?),
                Err(error) => failed.push((at, error.problem)),
            }
        }
        if seen.len() < self.majority() {
            return Err(too_few(&self.sites, &failed, self.majority()).into());
        }
        Ok(self.held_by_most(seen, failed.len()))
    }

    /// The holder that may have a quorum: those who did not answer may have its votes.
    fn held_by_most(&self, seen: Vec<Option<Holder>>, failed: usize) -> Option<Holder> {
        let (who, count) = most_seen(seen.iter().flatten().map(identity))?;
        if count + failed < self.majority() {
            return None;
        }
        // The views differ by what was under way; of those with the most holders, the one that
        // ends first is the careful one.
        let views = seen.into_iter().flatten().filter(|holder| identity(holder) == who);
        let mut holder = views.max_by_key(|h| (h.holders, std::cmp::Reverse(h.expires_in)))?;
        holder.fence = None;
        Some(holder)
    }

    /// Takes the key from whom `which` names, on all servers.
    pub(crate) async fn force(&self, key: &Key, which: Which) -> Result<bool> {
        let (keys, budget) = (self.keys(key), self.core.op_timeout());
        let (how, value) = match which {
            Which::Fence(_) => return Err(no_fences(&self.core)),
            Which::Token(token) => ("token", token.to_string()),
            _ => ("any", String::new()),
        };
        let mut round = Round::new(&self.sites, |_, site| {
            let keys = keys.clone();
            let args = vec![keys.channel(), how.into(), value.clone().into(), Vec::new()];
            async move { site.run(For::Background, &scripts::FORCE, &keys, args, budget).await }
        });
        let (mut hit, mut answered, mut failed) = (false, 0, Vec::new());
        while let Some((at, answer)) = round.next().await {
            match answer {
                Ok(answer) => {
                    answered += 1;
                    hit |= answer::done(&answer)?;
                }
                Err(error) => failed.push((at, error.problem)),
            }
        }
        if answered < self.majority() {
            return Err(too_few(&self.sites, &failed, self.majority()).into());
        }
        Ok(hit)
    }

    pub(crate) fn close(&self) {
        for site in &self.sites {
            site.store.close();
            site.debts.nudge();
        }
    }
}
