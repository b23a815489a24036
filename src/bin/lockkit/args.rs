//! The command line.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::exit::{self, Exit};

const CODES: &str = "\
Exit codes:
  the command's own, or 128+n if signal n ended it; or:
   64  wrong usage or configuration
   69  the lock service is not available (tried for 5 s; for less if --wait says so)
   70  a fault of this machine or of lockkit
   75  not acquired: somebody else has the key (see --conflict-exit-code)
   76  the lock was lost while the command ran
   77  the lock service or the file system refuses
  126  the command is not executable
  127  there is no such command
  128+n  signal n came while lockkit waited; nothing was started";

const DETAILS: &str = "\
The command:
  It runs in a process group of its own, with LOCKKIT_KEY, LOCKKIT_BACKEND and (where the lock
  service has fences) LOCKKIT_FENCE in its environment: a number that grows with every holder of
  the key, for whatever the command writes to, to refuse a holder that comes too late.
  SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 are passed on to that group. SIGTSTP
  (Ctrl-Z) is refused while the command runs: a stopped lockkit could not renew the lock. A command
  that reads the terminal gets it.

The lock:
  It is renewed every TTL/3 while the command runs, however long that is, and released when the
  command itself has ended. What it leaves running in the background runs without the lock.
  If the lock cannot be renewed, the group gets SIGTERM, and SIGKILL when --grace is over, all
  before anybody else can get the key. If somebody takes the key by force, SIGKILL comes at once.
  If lockkit is killed, the group is killed too; a stopped lockkit's when the lock runs out.
  None of this reaches what leaves the group (a daemon), or what lockkit may not signal (a command
  that becomes another user: write `sudo lockkit run`, not `lockkit run ... sudo`).

Durations are numbers with units: 500ms, 30s, 5m, 1h 30m.";

/// Runs commands under a distributed lock.
#[derive(Debug, Parser)]
#[command(name = "lockkit", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Run),
}

/// Runs a command while holding a key, and nobody else's command with the same key meanwhile.
#[derive(Debug, Args)]
#[command(override_usage = "lockkit run [OPTIONS] <KEY> -- <CMD>...")]
#[command(after_help = CODES, after_long_help = format!("{DETAILS}\n\n{CODES}"))]
pub(crate) struct Run {
    /// The lock service, as in `sqlite:/var/lib/jobs/locks.db`.
    ///
    /// Without it, and without LOCKKIT_URL, a file of this user on this machine:
    /// $XDG_STATE_HOME/lockkit/locks.db, or ~/.local/state/lockkit/locks.db.
    #[arg(long, env = "LOCKKIT_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// After which time a holder that vanished loses the key [default: 30s, or the URL's `ttl`].
    ///
    /// Not how long the command may take: the lock is renewed while it runs.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// How long to wait for the key [default: no limit, or the URL's `timeout`].
    #[arg(long, value_name = "DURATION", value_parser = any_duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: if somebody has the key, exit with 75.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Hold the key as one of many readers, excluding only those without --shared.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,

    /// Hold the key as one of at most N; all users of the key must name the same N.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<NonZeroU32>,

    /// Keep the key for at least this long, also when the command ends sooner [default: 0s].
    ///
    /// For short jobs that several machines start at about the same time: with it, one of them
    /// runs; without it, one after the other. The key stays taken in the lock service; only where
    /// a lock dies with its process, lockkit stays for that long.
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    pub(crate) min_hold: Option<Duration>,

    /// What the command is given between SIGTERM and SIGKILL when the lock is being lost
    /// [default: TTL/6, at most TTL/3].
    #[arg(long, value_name = "DURATION", value_parser = any_duration)]
    pub(crate) grace: Option<Duration>,

    /// The exit code for "somebody else has the key".
    #[arg(long, value_name = "N", default_value_t = exit::BUSY)]
    pub(crate) conflict_exit_code: u8,

    /// The name of what is locked, in the style `domain:lock:id`: 1 to 512 bytes of UTF-8.
    pub(crate) key: String,

    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, num_args = 1.., value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Reads the command line. Help and version are printed here.
pub(crate) fn parse() -> Result<Run, Exit> {
    match Cli::try_parse() {
        Ok(Cli { verb: Verb::Run(run) }) => Ok(run),
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            Err(Exit::silent(0))
        }
        Err(error) => {
            let text = without_urls(&error.render().to_string(), std::env::args());
            let mut text = text.trim_end().trim_start_matches("error: ").to_owned();
            if std::env::args().len() > 3 && !std::env::args().any(|word| word == "--") {
                text.push_str("\n\nWrite `--` between the key and the command.");
            }
            Err(Exit::usage(text))
        }
    }
}

/// Takes URLs that were given in the wrong place out of a message: they may hold a password.
fn without_urls(text: &str, words: impl Iterator<Item = String>) -> String {
    words.fold(text.to_owned(), |text, word| {
        let word = word
            .split_once('=')
            .filter(|(flag, _)| flag.starts_with('-'))
            .map_or(word.as_str(), |(_, value)| value);
        match word.split_once(':') {
            Some((scheme, rest)) if rest.contains(['/', '@']) => {
                text.replace(word, &format!("{scheme}:…"))
            }
            _ => text,
        }
    })
}

fn any_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write a number with a unit, such as 500ms, 30s or 5m".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    any_duration(text).and_then(|duration| {
        if duration.is_zero() { Err("must be more than zero".to_owned()) } else { Ok(duration) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(words: &str) -> Result<Run, clap::Error> {
        let words = std::iter::once("lockkit").chain(words.split_whitespace());
        Cli::try_parse_from(words).map(|Cli { verb: Verb::Run(run) }| run)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        let run = run("run --ttl 10s k -- cmd --ttl 5s -- x").unwrap();
        assert_eq!(run.ttl, Some(Duration::from_secs(10)));
        assert_eq!(run.command, ["cmd", "--ttl", "5s", "--", "x"]);
    }

    #[test]
    fn what_contradicts_is_refused() {
        for words in [
            "run k",
            "run k --",
            "run -- cmd",
            "run k cmd",
            "run --wait 5s --no-wait k -- cmd",
            "run --shared --permits 2 k -- cmd",
            "run --permits 0 k -- cmd",
            "run --ttl 0s k -- cmd",
            "run --ttl 5 k -- cmd",
            "run --conflict-exit-code 256 k -- cmd",
        ] {
            assert!(run(words).is_err(), "{words}");
        }
    }

    #[test]
    fn a_url_in_the_wrong_place_is_not_repeated() {
        let words = ["lockkit", "--ulr=redis://:s3cret@h", "redis://u:s3cret@h"];
        let text = without_urls(
            "what is 'redis://u:s3cret@h' or '--ulr=redis://:s3cret@h'?",
            words.iter().map(ToString::to_string),
        );
        assert_eq!(text, "what is 'redis:…' or '--ulr=redis:…'?");
    }
}
