//! What is done to servers, connections, leases and processes all the time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conformance_tests::servers::{Cut, Data, Etcd, EtcdCluster, Proxy, Toward, eventually, until};
use lockkit_core::BootInstant;
use rustix::process::Signal;

use crate::children::Process;

/// What happens to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    LeaderKilled,
    MemberStopped,
    LeaderCutOff,
    FollowerCutOff,
    LeaderMoved,
    ProcessStopped,
    ConnectionsCut,
    AnswersHeld,
    AnswersLost,
    LeaseRevoked,
}

use Fault::*;

const OF_SERVERS: [Fault; 5] =
    [LeaderKilled, MemberStopped, LeaderCutOff, FollowerCutOff, LeaderMoved];
const OF_CLIENTS: [Fault; 5] =
    [ProcessStopped, ConnectionsCut, AnswersHeld, AnswersLost, LeaseRevoked];

/// What was done.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) done: Vec<(Fault, BootInstant, BootInstant)>,
    /// When leases were revoked: between these two.
    pub(crate) revoked: Vec<(BootInstant, BootInstant)>,
    /// How often a member stayed behind the others for long.
    pub(crate) behind: usize,
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
        self.done.iter().for_each(|(kind, ..)| *counts.entry(*kind).or_default() += 1);
        write!(f, "{counts:?}")?;
        match self.behind {
            0 => Ok(()),
            times => write!(f, ", a member stayed behind {times} times"),
        }
    }
}

fn millis(rng: &mut fastrand::Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.u64(from..to))
}

/// Goes on until `over`, and through all kinds in each round.
fn rounds(
    kinds: [Fault; 5],
    rng: &mut fastrand::Rng,
    over: &AtomicBool,
    mut act: impl FnMut(Fault, &mut fastrand::Rng),
) -> Vec<(Fault, BootInstant, BootInstant)> {
    let mut done = Vec::new();
    loop {
        let mut kinds = kinds;
        rng.shuffle(&mut kinds);
        for kind in kinds {
            std::thread::sleep(millis(rng, 300, 1_200));
            if over.load(Ordering::Relaxed) {
                return done;
            }
            let from = BootInstant::now();
            act(kind, rng);
            done.push((kind, from, BootInstant::now()));
        }
    }
}

/// Faults of servers. After each of them the cluster comes to itself.
pub(crate) fn of_servers(cluster: &EtcdCluster, seed: u64, over: &AtomicBool) -> Log {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = cluster.members().len();
    let mut behind = 0;
    let done = rounds(OF_SERVERS, &mut rng, over, |kind, rng| {
        let leader = cluster.leader().unwrap();
        let other = (leader + rng.usize(1..count)) % count;
        match kind {
            LeaderKilled => {
                let process = cluster.members()[leader].process();
                process.kill().unwrap();
                std::thread::sleep(millis(rng, 0, 500));
                process.start_again(Data::Kept).unwrap();
            }
            MemberStopped => {
                let process = cluster.members()[rng.usize(..count)].process();
                process.stop().unwrap();
                std::thread::sleep(millis(rng, 1_000, 2_000));
                process.resume().unwrap();
            }
            LeaderCutOff | FollowerCutOff => {
                let member = if kind == LeaderCutOff { leader } else { other };
                cluster.cut_off(member);
                std::thread::sleep(millis(rng, 500, 2_000));
                cluster.heal(member);
            }
            // One that is behind may not be able to take over.
            _ => drop(cluster.move_leader(other)),
        }
        behind += usize::from(!come_to_itself(cluster));
    });
    Log { done, revoked: Vec::new(), behind }
}

/// How long a member may take to be where the leader is.
const CATCHES_UP: Duration = Duration::from_secs(10);

/// Waits until there is a leader and all members are where it was; false if one takes longer. A
/// member that led until it was cut off sometimes stays behind for as long as there are clients,
/// on a machine with other work: it has a tail that the others do not have, whose end the new
/// leader finds step by step. The others serve, so the storm goes on.
fn come_to_itself(cluster: &EtcdCluster) -> bool {
    let members = cluster.members();
    let leader = eventually("a leader", 2 * CATCHES_UP, || cluster.leader()).unwrap();
    let target = members[leader].revision().unwrap();
    let there = |member: &Etcd| member.revision().is_ok_and(|revision| revision >= target);
    until("all are there", CATCHES_UP, || Ok(members.iter().all(there))).is_ok()
}

/// Faults of what is between processes and servers, and of processes.
pub(crate) fn of_clients(
    cluster: &EtcdCluster,
    proxies: &[Proxy],
    processes: &[Process],
    (ttl, seed): (Duration, u64),
    over: &AtomicBool,
) -> Log {
    let mut rng = fastrand::Rng::with_seed(!seed);
    let mut revocations = Vec::new();
    let done = rounds(OF_CLIENTS, &mut rng, over, |kind, rng| {
        let proxy = &proxies[rng.usize(..proxies.len())];
        match kind {
            ProcessStopped => {
                let number = rng.usize(..processes.len());
                let stood = ttl + millis(rng, 300, 1_500);
                stop(&processes[number], stood);
            }
            ConnectionsCut => drop(proxy.cut(Cut::Reset)),
            AnswersHeld => {
                proxy.hold(Toward::Client);
                std::thread::sleep(millis(rng, 100, 900));
                proxy.pass(Toward::Client);
            }
            AnswersLost => {
                proxy.swallow(Toward::Client);
                std::thread::sleep(millis(rng, 100, 900));
                proxy.cut(Cut::Reset);
                proxy.pass(Toward::Client);
            }
            _ => {
                let server = &cluster.members()[rng.usize(..cluster.members().len())];
                // Those that keep a key for long, and what else is on the same lease. A member that
                // is stopped or killed at the moment does not say.
                let keys = server.keys("lockkit:long:").unwrap_or_default();
                let Some(lease) = rng.choice(&keys).map(|key| key.lease) else { return };
                let since = BootInstant::now();
                let revoked = server.revoke(lease);
                // What was not answered may happen yet.
                let rest = if revoked.is_ok() { Duration::ZERO } else { ttl };
                revocations.push((since, BootInstant::now() + rest));
            }
        }
    });
    Log { done, revoked: revocations, behind: 0 }
}

/// Stops a process for so long.
pub(crate) fn stop(process: &Process, stood: Duration) {
    process.signal(Signal::STOP);
    std::thread::sleep(stood);
    process.signal(Signal::CONT);
}
