//! What one client does when nothing fails.

use lockkit_core::{Claim, Error, Key, Mode, Renewal, Which};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_of_a_lapsed_claim_is_told_at_once_and_sent_everywhere() {
    let nodes = Nodes::start(3).unwrap();
    let client = redlock(&nodes, "");
    warm(&client).await;
    let ttl = Duration::from_millis(600);
    let guard = client.acquire(Request::new("k").ttl(ttl).renew(false)).await.unwrap();
    within(LONG, "the loss", guard.lost()).await;
    let (released, took) = timed(guard.release()).await;
    assert!(matches!(released, Err(Error::Lost(_))) && took < PROMPT, "{took:?} {released:?}");
    all_empty(&nodes).await;
    // Deleted by hand: a definite answer, so it is not asked again and again.
    let guard = client.acquire(Request::new("k").ttl(CALM)).await.unwrap();
    until(LONG, "all votes", || votes(nodes.iter(), &guard) == 3).await;
    vacate(&nodes[0], "k");
    vacate(&nodes[1], "k");
    let (released, took) = timed(guard.release()).await;
    assert!(matches!(released, Ok(()) | Err(Error::Lost(_))) && took < PROMPT, "{took:?}");
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_lapsed_is_not_renewed_into_being() {
    let nodes = Nodes::start(3).unwrap();
    let (client, other) = (redlock(&nodes, ""), redlock(&nodes, ""));
    let ttl = Duration::from_millis(500);
    let key = Key::new("k").unwrap();
    let mut contender = client.contend(Claim::new(key, Mode::Exclusive, ttl));
    let core = client.core().clone();
    let asked = core.run(async move {
        let answer = contender.attempt(lockkit_core::Stage::Try, AT_ONCE).await?;
        assert!(matches!(answer, lockkit_core::Attempt::Granted { .. }));
        Ok(contender)
    });
    let mut contender = asked.await.unwrap();
    until(LONG, "the end of the TTL", || with_key(nodes.iter(), "k") == 0).await;
    other.acquire("k").await.unwrap().release().await.unwrap();
    let renewed = core.run(async move { contender.renew(AT_ONCE).await });
    assert!(matches!(renewed.await.unwrap(), Renewal::Gone));
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_a_writer_that_waits_is_not_starved() {
    let nodes = Nodes::start(3).unwrap();
    let (a, b, writer) = (redlock(&nodes, ""), redlock(&nodes, ""), redlock(&nodes, ""));
    let mut reader = a.shared("k").await.unwrap();
    let waiting = wait_for(&writer, "k");
    let start = Instant::now();
    // Readers that come and go without a gap, until the writer's intent keeps them out.
    let mut turn = 0;
    while !waiting.is_finished() {
        assert!(start.elapsed() < LONG, "the writer starves");
        turn += 1;
        let client = if turn % 2 == 0 { &a } else { &b };
        let request = Request::new("k").timeout(Duration::from_millis(60));
        match client.shared(request).await {
            Ok(next) => std::mem::replace(&mut reader, next).release().await.unwrap(),
            Err(_) => {
                reader.release().await.unwrap();
                break;
            }
        }
    }
    let guard = within(AT_ONCE, "the writer", waiting).await.unwrap();
    guard.release().await.unwrap();
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_hold_is_kept_by_the_servers() {
    let nodes = Nodes::start(3).unwrap();
    let (client, other) = (redlock(&nodes, ""), redlock(&nodes, ""));
    let min_hold = Duration::from_millis(900);
    let start = Instant::now();
    let guard = client.acquire(Request::new("k").ttl(CALM).min_hold(min_hold)).await.unwrap();
    guard.release().await.unwrap();
    drop((guard, client));
    let next = other.acquire(Request::new("k").timeout(LONG)).await.unwrap();
    let took = start.elapsed();
    assert!(took >= min_hold && took < min_hold + AT_ONCE, "{took:?}");
    next.release().await.unwrap();
    all_empty(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_servers_tell_who_holds_it_and_let_go_by_force() {
    let nodes = Nodes::start(5).unwrap();
    let (client, other) = (redlock(&nodes, ""), redlock(&nodes, ""));
    let key = Key::new("k").unwrap();
    assert!(other.inspect(&key).await.unwrap().is_none());
    // What somebody's attempt left on a minority is no holder.
    occupy(&nodes[0], "k");
    assert!(other.inspect(&key).await.unwrap().is_none());
    nodes[4].process().kill().unwrap();
    let guard = client.acquire(Request::new("k").label("job:7").ttl(CALM / 10)).await.unwrap();
    assert!(guard.fence().is_none());
    let seen = other.inspect(&key).await.unwrap().unwrap();
    assert_eq!((seen.token, seen.label.as_deref()), (Some(guard.token()), Some("job:7")));
    let busy = other.acquire(Request::new("k").timeout(AT_ONCE)).await.unwrap_err();
    let Error::NotAcquired(busy) = busy else { panic!("{busy}") };
    assert_eq!(busy.holder.and_then(|holder| holder.token), Some(guard.token()));
    let nobody = Which::Token(lockkit_core::Token::new());
    assert!(!other.force_release(&key, nobody).await.unwrap() && guard.is_held());
    assert!(other.force_release(&key, Which::Token(guard.token())).await.unwrap());
    within(CALM / 30 + AT_ONCE, "the loss", guard.lost()).await;
    assert_eq!(with_key(&nodes[..4], "k"), 1);
}
