//! What is done to servers, connections, leases and processes all the time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conformance_tests::servers::{Cut, Data, EtcdCluster, Proxy, Toward};
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
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
        self.done.iter().for_each(|(kind, ..)| *counts.entry(*kind).or_default() += 1);
        write!(f, "{counts:?}")
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
            std::thread::sleep(millis(rng, 200, 900));
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
            _ => cluster.move_leader(other).unwrap(),
        }
        if let Err(fault) = cluster.wait_until_settled() {
            let said = cluster.members().iter().map(|member| member.process().output());
            panic!("after {kind:?} of {leader} or {other}: {fault}\n{}", said.collect::<String>());
        }
    });
    Log { done, revoked: Vec::new() }
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
                // A member that is stopped or killed at the moment does not say.
                let leases = server.leases().unwrap_or_default();
                let Some(lease) = leases.get(rng.usize(..leases.len().max(1))) else { return };
                let since = BootInstant::now();
                let revoked = server.revoke(*lease);
                // What was not answered may happen yet.
                let rest = if revoked.is_ok() { Duration::ZERO } else { ttl };
                revocations.push((since, BootInstant::now() + rest));
            }
        }
    });
    Log { done, revoked: revocations }
}

/// Stops a process for so long.
pub(crate) fn stop(process: &Process, stood: Duration) {
    process.signal(Signal::STOP);
    std::thread::sleep(stood);
    process.signal(Signal::CONT);
}
