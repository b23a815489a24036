//! Memory of the client.

use conformance_tests::servers::Redis;
use lockkit_core::DistributedLock;
use lockkit_redis::RedisLock;

use crate::clients::*;
use crate::pairs::contend;

/// Names so long that keeping one of each pair would be seen.
fn name(n: usize) -> String {
    format!("{n:0500}")
}

/// This process's memory, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

async fn contended_pairs(holder: &RedisLock, rival: &RedisLock, names: std::ops::Range<usize>) {
    contend(holder, rival, names.map(|n| (name(n), long(&name(n))))).await;
}

/// Tells the process that nothing else runs in it.
const ALONE: &str = "LOCKKIT_TEST_ALONE";

/// In a process of its own: the memory of other tests would be counted too.
#[test]
fn many_contended_names_leave_nothing_in_the_client() {
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    alone.args(["memory::alone", "--exact", "--nocapture"]).env(ALONE, "");
    let output = alone.output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone() {
    if std::env::var_os(ALONE).is_some() {
        measure().await;
    }
}

async fn measure() {
    const PAIRS: usize = 6_000;
    let server = Redis::start().unwrap();
    let (holder, rival) = (client(&server, ""), client(&server, ""));
    contended_pairs(&holder, &rival, 0..PAIRS / 2).await;
    let middle = resident();
    contended_pairs(&holder, &rival, PAIRS / 2..PAIRS).await;
    let end = resident();
    println!("{} kB after {}, {} kB after {PAIRS}", middle / 1024, PAIRS / 2, end / 1024);
    // One name kept for each pair would be more.
    let most = PAIRS / 2 * 500 * 3 / 4;
    assert!(end <= middle + most, "the client has grown from {middle} to {end} bytes");
    eventually(PATIENCE, "nothing is listened to any more", || {
        ask(&server, &["PUBSUB", "CHANNELS"]).members().is_empty()
    })
    .await;
    for lock in [&holder, &rival] {
        let core = lock.core();
        assert_eq!((core.waiting(), core.cleaning_up()), (0, 0));
    }
}
