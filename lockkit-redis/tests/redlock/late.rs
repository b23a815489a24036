//! Answers and requests that are late.

use conformance_tests::servers::{Action, Cut, Hits, Rule, Toward};
use lockkit_core::{Error, LossReason};

use super::*;

/// The digest by which servers know a script.
pub(crate) fn digest(script: &str) -> &'static str {
    let digests = include_str!("../../src/scripts/digests.txt").lines();
    let mut digests = digests.filter_map(|line| line.split_once(' '));
    digests.find(|(name, _)| *name == script).unwrap().1
}

/// Polls so frequent that nobody waits for one.
const QUICK_POLLS: &str = "poll_min=5ms&poll_max=50ms";

/// Delays the next request that takes a claim back.
fn delay_the_next_undo(proxy: &Proxy, by: Duration) -> [Hits; 2] {
    ["WITHDRAW", "FREE"]
        .map(|script| proxy.rule(Rule::requests(digest(script)).act(Action::Delay(by)).times(1)))
}

/// A claim that was taken back, and not heard, is not asked for again by the same name: the
/// request to take it back may come at any time later, and would take a vote that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request_to_take_a_claim_back_takes_no_vote_that_counts() {
    let behind = Behind::start(3);
    let (nodes, proxies) = (&behind.nodes, &behind.proxies);
    let client = behind.client("");
    let rival = redlock(nodes, "");
    warm(&client).await;
    warm(&rival).await;
    occupy(&nodes[1], "k");
    occupy(&nodes[2], "k");
    let late = Duration::from_secs(5);
    let undone = delay_the_next_undo(&proxies[0], late);
    let start = Instant::now();
    let waiter = wait_for(&client, Request::new("k").ttl(CALM / 5));
    until(LONG, "a vote taken back", || undone.iter().any(|hits| hits.count() > 0)).await;
    // From now on the votes of the first two are needed.
    nodes[2].process().stop().unwrap();
    vacate(&nodes[1], "k");
    let guard = within(LONG, "the claim", waiter).await.unwrap();
    assert!(start.elapsed() < late, "the late request came too early to do harm");
    let has_come = start + late + AT_ONCE / 2;
    tokio::time::sleep(has_come.saturating_duration_since(Instant::now())).await;
    nodes[2].process().resume().unwrap();
    vacate(&nodes[2], "k");
    let second = rival.try_acquire("k").await.unwrap();
    assert!(!(guard.is_held() && second.is_some()), "two holders");
    assert!(guard.is_held(), "a claim that nobody took away is lost");
}

/// Nor is it counted when a claim is renewed: it says yes until the request to take it back comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_is_being_taken_back_renews_nothing() {
    let behind = Behind::start(3);
    let (nodes, proxies) = (&behind.nodes, &behind.proxies);
    let client = behind.client(QUICK_POLLS);
    let rival = redlock(nodes, QUICK_POLLS);
    warm(&client).await;
    warm(&rival).await;
    occupy(&nodes[1], "k");
    occupy(&nodes[2], "k");
    let ttl = Duration::from_secs(3);
    let late = Action::Delay(ttl * 2 / 3);
    let undone = proxies[0].rule(Rule::requests(digest("FREE")).act(late));
    let waiter = wait_for(&client, Request::new("k").ttl(ttl));
    until(LONG, "a vote taken back", || undone.count() > 0).await;
    vacate(&nodes[1], "k");
    vacate(&nodes[2], "k");
    let guard = within(LONG, "the claim", waiter).await.unwrap();
    assert_eq!(votes(nodes.iter(), &guard), 3, "one of them for a moment only");
    // The holder loses sight of the third server, so its lease cannot be renewed any more.
    proxies[2].refuse();
    proxies[2].cut(Cut::Reset);
    let second = within(ttl * 2, "a rival", rival.acquire(Request::new("k").timeout(ttl * 2)));
    let second = second.await.unwrap();
    assert!(!guard.is_held(), "two holders");
    let lost = guard.loss().unwrap();
    assert!(matches!(lost.reason, LossReason::Expired { .. }), "{lost}");
    second.release().await.unwrap();
}

/// One of three answers a second late, with a TTL of half a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_minority_lets_nobody_in_twice() {
    let behind = Behind::start(3);
    let clients: Vec<_> = (0..4).map(|_| behind.client(QUICK_POLLS)).collect();
    for client in &clients {
        warm(client).await;
    }
    behind.proxies[2].delay(Toward::Client, Duration::from_secs(1));
    let passes = chaos(&clients, Duration::from_secs(6), |_| {}).await;
    assert!(passes > 20, "{passes} passes");
    behind.proxies[2].delay(Toward::Client, Duration::ZERO);
    all_empty(&behind.nodes).await;
}

