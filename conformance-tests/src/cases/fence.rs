//! Fences grow with every grant of a key, whatever ended the claim before.

use lockkit_core::{LockExt, Mode, Which};

use crate::bed::{Client, Test, close};
use crate::case::clause;
use crate::check::{grant, refused, release, safe, until};

clause! { "fence";
    grows_over_releases(modes) [Fenced];
    grows_over_clients [Fenced];
    grows_over_expiry [Fenced Expires];
    grows_over_forced_release [Fenced ForcedRelease];
    grows_over_a_crash [Fenced Processes];
    grows_over_reconnects [Fenced];
    grows_over_failed_attempts [Fenced];
    grows_over_modes [Fenced Shared];
    readers_have_their_own [Fenced Shared];
    fences_of_permits_differ [Fenced Permits];
    store_refuses_the_late_writer [Fenced Expires];
}

/// The fences of one key so far.
#[derive(Default)]
struct Fences(Vec<u64>);

impl Fences {
    fn add(&mut self, fence: Option<u64>, after: &str) {
        let fence = fence.expect("the backend says it has fences");
        let last = self.0.last().copied();
        safe!(last.is_none_or(|last| fence > last), "{fence} after {last:?}, after {after}");
        self.0.push(fence);
    }

    async fn cycle(&mut self, client: &Client, request: lockkit_core::Request, after: &str) {
        let guard = grant(&**client, request).await;
        self.add(guard.fence(), after);
        release(&guard).await;
    }
}

async fn grows_over_releases(t: Test, mode: Mode) {
    let (key, client, mut fences) = (t.key("a"), t.client().await, Fences::default());
    for _ in 0..30 {
        fences.cycle(&client, t.request_in(&key, mode), "a release").await;
    }
}

async fn grows_over_clients(t: Test) {
    let (key, clients, mut fences) = (t.key("a"), t.clients(3).await, Fences::default());
    for round in 0..15 {
        let client = &clients[round % clients.len()];
        fences.cycle(client, t.request(&key), "a release by another client").await;
    }
}

async fn grows_over_expiry(t: Test) {
    let (key, a, b, mut fences) =
        (t.key("a"), t.client().await, t.client().await, Fences::default());
    for _ in 0..2 {
        let guard = grant(&*a, t.brief(&key).renew(false)).await;
        fences.add(guard.fence(), "a release");
        fences.cycle(&b, t.brief(&key), "an expiry").await;
    }
}

async fn grows_over_forced_release(t: Test) {
    let (key, a, b, mut fences) =
        (t.key("a"), t.client().await, t.client().await, Fences::default());
    for _ in 0..3 {
        let guard = grant(&*a, t.request(&key)).await;
        fences.add(guard.fence(), "a release");
        b.force_release(guard.key(), Which::Whoever).await.expect("a forced release");
        fences.cycle(&b, t.request(&key), "a forced release").await;
    }
}

async fn grows_over_a_crash(t: Test) {
    let (key, client, mut fences) = (t.key("a"), t.client().await, Fences::default());
    for _ in 0..2 {
        let mut child = t.child().await;
        let granted = child.acquire("a", t.ask(&key)).await;
        fences.add(granted.fence(), "a release");
        child.kill().await;
        fences.cycle(&client, t.request(&key), "a crash").await;
    }
}

async fn grows_over_reconnects(t: Test) {
    let (key, mut fences) = (t.key("a"), Fences::default());
    // Where the store lives in its clients, one of them has to stay.
    let idle = t.client().await;
    for _ in 0..4 {
        let client = t.client().await;
        fences.cycle(&client, t.request(&key), "all clients had gone").await;
        assert!(close(&client).await, "the client did not close");
        drop(client);
        t.left(|left| left.clients.truncate(1));
    }
    drop(idle);
}

async fn grows_over_failed_attempts(t: Test) {
    let (key, a, b, mut fences) =
        (t.key("a"), t.client().await, t.client().await, Fences::default());
    for _ in 0..20 {
        let guard = grant(&*a, t.request(&key)).await;
        fences.add(guard.fence(), "failed attempts");
        for _ in 0..3 {
            refused(&*b, t.request(&key), "held").await;
        }
        assert_eq!(guard.fence(), fences.0.last().copied(), "a failed attempt moved it");
        release(&guard).await;
    }
}

async fn grows_over_modes(t: Test) {
    let (key, client, mut fences) = (t.key("a"), t.client().await, Fences::default());
    for _ in 0..5 {
        fences.cycle(&client, t.request(&key), "a reader").await;
        fences.cycle(&client, t.request(&key).shared(), "a writer").await;
    }
}

async fn readers_have_their_own(t: Test) {
    let (key, a, b, mut fences) =
        (t.key("a"), t.client().await, t.client().await, Fences::default());
    let mut readers = Vec::new();
    for client in [&a, &b, &a, &b] {
        let reader = grant(&**client, t.request(&key).shared()).await;
        fences.add(reader.fence(), "another reader");
        readers.push(reader);
    }
    for reader in readers {
        release(&reader).await;
    }
    fences.cycle(&a, t.request(&key), "readers").await;
}

async fn fences_of_permits_differ(t: Test) {
    let (key, a, b, mut fences) =
        (t.key("a"), t.client().await, t.client().await, Fences::default());
    let limit = std::num::NonZeroU32::new(4).expect("not zero");
    let mut permits = Vec::new();
    for client in [&a, &b, &a, &b] {
        let permit = client.permit(t.request(&key), limit).await.expect("a permit");
        fences.add(permit.fence(), "another permit");
        permits.push(permit);
    }
    for permit in permits {
        release(&permit).await;
    }
}

async fn store_refuses_the_late_writer(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let late = grant(&*a, t.brief(&key).renew(false)).await;
    until(late.deadline().expect("a live claim")).await;
    let next = grant(&*b, t.brief(&key)).await;
    safe!(next.fence() > late.fence(), "the store would take the late write");
    release(&next).await;
}
