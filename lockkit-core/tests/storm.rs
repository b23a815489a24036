//! Many tasks, few keys, short leases, and a store that loses, delays and hangs: at no time may
//! a holder believe while another one is granted, fences grow, and in the end nothing is left.
//!
//! The seed is printed; `STORM_SEED` repeats the choices of a run, `STORM_SECONDS` makes it
//! longer.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{MS, eventually, polled};
use lockkit_core::testing::{Fault, Faulty, Op, lock_thread_tasks, watchdog_entries};
use lockkit_core::{DistributedLock, Guard, LockExt, Memory, Request, Stage};

const KEYS: usize = 3;

/// Who was granted a key last, and the highest fence seen.
#[derive(Default)]
struct Witness {
    last: Mutex<Option<Arc<Guard>>>,
    fence: AtomicU64,
    grants: AtomicU64,
}

impl Witness {
    fn granted(&self, guard: &Arc<Guard>) {
        let mut last = self.last.lock().unwrap();
        // Looked at first: the newcomer may be over by itself already.
        let held = guard.is_held();
        if let Some(before) = &*last {
            assert!(
                !(held && before.is_held()),
                "{before:?} still believes while {guard:?} is granted"
            );
        }
        let fence = guard.fence().unwrap();
        let highest = self.fence.fetch_max(fence, Ordering::SeqCst);
        assert!(!held || fence > highest, "fence {fence} after {highest}");
        self.grants.fetch_add(1, Ordering::SeqCst);
        *last = Some(Arc::clone(guard));
    }

    fn leaving(&self, guard: &Arc<Guard>) {
        let mut last = self.last.lock().unwrap();
        if last.as_ref().is_some_and(|last| Arc::ptr_eq(last, guard)) {
            *last = None;
        }
    }
}

fn fault(rng: &mut fastrand::Rng) -> Fault {
    match rng.u32(0..100) {
        0..8 => Fault::Refuse,
        8..16 => Fault::LoseAnswer,
        16..26 => Fault::Delay(MS(rng.u64(1..40))),
        26..36 => Fault::DelayAnswer(MS(rng.u64(1..60))),
        36..38 => Fault::Hang,
        38..40 => Fault::HangAfter,
        _ => Fault::None,
    }
}

async fn worker(lock: Arc<Faulty>, witnesses: Arc<[Witness; KEYS]>, seed: u64, end: Instant) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let ops = [
        Op::Attempt(Stage::Try),
        Op::Attempt(Stage::First),
        Op::Attempt(Stage::Wait),
        Op::Renew,
        Op::Release,
    ];
    while Instant::now() < end {
        lock.next(ops[rng.usize(..ops.len())], fault(&mut rng));
        let at = rng.usize(..KEYS);
        let request = Request::new(format!("k{at}"))
            .ttl(MS(rng.u64(60..200)))
            .op_timeout(MS(rng.u64(15..40)))
            .timeout(MS(rng.u64(0..120)))
            .renew(rng.u32(0..4) > 0);
        let result = match rng.u32(0..4) {
            // Stopped after a few polls.
            0 => match polled(lock.acquire(request), rng.usize(0..4)).await {
                Ok(result) => result,
                Err(unfinished) => {
                    if rng.bool() {
                        std::mem::forget(unfinished);
                    }
                    continue;
                }
            },
            _ => lock.acquire(request).await,
        };
        let Ok(guard) = result else { continue };
        let guard = Arc::new(guard);
        witnesses[at].granted(&guard);
        tokio::time::sleep(MS(rng.u64(0..30) * rng.u64(0..6))).await;
        witnesses[at].leaving(&guard);
        match rng.u32(0..3) {
            0 => drop(guard),
            1 => drop(guard.release().await),
            _ => drop(polled(Box::pin(guard.release()), rng.usize(0..3)).await.is_ok()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_believes_beside_another() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("STORM_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds = number("STORM_SECONDS").unwrap_or(5);
    println!("STORM_SEED={seed}");
    for memory in [Memory::new(), Memory::fair()] {
        let end = Instant::now() + Duration::from_secs(seconds);
        let clients: Vec<_> =
            (0..3).map(|_| Faulty::new(Arc::new(memory.another_client()))).collect();
        let witnesses: Arc<[Witness; KEYS]> = Arc::default();
        let workers: Vec<_> = (0..18)
            .map(|n| {
                let lock = Arc::clone(&clients[n % clients.len()]);
                tokio::spawn(worker(lock, Arc::clone(&witnesses), seed ^ n as u64, end))
            })
            .collect();
        for worker in workers {
            worker.await.unwrap();
        }
        for client in &clients {
            client.all(&Fault::None);
            assert!(client.close(Duration::from_secs(5)).await, "the clean-up does not end");
            assert_eq!(client.core().waiting(), 0);
        }
        eventually("the store is empty", || memory.entries() == 0).await;
        eventually("the lock thread has no task", || lock_thread_tasks() == 0).await;
        eventually("the watchdog has no entry", || watchdog_entries() == 0).await;
        let grants: u64 = witnesses.iter().map(|w| w.grants.load(Ordering::SeqCst)).sum();
        println!(
            "{grants} grants, the last fences {:?}",
            witnesses.each_ref().map(|w| { w.fence.load(Ordering::SeqCst) })
        );
        assert!(grants > 50, "a storm with {grants} grants shows little");
    }
}
