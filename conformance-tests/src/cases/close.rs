//! Closing a client.

use std::time::Duration;

use lockkit_core::LockExt;
use lockkit_core::testing::{Fault, Op};

use crate::bed::{Test, close};
use crate::case::clause;
use crate::check::{error, free_now, grant, grant_free, refused, release, timed};

clause! { "close";
    refuses_new_claims;
    waits_for_the_clean_up;
    keeps_what_is_held;
    tells_what_it_could_not_wait_for;
    ping_of_a_living_store;
}

async fn refuses_new_claims(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    assert!(close(&client).await);
    error(client.acquire(t.request(&key)).await, "an acquire of a closed client");
    error(client.try_acquire(t.request(&key)).await, "a try of a closed client");
    assert!(close(&client).await, "a second close");
}

async fn waits_for_the_clean_up(t: Test) {
    let (client, other) = (t.client().await, t.client().await);
    let mut keys = Vec::new();
    for _ in 0..20 {
        let key = t.key("a");
        drop(grant(&*client, t.request(&key).ttl(t.long_ttl())).await);
        keys.push(key);
    }
    assert!(close(&client).await, "20 dropped guards were not cleaned up");
    for key in keys {
        let guard = grant_free(&*other, t.request(&key), "close() waited for its release").await;
        release(&guard).await;
    }
}

async fn keeps_what_is_held(t: Test) {
    let (key, client, other) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    assert!(close(&client).await);
    tokio::time::sleep(t.ttl() * 3).await;
    assert!(guard.is_held(), "close() ended a claim: {:?}", guard.loss());
    refused(&*other, t.brief(&key), "the guard lives").await;
    release(&guard).await;
    free_now(&*other, t.brief(&key), "released after close()").await;
}

async fn tells_what_it_could_not_wait_for(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let guard = grant(&*client, t.request(&key).ttl(t.long_ttl())).await;
    client.every(Op::Release, Fault::Refuse);
    drop(guard);
    let (took, clean) = timed(client.close(Duration::from_millis(200))).await;
    assert!(!clean, "close() says that all is clean while a release fails");
    assert!(took < Duration::from_millis(500), "close(200 ms) took {took:?}");
}

async fn ping_of_a_living_store(t: Test) {
    let client = t.client().await;
    client.ping().await.expect("a sign of life");
}
