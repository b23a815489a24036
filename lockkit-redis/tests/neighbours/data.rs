//! Data of the application under the names of locks.

use std::num::NonZeroU32;
use std::time::Duration;

use conformance_tests::servers::Redis;
use lockkit_core::{DistributedLock, Key, LockExt, Request, Which};

use crate::clients::*;

/// One key of each type: what makes it, and its name. All of them are names of locks too.
const DATA: [(&str, &[&str]); 6] = [
    ("string", &["SET", "user:string", "{\"name\":\"Ada\"}"]),
    ("hash", &["HSET", "user:hash", "name", "Ada", "age", "36"]),
    ("list", &["RPUSH", "user:list", "a", "b"]),
    ("set", &["SADD", "user:set", "a", "b"]),
    ("zset", &["ZADD", "user:zset", "1", "a", "2", "b"]),
    ("stream", &["XADD", "user:stream", "1-1", "name", "Ada"]),
];

const CLIENTS: [&str; 4] = ["", "fair=true", "layout=hash", "fences=false"];

fn modes(name: &str) -> [Request; 4] {
    let permit = long(name).permit(NonZeroU32::new(2).unwrap());
    [long(name), long(name).owner("me"), long(name).shared(), permit]
}

/// Puts the data there; gives its names, and what lies there.
fn fill(server: &Redis) -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let put = |(kind, command): (&'static str, &'static [&'static str])| {
        ask(server, command);
        (kind, command[1], dump(server, command[1]))
    };
    DATA.into_iter().map(put).collect()
}

#[tokio::test]
async fn with_a_prefix_data_of_the_same_name_is_another_key() {
    let server = Redis::start().unwrap();
    let data = fill(&server);
    for params in CLIENTS {
        let lock = client(&server, params);
        for (_, name, _) in &data {
            for request in modes(name) {
                let guard = grant_free(&lock, request.clone(), params).await;
                guard.release().await.unwrap();
                // One that expires, and a rival that waits for that.
                let mortal = request.ttl(Duration::from_millis(100)).renew(false);
                let guard = grant_free(&lock, mortal, params).await;
                let next = within(PATIENCE, "it expires", lock.acquire(long(name))).await;
                // Of one family or not.
                if let Ok(next) = next {
                    next.release().await.unwrap();
                }
                let _ = guard.release().await;
            }
        }
        assert!(lock.close(PATIENCE).await);
    }
    for (kind, name, before) in &data {
        assert_eq!(dump(&server, name), *before, "the {kind} was touched");
        assert_eq!(ask(&server, &["PTTL", name]).number(), Some(-1), "the {kind} has a TTL now");
    }
    eventually(PATIENCE, "only the data is left", || ask(&server, &["DBSIZE"]).number() == Some(6))
        .await;
}

#[tokio::test]
async fn without_a_prefix_data_is_never_touched() {
    let server = Redis::start().unwrap();
    let data = fill(&server);
    for params in CLIENTS {
        let lock = client(&server, &format!("prefix=&{params}"));
        for (kind, name, _) in &data {
            let key = Key::new(*name).unwrap();
            let could_be_a_lock = matches!(*kind, "string" | "hash");
            for (at, request) in modes(name).into_iter().enumerate() {
                let why = format!("a {kind}, {params}, {request:?}");
                if !could_be_a_lock {
                    let told = misconfigured(&lock, request.clone(), &why).await;
                    assert!(told.contains(kind) && told.contains("prefix"), "{why}: {told}");
                    match lock.try_acquire(request).await {
                        Err(told) => assert_eq!(told.reason(), "configuration", "{why}: {told}"),
                        other => panic!("{why}: {other:?}"),
                    }
                } else if at == 3 {
                    // Permits are of another family than whatever this is.
                    misconfigured(&lock, request, &why).await;
                } else {
                    refused(&lock, request.clone(), &why).await;
                    let waited = lock.acquire(request.timeout(Duration::from_millis(120))).await;
                    assert!(waited.unwrap_err().is_not_acquired(), "{why}");
                }
            }
            assert_eq!(lock.inspect(&key).await.unwrap().is_some(), could_be_a_lock, "{kind}");
            if !could_be_a_lock {
                assert!(!lock.force_release(&key, Which::Whoever).await.unwrap(), "{kind}");
            }
        }
        assert!(lock.close(PATIENCE).await);
    }
    for (kind, name, before) in &data {
        assert_eq!(dump(&server, name), *before, "the {kind} was touched");
        assert_eq!(ask(&server, &["PTTL", name]).number(), Some(-1), "the {kind} has a TTL now");
    }
    eventually(PATIENCE, "only the data is left", || ask(&server, &["DBSIZE"]).number() == Some(6))
        .await;
}
