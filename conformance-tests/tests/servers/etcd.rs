//! An etcd server is as it was ordered.

use std::time::Duration;

use conformance_tests::servers::{Data, Etcd, EtcdKey, Framing, Program, Proxy, Toward, until};

const PATIENCE: Duration = Duration::from_secs(10);
const CLI: Program = Program { name: "etcdctl", package: "etcd-client" };

/// `etcdctl` with these words, as a client would come.
fn ctl(
    address: impl std::fmt::Display,
    words: &[&str],
) -> conformance_tests::servers::Result<String> {
    let endpoint = format!("--endpoints=http://{address}");
    CLI.run(&[&[endpoint.as_str(), "--command-timeout=2s"], words].concat())
}

#[test]
fn it_answers_by_tcp_and_by_the_way_of_its_own() {
    let server = Etcd::start().unwrap();
    let lease = server.grant(PATIENCE).unwrap();
    assert_eq!(server.put("a/k", [0, 0xFF, b'v'], lease).unwrap(), 2);
    assert_eq!(ctl(server.address(), &["put", "a/j", "w"]).unwrap(), "OK\n");
    server.put("b", "", 0).unwrap();
    let keys = server.keys("a/").unwrap();
    let names: Vec<_> = keys.iter().map(EtcdKey::name).collect();
    assert_eq!(names, ["a/k", "a/j"]);
    let seen = (keys[0].value.as_slice(), keys[0].created, keys[0].lease);
    assert_eq!(seen, (&[0, 0xFF, b'v'][..], 2, lease));
    assert_eq!((keys[1].modified, keys[1].lease), (3, 0));
    assert_eq!((server.keys("").unwrap().len(), server.revision().unwrap()), (3, 4));
    assert!(server.delete("b").unwrap() && !server.delete("b").unwrap());
    let fault = server.revoke(1).unwrap_err().to_string();
    assert!(fault.contains("lease/revoke") && fault.contains("not found"), "{fault}");
}

#[test]
fn leases_are_seen_and_ended() {
    let server = Etcd::start().unwrap();
    let [first, second] = [(); 2].map(|()| server.grant(Duration::from_secs(60)).unwrap());
    server.put("k", "", first).unwrap();
    let mut leases = server.leases().unwrap();
    leases.sort_unstable();
    let mut granted = [first, second];
    granted.sort_unstable();
    assert_eq!(leases, granted);
    let seen = server.lease(first).unwrap().unwrap();
    assert_eq!((seen.granted, seen.keys), (Duration::from_secs(60), vec![b"k".to_vec()]));
    assert!(seen.left <= seen.granted && seen.left > Duration::from_secs(50));
    server.revoke(first).unwrap();
    assert_eq!((server.lease(first).unwrap(), server.leases().unwrap()), (None, vec![second]));
    assert_eq!(server.keys("").unwrap(), []);
    // The shortest that there is.
    let short = server.grant(Duration::from_secs(1)).unwrap();
    assert_eq!(server.lease(short).unwrap().unwrap().granted, Duration::from_secs(1));
    until("its end", PATIENCE, || Ok(server.lease(short)?.is_none())).unwrap();
}

