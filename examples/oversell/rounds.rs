//! The rounds, and what must come out of each.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockkit::Require;
use lockkit::backend::{encoding, url::ConnectUrl};

use crate::Result;
use crate::args::{Options, Post};
use crate::books::{Books, Totals};
use crate::crew::Crew;
use crate::report::{self, Outcome, Summary};

/// For how long the holder that is stopped has the lock.
const SHORT_TTL: Duration = Duration::from_secs(2);

/// As long as the machine may be busy with other things.
const LONG_TTL: Duration = Duration::from_secs(30);

/// A round that takes longer than this, and longer than this for each piece, hangs.
const LIMIT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_millis(50));

/// What protects the stock in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    Nothing,
    InProcess,
    Lockkit,
    LockkitAndFence,
}

use Protection::{InProcess, Lockkit, LockkitAndFence, Nothing};

impl Protection {
    const ALL: [Self; 4] = [Nothing, InProcess, Lockkit, LockkitAndFence];

    fn name(self) -> &'static str {
        match self {
            Nothing => "no lock",
            InProcess => "in-process lock",
            Lockkit => "lockkit",
            LockkitAndFence => "lockkit, one holder stopped",
        }
    }

    /// Whether the round has shown what it is there to show.
    fn holds(self, outcome: &Outcome, left: i64) -> bool {
        let exact = outcome.sold == outcome.stock && outcome.oversold == 0 && left == 0;
        match self {
            Nothing | InProcess => outcome.oversold > 0,
            Lockkit => exact && outcome.refused == 0,
            LockkitAndFence => exact && outcome.refused >= 1,
        }
    }
}

/// What all rounds have in common.
struct Fair<'a> {
    options: &'a Options,
    books: PathBuf,
    lock: String,
    key: String,
}

/// Plays all rounds. Returns whether each has come out as it must.
pub(crate) async fn all(options: &Options) -> Result<bool> {
    let directory = tempfile::Builder::new().prefix("oversell-").tempdir()?;
    let beside = directory.path().join("locks.db");
    let fair = Fair {
        options,
        books: directory.path().join("stock.db"),
        lock: options.url.clone().unwrap_or_else(|| url_of(&beside.to_string_lossy())),
        key: format!("oversell:lock:{:016x}", fastrand::u64(..)),
    };
    let backend = backend(&fair.lock).await?;

    let mut rounds = Vec::new();
    let mut wrong = Vec::new();
    for protection in Protection::ALL {
        let (outcome, left) = fair.round(protection).await?;
        if !protection.holds(&outcome, left) {
            wrong.push(format!("`{}` did not come out as it must", outcome.name));
        }
        rounds.push(outcome);
    }
    report::result(&Summary { backend, rounds }, options.json)?;
    wrong.iter().for_each(|what| report::say(&format!("oversell: {what}")));
    Ok(wrong.is_empty())
}

/// The backend's name; refuses one that cannot work between processes.
async fn backend(url: &str) -> Result<String> {
    if ConnectUrl::parse(url)?.scheme() == "memory" {
        return Err("`memory:` locks inside one process, and this example is about several: \
                    each would have a lock of its own (that is the second round)"
            .into());
    }
    let lock = lockkit::connect_with(url, Require::nothing().fenced()).await?;
    Ok(lock.core().capabilities().name.to_owned())
}

fn url_of(path: &str) -> String {
    let parts: Vec<_> = path.split('/').map(encoding::encode).collect();
    format!("sqlite:{}", parts.join("/"))
}

impl Fair<'_> {
    async fn round(&self, protection: Protection) -> Result<(Outcome, i64)> {
        let books = Books::open(&self.books, protection.name(), 2).await?;
        books.begin(self.options.stock).await?;
        let mut crew = Crew::default();
        let played = tokio::select! {
            played = self.play(protection, &mut crew, &books) => played,
            never = progress(protection.name(), self.options.stock, &books) => match never {},
            () = tokio::time::sleep(LIMIT.0 + LIMIT.1 * self.options.stock) => {
                Err("a round hangs".into())
            }
            // The processes are ended and the directory goes away, as on any error.
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        };
        crew.dismiss().await;
        report::clear();
        played?;
        let totals = books.totals().await?;
        books.close().await;
        Ok((self.outcome(protection, totals), totals.left))
    }

    async fn play(&self, protection: Protection, crew: &mut Crew, books: &Books) -> Result<()> {
        crew.assemble((0..self.options.instances).map(|i| self.post(protection, i))).await?;
        if protection == LockkitAndFence {
            crew.begin_with_one_stopped(async || rivals_sell(books).await).await?;
        } else {
            crew.begin().await?;
        }
        crew.ended().await
    }

    fn post(&self, protection: Protection, instance: u32) -> Post {
        Post {
            books: self.books.clone(),
            round: protection.name().to_owned(),
            instance,
            workers: self.options.workers,
            key: self.key.clone(),
            ttl: if protection == LockkitAndFence { SHORT_TTL } else { LONG_TTL },
            // However small the stock, a round lasts longer than processes take to begin.
            think: Duration::from_millis(u64::from(300 / self.options.stock).max(3)),
            lock: match protection {
                Nothing => None,
                InProcess => Some("memory:".to_owned()),
                Lockkit | LockkitAndFence => Some(self.lock.clone()),
            },
            fenced: protection == LockkitAndFence,
            pausing: protection == LockkitAndFence && instance == 0,
        }
    }

    fn outcome(&self, protection: Protection, totals: Totals) -> Outcome {
        let stock = i64::from(self.options.stock);
        Outcome {
            name: protection.name(),
            stock,
            sold: totals.sold,
            oversold: (totals.sold - stock).max(0),
            refused: totals.refused,
        }
    }
}

/// Waits until the TTL of the first process is over and another one has sold; `false` if none
/// does within another TTL.
async fn rivals_sell(books: &Books) -> Result<bool> {
    let stopped = Instant::now();
    while stopped.elapsed() <= SHORT_TTL * 2 {
        if stopped.elapsed() > SHORT_TTL && books.sold_by_others(0).await? > 0 {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(false)
}

/// Shows people at a terminal how it goes.
async fn progress(name: &str, stock: u32, books: &Books) -> std::convert::Infallible {
    if std::io::stderr().is_terminal() {
        loop {
            if let Ok(totals) = books.totals().await {
                report::progress(&format!("{name}: {} of {stock} sold", totals.sold));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    std::future::pending().await
}
