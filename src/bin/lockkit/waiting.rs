//! From the URL to the lock; a signal ends it at any point, and nothing is left behind.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkit::backend::url::ConnectUrl;
use lockkit::{DistributedLock, Error, Guard, Key, LockExt, Request};
use tokio::time::sleep;

use crate::args::Run;
use crate::exit::{BUSY, Exit, say};
use crate::home;
use crate::signals::Signals;

type Lock = Arc<dyn DistributedLock>;

/// How long the clean-up behind a wait that was broken off may take.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// For how long a lock service is tried that does not answer.
const PATIENCE_WITH_THE_SERVICE: Duration = Duration::from_secs(5);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// After which time people are told what lockkit waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The lock service's URL.
pub(crate) fn url(run: &Run) -> Result<String, Exit> {
    match run.url.as_deref() {
        // An empty variable is as good as none.
        None | Some("") => home::url(),
        Some(url) => Ok(url.to_owned()),
    }
}

/// Connects.
pub(crate) async fn connect(run: &Run, url: &str, signals: &mut Signals) -> Result<Lock, Exit> {
    let lock = tokio::select! {
        biased;
        signal = signals.next() => return Err(Exit::signal(signal, "connecting")),
        lock = keep_connecting(run, url) => {
            lock.map_err(|error| Exit::not_acquired(&error, BUSY))?
        }
    };
    if lock.core().capabilities().name == "memory" {
        return Err(Exit::usage(
            "`memory:` locks nothing here: each lockkit process would have a memory of its own",
        ));
    }
    Ok(lock)
}

/// A service that is not there is tried again for a while: it may be starting, or busy. But not
/// for as long as the key may be waited for: a wrong address must be told.
async fn keep_connecting(run: &Run, url: &str) -> lockkit::Result<Lock> {
    let wait = if run.no_wait { Duration::ZERO } else { run.wait.unwrap_or(Duration::MAX) };
    let (since, patience) = (Instant::now(), wait.min(PATIENCE_WITH_THE_SERVICE));
    loop {
        match lockkit::connect(url).await {
            Err(Error::Unavailable(_)) if since.elapsed() < patience => sleep(PAUSE).await,
            done => return done,
        }
    }
}

/// Acquires the key.
pub(crate) async fn acquire(
    lock: &Lock,
    run: &Run,
    url: &str,
    signals: &mut Signals,
) -> Result<Guard, Exit> {
    let failed = match granted_or_signal(lock, run, url, signals).await {
        Ok(guard) => return Ok(guard),
        Err(exit) => exit,
    };
    // The future is gone: what it has sent is taken back now. Another signal does not wait.
    tokio::select! {
        biased;
        _ = signals.next() => {}
        _ = lock.close(CLEAN_UP) => {}
    }
    Err(failed)
}

async fn granted_or_signal(
    lock: &Lock,
    run: &Run,
    url: &str,
    signals: &mut Signals,
) -> Result<Guard, Exit> {
    tokio::select! {
        biased;
        signal = signals.next() => Err(Exit::signal(signal, "waiting for the key")),
        never = tell_people(lock, &run.key) => match never {},
        guard = lock.acquire_with(request(run, url)) => {
            guard.map_err(|error| Exit::not_acquired(&error, run.conflict_exit_code))
        }
    }
}

fn request(run: &Run, url: &str) -> Request {
    let mut request = Request::new(run.key.as_str()).label(label());
    if let Some(ttl) = run.ttl {
        request = request.ttl(ttl);
    }
    if let Some(limit) = run.permits {
        request = request.permit(limit);
    } else if run.shared {
        request = request.shared();
    }
    if let Some(min_hold) = run.min_hold {
        request = request.min_hold(min_hold);
    }
    match run.wait {
        _ if run.no_wait => request.timeout(Duration::ZERO),
        Some(wait) => request.timeout(wait),
        None if limits_the_wait(url) => request,
        None => request.wait_forever(),
    }
}

fn limits_the_wait(url: &str) -> bool {
    ConnectUrl::parse(url)
        .is_ok_and(|url| url.into_params().text("timeout").is_ok_and(|limit| limit.is_some()))
}

/// For whoever looks into the store; the command's arguments may be secret.
fn label() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("lockkit run, process {} on {host}", std::process::id())
}

/// Tells a person at a terminal, once, that lockkit waits, and for whom.
async fn tell_people(lock: &Lock, key: &str) -> Infallible {
    sleep(PATIENCE).await;
    if std::io::stderr().is_terminal()
        && let Ok(key) = Key::new(key)
    {
        let holder = lock.inspect(&key).await.ok().flatten();
        let holder = holder.map(|holder| format!(", {holder}")).unwrap_or_default();
        say(format_args!("waiting for `{key}`{holder}"));
    }
    std::future::pending().await
}
