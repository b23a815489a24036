//! Keys in the server.

use std::num::NonZeroU32;
use std::time::Duration;

use conformance_tests::servers::Redis;
use lockkit_core::{LockExt, Request};
use tokio::task::JoinSet;

use crate::clients::*;
use crate::pairs::contend;

/// What a released key leaves, and what somebody left who waited and was let in.
const LEFT: i64 = 0;

/// How many claims are under way at a time.
const AT_ONCE: usize = 16;

fn name(n: usize) -> String {
    format!("order:lock:{n}")
}

fn in_some_mode(n: usize) -> Request {
    let request = long(&name(n));
    match n % 4 {
        0 => request,
        1 => request.owner("job-7"),
        2 => request.shared(),
        _ => request.permit(NonZeroU32::new(2).unwrap()),
    }
}

/// Runs `task` for each of these numbers, some at a time.
async fn for_each<F>(numbers: std::ops::Range<usize>, task: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for n in numbers {
        if tasks.len() == AT_ONCE {
            tasks.join_next().await.unwrap().unwrap();
        }
        tasks.spawn(task(n));
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_names_leave_nothing_in_the_server() {
    let server = Redis::start().unwrap();
    for (params, free, contended) in
        [("", 3_000, 600), ("fair=true", 1_000, 300), ("layout=hash", 1_000, 300)]
    {
        let (one, two) = (client(&server, params), client(&server, params));
        for_each(0..free, |n| {
            let lock = one.clone();
            async move { grant(&lock, in_some_mode(n)).await.release().await.unwrap() }
        })
        .await;
        // (Permits are refused beside an exclusive claim.)
        let names = (free..free + contended).filter(|n| n % 4 != 3);
        contend(&one, &two, names.map(|n| (name(n), in_some_mode(n)))).await;
        // A waiter's intent or place that nobody took back would go within two seconds by itself;
        // but all of them took theirs back.
        assert_eq!(keys(&server), LEFT, "{params}: {:?}", ask(&server, &["KEYS", "*"]));
        assert!(one.close(PATIENCE).await && two.close(PATIENCE).await);
        assert_eq!(keys(&server), LEFT, "{params}: after the end of the clients");
    }
}

fn keys(server: &Redis) -> i64 {
    ask(server, &["DBSIZE"]).number().unwrap()
}

/// Those that expire, and those that gave up, leave nothing either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_die_and_waiters_that_give_up_leave_nothing_in_the_server() {
    let server = Redis::start().unwrap();
    for params in ["", "fair=true", "layout=hash"] {
        let (one, two) = (client(&server, params), client(&server, params));
        for_each(0..300, |n| {
            let (one, two) = (one.clone(), two.clone());
            async move {
                let brief = in_some_mode(n).ttl(Duration::from_millis(500)).renew(false);
                let guard = grant(&one, brief).await;
                let timeout = Duration::from_millis(50);
                let rival = two.acquire(long(&name(n)).timeout(timeout)).await;
                assert!(rival.is_err(), "{n}: {rival:?}");
                std::mem::forget(guard);
            }
        })
        .await;
        eventually(PATIENCE, "all is gone", || keys(&server) == LEFT).await;
    }
}