#[test]
fn watchers_and_messages_are_counted() {
    let server = Etcd::start().unwrap();
    let puts = server.messages("Put").unwrap();
    ctl(server.address(), &["put", "k", "v"]).unwrap();
    assert_eq!(server.messages("Put").unwrap(), puts + 1);
    assert_eq!(server.messages_by_method().unwrap().get("Put"), Some(&(puts + 1)));
    assert!(server.messages("NoSuch").is_err());
    assert_eq!(server.watchers().unwrap(), 0);
    let mut watch = std::process::Command::new(CLI.find().unwrap())
        .arg(format!("--endpoints=http://{}", server.address()))
        .args(["watch", "k"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let seen = server.wait_until_watchers(1, PATIENCE);
    watch.kill().unwrap();
    watch.wait().unwrap();
    seen.unwrap();
    server.wait_until_watchers(0, PATIENCE).unwrap();
    let fault = server.wait_until_watchers(7, Duration::ZERO).unwrap_err().to_string();
    assert!(fault.contains("0 and not 7"), "{fault}");
}

#[test]
fn what_was_answered_outlives_a_kill_and_not_an_emptied_disk() {
    let server = Etcd::start().unwrap();
    let port = server.port();
    ctl(server.address(), &["put", "k", "v"]).unwrap();
    server.process().restart(Data::Kept).unwrap();
    assert_eq!((server.port(), server.keys("k").unwrap().len()), (port, 1));
    assert_eq!(ctl(server.address(), &["get", "k", "--print-value-only"]).unwrap(), "v\n");
    server.process().terminate().unwrap();
    ctl(server.address(), &["get", "k"]).unwrap_err();
    server.process().start_again(Data::Emptied).unwrap();
    assert_eq!(server.keys("").unwrap(), []);
}

#[test]
fn a_stopped_server_answers_nothing_until_it_goes_on() {
    let server = Etcd::start().unwrap();
    server.process().stop().unwrap();
    ctl(server.address(), &["get", "k"]).unwrap_err();
    server.process().resume().unwrap();
    ctl(server.address(), &["put", "k", "v"]).unwrap();
}

#[test]
fn a_proxy_before_it_cuts_clients_off() {
    let server = Etcd::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    ctl(proxy.address(), &["put", "k", "v"]).unwrap();
    proxy.swallow(Toward::Server);
    ctl(proxy.address(), &["put", "k", "w"]).unwrap_err();
    assert_eq!(server.keys("k").unwrap()[0].value, b"v");
}

#[test]
fn old_revisions_are_gone_when_they_are_compacted() {
    let server = Etcd::start().unwrap();
    for value in ["a", "b", "c"] {
        server.put("k", value, 0).unwrap();
    }
    let get = |revision: &str| ctl(server.address(), &["get", "k", "--rev", revision]);
    get("3").unwrap();
    assert_eq!(server.compact().unwrap(), 4);
    let fault = get("3").unwrap_err().to_string();
    assert!(fault.contains("compacted"), "{fault}");
    get("4").unwrap();
}

#[test]
fn users_may_do_only_what_they_may() {
    let ttl = Duration::from_secs(1);
    let server = Etcd::builder().user("app", "secret", "app:").token_ttl(ttl).start().unwrap();
    let say =
        |user: &str, words: &[&str]| ctl(server.address(), &[&["--user", user], words].concat());
    assert!(ctl(server.address(), &["put", "app:k", "v"]).is_err());
    say("app:wrong", &["put", "app:k", "v"]).unwrap_err();
    say("app:secret", &["put", "app:k", "v"]).unwrap();
    say("app:secret", &["get", "app:", "--prefix"]).unwrap();
    let fault = say("app:secret", &["put", "b", "v"]).unwrap_err().to_string();
    assert!(fault.contains("permission denied"), "{fault}");
    say(&format!("{}:{}", server.root().0, server.root().1), &["put", "b", "v"]).unwrap();
    // The bed's own token is gone after a restart, and after its time.
    assert_eq!(server.keys("").unwrap().len(), 2);
    server.process().restart(Data::Kept).unwrap();
    assert_eq!(server.keys("").unwrap().len(), 2);
    std::thread::sleep(3 * ttl);
    assert_eq!(server.keys("").unwrap().len(), 2);
    let output = server.process().output();
    assert!(output.contains("invalid auth token"), "{output}");
}

#[test]
fn with_tls_only_its_own_clients_come_in() {
    let server = Etcd::builder().tls().start().unwrap();
    let files = server.certificates().unwrap();
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (certificate, key) = files.client();
    let endpoint = format!("--endpoints=https://{}", server.address());
    let (authority, certificate, key) = (text(files.authority()), text(certificate), text(key));
    let trusting = [&endpoint, "--command-timeout=2s", "--cacert", &authority];
    let own = ["--cert", &certificate, "--key", &key];
    CLI.run(&[&trusting[..], &own, &["put", "k", "v"]].concat()).unwrap();
    CLI.run(&[&trusting[..], &["put", "k", "v"]].concat()).unwrap_err();
    ctl(server.address(), &["put", "k", "v"]).unwrap_err();
    assert_eq!(server.keys("k").unwrap()[0].modified, 2);
    Etcd::start().unwrap().certificates().unwrap_err();
}

#[test]
fn what_it_writes_is_shown_when_it_refuses_its_arguments() {
    let fault = Etcd::builder().arg("--nonsense").start().unwrap_err().to_string();
    assert!(fault.contains("flag provided but not defined: -nonsense"), "{fault}");
}
