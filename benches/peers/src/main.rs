//! lockkit beside the Rust peers, on one Redis server, in one run. See README.md.

mod contestants;

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::servers::Redis;
use hdrhistogram::Histogram;

use contestants::{Bare, Contestant, DistributedLockCrate, Lockkit, Rslock};

/// How often each contestant has its turn in each workload.
const ROUNDS: usize = 9;

/// How long a turn lasts where each task has its own key.
const TURN: Duration = Duration::from_millis(400);

/// How many cycles each task makes in a turn on one key. A number and no time: whoever lets one
/// task take the key again and again would else look good, and the waits of the others be missing.
const CYCLES: usize = 20;

/// How long the common key is held.
const HOLD: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
enum Workload {
    OwnKeys(usize),
    OneKey(usize),
}

#[derive(Default)]
struct Result {
    rates: Vec<f64>,
    waits: Option<Histogram<u64>>,
    failed: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = match std::env::var("LOCKKIT_URL_REDIS") {
        Ok(_) => None,
        Err(_) => Some(Redis::start().expect("a redis-server")),
    };
    let url = match (&server, std::env::var("LOCKKIT_URL_REDIS")) {
        (Some(server), _) => format!("redis://{}", server.address()),
        (None, url) => url.expect("a URL"),
    };
    let contestants: Vec<Arc<dyn Contestant>> = vec![
        Arc::new(Bare::new(&url).await),
        Arc::new(Lockkit::new("lockkit", &format!("{url}?prefix=peers:")).await),
        Arc::new(
            Lockkit::new("lockkit, no fences", &format!("{url}?prefix=nf:&fences=false")).await,
        ),
        Arc::new(Rslock::new(&url)),
        Arc::new(DistributedLockCrate::new(&url).await),
    ];
    for workload in [Workload::OwnKeys(1), Workload::OwnKeys(64), Workload::OneKey(8)] {
        let mut results: Vec<Result> = contestants.iter().map(|_| Result::default()).collect();
        for round in 0..=ROUNDS {
            for at in 0..contestants.len() {
                // Everybody comes first at some time; the first round only warms up.
                let at = (at + round) % contestants.len();
                turn(workload, &contestants[at], &mut results[at], round > 0).await;
            }
        }
        print(workload, &contestants, &results);
    }
}

async fn turn(
    workload: Workload,
    contestant: &Arc<dyn Contestant>,
    result: &mut Result,
    counts: bool,
) {
    let (tasks, common) = match workload {
        Workload::OwnKeys(tasks) => (tasks, false),
        Workload::OneKey(tasks) => (tasks, true),
    };
    let start = Instant::now();
    let until = start + TURN;
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let contestant = Arc::clone(contestant);
            let key = if common { "common".to_owned() } else { format!("own:{task}") };
            tokio::spawn(async move {
                let (mut cycles, mut failed, mut waits) = (0_usize, 0_usize, histogram());
                // A failed acquire is tried again: its time belongs to the wait.
                let mut begin = Instant::now();
                while if common { cycles < CYCLES } else { Instant::now() < until } {
                    let hold = if common { HOLD } else { Duration::ZERO };
                    let mut waited = None;
                    if contestant.cycle(&key, hold, &mut || waited = Some(begin.elapsed())).await {
                        cycles += 1;
                    } else {
                        failed += 1;
                    }
                    if let Some(waited) = waited {
                        waits.saturating_record(waited.as_micros() as u64);
                        begin = Instant::now();
                    }
                }
                (cycles, failed, waits)
            })
        })
        .collect();
    let (mut cycles, mut failed, mut waits) = (0, 0, histogram());
    for task in tasks {
        let (some, lost, their) = task.await.expect("a task");
        cycles += some;
        failed += lost;
        waits += their;
    }
    if counts {
        result.rates.push(cycles as f64 / start.elapsed().as_secs_f64());
        result.failed += failed;
        *result.waits.get_or_insert_with(histogram) += waits;
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000, 3).expect("a histogram")
}

fn print(workload: Workload, contestants: &[Arc<dyn Contestant>], results: &[Result]) {
    match workload {
        Workload::OwnKeys(tasks) => println!("\n{tasks} task(s), each on its own key"),
        Workload::OneKey(tasks) => {
            println!("\n{tasks} tasks on one key, {CYCLES} cycles each, held for {HOLD:?}")
        }
    }
    println!(
        "{:<20} {:>10} {:>7} {:>13} {:>8} {:>12} {:>12}",
        "", "cycles/s", "ratio", "(min-max)", "failed", "wait p50 us", "wait p99 us"
    );
    let bare = median(&results[0].rates);
    for (contestant, result) in contestants.iter().zip(results) {
        let ratios = result.rates.iter().zip(&results[0].rates).map(|(own, bare)| own / bare);
        let ratios: Vec<f64> = ratios.collect();
        let least = ratios.iter().copied().fold(f64::MAX, f64::min);
        let most = ratios.iter().copied().fold(f64::MIN, f64::max);
        let quantile = |q| result.waits.as_ref().map_or(0, |waits| waits.value_at_quantile(q));
        let rate = median(&result.rates);
        println!(
            "{:<20} {rate:>10.0} {:>7.2} {:>13} {:>8} {:>12} {:>12}",
            contestant.name(),
            rate / bare,
            format!("({least:.2}-{most:.2})"),
            result.failed,
            quantile(0.5),
            quantile(0.99),
        );
    }
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
