//! Locks as Redisson stores them: a hash with one field for each thread, and a TTL.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use conformance_tests::servers::{Redis, Reply, Resp};
use lockkit_core::{DistributedLock, Key, LockExt, Request, Token, Which};

use crate::clients::*;

const NAME: &str = "order:lock:1001";

/// The field of one of Redisson's threads.
const THREAD: &str = "0b2cd5f2-95ab-4e41-a8ae-19a1c3b31e1d:52";

/// What its lock does, after its documentation: who is in counts one up and gets the whole lease,
/// whoever is not is told how long that may take.
const TRY_LOCK: &str = "
    local lock, lease, thread = KEYS[1], ARGV[1], ARGV[2]
    if redis.call('EXISTS', lock) == 0 or redis.call('HEXISTS', lock, thread) == 1 then
        redis.call('HINCRBY', lock, thread, 1)
        redis.call('PEXPIRE', lock, lease)
        return false
    end
    return redis.call('PTTL', lock)";

/// `None`: it is in.
fn redisson_tries(server: &Redis, thread: &str) -> Option<i64> {
    ask(server, &["EVAL", TRY_LOCK, "1", NAME, "30000", thread]).number()
}

fn redisson_holds(server: &Redis, ttl_ms: u32) {
    ask(server, &["HSET", NAME, THREAD, "1"]);
    ask(server, &["PEXPIRE", NAME, &ttl_ms.to_string()]);
}

const CLIENTS: [&str; 5] =
    ["", "layout=hash", "fair=true", "fair=true&layout=hash", "fences=false"];

/// One request of each sort.
fn requests() -> [Request; 5] {
    [
        long(NAME),
        long(NAME).owner("job-7"),
        // Whoever has that field is in for Redisson, and nobody is for us.
        long(NAME).owner(THREAD),
        long(NAME).shared(),
        long(NAME).label("a label"),
    ]
}

#[tokio::test]
async fn a_lock_of_redisson_is_held_for_us() {
    for params in CLIENTS {
        let server = Redis::start().unwrap();
        let lock = client(&server, &format!("prefix=&{params}"));
        redisson_holds(&server, 60_000);
        let stands = dump(&server, NAME);
        for request in requests() {
            let why = format!("{params}: {request:?}");
            refused(&lock, request.clone(), &why).await;
            let brief = request.timeout(Duration::from_millis(150));
            let refusal = lock.acquire(brief).await.unwrap_err();
            assert!(refusal.is_not_acquired(), "{why}: {refusal}");
        }
        // Permits and exclusive claims are never of one family.
        let permit = long(NAME).permit(NonZeroU32::new(2).unwrap());
        misconfigured(&lock, permit, params).await;

        let key = Key::new(NAME).unwrap();
        let holder = lock.inspect(&key).await.unwrap().expect("somebody holds it");
        assert_eq!((holder.token, holder.fence, holder.label), (None, None, None), "{params}");
        assert!(holder.expires_in.is_some());
        for which in [Which::Token(Token::new()), Which::Fence(0), Which::Fence(1)] {
            match lock.force_release(&key, which).await {
                Ok(hit) => assert!(!hit, "{params}: {which:?}"),
                Err(error) => assert!(params.contains("fences=false"), "{params}: {error}"),
            }
        }
        assert_eq!(dump(&server, NAME), stands, "{params}: it was touched");
        let left = ask(&server, &["PTTL", NAME]).number().unwrap();
        assert!((1..=60_000).contains(&left), "{params}: its TTL was changed: {left}");

        // Redisson's thread goes once more in and out, as if we were not there.
        assert_eq!(redisson_tries(&server, THREAD), None);
        ask(&server, &["DEL", NAME]);
        grant_free(&lock, long(NAME), "it is gone").await.release().await.unwrap();
        assert!(lock.close(PATIENCE).await);
        eventually(PATIENCE, "nothing is left", || ask(&server, &["DBSIZE"]).number() == Some(0))
            .await;
    }
}

