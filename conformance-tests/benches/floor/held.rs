//! What held locks cost while nothing happens but their renewal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::measure::Usage;
use lockkit_core::testing::{lock_thread_tasks, watchdog_entries};
use lockkit_core::{DistributedLock, Guard, LockExt, Memory, Request, Settings};
use lockkit_sql::SqliteLock;

use crate::sqlite::Place;

/// The TTL of all of it; each lock is renewed every third of this.
const TTL: Duration = Duration::from_secs(30);

/// How many locks SQLite is asked to bear, one after the other, until some are lost.
const STEPS: [usize; 7] = [500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000];

pub(crate) async fn run(time: Duration, dir: Option<&str>) {
    println!("held at a TTL of {TTL:?}, measured over {time:?}");
    let memory: Arc<dyn DistributedLock> = Arc::new(Memory::new());
    hold("memory", &memory, 10_000, time).await;
    for locks in STEPS {
        let place = Place::new(dir);
        let lock = SqliteLock::open(place.file(), Settings::default()).expect("a path");
        let lock: Arc<dyn DistributedLock> = Arc::new(lock);
        // Longer than a TTL: each lock must have been renewed to be held.
        if hold("sqlite", &lock, locks, time.max(TTL * 4 / 3)).await > 0 {
            println!("sqlite does not bear {locks} locks at this TTL");
            break;
        }
    }
}

/// Holds so many locks for `time`, says what that costs, and gives how many were lost.
async fn hold(name: &str, lock: &Arc<dyn DistributedLock>, locks: usize, time: Duration) -> usize {
    let before = Usage::now().expect("/proc");
    let start = Instant::now();
    let guards = acquire(lock, locks).await;
    let acquired = start.elapsed();
    let (at_rest, start) = (Usage::now().expect("/proc"), Instant::now());
    let (tasks, entries) = (lock_thread_tasks(), watchdog_entries());
    tokio::time::sleep(time).await;
    let after = Usage::now().expect("/proc");
    let share = (after.processor - at_rest.processor).as_secs_f64() / start.elapsed().as_secs_f64();
    let per_lock = after.resident.saturating_sub(before.resident) / locks as u64;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    println!(
        "{name:<7} {locks:>6} locks: acquired in {acquired:.1?}, {per_lock} bytes each, {:.2} % of \
         a processor, {tasks} tasks on the lock thread, {entries} watchdog entries, {lost} lost",
        share * 100.0
    );
    drop(guards);
    lock.close(Duration::from_secs(60)).await;
    lost
}

async fn acquire(lock: &Arc<dyn DistributedLock>, locks: usize) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(locks);
    for n in 0..locks {
        let request = Request::new(format!("order:lock:{n}")).ttl(TTL);
        guards.push(lock.acquire(request).await.expect("an acquire"));
    }
    guards
}