/// Every server is late now and then, in both directions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_late_by_turns_let_nobody_in_twice() {
    let behind = Behind::start(3);
    let clients: Vec<_> = (0..4).map(|_| behind.client(QUICK_POLLS)).collect();
    for client in &clients {
        warm(client).await;
    }
    let passes = chaos(&clients, Duration::from_secs(8), |turn| {
        let proxy = &behind.proxies[fastrand::usize(..3)];
        let toward = [Toward::Client, Toward::Server][turn % 2];
        let by = [0, 0, 0, 0, 0, 0, 150, 400][fastrand::usize(..8)];
        proxy.delay(toward, Duration::from_millis(by));
    })
    .await;
    assert!(passes > 5, "{passes} passes");
    for proxy in &behind.proxies {
        proxy.delay(Toward::Both, Duration::ZERO);
    }
    all_empty(&behind.nodes).await;
}

/// All clients take the key by turns for so long; how often that worked.
async fn chaos(clients: &[RedisLock], time: Duration, mut disturb: impl FnMut(usize)) -> usize {
    let overlaps = Overlaps::default();
    let end = Instant::now() + time;
    let tasks: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, overlaps) = (client.clone(), overlaps.clone());
            tokio::spawn(async move {
                let mut passes = 0;
                while Instant::now() < end {
                    let request =
                        Request::new("k").ttl(Duration::from_millis(500)).timeout(AT_ONCE);
                    let hold = Duration::from_millis(fastrand::u64(..30));
                    passes += usize::from(overlaps.pass(&client, request, hold).await);
                }
                passes
            })
        })
        .collect();
    let mut turn = 0;
    while Instant::now() < end {
        disturb(turn);
        turn += 1;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let mut passes = 0;
    for task in tasks {
        passes += task.await.unwrap();
    }
    passes
}

/// A majority that answers after the TTL is none, whatever a clock on a wall says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_comes_after_the_ttl_is_refused_and_undone() {
    let behind = Behind::start(3);
    let client = behind.client("");
    warm(&client).await;
    let ttl = Duration::from_secs(1);
    for proxy in &behind.proxies[1..] {
        proxy.delay(Toward::Client, ttl + ttl / 10);
    }
    let request = Request::new("k").ttl(ttl).op_timeout(ttl).timeout(ttl * 2);
    let refused = client.acquire(request).await.unwrap_err();
    assert!(matches!(refused, Error::NotAcquired(_) | Error::Unavailable(_)), "{refused}");
    for proxy in &behind.proxies {
        proxy.delay(Toward::Client, Duration::ZERO);
    }
    all_empty(&behind.nodes).await;
    client.acquire("k").await.unwrap().release().await.unwrap();
}

/// Time that went by before the last attempt is not taken off, and that of the attempt is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_long_wait_nearly_the_whole_ttl_is_left() {
    let behind = Behind::start(3);
    let (holder, client) = (behind.client(""), behind.client(RARE_POLLS));
    warm(&client).await;
    let ttl = Duration::from_secs(2);
    let guard = holder.acquire(Request::new("k").ttl(ttl)).await.unwrap();
    let waiter = wait_for(&client, Request::new("k").ttl(ttl));
    until(LONG, "subscriptions", || behind.nodes.iter().all(|node| channels(node) > 0)).await;
    let mut events = holder.core().events();
    for _ in 0..4 {
        event(&mut events, "a renewal", renewed).await;
    }
    for proxy in &behind.proxies {
        proxy.delay(Toward::Client, Duration::from_millis(100));
    }
    guard.release().await.unwrap();
    let next = within(AT_ONCE, "the hand-over", waiter).await.unwrap();
    let left = next.remaining();
    assert!(left < ttl - Duration::from_millis(100) && left > ttl / 2, "{left:?}");
    next.release().await.unwrap();
}

/// The caller has given up, and the request is still on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lands_after_the_caller_has_gone_does_not_keep_the_key() {
    let behind = Behind::start(3);
    let (client, other) = (behind.client(""), redlock(&behind.nodes, QUICK_POLLS));
    warm(&client).await;
    warm(&other).await;
    for proxy in &behind.proxies[..2] {
        proxy.delay(Toward::Server, Duration::from_millis(800));
    }
    let request = Request::new("k").ttl(CALM).timeout(Duration::from_millis(100));
    client.acquire(request).await.unwrap_err();
    until(LONG, "the late effect", || with_key(&behind.nodes[..2], "k") > 0).await;
    let (guard, took) = timed(other.acquire(Request::new("k").timeout(LONG))).await;
    guard.unwrap().release().await.unwrap();
    assert!(took < CALM / 6, "{took:?}");
    for proxy in &behind.proxies {
        proxy.delay(Toward::Server, Duration::ZERO);
    }
    all_empty(&behind.nodes).await;
}