#[tokio::test]
async fn a_waiter_gets_in_when_redisson_s_lock_goes() {
    for params in CLIENTS {
        let server = Redis::start().unwrap();
        let lock = client(&server, &format!("prefix=&{params}"));
        for request in requests() {
            let why = format!("{params}: {request:?}");
            // Released: Redisson tells that on a channel of its own, so the poll finds it.
            redisson_holds(&server, 60_000);
            let waiter = tokio::spawn(lock.acquire(request.clone()));
            waiting(&lock, NAME, 1).await;
            ask(&server, &["DEL", NAME]);
            let guard = within(POLL + SLACK, &why, waiter).await.unwrap().unwrap();
            guard.release().await.unwrap();

            // Expired.
            redisson_holds(&server, 100);
            let acquire = lock.acquire(request);
            let guard = within(Duration::from_millis(100) + SLACK, &why, acquire).await.unwrap();
            guard.release().await.unwrap();
        }
    }
}

/// Listens where Redisson's waiters do.
struct Releases(Resp);

impl Releases {
    fn new(server: &Redis) -> Self {
        let mut connection = server.connect().unwrap();
        let channel = format!("redisson_lock__channel:{{{NAME}}}");
        connection.call(&["SUBSCRIBE", &channel]).unwrap();
        Self(connection)
    }

    /// The next message.
    fn next(&mut self) -> String {
        let message = self.0.read().unwrap();
        message.members().last().map(Reply::text).unwrap_or_default()
    }

    /// How many there are before one that says `end`.
    fn until_the_end(mut self, server: &Redis) -> usize {
        ask(server, &["PUBLISH", &format!("redisson_lock__channel:{{{NAME}}}"), "end"]);
        (0..).find(|_| self.next() == "end").unwrap_or_default()
    }
}

#[tokio::test]
async fn redisson_sees_our_hash_as_busy_and_is_told_of_the_release() {
    for params in ["layout=hash", "layout=hash&fair=true", "layout=hash&fences=false"] {
        let server = Redis::start().unwrap();
        let lock = client(&server, &format!("prefix=&{params}"));
        for request in [long(NAME), long(NAME).owner("job-7")] {
            let mut releases = Releases::new(&server);
            let guard = grant(&lock, request.clone()).await;
            assert_eq!(ask(&server, &["TYPE", NAME]).text(), "hash");
            let stands = dump(&server, NAME);
            let left = redisson_tries(&server, THREAD).expect("it is busy");
            assert!((1..=60_000).contains(&left), "Redisson would wait {left} ms");
            assert_eq!(dump(&server, NAME), stands, "its attempt changed our claim");
            // Stored without more, an owner with the name of a thread would be that thread.
            let own = ask(&server, &["HKEYS", NAME]).texts();
            let own: BTreeSet<_> = own.iter().map(String::as_str).collect();
            assert!(!own.contains("job-7"), "{own:?}");

            guard.release().await.unwrap();
            assert_eq!(releases.next(), "0", "Redisson's waiters wait for a `0`");
            assert_eq!(releases.until_the_end(&server), 0, "one release, one message");
            assert_eq!(redisson_tries(&server, THREAD), None, "it is free now");
            refused(&lock, request, "Redisson is in").await;
            ask(&server, &["DEL", NAME]);
        }
    }
}

#[tokio::test]
async fn redisson_is_told_by_the_last_of_an_owner_and_by_a_forced_release() {
    let server = Redis::start().unwrap();
    let (one, two) =
        (client(&server, "prefix=&layout=hash"), client(&server, "prefix=&layout=hash"));
    let request = || long(NAME).owner("job-7");
    let releases = Releases::new(&server);
    let (first, second) = (grant(&one, request()).await, grant(&two, request()).await);
    first.release().await.unwrap();
    assert_eq!(releases.until_the_end(&server), 0, "the owner is still in");
    assert!(redisson_tries(&server, THREAD).is_some());
    let mut releases = Releases::new(&server);
    second.release().await.unwrap();
    assert_eq!(releases.next(), "0");

    let mut releases = Releases::new(&server);
    let guard = grant(&one, long(NAME)).await;
    assert!(one.force_release(&Key::new(NAME).unwrap(), Which::Whoever).await.unwrap());
    assert_eq!(releases.next(), "0");
    assert!(guard.release().await.is_err());
}

#[tokio::test]
async fn claims_with_an_owner_are_hashes_in_every_layout() {
    let server = Redis::start().unwrap();
    let lock = client(&server, "prefix=");
    let guard = grant(&lock, long(NAME).owner("job-7")).await;
    assert!(redisson_tries(&server, THREAD).is_some(), "Redisson got in beside us");
    guard.release().await.unwrap();
    assert_eq!(redisson_tries(&server, THREAD), None);
}
