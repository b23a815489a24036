//! What the tests with several servers share.

use std::future::Future;
use std::time::{Duration, Instant};

use conformance_tests::servers::{Redis, Result};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{EventKind, Events, Guard, LockExt, Request};
use lockkit_redis::RedisLock;

/// How long anything may take that takes as long as it takes. Sentinels that vote for different
/// ones try again only after six seconds.
pub(crate) const LONG: Duration = Duration::from_secs(40);

/// A TTL that outlives two such votes.
pub(crate) const TTL: Duration = Duration::from_secs(24);

/// Polls so rare that a waiter who is in within [`AT_ONCE`] was woken by a message.
pub(crate) const RARE_POLLS: &str = "poll_min=5s&poll_max=5s";

/// How long a hand-over may take.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

pub(crate) fn lock(url: &str) -> RedisLock {
    RedisLock::from_url(&ConnectUrl::parse(url).unwrap()).unwrap()
}

/// `future`, which must not take longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Calls `look` until it says yes.
pub(crate) async fn until(limit: Duration, what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A waiter in a task of its own.
pub(crate) fn wait_for(
    lock: &RedisLock,
    request: impl Into<Request>,
) -> tokio::task::JoinHandle<Guard> {
    let waiting = lock.acquire(request.into().timeout(LONG));
    tokio::spawn(async move { waiting.await.unwrap() })
}

/// Waits for an event.
pub(crate) async fn event(events: &mut Events, what: &str, is: impl Fn(&EventKind) -> bool) {
    let event = async {
        while let Some(event) = events.recv().await {
            if is(&event.kind) {
                return;
            }
        }
        panic!("the client is gone");
    };
    within(LONG, what, event).await;
}

pub(crate) fn renewed(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Renewed)
}

/// Looks at a server; a second time if that fails, for a server that becomes a primary or a
/// replica throws everybody out.
fn look<T>(look: impl Fn() -> Result<T>) -> T {
    look().or_else(|_| look()).unwrap()
}

/// What a server has at a lock's key.
pub(crate) fn claim(server: &Redis, key: &str) -> Option<String> {
    let value = look(|| {
        let mut connection = server.connect()?;
        // A cluster's node that is about to get the slot answers only then; others refuse.
        connection.call(&["ASKING"])?;
        connection.call(&["GET", &format!("lockkit:{key}")])?.checked()
    });
    Some(value.text()).filter(|value| !value.is_empty())
}

/// Whether a server has the claim of `guard`.
pub(crate) fn has(server: &Redis, guard: &Guard) -> bool {
    let token = guard.token().to_string();
    claim(server, guard.key().as_str()).is_some_and(|value| value.starts_with(&token))
}

/// How many channels are subscribed at a server.
pub(crate) fn channels(server: &Redis) -> usize {
    look(|| server.command(&["PUBSUB", "CHANNELS", "lockkit:*"])).members().len()
}
