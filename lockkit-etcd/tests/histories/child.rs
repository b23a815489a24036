//! A process that takes keys and tells about it: this test binary, run for one function.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkit_core::url::ConnectUrl;
use lockkit_core::{BootInstant, DistributedLock, Error, Guard, LockExt, Request};
use lockkit_etcd::EtcdLock;
use tokio::time::{Instant, sleep, timeout};

use crate::record::{Hold, Outcome, Pass, Stall};

/// What a child is told by its environment.
pub(crate) const URL: &str = "LOCKKIT_TEST_URL";
pub(crate) const NUMBER: &str = "LOCKKIT_TEST_NUMBER";
pub(crate) const SEED: &str = "LOCKKIT_TEST_SEED";
/// If it is there: the child goes on believing after a loss.
pub(crate) const DEAF: &str = "LOCKKIT_TEST_DEAF";

/// How many processes there are.
pub(crate) const PROCESSES: usize = 4;

/// How long the clean-up may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a holder looks whether it holds.
const LOOK: Duration = Duration::from_millis(2);

/// How late a sleep must wake up to be told of.
const STALLED: Duration = Duration::from_millis(20);

/// Tells of the times in which this process stands still, until it ends.
fn watch_stalls(process: usize) {
    const STEP: Duration = Duration::from_millis(5);
    loop {
        let from = BootInstant::now() + STEP;
        std::thread::sleep(STEP);
        let to = BootInstant::now();
        if to.since(from) > STALLED {
            println!("{}", Stall { process, from, to }.to_line());
        }
    }
}

/// What one task does.
#[derive(Debug, Clone)]
struct Work {
    /// One of these keys each time.
    keys: Vec<String>,
    /// How many of a hundred passes are as a reader.
    readers: u32,
    /// How long it holds at most, in milliseconds.
    hold: u64,
}

/// Most keys are those of two processes, so that one which stands still leaves the others work.
fn works(process: usize) -> Vec<Work> {
    let keys = |name: &str, count| (0..count).map(|n| format!("{name}:{n}")).collect::<Vec<_>>();
    let pair = |first: usize| Work { keys: keys(&format!("pair{first}"), 6), readers: 0, hold: 3 };
    let mut works = vec![pair(process); 6];
    works.extend(vec![pair((process + PROCESSES - 1) % PROCESSES); 6]);
    works.push(Work { keys: keys("all", 2), readers: 0, hold: 3 });
    works.push(Work { keys: keys("read", 2), readers: 70, hold: 5 });
    works.push(Work { keys: keys("read", 2), readers: 70, hold: 5 });
    works.push(Work { keys: keys("long", 2), readers: 0, hold: 5_000 });
    works
}

/// What the children do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (process, seed) = (number(NUMBER) as usize, number(SEED));
    let lock = EtcdLock::from_url(&ConnectUrl::parse(&url).unwrap()).unwrap();
    lock.ping().await.unwrap();
    std::thread::spawn(move || watch_stalls(process));
    println!("ready");
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = works(process)
        .into_iter()
        .enumerate()
        .map(|(n, work)| {
            let rng = fastrand::Rng::with_seed(seed ^ (n as u64) << 8);
            let worker = Worker { lock: lock.clone(), process, work, rng };
            tokio::spawn(worker.run(Arc::clone(&over)))
        })
        .collect();
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()))
        .await
        .unwrap()
        .unwrap();
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(lock.close(PATIENCE).await, "the clean-up does not end");
    println!("done");
}

struct Worker {
    lock: EtcdLock,
    process: usize,
    work: Work,
    rng: fastrand::Rng,
}

impl Worker {
    async fn run(mut self, over: Arc<AtomicBool>) {
        while !over.load(Ordering::Relaxed) {
            if let Some(pass) = self.pass(&over).await {
                println!("{}", pass.to_line());
                if matches!(&pass.outcome, Outcome::Refused(reason) if reason != "timeout") {
                    // As anybody would who was told that nobody is there.
                    sleep(Duration::from_millis(self.rng.u64(5..50))).await;
                }
            }
        }
    }

    /// One pass; `None` if the acquire was dropped on the way.
    async fn pass(&mut self, over: &AtomicBool) -> Option<Pass> {
        let key = self.work.keys[self.rng.usize(..self.work.keys.len())].clone();
        let shared = self.rng.u32(0..100) < self.work.readers;
        let limit = match self.rng.u32(0..4) {
            0 => Duration::from_millis(self.rng.u64(50..3_000)),
            _ => Duration::from_secs(10),
        };
        let mut request = Request::new(&key).timeout(limit);
        if shared {
            request = request.shared();
        }
        let asked = BootInstant::now();
        let acquire = self.lock.acquire(request);
        let result = if self.rng.u32(0..20) == 0 {
            timeout(Duration::from_millis(self.rng.u64(0..15)), acquire).await.ok()?
        } else {
            acquire.await
        };
        let ended = BootInstant::now();
        let outcome = match result {
            Ok(guard) => Outcome::Granted(self.hold(guard, over).await),
            Err(error @ (Error::NotAcquired(_) | Error::Unavailable(_))) => {
                Outcome::Refused(error.reason().to_owned())
            }
            Err(error) => panic!("{key}: {error}"),
        };
        Some(Pass { process: self.process, key, shared, asked, ended, limit, outcome })
    }

    async fn hold(&mut self, guard: Guard, over: &AtomicBool) -> Hold {
        let mut holder = Holder::new(guard);
        let end = Instant::now() + Duration::from_micros(self.rng.u64(0..=1_000 * self.work.hold));
        while holder.look() && Instant::now() < end && !over.load(Ordering::Relaxed) {
            sleep(LOOK.min(end - Instant::now())).await;
        }
        if self.rng.u32(0..8) == 0 {
            return holder.drop();
        }
        holder.release().await
    }
}

/// One who holds a key, and looks at its guard again and again.
struct Holder {
    guard: Guard,
    deaf: bool,
    hold: Hold,
}

impl Holder {
    fn new(guard: Guard) -> Self {
        let hold = Hold {
            fence: guard.fence().unwrap(),
            believed: None,
            deadline: BootInstant::from_nanos(0),
            loss: None,
        };
        Self { guard, deaf: std::env::var_os(DEAF).is_some(), hold }
    }

    /// Whether it still believes.
    fn look(&mut self) -> bool {
        // Before the look: what is held afterwards was held then.
        let now = BootInstant::now();
        let held = match self.guard.deadline() {
            Some(deadline) => {
                self.hold.deadline = deadline;
                true
            }
            None => self.deaf,
        };
        if held {
            let from = self.hold.believed.map_or(now, |(from, _)| from);
            self.hold.believed = Some((from, now));
        } else if self.hold.loss.is_none() {
            let kind = self.guard.loss().unwrap().reason.reason();
            self.hold.loss = Some((BootInstant::now(), kind.to_owned()));
            if kind == "expired"
                && let Some((_, until)) = &mut self.hold.believed
            {
                // With no look in between it believed until that instant.
                *until = (*until).max(self.hold.deadline);
            }
        }
        held
    }

    async fn release(mut self) -> Hold {
        self.look();
        let result = self.guard.release().await;
        if let (Err(Error::Lost(lost)), None) = (result, &self.hold.loss) {
            let told = (BootInstant::now(), lost.reason.reason().to_owned());
            self.hold.loss = Some(told).filter(|_| !self.deaf);
        }
        self.hold
    }

    /// Its release goes on behind it.
    fn drop(mut self) -> Hold {
        self.look();
        self.hold
    }
}
