//! The proxy does to connections what it is told, and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use conformance_tests::servers::{
    Action, Cut, Data, Framing, Proxy, Redis, Reply, Resp, Rule, Toward, until,
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for an answer, were there one.
const MOMENT: Duration = Duration::from_millis(60);

struct World {
    server: Redis,
    proxy: Proxy,
}

impl World {
    fn new() -> Self {
        let server = Redis::start().unwrap();
        let proxy = Proxy::start(server.address()).unwrap();
        Self { server, proxy }
    }

    fn client(&self) -> Resp {
        let mut client = Resp::tcp(self.proxy.address()).unwrap();
        assert_eq!(client.call(&["PING"]).unwrap().text(), "PONG");
        client
    }

    /// What the server has under `k`.
    fn value(&self) -> Reply {
        self.server.command(&["GET", "k"]).unwrap()
    }

    fn wait_for(&self, value: &str) {
        until("the value", PATIENCE, || Ok(self.value().text() == value)).unwrap();
    }
}

/// There is no answer, and no end either.
fn hears_nothing(client: &mut Resp) {
    client.set_limit(MOMENT).unwrap();
    let start = Instant::now();
    client.read().unwrap_err();
    assert!(start.elapsed() >= MOMENT, "the connection ended");
    client.set_limit(PATIENCE).unwrap();
}

#[test]
fn everything_passes_by_default() {
    let world = World::new();
    let mut client = world.client();
    let large = "x".repeat(3 << 20);
    assert_eq!(client.call(&["SET", "k", &large]).unwrap().text(), "OK");
    assert_eq!(client.call(&["GET", "k"]).unwrap().text(), large);
    for n in 0..100 {
        client.send(&["ECHO", &n.to_string()]).unwrap();
    }
    for n in 0..100 {
        assert_eq!(client.read().unwrap().text(), n.to_string());
    }
    assert_eq!((world.proxy.open(), world.proxy.total()), (1, 1));
    assert_eq!(world.proxy.frames(Toward::Server), 103);
    assert_eq!(world.proxy.frames(Toward::Both), 206);
    assert!(world.proxy.bytes(Toward::Server) > 3 << 20);
    assert!(world.proxy.bytes(Toward::Client) > 3 << 20);
    let _second = world.client();
    assert_eq!((world.proxy.open(), world.proxy.total()), (2, 2));
    drop(client);
    world.proxy.wait_until_open(1, PATIENCE).unwrap();
    until("the end at the server", PATIENCE, || {
        // The test bed's own connection is one.
        Ok(world.server.info("connected_clients")?.as_deref() == Some("2"))
    })
    .unwrap();
    assert!(world.proxy.wait_until_open(7, MOMENT).is_err());
}

#[test]
fn cut_connections_end_and_new_ones_are_accepted() {
    let world = World::new();
    for (cut, kind) in [(Cut::Reset, Some(ErrorKind::ConnectionReset)), (Cut::Finish, None)] {
        let mut clients = [0; 3].map(|_| TcpStream::connect(world.proxy.address()).unwrap());
        for client in &mut clients {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"PING\r\n").unwrap();
            client.read_exact(&mut [0; 7]).unwrap();
        }
        assert_eq!(world.proxy.cut(cut), 3);
        assert_eq!(world.proxy.open(), 0);
        for client in &mut clients {
            let end = client.read(&mut [0; 9]);
            assert_eq!(end.map_err(|e| e.kind()), kind.map_or(Ok(0), Err), "{cut:?}");
        }
        world.client();
    }
}

