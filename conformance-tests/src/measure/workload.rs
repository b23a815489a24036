//! The same work for a lock and for its floor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockkit_core::{DistributedLock, LockExt, Request};

use super::floor::Floor;

/// Acquire and release, by so many tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Each task on a key of its own.
    Uncontended {
        /// How many.
        tasks: usize,
    },
    /// All tasks on one key.
    Contended {
        /// How many.
        tasks: usize,
    },
}

/// What one side did in one round.
#[derive(Debug, Clone)]
pub struct Round {
    /// How long each cycle took, in nanoseconds: from the wish to the end of the release.
    pub cycles: Histogram<u64>,
    /// How long all of it took.
    pub took: Duration,
}

impl Round {
    /// Cycles per second, of all tasks together.
    pub fn rate(&self) -> f64 {
        self.cycles.len() as f64 / self.took.as_secs_f64()
    }

    /// The median cycle, in nanoseconds.
    pub fn cycle(&self) -> f64 {
        self.cycles.value_at_quantile(0.5) as f64
    }
}

/// How long a task without a lock library waits before it asks again for a busy key.
const BARE_POLL: Duration = Duration::from_millis(1);

/// Longer than any cycle can take.
const LONGEST: Duration = Duration::from_secs(120);

impl Workload {
    fn tasks(self) -> usize {
        match self {
            Self::Uncontended { tasks } | Self::Contended { tasks } => tasks,
        }
    }

    fn key(self, task: usize) -> String {
        match self {
            Self::Uncontended { .. } => format!("measure:own:{task}"),
            Self::Contended { .. } => "measure:common".to_owned(),
        }
    }

    /// Runs it on a lock, for about `time`.
    ///
    /// # Panics
    /// If the lock fails.
    ///
    /// # Cancel safety
    /// Not needed: nothing here is dropped.
    pub async fn on_lock(self, lock: &Arc<dyn DistributedLock>, time: Duration) -> Round {
        self.run(time, |task, until| {
            let (lock, request) = (Arc::clone(lock), Request::new(self.key(task)));
            let request = request.timeout(Duration::from_secs(60));
            async move {
                let mut cycles = histogram();
                while Instant::now() < until {
                    let start = Instant::now();
                    let guard = lock.acquire(request.clone()).await.expect("an acquire");
                    guard.release().await.expect("a release");
                    record(&mut cycles, start);
                }
                cycles
            }
        })
        .await
    }

    /// Runs it on the bare commands, for about `time`.
    ///
    /// # Panics
    /// If the store fails.
    ///
    /// # Cancel safety
    /// Not needed: nothing here is dropped.
    pub async fn on_floor(self, floor: &Arc<dyn Floor>, time: Duration) -> Round {
        self.run(time, |task, until| {
            let (floor, key) = (Arc::clone(floor), self.key(task));
            async move {
                let (mut cycles, mut bare) = (histogram(), floor.open().await);
                while Instant::now() < until {
                    let start = Instant::now();
                    while !bare.acquire(&key).await {
                        tokio::time::sleep(BARE_POLL).await;
                    }
                    bare.release(&key).await;
                    record(&mut cycles, start);
                }
                cycles
            }
        })
        .await
    }

    async fn run<F>(self, time: Duration, work: impl Fn(usize, Instant) -> F) -> Round
    where
        F: Future<Output = Histogram<u64>> + Send + 'static,
    {
        let start = Instant::now();
        let until = start + time;
        let tasks: Vec<_> = (0..self.tasks()).map(|n| tokio::spawn(work(n, until))).collect();
        let mut cycles = histogram();
        for task in tasks {
            cycles += task.await.expect("a task that measures");
        }
        Round { cycles, took: start.elapsed() }
    }
}

fn histogram() -> Histogram<u64> {
    let longest = u64::try_from(LONGEST.as_nanos()).expect("a number");
    Histogram::new_with_max(longest, 3).expect("three digits")
}

fn record(cycles: &mut Histogram<u64>, start: Instant) {
    let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    cycles.saturating_record(nanos);
}
