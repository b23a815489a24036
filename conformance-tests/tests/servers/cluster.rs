//! A cluster moves slots and fails over.

use conformance_tests::servers::{Cluster, Nodes, Redis, Resp};

fn say(server: &Redis, command: &[&str]) -> String {
    Resp::tcp(server.address()).unwrap().call(command).unwrap().text()
}

/// The answer to this command right behind `ASKING`.
fn asking(server: &Redis, command: &[&str]) -> String {
    let mut connection = Resp::tcp(server.address()).unwrap();
    connection.call(&["ASKING"]).unwrap().checked().unwrap();
    connection.call(command).unwrap().text()
}

#[test]
fn a_slot_moves_with_its_keys_step_by_step() {
    let cluster = Cluster::start().unwrap();
    let nodes = cluster.nodes();
    assert_eq!(nodes.len(), 3);
    let slot = cluster.slot("{t}1").unwrap();
    assert_eq!(slot, cluster.slot("{t}2").unwrap());
    let from = cluster.owner(slot).unwrap();
    let to = (from + 1) % 3;
    for key in ["{t}1", "{t}2"] {
        assert_eq!(say(&nodes[from], &["SET", key, "v"]), "OK");
    }
    let moved = format!("MOVED {slot} 127.0.0.1:{}", nodes[from].port());
    assert_eq!(say(&nodes[to], &["GET", "{t}1"]), moved);

    let moving = cluster.begin_move(slot, to).unwrap();
    assert_eq!((moving.from(), moving.to()), (from, to));
    assert_eq!(say(&nodes[from], &["GET", "{t}1"]), "v");
    moving.move_key("{t}1").unwrap();
    let ask = format!("ASK {slot} 127.0.0.1:{}", nodes[to].port());
    assert_eq!(say(&nodes[from], &["GET", "{t}1"]), ask);
    assert_eq!(asking(&nodes[to], &["GET", "{t}1"]), "v");
    let both = ["MGET", "{t}1", "{t}2"];
    assert!(say(&nodes[from], &both).starts_with("TRYAGAIN"));
    assert!(asking(&nodes[to], &both).starts_with("TRYAGAIN"));
    assert_eq!(moving.move_keys().unwrap(), 1);
    assert_eq!(cluster.owner(slot).unwrap(), from);
    moving.finish().unwrap();
    assert_eq!(cluster.owner(slot).unwrap(), to);
    assert_eq!(say(&nodes[to], &["GET", "{t}2"]), "v");
    let moved = format!("MOVED {slot} 127.0.0.1:{}", nodes[to].port());
    assert_eq!(say(&nodes[from], &["GET", "{t}2"]), moved);

    cluster.move_slot(slot, from).unwrap();
    assert_eq!(say(&nodes[from], &["GET", "{t}1"]), "v");
}

#[test]
fn a_replica_takes_the_place_of_its_primary() {
    let server = Redis::builder().password("secret");
    let cluster = Cluster::builder().server(server).replicas().start().unwrap();
    assert_eq!(cluster.nodes().len(), 6);
    assert_eq!(cluster.hosts().split(',').count(), 6);
    let slot = cluster.slot("k").unwrap();
    let old = cluster.owner(slot).unwrap();
    cluster.nodes()[old].command(&["SET", "k", "v"]).unwrap();
    let new = cluster.failover(old).unwrap();
    assert_eq!((new, cluster.owner(slot).unwrap()), (old + 3, new));
    assert_eq!(cluster.nodes()[new].command(&["GET", "k"]).unwrap().text(), "v");
    assert_eq!(cluster.nodes()[old].role().unwrap(), "slave");

    // Keys move between nodes with passwords too.
    let moving = cluster.begin_move(slot, (old + 1) % 3).unwrap();
    assert_eq!(moving.move_keys().unwrap(), 1);
    moving.finish().unwrap();
    assert_eq!(cluster.owner(slot).unwrap(), (old + 1) % 3);

    // And without being told.
    cluster.nodes()[1].process().kill().unwrap();
    cluster.wait_for_primary(4).unwrap();
}

#[test]
fn a_cluster_without_replicas_has_none() {
    let cluster = Cluster::start().unwrap();
    let fault = cluster.failover(0).unwrap_err().to_string();
    assert!(fault.contains("no replica"), "{fault}");
    for node in cluster.nodes() {
        assert_eq!(node.role().unwrap(), "master");
    }
}

#[test]
fn independent_servers_know_nothing_of_one_another() {
    let nodes = Nodes::start(5).unwrap();
    assert_eq!((nodes.len(), nodes.hosts().split(',').count()), (5, 5));
    nodes[0].command(&["SET", "k", "v"]).unwrap();
    assert_eq!(nodes[0].command(&["GET", "k"]).unwrap().text(), "v");
    for (node, host) in nodes.iter().zip(nodes.hosts().split(',')).skip(1) {
        assert_eq!(node.address().to_string(), host);
        assert_eq!(node.command(&["DBSIZE"]).unwrap().number(), Some(0));
    }
    let small = Nodes::start_as(2, &Redis::builder().max_memory(1, "noeviction")).unwrap();
    small[1].command(&["SET", "k", "v"]).unwrap_err();
}
