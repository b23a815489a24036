//! What servers and networks do to locks on one server: servers that are killed, stopped, full,
//! loading or strict, networks that lose, delay and cut.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod clients;
#[path = "faults/crowd.rs"]
mod crowd;
#[path = "faults/cuts.rs"]
mod cuts;
#[path = "faults/deaths.rs"]
mod deaths;
#[path = "faults/life.rs"]
mod life;
#[path = "faults/messages.rs"]
mod messages;
#[path = "faults/networks.rs"]
mod networks;
#[path = "faults/refusals.rs"]
mod refusals;
#[path = "faults/replicas.rs"]
mod replicas;
#[path = "faults/rights.rs"]
mod rights;
#[path = "faults/scripts.rs"]
mod scripts;
#[path = "faults/slow.rs"]
mod slow;
#[path = "faults/stops.rs"]
mod stops;

use std::time::{Duration, Instant};

use clients::*;
use conformance_tests::servers::{Proxy, Redis, Reply, Toward};
use lockkit_core::{DistributedLock, Error, EventKind, Events, Guard, LockExt, Request};
use lockkit_redis::RedisLock;
use tokio::task::JoinHandle;

/// Polls so rare that whoever is in within [`AT_ONCE`] did not wait for one.
const RARE_POLLS: &str = "poll_min=8s&poll_max=8s";

/// Polls so frequent that nobody waits for one.
const QUICK_POLLS: &str = "poll_min=2ms&poll_max=20ms";

/// How long what happens at once may take.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A server behind a proxy.
struct Behind {
    server: Redis,
    proxy: Proxy,
}

impl Behind {
    fn start() -> Self {
        Self::of(Redis::start().unwrap())
    }

    fn of(server: Redis) -> Self {
        let proxy = Proxy::start(server.address()).unwrap();
        Self { server, proxy }
    }

    /// A client whose connections go through the proxy.
    fn client(&self, params: &str) -> RedisLock {
        through(&self.proxy, params)
    }
}

fn through(proxy: &Proxy, params: &str) -> RedisLock {
    client_at(&format!("redis://{}/0?{params}", proxy.address()))
}

/// Opens the connections for acquires, releases and clean-up, and has the server know the scripts.
async fn warm(lock: &RedisLock) {
    lock.ping().await.unwrap();
    grant(lock, long("warm")).await.release().await.unwrap();
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A claim whose TTL is so long that nothing here can be explained by its end, for which each
/// exchange is given up after so many milliseconds.
fn hasty(key: &str, op_timeout_ms: u64) -> Request {
    long(key).op_timeout(ms(op_timeout_ms))
}

/// A waiter in a task of its own.
fn waiter(lock: &RedisLock, request: Request) -> JoinHandle<Guard> {
    let waiting = lock.acquire(request);
    tokio::spawn(async move { waiting.await.unwrap() })
}

async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let result = future.await;
    (result, start.elapsed())
}

/// Waits for an event.
async fn event(events: &mut Events, what: &str, is: impl Fn(&EventKind) -> bool) {
    let event = async {
        while let Some(event) = events.recv().await {
            if is(&event.kind) {
                return;
            }
        }
        panic!("the client is gone");
    };
    within(PATIENCE, what, event).await;
}

fn renewed(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Renewed)
}

/// How many of the events so far are such.
fn count(events: &mut Events, is: impl Fn(&EventKind) -> bool) -> usize {
    std::iter::from_fn(|| events.try_recv()).filter(|event| is(&event.kind)).count()
}

/// The claim that lies at a key.
fn at(server: &Redis, key: &str) -> String {
    ask(server, &["GET", &format!("lockkit:{key}")]).text()
}

fn is_free(server: &Redis, key: &str) -> bool {
    !exists(server, &format!("lockkit:{key}"))
}

fn has(server: &Redis, guard: &Guard) -> bool {
    at(server, guard.key().as_str()).starts_with(&guard.token().to_string())
}

/// How many keys there are of whatever kind.
fn keys(server: &Redis) -> Vec<String> {
    ask(server, &["KEYS", "*"]).texts()
}

/// Waits until there is no key at all.
async fn empty(server: &Redis) {
    let start = Instant::now();
    loop {
        let keys = keys(server);
        if keys.is_empty() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(8), "left behind: {keys:?}");
        tokio::time::sleep(ms(5)).await;
    }
}

/// The channels that are listened to.
fn channels(server: &Redis) -> Vec<Reply> {
    ask(server, &["PUBSUB", "CHANNELS"]).members().to_vec()
}

/// How many connections the server knows of this type.
fn connections(server: &Redis, kind: &str) -> usize {
    ask(server, &["CLIENT", "LIST", "TYPE", kind]).text().lines().count()
}

/// Waits until so many channels are listened to.
async fn listened(server: &Redis, count: usize) {
    let what = format!("{count} channels are listened to");
    eventually(PATIENCE, &what, || channels(server).len() == count).await;
}

/// Waits until the channel of a key is listened to.
async fn listened_to(server: &Redis, key: &str) {
    let end = format!("{{lockkit:{key}}}");
    let listens = || channels(server).iter().any(|c| c.bytes().ends_with(end.as_bytes()));
    eventually(PATIENCE, "its channel is listened to", listens).await;
}

/// The digest by which the server knows a script of lockkit.
fn digest(name: &str) -> &'static str {
    let lines = include_str!("../src/scripts/digests.txt").lines();
    let mut digests = lines.filter_map(|line| line.split_once(' '));
    digests.find(|(script, _)| *script == name).unwrap().1
}

fn unavailable(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_))
}

/// Nobody waits and nothing is being cleaned up any more.
async fn quiet(lock: &RedisLock) {
    let core = lock.core();
    eventually(PATIENCE, "quiet", || core.waiting() == 0 && core.cleaning_up() == 0).await;
}

/// A name, the URL's parameters, and what makes a request one of its kind.
type Kind = (&'static str, &'static str, fn(Request) -> Request);

/// The same, for a semaphore of so many too.
type LimitedKind = (&'static str, &'static str, fn(Request, std::num::NonZeroU32) -> Request);
