//! Puts together what all processes told, and finds what must not be.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use lockkit_core::BootInstant;

use crate::record::{Hold, Pass, Stall};

/// What was done to the processes and their leases, as far as it excuses something.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// When processes stood still, also because they were stopped.
    pub(crate) stalls: Vec<Stall>,
    /// When a lease was revoked from outside: between these two.
    pub(crate) revoked: Vec<(BootInstant, BootInstant)>,
    /// The TTL of all claims.
    pub(crate) ttl: Duration,
}

/// What must not be.
#[derive(Debug, Clone)]
pub(crate) enum Broken {
    /// Two believed at the same time.
    Overlap(Pass, Pass),
    /// A later grant has a fence that is not higher.
    Fence(Pass, Pass),
    /// A claim was gone from the store before its deadline, and nobody had taken it away.
    Vanished(Pass),
    /// A claim that was taken away was believed for longer than a TTL after that.
    Untold(Pass),
    /// An acquire took longer than it was allowed to.
    Late(Pass, Duration),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap(one, other) => write!(f, "both believed:\n  {one:?}\n  {other:?}"),
            Self::Fence(one, other) => {
                write!(f, "the fence of the second does not grow:\n  {one:?}\n  {other:?}")
            }
            Self::Vanished(pass) => write!(f, "vanished before its deadline: {pass:?}"),
            Self::Untold(pass) => write!(f, "taken away, and not told of it: {pass:?}"),
            Self::Late(pass, by) => write!(f, "late by {by:?}: {pass:?}"),
        }
    }
}

/// How much later than its timeout an acquire may return where four processes, three servers and
/// the network between them share one machine.
pub(crate) const SLACK: Duration = Duration::from_millis(250);

/// Kinds of losses that the store tells, before the deadline.
const TOLD_BY_STORE: [&str; 2] = ["gone", "session_ended"];

/// A grant, and for which time nobody else may have believed.
struct Believed<'a> {
    pass: &'a Pass,
    fence: u64,
    from: BootInstant,
    until: BootInstant,
}

/// Finds everything that must not be.
pub(crate) fn check(passes: &[Pass], known: &Known) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut keys: BTreeMap<&str, Vec<Believed<'_>>> = BTreeMap::new();
    let mut fences = HashSet::new();
    for pass in passes {
        broken.extend(known.late(pass).map(|by| Broken::Late(pass.clone(), by)));
        let Some(hold) = pass.hold() else { continue };
        // A create revision is that of one key, over the whole store.
        if !fences.insert(hold.fence) {
            let same = |other: &&Pass| other.hold().is_some_and(|h| h.fence == hold.fence);
            let first = passes.iter().find(same).unwrap_or(pass);
            broken.push(Broken::Fence(first.clone(), pass.clone()));
        }
        let Some((from, mut until)) = hold.believed else { continue };
        if let Some(taken) = known.lost_to_store(hold) {
            match known.taken_away(pass.asked, taken) {
                Some((since, done)) => {
                    if until > done + known.ttl {
                        broken.push(Broken::Untold(pass.clone()));
                    }
                    // From then on the next one may be in: the capability says so.
                    until = until.min(since).max(from);
                }
                None => broken.push(Broken::Vanished(pass.clone())),
            }
        }
        let believed = Believed { pass, fence: hold.fence, from, until };
        keys.entry(&pass.key).or_default().push(believed);
    }
    for mut grants in keys.into_values() {
        grants.sort_by_key(|grant| (grant.from, grant.until));
        overlaps(&grants, &mut broken);
        growing(&grants, &mut broken);
    }
    broken
}

/// Looks at each grant beside those of before that lasted longest.
fn overlaps(grants: &[Believed<'_>], broken: &mut Vec<Broken>) {
    let (mut reader, mut writer): (Option<&Believed<'_>>, Option<&Believed<'_>>) = (None, None);
    for grant in grants {
        let beside = if grant.pass.shared { [writer, None] } else { [writer, reader] };
        for before in beside.into_iter().flatten() {
            if grant.from < before.until {
                broken.push(Broken::Overlap(before.pass.clone(), grant.pass.clone()));
            }
        }
        let longest = if grant.pass.shared { &mut reader } else { &mut writer };
        if longest.is_none_or(|before| before.until < grant.until) {
            *longest = Some(grant);
        }
    }
}

/// Readers that are let in together may come in any order.
fn growing(grants: &[Believed<'_>], broken: &mut Vec<Broken>) {
    let (mut reader, mut writer): (Option<&Believed<'_>>, Option<&Believed<'_>>) = (None, None);
    for grant in grants {
        let before = if grant.pass.shared { [writer, None] } else { [writer, reader] };
        for before in before.into_iter().flatten() {
            if grant.fence <= before.fence {
                broken.push(Broken::Fence(before.pass.clone(), grant.pass.clone()));
            }
        }
        let highest = if grant.pass.shared { &mut reader } else { &mut writer };
        if highest.is_none_or(|before| before.fence < grant.fence) {
            *highest = Some(grant);
        }
    }
}

impl Known {
    /// When it learned that the store does not have the claim any more, if that was before the
    /// claim's own deadline.
    fn lost_to_store(&self, hold: &Hold) -> Option<BootInstant> {
        let (told, kind) = hold.loss.as_ref()?;
        (TOLD_BY_STORE.contains(&kind.as_str()) && *told < hold.deadline).then_some(*told)
    }

    /// Which revocation can have taken a claim away that was asked for and was gone then.
    fn taken_away(
        &self,
        asked: BootInstant,
        told: BootInstant,
    ) -> Option<(BootInstant, BootInstant)> {
        let mut may = self.revoked.iter().filter(|(since, done)| asked <= *done && *since <= told);
        // The earliest: the most that is excused.
        may.next().copied()
    }

    /// By how much it took longer than it may, not counting what a bare sleep in the same process
    /// took longer.
    fn late(&self, pass: &Pass) -> Option<Duration> {
        let stalls = self.stalls.iter().filter(|stall| stall.process == pass.process);
        let stood = stalls.map(|stall| pass.ended.min(stall.to).since(pass.asked.max(stall.from)));
        let may = pass.limit + SLACK + stood.sum::<Duration>();
        pass.ended.since(pass.asked).checked_sub(may).filter(|by| !by.is_zero())
    }
}
