//! `cargo bench --bench floor -- sqlite`: a backend next to the bare commands of its store.
//!
//! - `memory`, `sqlite [--dir DIR]`: the comparison, on one processor and then on all.
//! - `redis`: the comparison, with fences and without; the server has the other processor.
//! - `etcd`: the comparison with the bare pair, and with the server's own lock service.
//! - `held [--seconds N] [--dir DIR]`: what held locks cost while nothing happens.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::panic,
    reason = "a program that prints a table, and stops at whatever goes wrong"
)]

mod etcd;
mod held;
mod memory;
mod redis;
mod sqlite;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::measure::{Floor, ROUNDS, Workload, compare, table};
use lockkit_core::DistributedLock;

/// How long each side of one round lasts.
const TIME: Duration = Duration::from_millis(300);

const WORKLOADS: [Workload; 3] = [
    Workload::Uncontended { tasks: 1 },
    Workload::Uncontended { tasks: 16 },
    Workload::Contended { tasks: 8 },
];

/// With Redis many tasks share a connection.
const REDIS: [Workload; 3] = [
    Workload::Uncontended { tasks: 1 },
    Workload::Uncontended { tasks: 64 },
    Workload::Contended { tasks: 8 },
];

const ETCD: [Workload; 2] =
    [Workload::Uncontended { tasks: 1 }, Workload::Uncontended { tasks: 16 }];

/// What the comparison is run with a second time, in a process of its own.
const ONE_PROCESSOR: &str = "--one-processor";

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let what = args.first().map(String::as_str);
    if args.iter().any(|arg| arg == ONE_PROCESSOR) {
        stay_on_one_processor();
        println!("\nOn one processor: what the work costs.");
    } else if matches!(what, Some("memory" | "sqlite")) {
        again_on_one_processor(&args);
        println!(
            "\nOn all processors: with SQLite, most of a cycle is four switches between threads, \
             and where the system puts them decides more than either side's work."
        );
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run(what, &args))
}

/// Threads that are started later stay there too.
fn stay_on_one_processor() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("the allowed processors");
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut one = rustix::thread::CpuSet::new();
    one.set(first.expect("a processor"));
    rustix::thread::sched_setaffinity(None, &one).expect("to stay on one processor");
}

/// In a process of its own, since the lock thread starts once per process.
fn again_on_one_processor(args: &[String]) {
    let myself = std::env::current_exe().expect("the path of this program");
    let status = std::process::Command::new(myself).args(args).arg(ONE_PROCESSOR).status();
    assert!(status.is_ok_and(|status| status.success()), "the run on one processor failed");
}

async fn run(what: Option<&str>, args: &[String]) -> ExitCode {
    let option = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    match what {
        Some("memory") => {
            let (floor, lock) = memory::both();
            measure("memory: a mutexed map", &WORKLOADS, floor, lock).await;
        }
        Some("sqlite") => {
            let place = sqlite::Place::new(option("--dir").as_deref());
            let (floor, lock) = sqlite::both(&place).await;
            measure(&format!("sqlite: {}", place.file().display()), &WORKLOADS, floor, lock).await;
        }
        Some("redis") => {
            let place = redis::Place::new();
            for (title, parameters) in [
                ("redis: one server", "prefix=floor:"),
                ("redis: without fences", "prefix=floor:&fences=false"),
            ] {
                measure(title, &REDIS, place.floor().await, place.lock(parameters)).await;
            }
        }
        Some("etcd") => {
            let place = etcd::Place::new();
            measure("etcd: a transaction and a delete", &ETCD, place.pair().await, place.lock())
                .await;
            let contended = [Workload::Contended { tasks: 8 }];
            for (title, whose, workloads) in [
                ("etcd: lock service, one lease", etcd::Leases::Shared, &ETCD[..]),
                ("etcd: lock service, a lease per lock", etcd::Leases::OfLocks, &ETCD[..]),
                ("etcd: lock service, a lease per task", etcd::Leases::OfTasks, &contended[..]),
            ] {
                measure(title, workloads, place.service(whose).await, place.lock()).await;
            }
        }
        Some("held") => {
            let seconds = option("--seconds").and_then(|text| text.parse().ok()).unwrap_or(20);
            held::run(Duration::from_secs(seconds), option("--dir").as_deref()).await;
        }
        // Any other run of all benches has nothing to ask here.
        None => println!("say what to measure: memory, sqlite, redis, etcd, held"),
        Some(other) => {
            println!("`{other}` is none of memory, sqlite, redis, etcd, held");
            return ExitCode::from(64);
        }
    }
    ExitCode::SUCCESS
}

async fn measure(
    title: &str,
    workloads: &[Workload],
    floor: Arc<dyn Floor>,
    lock: Arc<dyn DistributedLock>,
) {
    let mut lines = Vec::new();
    for workload in workloads {
        lines.push(compare(*workload, &floor, &lock, ROUNDS, TIME).await);
    }
    println!("{}", table(title, &lines));
    println!(
        "{ROUNDS} rounds of {TIME:?} each, floor and lock in turns.\n\
         ratio: of the median rates, with the least and the greatest of a round; cycles: of the \
         median cycles.\n\
         On one key the bare commands are unfair: whoever has just released takes it again."
    );
}
