//! What the claims of one client share.

use std::collections::HashMap;
use std::sync::Arc;

use lockkit_core::{Core, Error, Holder, Key, Result, Which};

use super::round::{Round, majority, most_seen, too_few};
use super::site::Site;
use crate::answer;
use crate::dangers;
use crate::errors::{Failed, Problem};
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
        let sites: Vec<_> = addresses.iter().map(|a| Site::new(a.clone(), opener)).collect();
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

    /// Asks each server about itself: enough must be there, no two may be the same one.
    pub(crate) async fn ping(&self) -> Result<()> {
        let budget = self.core.op_timeout();
        let mut round = Round::new(&self.sites, move |_, site| async move {
            let node = site.node().await.map_err(Failed::never_sent)?;
            dangers::ask(&node, budget).await
        });
        let (mut names, mut failed) = (HashMap::new(), Vec::new());
        while let Some((at, answer)) = round.next().await {
            let who = self.sites[at].address.to_string();
            match answer {
                Ok(Some(info)) => {
                    dangers::refuse(&who, &info)?;
                    for danger in dangers::dangers(&who, &info, true) {
                        self.core.warn(danger);
                    }
                    let id = Some(info.run_id().to_owned()).filter(|id| !id.is_empty());
                    if let Some(other) = id.and_then(|id| names.insert(id, who.clone())) {
                        return Err(Error::configuration(format!(
                            "`{other}` and `{who}` are the same server, which would vote twice; \
                             name independent servers"
                        )));
                    }
                }
                Ok(None) => {}
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
        Ok(self.held_by_most(seen))
    }

    fn held_by_most(&self, seen: Vec<Option<Holder>>) -> Option<Holder> {
        let tokens = seen.iter().flatten().map(|holder| holder.token);
        let (token, count) = most_seen(tokens)?;
        if count < self.majority() {
            return None;
        }
        // The views differ by what was under way; the one that ends first is the careful one.
        let views = seen.into_iter().flatten().filter(|holder| holder.token == token);
        let mut holder = views.min_by_key(|holder| holder.expires_in)?;
        holder.fence = None;
        Some(holder)
    }

    /// Takes the key from whom `which` names, on all servers.
    pub(crate) async fn force(&self, key: &Key, which: Which) -> Result<bool> {
        let (keys, budget) = (self.keys(key), self.core.op_timeout());
        let (how, value) = match which {
            // There are none to be named.
            Which::Fence(_) => return Ok(false),
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
        }
    }
}

/// The problem of a server whose answer makes no sense.
pub(super) fn odd(error: &Error) -> Problem {
    Problem::unavailable(error.to_string())
}
