//! What clients do while no server is there. Alone in its process, whose processor time counts.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

#[allow(dead_code)] // nothing is left to be looked at when the server is gone
mod clients;

use std::time::{Duration, Instant};

use clients::*;
use conformance_tests::measure::Usage;
use conformance_tests::servers::Etcd;
use lockkit_core::{LockExt, Request};

const KEY: &str = "order:lock:1001";

/// ETC-16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_server_costs_next_to_nothing() {
    let server = Etcd::start().unwrap();
    let lock = client(&[server.address()], "ttl=60s");
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(grant(&lock, format!("a{n}")).await);
    }
    let blocker = grant(&lock, KEY).await;
    let patient = || Request::new(KEY).timeout(Duration::from_secs(120));
    let waiters: Vec<_> = (0..5).map(|_| tokio::spawn(lock.acquire(patient()))).collect();
    server.wait_until_watchers(5, Duration::from_secs(3)).unwrap();
    server.process().kill().unwrap();
    let (before, start) = (Usage::now().unwrap(), Instant::now());
    // A span to measure over, in which the renewals of all holders fall due.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let used = Usage::now().unwrap().processor - before.processor;
    let share = used.as_secs_f64() / start.elapsed().as_secs_f64();
    assert!(share < 0.03, "{:.1} % of a processor", share * 100.0);
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    assert!(held.iter().all(lockkit_core::Guard::is_held));
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    drop((blocker, held));
}
