//! What is found out before anybody relies on it.

use conformance_tests::servers::Sentinels;
use lockkit_core::Error;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_by_two_names_is_refused() {
    let nodes = Nodes::start(2).unwrap();
    let again = format!("localhost:{}", nodes[0].port());
    let client = lock(&format!("redlock://{},{again}", nodes.hosts()));
    let refused = client.ping().await.unwrap_err();
    assert!(matches!(refused, Error::Configuration(_)), "{refused}");
    let text = refused.to_string();
    let named = nodes[0].address().to_string();
    assert!(text.contains("same server"), "{text}");
    assert!(text.contains(&named) || text.contains(&again), "{text}");
    // Also when nobody has asked before.
    let client = lock(&format!("redlock://{},{again}", nodes.hosts()));
    nodes[1].process().kill().unwrap();
    let text = client.acquire(Request::new("k").timeout(AT_ONCE)).await.unwrap_err().to_string();
    assert!(text.contains("same server"), "{text}");
    until(AT_ONCE, "no keys", || with_key(&nodes[..1], "k") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_is_no_server_that_votes() {
    let nodes = Nodes::start(2).unwrap();
    let sentinels = Sentinels::start().unwrap();
    let sentinel = sentinels.hosts().split(',').next().unwrap().to_owned();
    let client = lock(&format!("redlock://{},{sentinel}", nodes.hosts()));
    let refused = client.ping().await.unwrap_err();
    assert!(matches!(refused, Error::Configuration(_)), "{refused}");
    let text = refused.to_string();
    assert!(text.contains(&sentinel) && text.contains("sentinel"), "{text}");
    // Two votes are enough; with one of them gone, it is said what is wrong with the third.
    client.acquire("k").await.unwrap().release().await.unwrap();
    nodes[0].process().kill().unwrap();
    let text = client.try_acquire("k").await.unwrap_err().to_string();
    assert!(text.contains(&sentinel) && text.contains("sentinel"), "{text}");
    assert!(text.contains(&nodes[0].address().to_string()), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_minority_and_votes_that_are_not_logged_are_warned_of() {
    let logging = Redis::builder().append_only();
    let nodes = Nodes::start_as(3, &logging).unwrap();
    let client = redlock(&nodes, "");
    client.ping().await.unwrap();
    assert!(client.core().warnings().is_empty(), "{:?}", client.core().warnings());
    nodes[2].process().kill().unwrap();
    client.ping().await.unwrap();
    let warnings = client.core().warnings();
    assert!(warnings[0].contains(&nodes[2].address().to_string()), "{warnings:?}");
    let forgetful = Nodes::start(3).unwrap();
    let client = redlock(&forgetful, "");
    client.ping().await.unwrap();
    assert!(client.core().warnings()[0].contains("appendonly"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_and_fences_are_refused() {
    let nodes = Nodes::start(3).unwrap();
    let client = redlock(&nodes, "");
    let two = std::num::NonZeroU32::new(2).unwrap();
    let refused = client.permit("k", two).await.unwrap_err();
    assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
    let key = lockkit_core::Key::new("k").unwrap();
    let by_fence = client.force_release(&key, lockkit_core::Which::Fence(1)).await;
    assert!(matches!(by_fence, Err(Error::Unsupported(_))), "{by_fence:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_on_one_server_is_found_when_connecting() {
    let builder = Redis::builder().user("app on >word ~lockkit:* &lockkit:* +@all");
    let nodes = Nodes::start_as(3, &builder).unwrap();
    let client = lock(&format!("redlock://app:word@{}", nodes.hosts()));
    client.ping().await.unwrap();
    nodes[1].command(&["ACL", "SETUSER", "app", "-publish"]).unwrap();
    let refused = client.ping().await.unwrap_err();
    assert!(matches!(refused, Error::Permission(_)), "{refused}");
    assert!(refused.to_string().contains(&nodes[1].address().to_string()), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_do_not_tell_who_they_are_are_warned_of() {
    let builder = Redis::builder().user("app on >word ~lockkit:* &lockkit:* +@all -info");
    let nodes = Nodes::start_as(3, &builder).unwrap();
    let client = lock(&format!("redlock://app:word@{}", nodes.hosts()));
    client.ping().await.unwrap();
    let warnings = client.core().warnings();
    assert!(warnings.iter().filter(|warning| warning.contains("votes twice")).count() == 3);
}
