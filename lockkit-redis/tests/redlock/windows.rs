//! How long anybody believes what is no longer so.

use conformance_tests::servers::{Action, Data, Rule};
use lockkit_core::{Error, LossReason};

use super::late::digest;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_of_five_dead_nobody_comes_in_and_the_holder_is_told_in_time() {
    let nodes = Nodes::start(5).unwrap();
    let client = redlock(&nodes, "");
    warm(&client).await;
    let ttl = CALM / 20;
    let guard = client.acquire(Request::new("k").ttl(ttl)).await.unwrap();
    for node in &nodes[..3] {
        node.process().kill().unwrap();
    }
    let limit = Duration::from_secs(1);
    let (failed, took) = timed(client.acquire(Request::new("other").timeout(limit))).await;
    let failed = failed.unwrap_err();
    let text = match &failed {
        Error::NotAcquired(error) => error.last_error.as_ref().unwrap().to_string(),
        other => other.to_string(),
    };
    for node in &nodes[..3] {
        assert!(text.contains(&node.address().to_string()), "{text}");
    }
    assert!(took < limit + Duration::from_millis(50), "{took:?}");
    let refused = client.try_acquire("a third").await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    let deadline = guard.deadline();
    let lost = within(ttl + AT_ONCE, "the loss", guard.lost()).await;
    assert!(!guard.is_held());
    if let Some(deadline) = deadline {
        let late = BootInstant::now().since(deadline);
        assert!(late < Duration::from_millis(50), "told {late:?} after the deadline");
    }
    assert!(matches!(lost.reason, LossReason::Expired { last_error: Some(_) }), "{lost}");
    until(LONG, "no keys on the living", || with_key(&nodes[3..], "k") == 0).await;
}

/// The window that the capability declares: two believe, from when a server has forgotten its vote
/// until the next renewal of the older one, and not as long as its deadline says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_holders_by_a_forgotten_vote_are_so_until_the_next_renewal_at_most() {
    let behind = Behind::start(3);
    let nodes = &behind.nodes;
    let (client, rival) = (behind.client(""), redlock(nodes, ""));
    warm(&client).await;
    warm(&rival).await;
    // The third server does not hear of the older claim.
    behind.proxies[2].rule(Rule::requests(digest("ASK")).act(Action::Lose).times(1));
    let ttl = Duration::from_secs(6);
    let acquired = Instant::now();
    let older = client.acquire(Request::new("k").ttl(ttl)).await.unwrap();
    assert_eq!(with_key(&nodes[2..], "k"), 0);
    let mut told = Box::pin(older.lost());
    nodes[1].process().restart(Data::Emptied).unwrap();
    let forgotten = Instant::now();
    let newer = rival.acquire(Request::new("k").ttl(ttl).timeout(AT_ONCE)).await.unwrap();
    let second = Instant::now();
    assert!(second > forgotten && older.is_held() && newer.is_held(), "no window to look at");
    let lost = within(ttl / 2, "the loss", &mut told).await;
    let ended = Instant::now();
    println!("two holders for {:?} of a TTL of {ttl:?}", ended - second);
    assert!(matches!(lost.reason, LossReason::Gone), "{lost}");
    let interval = ttl / 3 + Duration::from_millis(200);
    assert!(ended - acquired < interval, "told after {:?}", ended - acquired);
    // Neither the loser's clean-up nor its late request takes anything from the successor.
    until(LONG, "the clean-up", || client.core().cleaning_up() == 0).await;
    assert!(newer.is_held() && votes(&nodes[1..], &newer) == 2);
    newer.release().await.unwrap();
    all_empty(nodes).await;
}
