//! Connections that end between a command and its answer.

use conformance_tests::servers::{Action, Cut, Redis, Rule};
use tokio::task::JoinSet;

use crate::*;

const TIMES: u32 = 100;
const KEY: &str = "order:lock:1001";

/// All the ways in which a request stays without an answer: carried out or not.
fn ways() -> impl Iterator<Item = Action> {
    let (reset, finish) = (Cut::Reset, Cut::Finish);
    let at_answer = [Action::CutAtAnswer(reset), Action::CutAtAnswer(finish)];
    at_answer.into_iter().chain([Action::Cut(reset), Action::Cut(finish)]).cycle()
}

/// GEN-13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_without_an_answer_knows_its_own_claim() {
    let behind = Behind::start();
    let lock = behind.client(QUICK_POLLS);
    warm(&lock).await;
    let mut last = None;
    for way in ways().take(TIMES as usize) {
        behind.proxy.clear_rules();
        let hit = behind.proxy.rule(Rule::requests("PX").act(way).times(1));
        let (guard, took) = timed(grant(&lock, long(KEY))).await;
        assert_eq!(hit.count(), 1, "{way:?}");
        assert!(took < AT_ONCE, "{way:?}: waited {took:?}, for itself?");
        assert!(has(&behind.server, &guard), "{way:?}");
        assert!(guard.fence() > last, "{way:?}");
        last = guard.fence();
        guard.release().await.unwrap();
        assert!(is_free(&behind.server, KEY), "{way:?}");
    }
    quiet(&lock).await;
    empty(&behind.server).await;
}

/// The same for who does not wait: it is told that nobody knows, and nothing stays.
#[tokio::test]
async fn a_try_without_an_answer_is_told_and_leaves_nothing() {
    let behind = Behind::start();
    let lock = behind.client("");
    warm(&lock).await;
    for way in ways().take(20) {
        behind.proxy.clear_rules();
        behind.proxy.rule(Rule::requests("PX").act(way).times(1));
        match lock.try_acquire(long(KEY)).await {
            Err(error) => assert!(unavailable(&error), "{way:?}: {error}"),
            Ok(answer) => panic!("{way:?}: {answer:?} without an answer"),
        }
        eventually(AT_ONCE, "undone", || is_free(&behind.server, KEY)).await;
    }
    quiet(&lock).await;
    empty(&behind.server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_without_an_answer_loses_nothing() {
    const CLIENTS: u32 = 20;
    let server = Redis::start().unwrap();
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let proxy = Proxy::start(server.address()).unwrap();
        clients.spawn(async move {
            let lock = through(&proxy, "");
            let mut events = lock.core().events();
            let guard = grant(&lock, long(&format!("key{n}")).ttl(ms(1_500))).await;
            for way in ways().skip(n as usize).take((TIMES / CLIENTS) as usize) {
                let hit = proxy.rule(Rule::requests(digest("RENEW")).act(way).times(1));
                eventually(PATIENCE, "one without an answer", || hit.count() == 1).await;
                count(&mut events, |_| true);
                event(&mut events, "the next one", renewed).await;
                assert!(guard.is_held(), "{way:?}: {:?}", guard.loss());
            }
            guard.release().await.unwrap();
            quiet(&lock).await;
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    empty(&server).await;
}

/// RED-13.
#[tokio::test]
async fn a_release_without_an_answer_is_told_and_done() {
    let surely = |first, way| {
        let error = Result::expect_err(first, "nobody knows what became of it");
        assert!(unavailable(&error), "{way:?}: {error}");
    };
    releases_without_an_answer(surely).await;
}

/// The same in several threads: when the connection ends before its sender has looked once, the
/// request is sent again. What was freed the first time is not taken for lost then.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_that_is_sent_twice_takes_nothing_for_lost() {
    let not_lost = |first, way| match first {
        Ok(()) => assert!(matches!(way, Action::Cut(_)), "{way:?}: the answer was cut off"),
        Err(error) => assert!(unavailable(&error), "{way:?}: {error}"),
    };
    releases_without_an_answer(not_lost).await;
}

async fn releases_without_an_answer(judge: impl Fn(Result<(), Error>, Action)) {
    let behind = Behind::start();
    let lock = behind.client(QUICK_POLLS);
    warm(&lock).await;
    for way in ways().take(TIMES as usize) {
        behind.proxy.clear_rules();
        let guard = grant(&lock, long(KEY)).await;
        let hit = behind.proxy.rule(Rule::requests(digest("FREE")).act(way).times(1));
        let first = guard.release().await;
        assert_eq!(hit.count(), 1, "{way:?}");
        judge(first, way);
        assert!(!guard.is_held());
        guard.release().await.unwrap_or_else(|e| panic!("{way:?}: the second call: {e}"));
        assert!(is_free(&behind.server, KEY), "{way:?}");
    }
    quiet(&lock).await;
    empty(&behind.server).await;
}
