//! Servers that forget their scripts, and requests that nobody waits for any more.

use conformance_tests::servers::Redis;

use crate::*;

/// GEN-08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_scripts_is_told_them_again() {
    let server = Redis::start().unwrap();
    let forget = || drop(ask(&server, &["SCRIPT", "FLUSH"]));
    let kinds: [Kind; 4] = [
        ("exclusive", "", |request| request),
        ("shared", "", Request::shared),
        ("owned", "", |request| request.owner("me")),
        ("fair", "fair=true", |request| request),
    ];
    for (kind, params, with) in kinds {
        let (lock, other) = (client(&server, params), client(&server, params));
        let mut events = lock.core().events();
        let guard = grant(&lock, with(long(kind).ttl(ms(600)))).await;
        forget();
        event(&mut events, "renewed", renewed).await;
        forget();
        refused(&other, long(kind).owner("other"), kind).await;
        forget();
        let waiting = waiter(&other, long(kind));
        listened_to(&server, kind).await;
        forget();
        let seen = lock.inspect(guard.key()).await.unwrap().unwrap();
        assert_eq!(seen.fence, guard.fence(), "{kind}");
        forget();
        guard.release().await.unwrap();
        let next = within(AT_ONCE, kind, waiting).await.unwrap();
        forget();
        next.release().await.unwrap();
        let failed = |event: &EventKind| {
            matches!(event, EventKind::RenewalFailed { .. } | EventKind::Unavailable)
        };
        assert_eq!(count(&mut events, failed), 0, "{kind}");
    }
    empty(&server).await;
}

/// RED-34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_cancelled_requests_are_nobody_elses() {
    let behind = Behind::start();
    behind.proxy.delay(Toward::Both, ms(2));
    let lock = behind.client(QUICK_POLLS);
    warm(&lock).await;
    let (mut cancelled, mut granted) = (0, 0);
    for n in 0..200 {
        let acquire = lock.acquire(long(&format!("key{}", n % 10)));
        match tokio::time::timeout(Duration::from_micros(fastrand::u64(0..9_000)), acquire).await {
            Ok(guard) => {
                granted += 1;
                assert!(has(&behind.server, &guard.unwrap()));
            }
            Err(_) => cancelled += 1,
        }
    }
    assert!(cancelled > 20 && granted > 20, "{cancelled} cancelled, {granted} granted");
    let mut last = None;
    for n in 0..40 {
        let guard = grant(&lock, long(&format!("key{}", n % 10))).await;
        assert!(has(&behind.server, &guard), "{n}");
        assert!(guard.fence() > last, "{n}: {:?} after {last:?}", guard.fence());
        last = guard.fence();
        guard.release().await.unwrap();
    }
    quiet(&lock).await;
    empty(&behind.server).await;
}
