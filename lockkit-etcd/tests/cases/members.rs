//! Members of a cluster that go, come back, or stand alone.

use std::time::Duration;

use conformance_tests::servers::{Data, Etcd, EtcdCluster};
use lockkit_core::{BootInstant, LockExt};
use lockkit_etcd::EtcdLock;

use crate::clients::*;
use crate::{AT_ONCE, KEY, patient};

/// Enough for an election on a busy machine.
const TTL: Duration = Duration::from_secs(12);

/// A client that asks the member `first` first.
fn client_at(cluster: &EtcdCluster, first: usize) -> EtcdLock {
    let mut members: Vec<_> = cluster.members().iter().map(Etcd::address).collect();
    members.rotate_left(first);
    client(&members, "ttl=12s")
}

/// ETC-08, CLI-05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_takes_no_lock_with_it() {
    let cluster = EtcdCluster::start().unwrap();
    let leader = cluster.leader().unwrap();
    let lock = client_at(&cluster, leader);
    let guard = grant(&lock, KEY).await;
    cluster.members()[leader].process().kill().unwrap();
    cluster.wait_for_other_leader(leader).unwrap();
    let elected = BootInstant::now();
    // What comes from a renewal that was sent now ends after that.
    let renewed = || guard.deadline().is_some_and(|end| end > elected + TTL * 9 / 10);
    eventually(TTL / 3 + AT_ONCE, "it is renewed at the new leader", renewed).await;
    for n in 0..20 {
        grant(&lock, format!("a{n}")).await.release().await.unwrap();
    }
    assert!(guard.is_held(), "{:?}", guard.loss());
    guard.release().await.unwrap();
}

/// ETC-11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_all_members_one_after_the_other_lose_nothing() {
    let cluster = EtcdCluster::start().unwrap();
    let mut holders = Vec::new();
    for n in 0..20 {
        let lock = client_at(&cluster, n % 3);
        let guard = grant(&lock, format!("a{n}")).await;
        holders.push((lock, guard));
    }
    for round in 0..10 {
        cluster.members()[round % 3].process().restart(Data::Kept).unwrap();
        cluster.wait_until_settled().unwrap();
        for (_, guard) in &holders {
            assert!(guard.is_held(), "in round {round}: {:?}", guard.loss());
        }
    }
    // Each lease was extended after all of that.
    let end = BootInstant::now() + TTL * 9 / 10;
    let renewed = |guard: &lockkit_core::Guard| guard.deadline().is_some_and(|at| at > end);
    let all = || holders.iter().all(|(_, guard)| renewed(guard));
    eventually(TTL, "all of them are renewed", all).await;
}

/// ETC-17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_at_a_member_that_stands_alone_goes_to_another_one() {
    let cluster = EtcdCluster::start().unwrap();
    let leader = cluster.leader().unwrap();
    let alone = (leader + 1) % 3;
    let (holder, waiter) = (client_at(&cluster, leader), client_at(&cluster, alone));
    let held = grant(&holder, KEY).await;
    let waiting = tokio::spawn(waiter.acquire(patient(KEY)));
    cluster.members()[alone].wait_until_watchers(1, AT_ONCE).unwrap();
    cluster.cut_off(alone);
    held.release().await.unwrap();
    let within = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    let guard = within.expect("it waits at the member that hears nothing").unwrap().unwrap();
    // And it is renewed there too.
    let deadline = guard.deadline().unwrap();
    let renewed = || guard.deadline().is_some_and(|now| now > deadline);
    eventually(TTL, "it is renewed", renewed).await;
    guard.release().await.unwrap();
}
