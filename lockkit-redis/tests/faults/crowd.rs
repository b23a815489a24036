//! Many names and many who want several of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use conformance_tests::servers::Redis;
use tokio::task::JoinSet;

use crate::*;

/// GEN-23: a name that is free and waited for is so for no longer than a poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_long_for_a_name_that_is_free() {
    const NAMES: usize = 100;
    const TASKS: usize = 100;
    let server = Redis::start().unwrap();
    let clients = [client(&server, ""), client(&server, "")];
    let freed = Arc::new(Mutex::new(HashMap::<usize, Instant>::new()));
    let until = Instant::now() + ms(3_000);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (lock, freed) = (clients[task % 2].clone(), Arc::clone(&freed));
        tasks.spawn(async move {
            let (mut longest, mut grants, mut waits) = (Duration::ZERO, 0_u32, 0_u32);
            while Instant::now() < until {
                // In order, so that they cannot wait for each other.
                let mut names: Vec<_> = (0..3).map(|_| fastrand::usize(0..NAMES)).collect();
                names.sort_unstable();
                names.dedup();
                let mut guards = Vec::new();
                for name in names {
                    let since = Instant::now();
                    let guard = grant(&lock, long(&format!("order:lock:{name}"))).await;
                    let now = Instant::now();
                    let free = freed.lock().unwrap().get(&name).copied().unwrap_or(since);
                    if free > since {
                        waits += 1;
                        longest = longest.max(now - free);
                    }
                    grants += 1;
                    guards.push((name, guard));
                }
                tokio::time::sleep(ms(fastrand::u64(0..4))).await;
                for (name, guard) in guards {
                    // Behind it, the next one may have it already, and be done with it.
                    freed.lock().unwrap().insert(name, Instant::now());
                    guard.release().await.unwrap();
                }
            }
            (longest, grants, waits)
        });
    }
    let (mut longest, mut grants, mut waits) = (Duration::ZERO, 0, 0);
    while let Some(task) = tasks.join_next().await {
        let (long, granted, waited) = task.unwrap();
        longest = longest.max(long);
        grants += granted;
        waits += waited;
    }
    assert!(waits > 100, "{waits} waits among {grants} grants");
    assert!(longest < POLL + SLACK, "a name was free for {longest:?} while somebody waited");
    for lock in &clients {
        quiet(lock).await;
    }
    empty(&server).await;
}
