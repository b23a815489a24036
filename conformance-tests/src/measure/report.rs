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
    /// The least and the greatest ratio of one round.
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
            floor_rate: median(floor),
            lock_rate: median(lock),
            spread: (ratios[0], ratios[ratios.len() - 1]),
            floor: together(floor),
            lock: together(lock),
        }
    }

    /// The ratio of the medians: 1.0 is as fast as the bare commands.
    pub fn ratio(&self) -> f64 {
        self.lock_rate / self.floor_rate
    }
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

fn median(rounds: &[Round]) -> f64 {
    let rates = sorted(rounds.iter().map(Round::rate).collect());
    rates[rates.len() / 2]
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
        "{:<16} {:>11} {:>11} {:>6} {:>13}   {:>9} {:>9} {:>9} {:>9}",
        "",
        "bare 1/s",
        "lock 1/s",
        "ratio",
        "(min-max)",
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
            "{name:<16} {:>11.0} {:>11.0} {:>6.2} {spread:>13}   {a:>9} {b:>9} {c:>9} {d:>9}",
            line.floor_rate,
            line.lock_rate,
            line.ratio()
        );
    }
    text
}

fn nanos(nanos: u64) -> String {
    let time = Duration::from_nanos(nanos);
    format!("{time:.1?}")
}
