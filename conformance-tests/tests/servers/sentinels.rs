//! Sentinels fail over when they are told to, and when the primary is gone.

use std::time::Duration;

use conformance_tests::servers::{Data, Redis, Resp, Sentinels};

const PATIENCE: Duration = Duration::from_secs(20);

/// The port of the primary, as a client that uses all of this would learn it.
fn announced(group: &Sentinels) -> Vec<u16> {
    let hosts = group.hosts();
    let ask = |host: &str| {
        let mut sentinel = Resp::tcp(host.parse().unwrap()).unwrap();
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", group.name()];
        sentinel.call(&command).unwrap().texts()[1].parse().unwrap()
    };
    hosts.split(',').map(ask).collect()
}

#[test]
fn a_failover_makes_the_replica_the_primary_and_back() {
    let group = Sentinels::start().unwrap();
    let [first, second] = group.servers() else { panic!("not two") };
    assert_eq!(group.primary().unwrap().port(), first.port());
    assert_eq!(announced(&group), [first.port(); 3]);
    first.command(&["SET", "k", "v"]).unwrap();
    for (old, new) in [(first, second), (second, first)] {
        group.failover().unwrap();
        assert_eq!(group.primary().unwrap().port(), new.port());
        assert_eq!(announced(&group), [new.port(); 3]);
        assert_eq!((new.role().unwrap(), old.role().unwrap()), ("master".into(), "slave".into()));
        old.wait_until_copying(new, Duration::ZERO).unwrap();
        assert_eq!(new.command(&["GET", "k"]).unwrap().text(), "v");
    }
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let server = Redis::builder().password("secret");
    let group = Sentinels::builder().server(server).replicas(2).start().unwrap();
    assert_eq!(group.servers().len(), 3);
    let killed = group.kill_primary().unwrap();
    assert!(!killed.process().is_running().unwrap());
    group.wait_for_other_primary(killed.port()).unwrap();
    let primary = group.primary().unwrap();
    assert_ne!(primary.port(), killed.port());
    primary.command(&["SET", "k", "v"]).unwrap();
    killed.process().start_again(Data::Kept).unwrap();
    group.wait_until_settled().unwrap();
    killed.wait_until_copying(primary, PATIENCE).unwrap();
}

/// What makes Sentinel dangerous for locks, so tests must be able to have it.
#[test]
fn an_old_primary_takes_writes_after_another_one_was_made() {
    let group = Sentinels::builder().unhurried().start().unwrap();
    let old = group.primary().unwrap();
    group.begin_failover().unwrap();
    let new = group.primary().unwrap();
    assert_ne!(new.port(), old.port());
    for server in [old, new] {
        server.command(&["SET", "k", "v"]).unwrap();
    }
}
