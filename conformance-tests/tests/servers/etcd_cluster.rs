//! A cluster of etcd servers elects leaders, and its network can be cut.

use std::time::Duration;

use conformance_tests::servers::{Data, Etcd, EtcdCluster, Program, Result, until};

const PATIENCE: Duration = Duration::from_secs(20);
const CLI: Program = Program { name: "etcdctl", package: "etcd-client" };

/// Writes by way of this member, as a client would.
fn put(member: &Etcd, key: &str) -> Result<String> {
    let endpoint = format!("--endpoints=http://{}", member.address());
    CLI.run(&[&endpoint, "--command-timeout=2s", "put", key, "v"])
}

fn wait_for(member: &Etcd, key: &str) {
    until("the key", PATIENCE, || Ok(member.keys(key).is_ok_and(|keys| !keys.is_empty()))).unwrap();
}

/// Two members that are not this one.
fn others(member: usize) -> [usize; 2] {
    [(member + 1) % 3, (member + 2) % 3]
}

#[test]
fn a_killed_leader_is_replaced_and_comes_back() {
    let cluster = EtcdCluster::start().unwrap();
    assert_eq!(cluster.hosts().split(',').count(), 3);
    let members = cluster.members();
    let old = cluster.leader().unwrap();
    put(&members[others(old)[0]], "a").unwrap();
    members[old].process().kill().unwrap();
    let new = cluster.wait_for_other_leader(old).unwrap();
    assert_ne!(new, old);
    put(&members[new], "b").unwrap();
    members[old].process().start_again(Data::Kept).unwrap();
    cluster.wait_until_settled().unwrap();
    assert_eq!(members[old].keys("").unwrap().len(), 2);
}

#[test]
fn a_stopped_leader_is_replaced_and_one_member_alone_does_nothing() {
    let cluster = EtcdCluster::start().unwrap();
    let members = cluster.members();
    let old = cluster.leader().unwrap();
    members[old].process().stop().unwrap();
    let new = cluster.wait_for_other_leader(old).unwrap();
    let last = others(old).into_iter().find(|member| *member != new).unwrap();
    put(&members[last], "a").unwrap();
    members[last].process().kill().unwrap();
    put(&members[new], "b").unwrap_err();
    cluster.leader().unwrap_err();
    members[old].process().resume().unwrap();
    until("a majority", PATIENCE, || Ok(put(&members[new], "c").is_ok())).unwrap();
}

#[test]
fn leadership_moves_when_it_is_told_to() {
    let cluster = EtcdCluster::start().unwrap();
    let old = cluster.leader().unwrap();
    for to in others(old) {
        cluster.move_leader(to).unwrap();
        assert_eq!(cluster.leader().unwrap(), to);
    }
}

#[test]
fn a_leader_that_is_cut_off_is_replaced_while_clients_reach_it() {
    let cluster = EtcdCluster::start().unwrap();
    let members = cluster.members();
    let old = cluster.leader().unwrap();
    put(&members[old], "before").unwrap();
    cluster.cut_off(old);
    let new = cluster.wait_for_other_leader(old).unwrap();
    put(&members[new], "behind").unwrap();
    // It answers, and cannot write.
    assert!(members[old].metric("etcd_server_has_leader", &[]).is_ok());
    put(&members[old], "alone").unwrap_err();
    // What is left is a majority of its own, in both directions.
    for other in others(old) {
        put(&members[other], "together").unwrap();
    }
    cluster.heal(old);
    cluster.wait_until_settled().unwrap();
    wait_for(&members[old], "behind");
}

#[test]
fn a_follower_that_is_cut_off_does_not_hinder_the_others() {
    let cluster = EtcdCluster::start().unwrap();
    let members = cluster.members();
    let leader = cluster.leader().unwrap();
    let [cut, other] = others(leader);
    cluster.cut_off(cut);
    until("its notice", PATIENCE, || Ok(members[cut].metric("etcd_server_has_leader", &[])? == 0))
        .unwrap();
    put(&members[cut], "k").unwrap_err();
    // It asks for votes in vain, and neither side hears anything of the other.
    let from = format!("From=\"{}\"", members[cut].id().unwrap());
    let received = "etcd_network_peer_received_bytes_total";
    let heard = || {
        let by = |member: usize| members[member].metric(received, &[&from]);
        // Followers may never have had anything to say to one another.
        let by_the_others = (by(leader).unwrap(), by(other).unwrap_or(0));
        (members[cut].metric(received, &[]).unwrap(), by_the_others)
    };
    let campaigns = || members[cut].process().output().matches("became candidate").count();
    let (before, begun) = (heard(), campaigns());
    until("campaigns", PATIENCE, || Ok(campaigns() >= begun + 2)).unwrap();
    assert_eq!(heard(), before);
    assert_eq!(cluster.leader().unwrap(), leader);
    put(&members[other], "k").unwrap();
    cluster.heal(cut);
    cluster.wait_until_settled().unwrap();
    put(&members[cut], "l").unwrap();
}

#[test]
fn all_of_them_come_back_after_a_power_cut() {
    let member = Etcd::builder().user("app", "secret", "app:");
    let cluster = EtcdCluster::builder().member(member).start().unwrap();
    let members = cluster.members();
    members[0].put("k", "v", 0).unwrap();
    put(&members[1], "app:k").unwrap_err();
    cluster.kill_all().unwrap();
    assert!(members.iter().all(|member| !member.process().is_running().unwrap()));
    cluster.start_all_again().unwrap();
    for member in members {
        assert_eq!(member.keys("").unwrap().len(), 1);
    }
}