#[test]
fn refused_connections_are_refused_and_the_others_stay() {
    let world = World::new();
    let mut client = world.client();
    world.proxy.refuse();
    let refused = TcpStream::connect(world.proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(client.call(&["PING"]).unwrap().text(), "PONG");
    world.proxy.accept().unwrap();
    world.proxy.accept().unwrap();
    world.client();
}

#[test]
fn held_requests_and_answers_come_later() {
    let world = World::new();
    let mut client = world.client();
    world.proxy.hold(Toward::Server);
    client.send(&["SET", "k", "1"]).unwrap();
    hears_nothing(&mut client);
    assert_eq!(world.value(), Reply::Nil);
    world.proxy.pass(Toward::Server);
    assert_eq!(client.read().unwrap().text(), "OK");

    world.proxy.hold(Toward::Client);
    client.send(&["SET", "k", "2"]).unwrap();
    world.wait_for("2");
    hears_nothing(&mut client);
    world.proxy.pass(Toward::Both);
    assert_eq!(client.read().unwrap().text(), "OK");

    // A client that gives up: what it sent arrives all the same, and then its end.
    world.proxy.hold(Toward::Both);
    client.send(&["SET", "k", "3"]).unwrap();
    drop(client);
    world.proxy.wait_until_open(0, PATIENCE).unwrap();
    assert_eq!(world.value().text(), "2");
    world.proxy.pass(Toward::Both);
    world.wait_for("3");
}

#[test]
fn swallowed_requests_and_answers_never_come() {
    let world = World::new();
    let mut client = world.client();
    world.proxy.swallow(Toward::Client);
    client.send(&["SET", "k", "1"]).unwrap();
    world.wait_for("1");
    world.proxy.swallow(Toward::Both);
    client.send(&["SET", "k", "2"]).unwrap();
    let mut other = Resp::tcp(world.proxy.address()).unwrap();
    other.send(&["SET", "k", "3"]).unwrap();
    hears_nothing(&mut client);
    hears_nothing(&mut other);
    world.proxy.pass(Toward::Both);
    assert_eq!(client.call(&["GET", "k"]).unwrap().text(), "1");
    assert_eq!(other.call(&["GET", "k"]).unwrap().text(), "1");
}

#[test]
fn swallowing_takes_what_was_held() {
    let world = World::new();
    let mut client = world.client();
    world.proxy.hold(Toward::Server);
    client.send(&["SET", "k", "1"]).unwrap();
    until("the request", PATIENCE, || Ok(world.proxy.frames(Toward::Server) == 2)).unwrap();
    world.proxy.swallow(Toward::Server);
    world.proxy.pass(Toward::Server);
    assert_eq!(client.call(&["GET", "k"]).unwrap(), Reply::Nil);
}

#[test]
fn delays_are_kept_in_each_direction_and_keep_the_order() {
    let world = World::new();
    let mut client = world.client();
    for toward in [Toward::Server, Toward::Client] {
        world.proxy.delay(toward, MOMENT);
        let start = Instant::now();
        client.send(&["SET", "k", "1"]).unwrap();
        client.send(&["GET", "k"]).unwrap();
        assert_eq!(client.read().unwrap().text(), "OK");
        assert_eq!(client.read().unwrap().text(), "1");
        assert!(start.elapsed() >= MOMENT);
        world.proxy.delay(toward, Duration::ZERO);
    }
    let rule = Rule::requests("late").act(Action::Delay(MOMENT));
    world.proxy.rule(rule);
    let start = Instant::now();
    client.send(&["ECHO", "late"]).unwrap();
    client.send(&["ECHO", "behind"]).unwrap();
    assert_eq!(client.read().unwrap().text(), "late");
    assert!(start.elapsed() >= MOMENT);
    assert_eq!(client.read().unwrap().text(), "behind");
}

#[test]
fn a_connection_is_cut_between_a_request_and_its_answer() {
    let world = World::new();
    for cut in [Cut::Reset, Cut::Finish] {
        let mut client = world.client();
        let mut other = world.client();
        let hits = world.proxy.rule(Rule::requests("SET").act(Action::CutAtAnswer(cut)).times(1));
        client.send(&["ECHO", "before"]).unwrap();
        client.send(&["SET", "k", "1"]).unwrap();
        assert_eq!(client.read().unwrap().text(), "before");
        let start = Instant::now();
        client.read().unwrap_err();
        assert!(start.elapsed() < PATIENCE);
        assert_eq!(world.value().text(), "1");
        assert_eq!(hits.count(), 1);
        assert_eq!(other.call(&["SET", "k", "2"]).unwrap().text(), "OK");
        assert_eq!(world.proxy.open(), 1);
    }
}

#[test]
fn a_connection_is_cut_before_a_request() {
    let world = World::new();
    let mut client = world.client();
    world.proxy.rule(Rule::requests("SET").act(Action::Cut(Cut::Reset)));
    client.call(&["SET", "k", "1"]).unwrap_err();
    assert_eq!(world.value(), Reply::Nil);
    world.proxy.clear_rules();
    assert_eq!(world.client().call(&["SET", "k", "2"]).unwrap().text(), "OK");
}

#[test]
fn a_message_is_lost_and_the_next_one_is_not() {
    let world = World::new();
    let mut subscriber = world.client();
    subscriber.call(&["SUBSCRIBE", "c"]).unwrap();
    let hits = world.proxy.rule(Rule::answers("message").act(Action::Lose).times(1));
    world.server.command(&["PUBLISH", "c", "lost"]).unwrap();
    hits.wait(1, PATIENCE).unwrap();
    world.server.command(&["PUBLISH", "c", "heard"]).unwrap();
    assert_eq!(subscriber.read().unwrap().texts(), ["message", "c", "heard"]);
}

#[test]
fn rules_count_what_they_find() {
    let world = World::new();
    let get = world.proxy.rule(Rule::requests("GET"));
    let all = world.proxy.rule(Rule::requests(""));
    let answers = world.proxy.rule(Rule::answers("x"));
    let mut client = world.client();
    client.call(&["SET", "k", "x"]).unwrap();
    for _ in 0..3 {
        client.call(&["GET", "k"]).unwrap();
    }
    get.wait(3, PATIENCE).unwrap();
    assert_eq!((get.count(), all.count(), answers.count()), (3, 5, 3));
    let short = get.wait(4, MOMENT).unwrap_err().to_string();
    assert!(short.contains("3 times and not 4"), "{short}");
}

#[test]
fn bytes_that_are_no_frames_pass_as_they_come() {
    let server = Redis::start().unwrap();
    let proxy = Proxy::start_framed(server.address(), Framing::Raw).unwrap();
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for half in ["*1\r\n$4\r\nPI", "NG\r\n"] {
        client.write_all(half.as_bytes()).unwrap();
        let before = half.len() as u64;
        until("half", PATIENCE, || Ok(proxy.bytes(Toward::Server) >= before)).unwrap();
    }
    let mut answer = [0; 7];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    proxy.rule(Rule::requests("SET").act(Action::CutAtAnswer(Cut::Finish)));
    client.write_all(b"SET k v\r\n").unwrap();
    assert_eq!(client.read(&mut answer).unwrap(), 0);
    assert_eq!(server.command(&["GET", "k"]).unwrap().text(), "v");
}

#[test]
fn a_server_that_is_gone_ends_its_connections_and_another_takes_over() {
    let world = World::new();
    let mut client = world.client();
    world.server.process().kill().unwrap();
    client.read().unwrap_err();
    Resp::tcp(world.proxy.address()).and_then(|mut early| early.call(&["PING"])).unwrap_err();
    let other = Redis::start().unwrap();
    world.proxy.set_server(other.address());
    other.command(&["SET", "k", "other"]).unwrap();
    assert_eq!(world.client().call(&["GET", "k"]).unwrap().text(), "other");
    world.server.process().start_again(Data::Kept).unwrap();
    world.proxy.set_server(world.server.address());
    assert_eq!(world.client().call(&["GET", "k"]).unwrap(), Reply::Nil);
}

#[test]
fn dropping_it_ends_everything() {
    let World { server, proxy } = World::new();
    let mut client = Resp::tcp(proxy.address()).unwrap();
    client.call(&["PING"]).unwrap();
    let address = proxy.address();
    drop(proxy);
    client.call(&["PING"]).unwrap_err();
    TcpStream::connect(address).unwrap_err();
    server.command(&["PING"]).unwrap();
}
