//! What the caller does to its runtime does not hurt a lock.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{Guard, LockExt, Request};
use tokio::runtime::{Builder, Runtime};

use crate::bed::{Client, Test};
use crate::case::clause;
use crate::check::{grant, refused, release, within};

clause! { "runtimes";
    blocked_current_thread_runtime_keeps_its_lock;
    blocked_multi_thread_runtime_keeps_its_lock;
    guard_survives_the_runtime_that_acquired_it;
    client_survives_the_runtime_that_made_it;
    guard_dropped_outside_a_runtime;
    guard_dropped_in_a_runtime_that_ended;
    guard_dropped_by_the_end_of_a_runtime;
    waits_on_both_kinds_of_runtime;
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Runs `f` on a thread that is in no runtime, without blocking this one.
async fn on_a_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || sender.send(f()));
    within(Duration::from_secs(60), "the thread ends", receiver).await.expect("no panic there")
}

async fn blocked(t: Test, make: fn() -> Runtime) {
    let (key, client, rival) = (t.key("a"), t.client().await, t.client().await);
    let (request, ttl) = (t.brief(&key), t.ttl());
    let holder = on_a_thread(move || {
        make().block_on(async {
            let guard = grant(&*client, request).await;
            let blocked = tokio::spawn(async move { std::thread::sleep(ttl * 3) });
            std::thread::sleep(ttl * 3);
            let held = guard.is_held();
            blocked.await.expect("it only sleeps");
            release(&guard).await;
            held
        })
    });
    let rival = async {
        tokio::time::sleep(t.ttl() / 2).await;
        for _ in 0..10 {
            refused(&*rival, t.brief(&key), "its holder is busy, not gone").await;
            tokio::time::sleep(t.ttl() / 5).await;
        }
    };
    let (held, ()) = tokio::join!(holder, rival);
    assert!(held, "a holder that blocked its runtime for 3 TTL lost its lock");
}

async fn blocked_current_thread_runtime_keeps_its_lock(t: Test) {
    blocked(t, current_thread).await;
}

async fn blocked_multi_thread_runtime_keeps_its_lock(t: Test) {
    blocked(t, multi_thread).await;
}

async fn acquired_elsewhere(client: Client, request: Request, make: fn() -> Runtime) -> Guard {
    on_a_thread(move || make().block_on(grant(&*client, request))).await
}

async fn guard_survives_the_runtime_that_acquired_it(t: Test) {
    for make in [current_thread, multi_thread] {
        let (key, client, rival) = (t.key("a"), t.client().await, t.client().await);
        let guard = acquired_elsewhere(client, t.brief(&key), make).await;
        tokio::time::sleep(t.ttl() * 3).await;
        assert!(guard.is_held(), "lost with the runtime: {:?}", guard.loss());
        refused(&*rival, t.brief(&key), "the guard lives").await;
        release(&guard).await;
        release(&grant(&*rival, t.brief(&key)).await).await;
    }
}

async fn client_survives_the_runtime_that_made_it(t: Test) {
    let (key, maker) = (t.key("a"), t.clone());
    let made = on_a_thread(move || {
        current_thread().block_on(async {
            let client = maker.client().await;
            release(&grant(&*client, maker.brief(&maker.key("b"))).await).await;
            client
        })
    });
    let (client, other) = (made.await, t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    let waiter = {
        let (client, request) = (Arc::clone(&client), t.brief(&key));
        tokio::spawn(async move { grant(&*client, request).await })
    };
    refused(&*other, t.brief(&key), "held").await;
    release(&guard).await;
    let next = within(Duration::from_secs(5), "a wait in a new runtime", waiter).await;
    release(&next.unwrap()).await;
}

async fn freed(t: &Test, key: &str, why: &str) {
    let client = t.client().await;
    let next = client.acquire(t.brief(key));
    let next = within(Duration::from_secs(2), why, next).await.expect("a grant");
    release(&next).await;
}

async fn guard_dropped_outside_a_runtime(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).ttl(t.long_ttl())).await;
    on_a_thread(move || drop(guard)).await;
    freed(&t, &key, "a guard dropped outside a runtime releases").await;
}

async fn guard_dropped_in_a_runtime_that_ended(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let request = t.brief(&key).ttl(t.long_ttl());
    on_a_thread(move || {
        let runtime = current_thread();
        let guard = runtime.block_on(grant(&*client, request));
        let handle = runtime.handle().clone();
        drop(runtime);
        let _inside = handle.enter();
        drop(guard);
    })
    .await;
    freed(&t, &key, "a guard dropped in an ended runtime releases").await;
}

async fn guard_dropped_by_the_end_of_a_runtime(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let request = t.brief(&key).ttl(t.long_ttl());
    on_a_thread(move || {
        let runtime = multi_thread();
        let (sender, entered) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let _guard = grant(&*client, request).await;
            let _ = sender.send(());
            std::future::pending::<()>().await;
        });
        entered.recv().expect("the task holds the key");
        runtime.shutdown_background();
    })
    .await;
    freed(&t, &key, "a guard dropped by the end of its runtime releases").await;
}

async fn waits_on_both_kinds_of_runtime(t: Test) {
    for make in [current_thread, multi_thread] {
        let (key, client, holder) = (t.key("a"), t.client().await, t.client().await);
        let guard = grant(&*holder, t.brief(&key)).await;
        let waiting = acquired_elsewhere(client, t.brief(&key), make);
        let let_go = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            release(&guard).await;
        };
        let (next, ()) = tokio::join!(waiting, let_go);
        assert!(next.is_held());
        release(&next).await;
    }
}
