//! `lockkit run`, from beginning to end.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use lockkit::{DistributedLock, Error, Guard, Key, LockExt};
use rustix::process::Signal;

use crate::args::Run;
use crate::child::{self, Child};
use crate::exit::{self, Exit, say};
use crate::holding::{self, End};
use crate::signals::{self, Signals};
use crate::terminal::Terminal;
use crate::tether;
use crate::timing::Timing;
use crate::waiting;
use crate::warden::Warden;

/// How long lockkit stays, at the end, for what the store has not confirmed.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs the command under the lock.
pub(crate) async fn run(run: Run) -> Exit {
    attempt(run).await.unwrap_or_else(|exit| exit)
}

async fn attempt(run: Run) -> Result<Exit, Exit> {
    Key::new(&run.key).map_err(|error| Exit::not_acquired(&error, exit::BUSY))?;
    // Refuse what can be refused before anything is touched.
    if let Some(ttl) = run.ttl {
        Timing::new(ttl, run.grace)?;
    }
    let mut signals = Signals::take()?;
    let url = waiting::url(&run)?;
    let lock = waiting::connect(&run, &url, &mut signals).await?;
    let timing = Timing::new(run.ttl.unwrap_or(lock.core().settings().ttl), run.grace)?;
    let guard = waiting::acquire(&lock, &run, &url, &mut signals).await?;
    let timing = timing.fit(guard.remaining());
    let outcome = under(&guard, &lock, &run, timing, &mut signals).await?;
    if !outcome.lost {
        leave(&lock, run.min_hold.unwrap_or_default(), &mut signals).await;
    }
    Ok(outcome.exit)
}

/// How it went, and whether there is still a lock to care for.
struct Outcome {
    exit: Exit,
    lost: bool,
}

/// Runs the command while `guard` is held, and releases it.
async fn under(
    guard: &Guard,
    lock: &Arc<dyn DistributedLock>,
    run: &Run,
    timing: Timing,
    signals: &mut Signals,
) -> Result<Outcome, Exit> {
    signals.add(Signal::TSTP)?;
    let changes = signals::listen(Signal::CHILD)?;
    let mut warden = Warden::start();
    let mut child = match Child::start(&run.command, &environment(guard, lock), changes) {
        Ok(child) => child,
        Err(error) => {
            let released = guard.release().await;
            return Ok(not_started(run, &error, released.err()));
        }
    };
    child.release(|group| holding::instruct(&mut warden, group, guard, timing)).await;
    let mut terminal = Terminal::of(child.group());
    let end = holding::hold(guard, timing, &mut child, &mut terminal, &mut warden, signals).await;
    // Before the command is reaped, while its group's number is still its own.
    drop(warden);
    let status = child.reap();
    terminal.take_back(status.is_none_or(|status| status.code().is_none()));
    Ok(told(end, status, guard.release().await))
}

fn environment(
    guard: &Guard,
    lock: &Arc<dyn DistributedLock>,
) -> [(&'static str, Option<String>); 3] {
    [
        ("LOCKKIT_KEY", Some(guard.key().as_str().to_owned())),
        ("LOCKKIT_FENCE", guard.fence().map(|fence| fence.to_string())),
        ("LOCKKIT_BACKEND", Some(lock.core().capabilities().name.to_owned())),
    ]
}

fn not_started(run: &Run, error: &std::io::Error, release: Option<Error>) -> Outcome {
    if let Some(error) = release {
        say(unconfirmed(&error));
    }
    let command = run.command.first().map(|word| word.display().to_string()).unwrap_or_default();
    let reason = format!("cannot run {command}: {error}");
    Outcome { exit: Exit::new(tether::code(error), reason), lost: false }
}

/// What became of the command and of the lock, both.
fn told(end: End, status: Option<ExitStatus>, release: Result<(), Error>) -> Outcome {
    let fate = child::fate(status);
    let exit = match (end, status, release) {
        (_, _, Err(Error::Lost(lost))) => Exit::new(exit::LOST, format!("{lost}; {fate}")),
        (End::Loss, _, _) => {
            Exit::new(exit::LOST, format!("the lock was about to be lost; {fate}"))
        }
        (End::Own, status, release) => {
            let exit = Exit {
                code: status.map_or(exit::INTERNAL, child::code),
                reason: release.err().map(|error| unconfirmed(&error)),
            };
            return Outcome { exit, lost: false };
        }
    };
    Outcome { exit, lost: true }
}

fn unconfirmed(error: &Error) -> String {
    format!("the release is not confirmed, the key is free after its TTL at the latest: {error}")
}

/// Stays while the key must be kept by this process, or the store has not confirmed the release.
/// A signal ends that.
async fn leave(lock: &Arc<dyn DistributedLock>, min_hold: Duration, signals: &mut Signals) {
    tokio::select! {
        _ = signals.next() => {}
        _ = lock.close(min_hold + FAREWELL) => {}
    }
}
