//! Many who want the same key.

use super::*;

/// `clients` take the key by turns for `time`; how often that worked, and the longest wait.
async fn crowd(clients: &[RedisLock], time: Duration, ttl: Duration) -> (usize, Duration) {
    let overlaps = Overlaps::default();
    let end = Instant::now() + time;
    let tasks: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, overlaps) = (client.clone(), overlaps.clone());
            tokio::spawn(async move {
                let (mut passes, mut longest) = (0, Duration::ZERO);
                while Instant::now() < end {
                    let request = Request::new("k").ttl(ttl).timeout(LONG);
                    let (guard, took) = timed(client.acquire(request)).await;
                    let guard = Arc::new(guard.expect("nobody is refused"));
                    longest = longest.max(took);
                    overlaps.enter(&guard);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    overlaps.leave(&guard);
                    guard.release().await.unwrap();
                    passes += 1;
                }
                (passes, longest)
            })
        })
        .collect();
    let (mut passes, mut longest) = (0, Duration::ZERO);
    for task in tasks {
        let (more, wait) = task.await.unwrap();
        println!("{more} passes of one, which waited {wait:?} at most");
        passes += more;
        longest = longest.max(wait);
    }
    (passes, longest)
}

async fn eight_clients_at(count: usize) {
    let nodes = Nodes::start(count).unwrap();
    let clients: Vec<_> = (0..8).map(|_| redlock(&nodes, "")).collect();
    for client in &clients {
        warm(client).await;
    }
    let (passes, longest) = crowd(&clients, Duration::from_secs(4), TTL).await;
    println!("{passes} passes at {count} servers, {longest:?} waited at most");
    assert!(passes > 40, "{passes} passes");
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_clients_at_three_servers_come_in() {
    eight_clients_at(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_clients_at_five_servers_come_in() {
    eight_clients_at(5).await;
}

/// All of the three servers that are left are needed for a claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_clients_come_in_beside_two_servers_that_hang() {
    let nodes = Nodes::start(5).unwrap();
    let clients: Vec<_> = (0..4).map(|_| redlock(&nodes, "")).collect();
    for client in &clients {
        warm(client).await;
    }
    nodes[0].process().stop().unwrap();
    nodes[1].process().stop().unwrap();
    let (passes, longest) = crowd(&clients, Duration::from_secs(6), TTL).await;
    println!("{passes} passes beside hanging servers, {longest:?} waited at most");
    assert!(passes > 8, "{passes} passes");
    nodes[0].process().resume().unwrap();
    nodes[1].process().resume().unwrap();
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_clients_come_in_beside_two_dead_servers() {
    let nodes = Nodes::start(5).unwrap();
    let clients: Vec<_> = (0..4).map(|_| redlock(&nodes, "")).collect();
    for client in &clients {
        warm(client).await;
    }
    nodes[0].process().kill().unwrap();
    nodes[1].process().kill().unwrap();
    let (passes, longest) = crowd(&clients, Duration::from_secs(6), TTL).await;
    println!("{passes} passes beside dead servers, {longest:?} waited at most");
    assert!(passes > 8, "{passes} passes");
    all_empty(&nodes[2..]).await;
}
