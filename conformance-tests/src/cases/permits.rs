//! Exactly so many holders.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkit_core::{BootInstant, Error, LockExt, Mode, Request};

use crate::bed::{SLACK, Test};
use crate::case::clause;
use crate::check::{error, free_now, grant, grant_free, refused, release, safe, timed, within};

clause! { "permits";
    exactly_as_many_as_the_limit [Permits];
    never_more_and_sometimes_all [Permits] heavy;
    one_permit_is_a_mutex [Permits];
    released_permit_lets_one_in [Permits];
    dead_permit_is_freed [Permits Expires];
    another_limit_is_refused_at_once [Permits];
    another_family_is_refused_at_once [Permits];
    family_is_free_when_all_are_gone [Permits];
}

fn limit(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("not zero")
}

async fn exactly_as_many_as_the_limit(t: Test) {
    for n in [1, 2, 5] {
        let (key, clients) = (t.key("a"), t.clients(3).await);
        let request = || t.brief(&key).permit(limit(n));
        let mut permits = Vec::new();
        for at in 0..n as usize {
            let why = format!("permit {} of {n}", at + 1);
            permits.push(grant_free(&*clients[at % 3], request(), &why).await);
        }
        for client in &clients {
            refused(&**client, request(), &format!("all {n} permits are taken")).await;
        }
        tokio::time::sleep(t.ttl() * 3 / 2).await;
        for permit in permits {
            assert!(permit.is_held(), "a permit was not renewed: {:?}", permit.loss());
            release(&permit).await;
        }
    }
}

async fn never_more_and_sometimes_all(t: Test) {
    let (key, clients) = (t.key("a"), t.clients(3).await);
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..15)
        .map(|n| {
            let (client, inside) = (Arc::clone(&clients[n % 3]), Arc::clone(&inside));
            let most = Arc::clone(&most);
            let request = t.request(&key).permit(limit(3)).timeout(Duration::from_secs(60));
            tokio::spawn(async move {
                for _ in 0..3 {
                    let permit = grant(&*client, request.clone()).await;
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= 3, "{now} holders of 3 permits");
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    release(&permit).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("more holders than permits");
    }
    assert_eq!(most.load(Ordering::SeqCst), 3, "never all permits were used");
}

async fn one_permit_is_a_mutex(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let request = || t.request(&key).permit(limit(1));
    let permit = grant(&*a, request()).await;
    refused(&*b, request(), "the only permit is taken").await;
    refused(&*a, request(), "the only permit is taken").await;
    release(&permit).await;
    free_now(&*b, request(), "the only permit is free").await;
}

async fn released_permit_lets_one_in(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let request = || t.request(&key).permit(limit(2));
    let (first, second) = (grant(&*a, request()).await, grant(&*a, request()).await);
    let mut one = tokio::spawn(b.acquire(request()));
    let mut two = tokio::spawn(b.acquire(request()));
    tokio::time::sleep(Duration::from_millis(150)).await;
    safe!(!one.is_finished() && !two.is_finished(), "three holders of two permits");
    release(&first).await;
    let next = within(t.prompt(), "a released permit lets one in", async {
        tokio::select! { next = &mut one => (next, two), next = &mut two => (next, one) }
    });
    let (next, mut other) = next.await;
    let early = tokio::time::timeout(Duration::from_millis(150), &mut other).await;
    safe!(early.is_err(), "one released permit let two in");
    release(&second).await;
    let last = within(t.prompt(), "the other released permit", other).await;
    release(&next.unwrap().expect("a permit")).await;
    release(&last.unwrap().expect("a permit")).await;
}

async fn dead_permit_is_freed(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let request = || t.brief(&key).permit(limit(2));
    let dead = grant(&*a, request().renew(false)).await;
    let start = BootInstant::now();
    let alive = grant(&*a, request()).await;
    let next = grant(&*b, request()).await;
    let after = BootInstant::now().since(start);
    assert!(after <= t.ttl() + t.granularity() + SLACK, "a dead permit was kept {after:?}");
    assert!(!dead.is_held() && alive.is_held());
    refused(&*a, request(), "two live permits of two").await;
    release(&alive).await;
    release(&next).await;
}

/// What the key is not held as must be refused at once, however long it may wait.
async fn refused_at_once(t: &Test, requests: &[Request]) {
    let client = t.client().await;
    for request in requests {
        let patient = request.clone().timeout(Duration::from_secs(10));
        let (took, result) = timed(client.acquire(patient)).await;
        let refusal = error(result, &format!("{request:?} beside another family"));
        let configuration = matches!(refusal, Error::Configuration(_));
        assert!(configuration, "not a configuration error: {refusal:?}");
        assert!(took < Duration::from_secs(1), "told after {took:?}, not at once");
    }
}

async fn another_limit_is_refused_at_once(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let permit = grant(&*a, t.request(&key).permit(limit(3))).await;
    let others = [2, 4, 1].map(|n| t.request(&key).permit(limit(n)));
    refused_at_once(&t, &others).await;
    release(&permit).await;
}

async fn another_family_is_refused_at_once(t: Test) {
    let (key, a) = (t.key("a"), t.client().await);
    let permit = grant(&*a, t.request(&key).permit(limit(3))).await;
    let mut others = vec![t.request(&key)];
    if t.capabilities().shared {
        others.push(t.request(&key).shared());
    }
    refused_at_once(&t, &others).await;
    release(&permit).await;
    let guard = grant(&*a, t.request(&key)).await;
    refused_at_once(&t, &[t.request(&key).permit(limit(3))]).await;
    release(&guard).await;
}

async fn family_is_free_when_all_are_gone(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let modes = [
        Mode::Permit { limit: limit(3) },
        Mode::Exclusive,
        Mode::Permit { limit: limit(5) },
        Mode::Permit { limit: limit(1) },
        Mode::Exclusive,
    ];
    for (mode, client) in modes.into_iter().zip([&a, &b].into_iter().cycle()) {
        let guard = grant(&**client, t.request_in(&key, mode)).await;
        assert_eq!(guard.mode(), mode);
        release(&guard).await;
    }
}
