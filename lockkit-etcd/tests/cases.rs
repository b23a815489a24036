//! What has gone wrong in other clients of etcd.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

#[allow(dead_code)] // these do not look whether nothing is left
mod clients;

#[path = "cases/line.rs"]
mod line;
#[path = "cases/members.rs"]
mod members;
#[path = "cases/streams.rs"]
mod streams;

use std::time::Duration;

use conformance_tests::servers::Etcd;
use lockkit_core::Request;

const KEY: &str = "order:lock:1001";

/// How long what happens at once may take.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Polls so rare that whoever is in before did not wait for one.
const RARE_POLLS: &str = "ttl=30s&poll_min=25s&poll_max=25s";

fn patient(key: &str) -> Request {
    Request::new(key).timeout(Duration::from_secs(40))
}

/// Waits until so many claims of the key are in line.
async fn in_line(server: &Etcd, count: usize) {
    let claims = || server.keys(format!("{}{KEY}/", clients::PREFIX)).unwrap().len();
    clients::eventually(AT_ONCE, "so many in line", || claims() == count).await;
}
