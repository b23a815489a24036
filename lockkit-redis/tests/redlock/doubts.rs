//! Requests that nobody answered, and that have their effect all the same.

use conformance_tests::servers::{Action, Cut, Rule, Toward};

use super::late::digest;
use super::*;

/// Who does not wait leaves nothing, also where its answer was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_vote_was_not_heard_leaves_nothing() {
    let behind = Behind::start(3);
    let (nodes, proxies) = (&behind.nodes, &behind.proxies);
    let client = behind.client("");
    warm(&client).await;
    occupy(&nodes[0], "k");
    occupy(&nodes[1], "k");
    // The outcome is open until the lost answer is known to be lost.
    proxies[0].delay(Toward::Client, Duration::from_millis(150));
    let lost = Action::CutAtAnswer(Cut::Reset);
    let asked = proxies[2].rule(Rule::requests(digest("ASK")).act(lost).times(1));
    let busy = client.try_acquire(Request::new("k").ttl(CALM)).await.unwrap();
    assert!(busy.is_none());
    assert_eq!(asked.count(), 1);
    until(AT_ONCE * 2, "the vote taken back", || with_key(&nodes[2..], "k") == 0).await;
}

/// One server is asked twice for the same claim, and the first request comes after the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_requests_the_later_to_land_is_taken_back_too() {
    let behind = Behind::start(3);
    let (nodes, proxies) = (&behind.nodes, &behind.proxies);
    let client = behind.client("poll_min=20ms&poll_max=100ms");
    warm(&client).await;
    occupy(&nodes[1], "k");
    occupy(&nodes[2], "k");
    let late = Action::Delay(Duration::from_millis(1500));
    proxies[0].rule(Rule::requests(digest("ASK")).act(late).times(1));
    let start = Instant::now();
    let request = Request::new("k").ttl(CALM).op_timeout(Duration::from_millis(400));
    let waiter = wait_for(&client, request);
    // Only with the first server's vote there is a quorum: it is asked again, and answers.
    let asked = proxies[0].rule(Rule::requests(digest("ASK")));
    until(LONG, "another request", || asked.count() > 0).await;
    vacate(&nodes[2], "k");
    let guard = within(AT_ONCE, "the claim", waiter).await.unwrap();
    guard.release().await.unwrap();
    until(AT_ONCE, "the end of the claim", || with_key(&nodes[..1], "k") == 0).await;
    assert!(start.elapsed() < Duration::from_millis(1400), "{:?}", start.elapsed());
    let landed = Duration::from_secs(2);
    until(landed, "the late effect", || with_key(&nodes[..1], "k") == 1).await;
    until(CALM / 6, "the late vote taken back", || with_key(&nodes[..1], "k") == 0).await;
}

/// A renewal that is answered after the deadline is none, however many answer it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_answered_after_the_deadline_comes_too_late() {
    let behind = Behind::start(5);
    let (client, rival) = (behind.client(""), redlock(&behind.nodes, ""));
    warm(&client).await;
    let ttl = Duration::from_secs(1);
    let guard = client.acquire(Request::new("k").ttl(ttl).op_timeout(ttl)).await.unwrap();
    for proxy in &behind.proxies[2..] {
        proxy.delay(Toward::Client, ttl);
    }
    let deadline = guard.deadline().unwrap();
    let lost = within(ttl + AT_ONCE, "the loss", guard.lost()).await;
    let late = BootInstant::now().since(deadline);
    assert!(late < Duration::from_millis(50), "told {late:?} after the deadline");
    assert!(matches!(lost.reason, lockkit_core::LossReason::Expired { .. }), "{lost}");
    // The renewals have reached the servers: what they prolonged is taken back.
    let next = rival.acquire(Request::new("k").ttl(CALM).timeout(LONG)).await.unwrap();
    assert!(!guard.is_held() && next.is_held());
    next.release().await.unwrap();
}

/// Of what a server did not hear of in time, nothing outlives the rest of `min_hold`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_lands_in_the_rest_of_min_hold_is_taken_back() {
    let behind = Behind::start(3);
    let (nodes, proxies) = (&behind.nodes, &behind.proxies);
    let client = behind.client("");
    warm(&client).await;
    let late = Action::Delay(Duration::from_millis(900));
    proxies[2].rule(Rule::requests(digest("ASK")).act(late).times(1));
    let limit = Duration::from_millis(300);
    let request = Request::new("k").ttl(CALM).op_timeout(limit).min_hold(limit * 2);
    let guard = client.acquire(request).await.unwrap();
    // So long that the late request was given up.
    tokio::time::sleep(limit).await;
    guard.release().await.unwrap();
    until(LONG, "the late effect", || with_key(&nodes[2..], "k") == 1).await;
    until(CALM / 6, "the late vote taken back", || with_key(nodes.iter(), "k") == 0).await;
}
