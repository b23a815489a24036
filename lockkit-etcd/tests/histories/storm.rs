//! The storm itself.
//!
//! The seed is printed; `HISTORIES_SEED` repeats the choices of a run, `HISTORIES_PASSES` makes it
//! longer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use conformance_tests::servers::{Etcd, EtcdCluster, Framing, Proxy, until};

use crate::checker::{Broken, Known, check};
use crate::child::PROCESSES;
use crate::children::{Heard, History, Process, hear};
use crate::faults::{self, Log};
use crate::record::Outcome;

const TTL: Duration = Duration::from_secs(3);

/// How long it may be until somebody says something, and until all is cleaned up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the whole storm may take on a machine that has other work too.
const LIMIT: Duration = Duration::from_secs(240);

fn url(hosts: &[String]) -> String {
    format!("etcd://{}?ttl={}s", hosts.join(","), TTL.as_secs())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn start(
    urls: &[String],
    seed: u64,
    deaf: bool,
) -> (Vec<Process>, std::sync::mpsc::Receiver<Heard>) {
    let (say, heard) = channel();
    let start = |(number, url): (usize, &String)| {
        Process::start(number, url, seed.wrapping_add(number as u64), deaf, say.clone())
    };
    let processes: Vec<_> = urls.iter().enumerate().map(start).collect();
    let mut ready = 0;
    hear(&heard, &mut History::default(), PATIENCE, |news| {
        ready += usize::from(matches!(news, Heard::Ready));
        ready == processes.len()
    });
    (processes, heard)
}

#[test]
fn ten_thousand_passes_by_four_processes_under_faults() {
    let seed = number("HISTORIES_SEED").unwrap_or_else(|| fastrand::u64(..));
    let enough = number("HISTORIES_PASSES").unwrap_or(10_000) as usize;
    println!("HISTORIES_SEED={seed}");
    let cluster = EtcdCluster::start().unwrap();
    let direct: Vec<_> = cluster.members().iter().map(Etcd::address).collect();
    let proxies: Vec<_> =
        direct.iter().map(|server| Proxy::start_framed(*server, Framing::Raw).unwrap()).collect();
    // Each of them begins with another server; half of them come through the proxies.
    let urls: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let by_proxy = process % 2 == 0;
            let hosts = (0..direct.len()).map(|n| {
                let n = (n + process) % direct.len();
                let host = if by_proxy { proxies[n].address() } else { direct[n] };
                host.to_string()
            });
            url(&hosts.collect::<Vec<_>>())
        })
        .collect();
    let (mut processes, heard) = start(&urls, seed, false);
    let (start, over) = (Instant::now(), AtomicBool::new(false));
    let mut history = History::default();
    let (servers, clients) = std::thread::scope(|scope| {
        let (cluster, proxies, processes, over) = (&cluster, &proxies, &processes, &over);
        let servers = scope.spawn(move || faults::of_servers(cluster, seed, over));
        let clients =
            scope.spawn(move || faults::of_clients(cluster, proxies, processes, (TTL, seed), over));
        let ends = Ends(over);
        let mut granted = 0;
        hear(&heard, &mut history, PATIENCE, |news| {
            granted += usize::from(matches!(news, Heard::Told(pass) if pass.hold().is_some()));
            assert!(start.elapsed() < LIMIT, "only {granted} passes");
            granted >= enough
        });
        drop(ends);
        (servers.join().unwrap(), clients.join().unwrap())
    });
    let took = start.elapsed();
    finish(&mut processes, &heard, &mut history);
    report(&history, took, &servers, &clients);
    let known = Known { stalls: history.stalls, revoked: clients.revoked, ttl: TTL };
    let broken = check(&history.passes, &known);
    let lines: Vec<_> = broken.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "HISTORIES_SEED={seed}\n{}", lines.join("\n"));
    drop(processes);
    nothing_left(&cluster.members()[0]);
}

/// Ends what goes on until then, also after a failure.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The checker on a true history: processes that go on believing after a loss are found by it.
#[test]
fn holders_that_ignore_their_loss_are_found() {
    let server = Etcd::start().unwrap();
    let urls = vec![url(&[server.address().to_string()]); 2];
    let (mut processes, heard) = start(&urls, fastrand::u64(..), true);
    for n in [0, 1, 0] {
        faults::stop(&processes[n], TTL * 2);
    }
    let mut history = History::default();
    finish(&mut processes, &heard, &mut history);
    let known = Known { stalls: history.stalls, revoked: Vec::new(), ttl: TTL };
    let broken = check(&history.passes, &known);
    let overlaps = broken.iter().filter(|broken| matches!(broken, Broken::Overlap(..))).count();
    println!("{overlaps} overlaps in {} passes", history.passes.len());
    assert!(overlaps > 0, "{broken:?}");
    assert_eq!(broken.len(), overlaps, "nothing else is wrong: {broken:?}");
}

/// All tasks end, and all processes have cleaned up behind them.
fn finish(
    processes: &mut [Process],
    heard: &std::sync::mpsc::Receiver<Heard>,
    history: &mut History,
) {
    processes.iter_mut().for_each(Process::finish);
    let mut done = 0;
    let all = processes.len();
    hear(heard, history, PATIENCE, |news| {
        done += usize::from(matches!(news, Heard::Done));
        done == all
    });
}

fn nothing_left(server: &Etcd) {
    let empty = until("nothing is left", 3 * TTL, || {
        Ok(server.keys("")?.is_empty() && server.leases()?.is_empty())
    });
    assert!(empty.is_ok(), "{:?}, leases {:?}", server.keys(""), server.leases());
}

fn report(history: &History, took: Duration, servers: &Log, clients: &Log) {
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for pass in &history.passes {
        let outcome = match &pass.outcome {
            Outcome::Refused(reason) => reason.clone(),
            Outcome::Granted(hold) => match &hold.loss {
                None => "granted".to_owned(),
                Some((_, kind)) => format!("granted, {kind}"),
            },
        };
        *outcomes.entry(outcome).or_default() += 1;
        longest = longest.max(pass.ended.since(pass.asked));
    }
    println!("in {took:?}: {outcomes:?}; the longest acquire {longest:?}");
    let stood: Duration = history.stalls.iter().map(|stall| stall.to.since(stall.from)).sum();
    println!("{} stalls, {stood:?} in all", history.stalls.len());
    println!("faults: {servers}, {clients}");
}
