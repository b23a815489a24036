//! Servers that die, hang, or forget.

use conformance_tests::servers::Data;
use lockkit_core::LossReason;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_dead_change_nothing() {
    let nodes = Nodes::start(5).unwrap();
    let client = redlock(&nodes, "");
    warm(&client).await;
    nodes[0].process().kill().unwrap();
    nodes[3].process().kill().unwrap();
    let alive = [&nodes[1], &nodes[2], &nodes[4]];
    let mut events = client.core().events();
    let (guard, took) = timed(client.acquire(Request::new("k").ttl(CALM / 20))).await;
    let guard = guard.unwrap();
    assert!(took < PROMPT && votes(alive, &guard) == 3, "{took:?}");
    event(&mut events, "a renewal", renewed).await;
    event(&mut events, "another renewal", renewed).await;
    assert!(guard.is_held());
    let (released, took) = timed(guard.release()).await;
    released.unwrap();
    assert!(took < PROMPT && with_key(alive, "k") == 0, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_hanging_delay_nobody() {
    let nodes = Nodes::start(5).unwrap();
    let (client, rival) = (redlock(&nodes, ""), redlock(&nodes, ""));
    warm(&client).await;
    warm(&rival).await;
    nodes[1].process().stop().unwrap();
    nodes[2].process().stop().unwrap();
    for _ in 0..3 {
        let mut events = client.core().events();
        let (guard, took) = timed(client.acquire(Request::new("k").ttl(CALM / 10))).await;
        let guard = guard.unwrap();
        assert!(took < PROMPT, "{took:?} to acquire");
        let (busy, took) = timed(rival.try_acquire("k")).await;
        assert!(busy.unwrap().is_none() && took < PROMPT, "{took:?} to be told that it is busy");
        event(&mut events, "a renewal", renewed).await;
        assert!(guard.is_held());
        let (released, took) = timed(guard.release()).await;
        released.unwrap();
        assert!(took < PROMPT, "{took:?} to release");
    }
    nodes[1].process().resume().unwrap();
    nodes[2].process().resume().unwrap();
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_empty_is_not_given_the_claim_back() {
    let nodes = Nodes::start(5).unwrap();
    let (client, rival) = (redlock(&nodes, ""), redlock(&nodes, ""));
    let mut events = client.core().events();
    let guard = client.acquire(Request::new("k").ttl(CALM / 15)).await.unwrap();
    until(LONG, "all votes", || votes(nodes.iter(), &guard) == 5).await;
    nodes[0].process().restart(Data::Emptied).unwrap();
    for _ in 0..3 {
        event(&mut events, "a renewal", renewed).await;
        assert!(guard.is_held() && rival.try_acquire("k").await.unwrap().is_none());
        assert!(!has(&nodes[0], &guard));
    }
    // The second one; three of five are left.
    nodes[4].process().restart(Data::Emptied).unwrap();
    event(&mut events, "a renewal", renewed).await;
    event(&mut events, "a renewal", renewed).await;
    assert!(guard.is_held() && rival.try_acquire("k").await.unwrap().is_none());
    guard.release().await.unwrap();
    all_empty(&nodes).await;
}

/// The window that the capability declares: a claim on a bare majority, one of whose servers
/// forgets its vote. Whoever loses by it is told at the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_bare_majority_forgets_the_older_holder_is_told_at_its_next_renewal() {
    let nodes = Nodes::start(3).unwrap();
    let (client, rival) = (redlock(&nodes, ""), redlock(&nodes, ""));
    warm(&rival).await;
    nodes[2].process().kill().unwrap();
    let ttl = Duration::from_secs(6);
    let guard = client.acquire(Request::new("k").ttl(ttl)).await.unwrap();
    assert_eq!(votes(&nodes[..2], &guard), 2);
    let before = rival.try_acquire("k").await.unwrap();
    assert!(before.is_none(), "the claim stands");
    let until_renewal = ttl / 3;
    nodes[1].process().restart(Data::Emptied).unwrap();
    nodes[2].process().start_again(Data::Emptied).unwrap();
    let second = rival.acquire(Request::new("k").ttl(ttl).timeout(until_renewal)).await.unwrap();
    assert!(second.is_held());
    let lost = within(until_renewal + AT_ONCE, "the loss", guard.lost()).await;
    assert!(matches!(lost.reason, LossReason::Gone), "{lost}");
    // Its clean-up takes nothing from the successor.
    assert!(!client.close(LONG).await || second.is_held());
    assert!(second.is_held() && votes(nodes.iter(), &second) >= 2);
    second.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_at_the_release_hears_of_it_later() {
    let nodes = Nodes::start(3).unwrap();
    let client = redlock(&nodes, "");
    warm(&client).await;
    let guard = client.acquire(Request::new("k").ttl(CALM)).await.unwrap();
    until(LONG, "all votes", || votes(nodes.iter(), &guard) == 3).await;
    nodes[2].process().stop().unwrap();
    let (released, took) = timed(guard.release()).await;
    released.unwrap();
    assert!(took < PROMPT, "{took:?}");
    // So long that everything that was sent at once has been given up.
    tokio::time::sleep(Duration::from_secs(3)).await;
    nodes[2].process().resume().unwrap();
    within(CALM / 6, "no keys", all_empty(&nodes)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_a_server_answers_after_the_release_leaves_nothing() {
    for wait in [Duration::ZERO, Duration::from_secs(3)] {
        let nodes = Nodes::start(3).unwrap();
        let client = redlock(&nodes, "");
        warm(&client).await;
        nodes[2].process().stop().unwrap();
        let (guard, took) = timed(client.acquire(Request::new("k").ttl(CALM))).await;
        assert!(took < PROMPT, "{took:?}");
        guard.unwrap().release().await.unwrap();
        assert!(client.try_acquire(Request::new("k").ttl(CALM)).await.unwrap().is_some());
        tokio::time::sleep(wait).await;
        nodes[2].process().resume().unwrap();
        within(CALM / 6, "no keys", all_empty(&nodes)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_majority_dead_each_server_is_named_with_its_problem() {
    let nodes = Nodes::start(3).unwrap();
    let client = redlock(&nodes, "");
    warm(&client).await;
    let guard = client.acquire(Request::new("k").ttl(CALM / 20)).await.unwrap();
    nodes[0].process().kill().unwrap();
    nodes[1].process().stop().unwrap();
    let names = [&nodes[0], &nodes[1]].map(|node| node.address().to_string());
    let (failed, took) = timed(client.try_acquire("other")).await;
    let text = failed.unwrap_err().to_string();
    assert!(names.iter().all(|name| text.contains(name)) && took < LONG, "{took:?}: {text}");
    let text = client.ping().await.unwrap_err().to_string();
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
    let lost = within(CALM / 20 + AT_ONCE, "the loss", guard.lost()).await;
    assert!(matches!(lost.reason, LossReason::Expired { last_error: Some(_) }), "{lost}");
    nodes[1].process().resume().unwrap();
    within(LONG, "no keys", all_empty(&nodes[1..])).await;
}
