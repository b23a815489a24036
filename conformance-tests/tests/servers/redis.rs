//! A Redis server is as it was ordered.

use std::time::Duration;

use conformance_tests::servers::{Data, Program, Redis, Reply, Resp, on_free_port, until};

const PATIENCE: Duration = Duration::from_secs(10);

fn tcp(server: &Redis) -> Resp {
    Resp::tcp(server.address()).unwrap()
}

#[test]
fn it_answers_by_tcp_and_by_the_way_of_its_own() {
    let server = Redis::start().unwrap();
    assert_eq!(tcp(&server).call(&["SET", "k", "a\r\nb"]).unwrap(), Reply::Status("OK".to_owned()));
    assert_eq!(server.command(&["GET", "k"]).unwrap(), Reply::Bytes(b"a\r\nb".to_vec()));
    assert_eq!(server.command(&["GET", "other"]).unwrap(), Reply::Nil);
    assert_eq!(server.command(&["EXISTS", "k"]).unwrap().number(), Some(1));
    let script = "return {1, {'x', false}, redis.error_reply('E no')}";
    let answer = server.command(&["EVAL", script, "0"]).unwrap();
    assert_eq!(format!("{answer:?}"), r#"[1, ["x", nil], error "E no"]"#);
    let fault = server.command(&["NOSUCH"]).unwrap_err().to_string();
    assert!(fault.contains("`NOSUCH`") && fault.contains("unknown command"), "{fault}");
    assert_eq!(server.role().unwrap(), "master");
    assert_eq!(server.info("tcp_port").unwrap(), Some(server.port().to_string()));
    let pid = server.info("process_id").unwrap();
    assert_eq!(pid, Some(server.process().pid().to_string()));
}

#[test]
fn messages_arrive() {
    let server = Redis::start().unwrap();
    let mut subscriber = tcp(&server);
    let subscribed = subscriber.call(&["SUBSCRIBE", "c"]).unwrap();
    assert_eq!(subscribed.texts(), ["subscribe", "c", "1"]);
    server.command(&["PUBLISH", "c", "m"]).unwrap();
    assert_eq!(subscriber.read().unwrap().texts(), ["message", "c", "m"]);
    subscriber.set_limit(Duration::from_millis(20)).unwrap();
    subscriber.read().unwrap_err();
}

#[test]
fn a_restart_on_the_same_port_keeps_data_only_when_it_is_written() {
    let server = Redis::start().unwrap();
    let port = server.port();
    server.command(&["SET", "k", "v"]).unwrap();
    server.process().restart(Data::Kept).unwrap();
    assert_eq!(server.command(&["GET", "k"]).unwrap(), Reply::Nil);

    let written = Redis::builder().append_only().start().unwrap();
    written.command(&["SET", "k", "v"]).unwrap();
    written.process().restart(Data::Kept).unwrap();
    assert_eq!(written.command(&["GET", "k"]).unwrap().text(), "v");
    written.process().restart(Data::Emptied).unwrap();
    assert_eq!(written.command(&["GET", "k"]).unwrap(), Reply::Nil);

    server.process().terminate().unwrap();
    Resp::tcp(server.address()).unwrap_err();
    server.process().start_again(Data::Kept).unwrap();
    assert_eq!(server.info("tcp_port").unwrap(), Some(port.to_string()));
}

#[test]
fn a_stopped_server_accepts_and_does_not_answer() {
    let server = Redis::start().unwrap();
    let mut connection = tcp(&server);
    connection.set_limit(Duration::from_millis(100)).unwrap();
    server.process().stop().unwrap();
    connection.call(&["PING"]).unwrap_err();
    server.process().resume().unwrap();
    assert_eq!(connection.read().unwrap().text(), "PONG");
}

#[test]
fn what_it_writes_is_shown_when_it_refuses_its_configuration() {
    let fault = Redis::builder().set("nonsense", "yes").start().unwrap_err().to_string();
    assert!(fault.contains("Bad directive or wrong number of arguments"), "{fault}");
}

#[test]
fn a_port_that_somebody_took_is_left_to_them() {
    let server = Redis::start().unwrap();
    let mut tried = Vec::new();
    let other = on_free_port(|port| {
        tried.push(port);
        let taken = if tried.len() == 1 { server.port() } else { port };
        Redis::builder().set("port", taken).start()
    });
    // `start` itself has tried other ports, and has then given up, as the line names the port.
    assert!(other.is_ok(), "{other:?}");
    assert_eq!(tried.len(), 2);
}

#[test]
fn users_and_passwords_are_asked_for() {
    let server = Redis::builder()
        .password("open")
        .user("app on >secret ~app:* &app:* +@all")
        .start()
        .unwrap();
    let mut connection = tcp(&server);
    let mut say = |command: &[&str]| connection.call(command).unwrap();
    assert!(say(&["GET", "app:k"]).text().starts_with("NOAUTH"));
    assert!(say(&["AUTH", "app", "wrong"]).text().starts_with("WRONGPASS"));
    assert_eq!(say(&["AUTH", "app", "secret"]).text(), "OK");
    assert_eq!(say(&["SET", "app:k", "v"]).text(), "OK");
    assert!(say(&["SET", "k", "v"]).text().starts_with("NOPERM"));
    assert!(say(&["PUBLISH", "k", "v"]).text().starts_with("NOPERM"));
    assert_eq!(say(&["AUTH", "open"]).text(), "OK");
    assert_eq!(say(&["SET", "k", "v"]).text(), "OK");
    assert_eq!(server.command(&["GET", "app:k"]).unwrap().text(), "v");
}

#[test]
fn tls_takes_only_who_has_a_certificate() {
    let server = Redis::builder().tls().start().unwrap();
    let files = server.certificates().unwrap();
    let (certificate, key) = files.client();
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (port, authority) = (server.port().to_string(), text(files.authority()));
    let cli = Program { name: "redis-cli", package: "redis-tools" };
    let with_tls = ["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert", &authority];
    let (certificate, key) = (text(certificate), text(key));
    let own = ["--cert", &certificate, "--key", &key];
    let pong = cli.run(&[&with_tls[..], &own, &["PING"]].concat()).unwrap();
    assert_eq!(pong, "PONG\n");
    assert!(!cli.run(&[&with_tls[..], &["PING"]].concat()).is_ok_and(|said| said == pong));
    tcp(&server).call(&["PING"]).unwrap_err();
    assert_eq!(server.command(&["PING"]).unwrap().text(), "PONG");
    Redis::start().unwrap().certificates().unwrap_err();
}

#[test]
fn a_replica_follows_its_primary() {
    for builder in [Redis::builder(), Redis::builder().password("secret")] {
        let primary = builder.start().unwrap();
        let replica = Redis::builder().replica_of(&primary).start().unwrap();
        until("the copy", PATIENCE, || {
            Ok(replica.info("master_link_status")?.as_deref() == Some("up"))
        })
        .unwrap();
        // On one connection: `WAIT` is about what its own connection has written.
        let mut connection = primary.connect().unwrap();
        connection.call(&["SET", "k", "v"]).unwrap();
        assert_eq!(connection.call(&["WAIT", "1", "5000"]).unwrap().number(), Some(1));
        assert_eq!(replica.command(&["GET", "k"]).unwrap().text(), "v");
        assert_eq!(replica.role().unwrap(), "slave");
        let refused = replica.command(&["SET", "k", "v"]).unwrap_err().to_string();
        assert!(refused.contains("READONLY"), "{refused}");
    }
}

#[test]
fn memory_is_limited() {
    let server = Redis::builder().max_memory(1, "noeviction").start().unwrap();
    assert!(server.command(&["SET", "k", "v"]).unwrap_err().to_string().contains("OOM"));
    let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"]).unwrap().texts();
    assert_eq!(policy, ["maxmemory-policy", "noeviction"]);
    let argued = Redis::builder().arg("--maxclients").arg("77").start().unwrap();
    assert_eq!(argued.command(&["CONFIG", "GET", "maxclients"]).unwrap().texts()[1], "77");
}
