//! The command line of the example, and what it tells the processes that it starts.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Sells one stock from several processes, with and without a lock.
#[derive(Debug, Parser)]
#[command(name = "oversell")]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    role: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One of the processes that sell.
    #[command(hide = true)]
    Instance(Post),
}

/// What the user can choose.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many processes sell.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) instances: u32,
    /// How many workers each of them has.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) workers: u32,
    /// How many pieces there are.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) stock: u32,
    /// The lock service of the lockkit rounds [default: a SQLite file beside the stock].
    #[arg(long, hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What one process is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct Post {
    #[arg(long)]
    pub(crate) books: PathBuf,
    #[arg(long)]
    pub(crate) round: String,
    #[arg(long)]
    pub(crate) instance: u32,
    #[arg(long)]
    pub(crate) workers: u32,
    #[arg(long)]
    pub(crate) key: String,
    /// After which time a holder that is stopped loses the lock.
    #[arg(long, value_parser = millis)]
    pub(crate) ttl: Duration,
    /// How long a sale takes to think about.
    #[arg(long, value_parser = millis)]
    pub(crate) think: Duration,
    /// The lock; in the environment, since others can read a command line.
    #[arg(long, env = LOCK_URL, hide_env_values = true)]
    pub(crate) lock: Option<String>,
    /// The books refuse a write whose fence is older than one they have seen.
    #[arg(long)]
    pub(crate) fenced: bool,
    /// The first sale of this process waits, in the middle, until it is told to go on.
    #[arg(long)]
    pub(crate) pausing: bool,
}

/// Where a process finds the lock's URL.
pub(crate) const LOCK_URL: &str = "OVERSELL_LOCK_URL";

/// What this process is.
pub(crate) enum Role {
    Parent(Options),
    Instance(Post),
}

pub(crate) fn parse() -> Role {
    match Cli::parse() {
        Cli { role: Some(Part::Instance(post)), .. } => Role::Instance(post),
        Cli { options, role: None } => Role::Parent(options),
    }
}

fn millis(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}
