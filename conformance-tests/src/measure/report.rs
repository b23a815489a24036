//! What the rounds came to.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::workload::{Round, Workload};

/// One workload, lock beside floor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Line {
    /// The workload.
    pub workload: Workload,
    /// Median over the rounds of the floor's cycles per second.
    pub floor_rate: f64,
    /// Median over the rounds of the lock's cycles per second.
    pub lock_rate: f64,
    /// Median over the rounds of the floor's median cycle, in nanoseconds.
    pub floor_cycle: f64,
    /// Median over the rounds of the lock's median cycle, in nanoseconds.
    pub lock_cycle: f64,
    /// The least and the greatest ratio of the rates of one round.
    pub spread: (f64, f64),
    /// All cycles of the floor, in nanoseconds.
    pub floor: Histogram<u64>,
    /// All cycles of the lock, in nanoseconds.
    pub lock: Histogram<u64>,
}

impl Line {
    pub(crate) fn new(workload: Workload, floor: &[Round], lock: &[Round]) -> Self {
        let ratios = floor.iter().zip(lock).map(|(floor, lock)| lock.rate() / floor.rate());
        let ratios = sorted(ratios.collect());
        Self {
            workload,
            floor_rate: median(floor, Round::rate),
            lock_rate: median(lock, Round::rate),
            floor_cycle: median(floor, Round::cycle),
            lock_cycle: median(lock, Round::cycle),
            spread: (ratios[0], ratios[ratios.len() - 1]),
            floor: together(floor),
            lock: together(lock),
        }
    }

    /// The ratio of the median rates: 1.0 is as fast as the bare commands.
    pub fn ratio(&self) -> f64 {
        self.lock_rate / self.floor_rate
    }

    /// The ratio of the median cycles, the medians over the rounds of each round's median: what
    /// else the machine did shows less in it than in a rate.
    pub fn ratio_of_cycles(&self) -> f64 {
        self.floor_cycle / self.lock_cycle
    }
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let numbers = sorted(rounds.iter().map(of).collect());
    numbers[numbers.len() / 2]
}

fn together(rounds: &[Round]) -> Histogram<u64> {
    let mut all = rounds[0].cycles.clone();
    for round in &rounds[1..] {
        all += &round.cycles;
    }
    all
}

/// All lines as a table for people.
pub fn table(title: &str, lines: &[Line]) -> String {
    let mut text = format!("{title}\n");
    let _ = writeln!(
        text,
        "{:<14} {:>9} {:>9} {:>6} {:>12} {:>7} {:>9} {:>9} {:>9} {:>9}",
        "",
        "bare 1/s",
        "lock 1/s",
        "ratio",
        "(min-max)",
        "cycles",
        "bare p50",
        "bare p99",
        "lock p50",
        "lock p99"
    );
    for line in lines {
        let name = match line.workload {
            Workload::Uncontended { tasks } => format!("{tasks} x own key"),
            Workload::Contended { tasks } => format!("{tasks} x one key"),
        };
        let spread = format!("({:.2}-{:.2})", line.spread.0, line.spread.1);
        let [a, b] = [0.5, 0.99].map(|q| nanos(line.floor.value_at_quantile(q)));
        let [c, d] = [0.5, 0.99].map(|q| nanos(line.lock.value_at_quantile(q)));
        let _ = writeln!(
            text,
            "{name:<14} {:>9.0} {:>9.0} {:>6.2} {spread:>12} {:>7.2} {a:>9} {b:>9} {c:>9} {d:>9}",
            line.floor_rate,
            line.lock_rate,
            line.ratio(),
            line.ratio_of_cycles()
        );
    }
    text
}

fn nanos(nanos: u64) -> String {
    let time = Duration::from_nanos(nanos);
    format!("{time:.1?}")
}
