//! Votes that are split, and votes that are taken back.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_at_once_come_in_one_after_the_other() {
    const CLIENTS: usize = 12;
    const ROUNDS: usize = 4;
    let nodes = Nodes::start(3).unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(|_| redlock(&nodes, "")).collect();
    for client in &clients {
        warm(client).await;
    }
    let overlaps = Overlaps::default();
    let together = Arc::new(tokio::sync::Barrier::new(CLIENTS));
    let tasks: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, overlaps) = (client.clone(), overlaps.clone());
            let together = Arc::clone(&together);
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    together.wait().await;
                    let request = Request::new("k").timeout(LONG);
                    assert!(overlaps.pass(&client, request, Duration::from_millis(1)).await);
                }
            })
        })
        .collect();
    let (_, took) = timed(async {
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await;
    println!("{took:?} for {} hand-overs", CLIENTS * ROUNDS);
    assert!(took < LONG, "{took:?}");
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_every_vote_is_taken_back() {
    let nodes = Nodes::start(5).unwrap();
    let client = redlock(&nodes, "");
    warm(&client).await;
    for node in &nodes[..3] {
        occupy(node, "k");
    }
    for round in 0..20 {
        assert!(client.try_acquire(Request::new("k").ttl(CALM)).await.unwrap().is_none());
        until(AT_ONCE, "votes taken back", || with_key(&nodes[3..], "k") == 0).await;
        assert_eq!(with_key(&nodes[..3], "k"), 3, "round {round}: nothing of anybody else's");
    }
    let waited = Request::new("k").ttl(CALM).timeout(AT_ONCE);
    client.acquire(waited).await.unwrap_err();
    until(AT_ONCE, "votes taken back", || with_key(&nodes[3..], "k") == 0).await;
    vacate(&nodes[0], "k");
    let guard = client.acquire("k").await.unwrap();
    until(AT_ONCE, "three votes", || votes(nodes.iter(), &guard) == 3).await;
    guard.release().await.unwrap();
    until(AT_ONCE, "votes taken back", || with_key(nodes.iter(), "k") == 2).await;
}

/// Votes that are taken back wake nobody: those who lost them would only split them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_back_wakes_nobody() {
    let nodes = Nodes::start(3).unwrap();
    let client = redlock(&nodes, "");
    warm(&client).await;
    occupy(&nodes[0], "k");
    occupy(&nodes[1], "k");
    let mut subscriber = nodes[2].connect().unwrap();
    subscriber.call(&["PSUBSCRIBE", "lockkit:*wake*"]).unwrap();
    assert!(client.try_acquire("k").await.unwrap().is_none());
    until(AT_ONCE, "votes taken back", || with_key(&nodes[2..], "k") == 0).await;
    subscriber.set_limit(PROMPT).unwrap();
    assert!(subscriber.read().is_err());
}
