//! What the scripts promise, sentence by sentence, to whoever calls them: each test on a server of
//! its own, without a client in between.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use conformance_tests::servers::{Redis, Reply, Resp};

macro_rules! common_and {
    ($name:literal) => {
        concat!(
            include_str!("../src/scripts/common.lua"),
            include_str!(concat!("../src/scripts/", $name, ".lua"))
        )
    };
}

const SCRIPTS: [(&str, &str); 8] = [
    ("ask", common_and!("ask")),
    ("renew", common_and!("renew")),
    ("free", include_str!("../src/scripts/free.lua")),
    ("withdraw", common_and!("withdraw")),
    ("linger", common_and!("linger")),
    ("look", common_and!("look")),
    ("force", common_and!("force")),
    ("record", include_str!("../src/scripts/record.lua")),
];

/// A TTL that ends no claim while a test runs.
const LONG: i64 = 60_000;

/// What a machine with other work may take between two steps of a test, in milliseconds.
const SLACK: i64 = 5_000;

const NAME: &[u8] = b"lockkit:order:lock:1001";
const CHANNEL: &[u8] = b"the channel";
const REDISSON: &[u8] = b"Redisson's channel";

/// Bytes that are no UTF-8, and what the stored forms are made of.
const ODD: &[u8] = b":f:1:\0\n\r\xFF\xFE%d{}'\"\\ ";

/// The keys of a lock, as the client names them.
fn keys_of(base: &[u8]) -> [Vec<u8>; 5] {
    let helper = |kind: &[u8]| [b"lockkit:\xFF", kind, b"{", base, b"}"].concat();
    [base.to_vec(), helper(b"info"), helper(b"writer"), helper(b"queue"), helper(b"places")]
}

fn token(n: usize) -> String {
    format!("{n:032x}")
}

/// One server, and the scripts in it.
struct Bed {
    server: Redis,
    line: RefCell<Resp>,
    shas: HashMap<&'static str, String>,
    keys: [Vec<u8>; 5],
}

impl Bed {
    fn start() -> Self {
        let server = Redis::start().unwrap();
        let mut line = server.connect().unwrap();
        let mut load = |text| line.call(&["SCRIPT", "LOAD", text]).unwrap().checked().unwrap();
        let shas = SCRIPTS.map(|(name, text)| (name, load(text).text())).into();
        Self { server, line: RefCell::new(line), shas, keys: keys_of(NAME) }
    }

    fn call<A: AsRef<[u8]>>(&self, command: &[A]) -> Reply {
        self.line.borrow_mut().call(command).unwrap().checked().unwrap()
    }

    /// A command on one of the lock's keys.
    fn on(&self, command: &str, key: usize, rest: &[&str]) -> Reply {
        let mut words = vec![command.as_bytes(), self.keys[key].as_slice()];
        words.extend(rest.iter().map(|word| word.as_bytes()));
        self.call(&words)
    }

    fn number(&self, command: &str, key: usize, rest: &[&str]) -> i64 {
        self.on(command, key, rest).number().unwrap_or(-100)
    }

    fn words(&self, script: &str, args: &[&[u8]]) -> Vec<Vec<u8>> {
        let keys = if matches!(script, "free" | "record") { &self.keys[..1] } else { &self.keys };
        let head = [b"EVALSHA".to_vec(), self.shas[script].clone().into_bytes()];
        let count = keys.len().to_string().into_bytes();
        let rest = keys.iter().cloned().chain(args.iter().map(|arg| arg.to_vec()));
        head.into_iter().chain([count]).chain(rest).collect()
    }

    fn run(&self, script: &str, args: &[&[u8]]) -> Reply {
        self.call(&self.words(script, args))
    }

    fn int(&self, script: &str, args: &[&[u8]]) -> i64 {
        match self.run(script, args) {
            Reply::Int(number) => number,
            other => panic!("{script} answered {other:?}"),
        }
    }

    fn ask(&self, ask: &Ask) -> Answer {
        Answer::read(&self.call(&ask.words(self)))
    }

    fn granted(&self, ask: &Ask) -> i64 {
        match self.ask(ask) {
            Answer::Granted(fence) => fence,
            other => panic!("{ask:?} should be granted: {other:?}"),
        }
    }

    /// It must be busy; after how many milliseconds it is free, and who holds it.
    fn busy(&self, ask: &Ask) -> (i64, Option<Seen>) {
        match self.ask(ask) {
            Answer::Busy(free_in, seen) => (free_in, seen),
            other => panic!("{ask:?} should be busy: {other:?}"),
        }
    }

    /// What a client does that finds the key free.
    fn set(&self, n: usize, ttl: i64, label: &[u8]) {
        let value = [token(n).as_bytes(), b":t:", ttl.to_string().as_bytes(), b":", label].concat();
        let ttl = ttl.to_string();
        let answer = self.call(&[b"SET", NAME, &value, b"NX", b"PX", ttl.as_bytes()]);
        assert_eq!(answer.text(), "OK");
    }

    fn renew(&self, n: usize, ttl: i64, fence: &str) -> i64 {
        let ttl = ttl.to_string();
        self.int("renew", &[token(n).as_bytes(), ttl.as_bytes(), fence.as_bytes()])
    }

    fn free(&self, n: usize) -> i64 {
        self.int("free", &[token(n).as_bytes(), CHANNEL])
    }

    fn withdraw(&self, ask: &Ask) -> i64 {
        let (token, mode) = (ask.token.as_bytes(), ask.mode.as_bytes());
        let fair: &[u8] = if ask.fair { b"1" } else { b"0" };
        self.int("withdraw", &[CHANNEL, token, fair, REDISSON, mode])
    }

    fn linger(&self, n: usize, rest: i64) -> i64 {
        self.int("linger", &[token(n).as_bytes(), rest.to_string().as_bytes()])
    }

    fn force(&self, how: &str, value: &str) -> i64 {
        self.int("force", &[CHANNEL, how.as_bytes(), value.as_bytes(), REDISSON])
    }

    fn record(&self, n: usize, fence: &str) -> i64 {
        self.int("record", &[token(n).as_bytes(), fence.as_bytes()])
    }

    /// Who holds the key, asked in a way in which nothing can be written.
    fn look(&self) -> Option<Seen> {
        let mut words = self.words("look", &[]);
        words[0] = b"EVALSHA_RO".to_vec();
        match self.call(&words) {
            Reply::Nil => None,
            answer => Some(Seen::read(answer.members())),
        }
    }

    fn value(&self) -> Vec<u8> {
        self.on("GET", 0, &[]).bytes().to_vec()
    }

    fn pttl(&self, key: usize) -> i64 {
        self.number("PTTL", key, &[])
    }

    /// Its TTL is this one, or a little less.
    fn lives(&self, key: usize, ttl: i64) {
        let left = self.pttl(key);
        assert!((ttl - SLACK..=ttl).contains(&left), "{left} ms are left, not {ttl}");
    }

    fn now_us(&self) -> i64 {
        let time = self.call(&["TIME"]);
        let part = |n: usize| time.members()[n].number().unwrap();
        part(0) * 1_000_000 + part(1)
    }

    fn now(&self) -> i64 {
        self.now_us() / 1_000
    }

    /// Nothing of the lock, and nothing else, is in the server.
    fn empty(&self) {
        let left = self.call(&["KEYS", "*"]);
        assert!(left.members().is_empty(), "{left:?} was left");
    }

    fn place(&self, ask: &Ask) -> Option<i64> {
        self.on("ZSCORE", 3, &[&format!("{}{}", ask.mode, ask.token)]).number()
    }

    /// Somebody who waits and is not heard of again.
    fn dies_in_line(&self, ask: &Ask) {
        let member = format!("{}{}", ask.mode, ask.token);
        let past = (self.now() - 1).to_string();
        assert_eq!(self.on("ZADD", 4, &["XX", "CH", &past, &member]), Reply::Int(1));
    }

    /// A reader or permit whose TTL is over.
    fn dies(&self, n: usize) {
        let past = (self.now() - 1).to_string();
        assert_eq!(self.on("ZADD", 0, &["XX", "CH", &past, &token(n)]), Reply::Int(1));
    }

    /// An entered owner whose TTL is over.
    fn dies_inside(&self, n: usize) {
        let field = format!("t:{}", token(n));
        let value = self.on("HGET", 0, &[&field]).text();
        let (_, rest) = value.split_once(':').unwrap();
        let value = format!("{}:{rest}", self.now() - 1);
        assert_eq!(self.on("HSET", 0, &[&field, &value]), Reply::Int(0));
    }

    /// How many commands the server runs for this, those of scripts too.
    fn cost(&self, what: impl FnOnce()) -> HashMap<String, usize> {
        self.call(&["CONFIG", "RESETSTAT"]);
        what();
        let text = self.call(&["INFO", "commandstats"]).text();
        let lines = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        lines.filter(|(name, _)| !matches!(&**name, "info" | "config|resetstat")).collect()
    }
}

/// An attempt.
#[derive(Debug, Clone)]
struct Ask {
    token: String,
    mode: String,
    ttl: i64,
    stays: bool,
    fair: bool,
    layout: &'static str,
    owner: Vec<u8>,
    label: Vec<u8>,
}

fn ask(mode: &str, n: usize) -> Ask {
    let (token, mode) = (token(n), mode.to_owned());
    let (owner, label) = (Vec::new(), Vec::new());
    Ask { token, mode, ttl: LONG, stays: false, fair: false, layout: "string", owner, label }
}

fn x(n: usize) -> Ask {
    ask("x", n)
}

fn s(n: usize) -> Ask {
    ask("s", n)
}

fn p(limit: usize, n: usize) -> Ask {
    ask(&format!("p{limit}"), n)
}

impl Ask {
    fn ttl(self, ttl: i64) -> Self {
        Self { ttl, ..self }
    }

    fn waits(self) -> Self {
        Self { stays: true, ..self }
    }

    fn fair(self) -> Self {
        Self { fair: true, ..self }
    }

    fn hash(self) -> Self {
        Self { layout: "hash", ..self }
    }

    fn owner(self, owner: &[u8]) -> Self {
        Self { owner: owner.to_vec(), ..self }
    }

    fn label(self, label: &[u8]) -> Self {
        Self { label: label.to_vec(), ..self }
    }

    fn words(&self, bed: &Bed) -> Vec<Vec<u8>> {
        let stage = if self.stays { "wait" } else { "try" };
        let (fair, ttl) = (if self.fair { "1" } else { "0" }, self.ttl.to_string());
        let texts = [&self.token, &self.mode, &ttl, stage, fair, self.layout].map(str::as_bytes);
        let bytes = [self.owner.as_slice(), self.label.as_slice(), REDISSON];
        let args: Vec<_> = [CHANNEL].into_iter().chain(texts).chain(bytes).collect();
        bed.words("ask", &args)
    }
}

/// Attempts of each sort, by their numbers.
type Sort = fn(usize) -> Ask;
const PLAIN: Sort = x;
const HASH: Sort = |n| x(n).hash();
const OWNED: Sort = |n| x(n).owner(b"job");
const SHARED: [Sort; 2] = [s, |n| p(2, n)];

/// The answer to an attempt.
#[derive(Debug, PartialEq)]
enum Answer {
    Granted(i64),
    Busy(i64, Option<Seen>),
    OtherFamily(String),
    Data(String),
}

impl Answer {
    fn read(answer: &Reply) -> Self {
        match answer.members() {
            [Reply::Int(1), Reply::Int(fence)] => Self::Granted(*fence),
            [Reply::Int(0), Reply::Int(free_in)] => Self::Busy(*free_in, None),
            [Reply::Int(0), Reply::Int(free_in), seen @ ..] => {
                Self::Busy(*free_in, Some(Seen::read(seen)))
            }
            [Reply::Int(-1), mode] => Self::OtherFamily(mode.text()),
            [Reply::Int(-2), sort] => Self::Data(sort.text()),
            _ => panic!("an odd answer: {answer:?}"),
        }
    }
}

/// Who holds the key.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    kind: String,
    mode: String,
    holders: i64,
    token: String,
    fence: i64,
    label: Vec<u8>,
    held_for: i64,
    expires_in: i64,
    waiting: i64,
}

impl Seen {
    fn read(fields: &[Reply]) -> Self {
        let [
            kind,
            mode,
            Reply::Int(holders),
            token,
            Reply::Int(fence),
            label,
            Reply::Int(held_for),
            Reply::Int(expires_in),
            Reply::Int(waiting),
        ] = fields
        else {
            panic!("an odd description: {fields:?}");
        };
        Self {
            kind: kind.text(),
            mode: mode.text(),
            holders: *holders,
            token: token.text(),
            fence: *fence,
            label: label.bytes().to_vec(),
            held_for: *held_for,
            expires_in: *expires_in,
            waiting: *waiting,
        }
    }
}

/// Listens to a channel.
struct Ears(Resp, &'static [u8]);

impl Ears {
    fn on(bed: &Bed, channel: &'static [u8]) -> Self {
        let mut line = bed.server.connect().unwrap();
        line.call(&[b"SUBSCRIBE", channel]).unwrap().checked().unwrap();
        Self(line, channel)
    }

    /// All messages since the last time.
    fn heard(&mut self, bed: &Bed) -> Vec<String> {
        bed.call(&[b"PUBLISH", self.1, b"that is all"]);
        let mut next = || self.0.read().unwrap().members()[2].text();
        std::iter::from_fn(|| Some(next()).filter(|message| message != "that is all")).collect()
    }
}

fn texts(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|n| token(*n)).collect()
}

// Plain exclusive claims.

#[test]
fn a_free_key_is_granted_and_the_fence_is_the_servers_time() {
    let bed = Bed::start();
    let before = bed.now_us();
    let fence = bed.granted(&x(1).label(b"a label"));
    assert!((before..=bed.now_us()).contains(&fence), "{fence} is not between {before} and now");
    assert_eq!(bed.value(), format!("{}:f:{fence}:a label", token(1)).into_bytes());
    bed.lives(0, LONG);
    let seen = bed.look().unwrap();
    assert_eq!((&*seen.kind, &*seen.mode, seen.holders), ("string", "x", 1));
    assert_eq!((seen.token, seen.fence, &*seen.label), (token(1), fence, &b"a label"[..]));
    assert!((0..SLACK).contains(&seen.held_for) && seen.waiting == -1);
    assert!((LONG - SLACK..=LONG).contains(&seen.expires_in));
}

#[test]
fn the_same_token_again_arms_the_whole_ttl_and_takes_nothing_away() {
    let bed = Bed::start();
    for (first, again) in
        [(x(1), x(1)), (x(1).hash(), x(1).hash()), (s(1), s(1)), (p(2, 1), p(2, 1))]
    {
        let first = first.label(b"first");
        let fence = bed.granted(&first);
        let again = again.label(b"again");
        assert_eq!(bed.granted(&again.clone().ttl(2 * LONG)), fence, "{again:?}");
        bed.lives(0, 2 * LONG);
        assert_eq!(bed.granted(&again.clone().ttl(LONG / 2)), fence, "{again:?}");
        bed.lives(0, 2 * LONG);
        let seen = bed.look().unwrap();
        assert_eq!((seen.holders, seen.fence, &*seen.label), (1, fence, &b"first"[..]));
        assert_eq!((bed.withdraw(&again), bed.withdraw(&again)), (1, 0));
        bed.empty();
    }
}

#[test]
fn a_bare_claim_is_found_by_its_own_token_and_gets_its_fence() {
    let bed = Bed::start();
    bed.set(1, LONG / 2, ODD);
    let before = bed.now_us();
    let fence = bed.granted(&x(1).label(b"not this one"));
    assert!(fence >= before, "{fence} is older than {before}");
    let value = [format!("{}:f:{fence}:", token(1)).as_bytes(), ODD].concat();
    assert_eq!(bed.value(), value);
    bed.lives(0, LONG);
    assert_eq!(bed.granted(&x(1).ttl(1)), fence);
    bed.lives(0, LONG);
    // Of a client without fences.
    bed.call(&[b"SET", NAME, format!("{}:s:{}:", token(2), bed.now()).as_bytes(), b"PX", b"99"]);
    let fence = bed.granted(&x(2));
    assert_eq!(bed.value(), format!("{}:f:{fence}:", token(2)).into_bytes());
}

#[test]
fn who_is_refused_learns_who_holds_it_and_how_long_at_most() {
    let bed = Bed::start();
    for form in ["t", "f", "s"] {
        let (now, now_us) = (bed.now(), bed.now_us());
        let number = match form {
            "t" => LONG,
            "f" => now_us - 3_000_000,
            _ => now - 3_000,
        };
        let value = format!("{}:{form}:{number}:why", token(1));
        let left = (LONG - 3_000).to_string();
        bed.on("SET", 0, &[&value, "PX", &left]);
        for rival in [x(2), s(2), x(2).owner(b"job"), x(2).hash(), x(2).waits(), s(2).waits()] {
            let (free_in, seen) = bed.busy(&rival);
            let seen = seen.unwrap();
            assert!((LONG - 3_000 - SLACK..=LONG - 3_000).contains(&free_in), "{form}: {free_in}");
            assert_eq!((&*seen.kind, &*seen.mode, &*seen.label), ("string", "x", &b"why"[..]));
            assert_eq!((seen.token, seen.holders, seen.waiting), (token(1), 1, -1));
            assert!((3_000..3_000 + SLACK).contains(&seen.held_for), "{form}: {}", seen.held_for);
            assert_eq!(seen.fence, if form == "f" { number } else { 0 });
        }
        assert_eq!(bed.ask(&p(2, 2)), Answer::OtherFamily("x".into()));
        assert_eq!(bed.value(), value.into_bytes(), "it was touched");
    }
    bed.on("DEL", 0, &[]);
    bed.empty();
}

#[test]
fn a_renewal_extends_what_stands_and_makes_nothing() {
    let bed = Bed::start();
    assert_eq!(bed.renew(1, LONG, "7"), 0);
    bed.empty();
    // With a fence, and without one.
    bed.set(1, LONG, ODD);
    assert_eq!(bed.renew(2, 2 * LONG, "7"), 0);
    bed.lives(0, LONG);
    assert_eq!(bed.renew(1, 2 * LONG, "1234567890123456"), 1);
    assert_eq!(bed.value(), [token(1).as_bytes(), b":f:1234567890123456:", ODD].concat());
    bed.lives(0, 2 * LONG);
    assert_eq!(bed.renew(1, LONG, "9"), 1);
    assert_eq!(bed.value(), [token(1).as_bytes(), b":f:1234567890123456:", ODD].concat());
    bed.lives(0, 2 * LONG);
    bed.on("DEL", 0, &[]);
    bed.set(1, LONG, b"");
    let granted = bed.now();
    assert_eq!(bed.renew(1, 2 * LONG, ""), 1);
    let value = String::from_utf8(bed.value()).unwrap();
    let since: i64 =
        value.strip_prefix(&format!("{}:s:", token(1))).unwrap()[..13].parse().unwrap();
    assert!((granted - SLACK..=granted + 1).contains(&since), "{since} is not {granted}");
    assert_eq!(bed.renew(1, LONG, ""), 1);
    bed.lives(0, 2 * LONG);
}

#[test]
fn a_renewal_moves_one_claim_of_several() {
    let bed = Bed::start();
    for (one, two) in [(s(1), s(2)), (p(2, 1), p(2, 2)), (x(1).owner(b"job"), x(2).owner(b"job"))] {
        bed.granted(&one);
        bed.granted(&two);
        assert_eq!((bed.renew(1, 3 * LONG, ""), bed.renew(3, 9 * LONG, "")), (1, 0));
        bed.lives(0, 3 * LONG);
        assert_eq!(bed.renew(1, LONG, ""), 1);
        bed.lives(0, 3 * LONG);
        assert_eq!((bed.withdraw(&one), bed.renew(1, 9 * LONG, "")), (1, 0));
        bed.lives(0, LONG);
        assert_eq!(bed.withdraw(&two), 1);
        bed.empty();
    }
}

#[test]
fn a_dead_claim_is_not_renewed() {
    let bed = Bed::start();
    for ask in SHARED {
        bed.granted(&ask(1));
        bed.granted(&ask(2));
        bed.dies(1);
        assert_eq!(
            (bed.renew(1, LONG, ""), bed.linger(1, LONG), bed.renew(2, LONG, "")),
            (0, 0, 1)
        );
        bed.force("any", "");
    }
    bed.granted(&x(1).owner(b"job"));
    bed.granted(&x(2).owner(b"job"));
    bed.dies_inside(1);
    assert_eq!((bed.renew(1, LONG, ""), bed.linger(1, LONG), bed.renew(2, LONG, "")), (0, 0, 1));
}

#[test]
fn the_lean_release_frees_its_own_claim_once() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    bed.set(1, LONG, ODD);
    assert_eq!((bed.free(2), ears.heard(&bed).len()), (0, 0));
    assert_eq!((bed.free(1), ears.heard(&bed)), (1, vec![String::new()]));
    assert_eq!((bed.free(1), ears.heard(&bed).len()), (0, 0));
    bed.empty();
    for other in [s(1), p(2, 1), x(1).owner(b"job")] {
        bed.granted(&other);
        assert_eq!((bed.free(1), ears.heard(&bed).len()), (0, 0), "{other:?}");
        assert_eq!(bed.withdraw(&other), 1);
        ears.heard(&bed);
    }
}

#[test]
fn a_fence_is_recorded_in_a_bare_claim_that_stands() {
    let bed = Bed::start();
    assert_eq!(bed.record(1, "7"), 0);
    bed.set(1, LONG, ODD);
    assert_eq!(bed.record(2, "7"), 0);
    assert_eq!(bed.record(1, "1234567890123456"), 1);
    assert_eq!(bed.value(), [token(1).as_bytes(), b":f:1234567890123456:", ODD].concat());
    bed.lives(0, LONG);
    assert_eq!(bed.record(1, "8"), 0, "it has one");
    bed.force("any", "");
    for other in [s(1), x(1).owner(b"job")] {
        bed.granted(&other);
        assert_eq!(bed.record(1, "7"), 0, "{other:?}");
        bed.force("any", "");
    }
    bed.empty();
}

#[test]
fn a_claim_can_be_left_to_end_by_itself() {
    let bed = Bed::start();
    for ask in [PLAIN, HASH].into_iter().chain(SHARED).chain([OWNED]) {
        bed.granted(&ask(1));
        assert_eq!((bed.linger(2, 1), bed.linger(1, 2 * LONG)), (0, 1));
        bed.lives(0, 2 * LONG);
        assert_eq!(bed.linger(1, LONG / 2), 1, "shorter, too");
        bed.lives(0, LONG / 2);
        bed.force("any", "");
    }
    // The others stay for as long as they would.
    for ask in SHARED.into_iter().chain([OWNED]) {
        bed.granted(&ask(1).ttl(2 * LONG));
        bed.granted(&ask(2));
        assert_eq!(bed.linger(1, 50), 1);
        bed.lives(0, LONG);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!((bed.look().unwrap().holders, bed.renew(1, LONG, "")), (1, 0));
        bed.force("any", "");
    }
    assert_eq!(bed.linger(1, LONG), 0);
    bed.empty();
}

// What is of somebody else.

#[test]
fn what_is_of_somebody_else_is_busy_and_untouched() {
    let bed = Bed::start();
    let own = token(1);
    let strings = [
        "17f3a",
        "",
        &own,
        &own[..31],
        &format!("{own}:t:1"),
        &format!("{own}:q:1:"),
        &format!("{own}0:t:1:"),
        &format!("{own}:t::"),
        "{\"name\":\"Ada\"}",
    ]
    .map(|value| vec!["SET".to_owned(), value.to_owned()]);
    let hashes = [["0b2c:52", "1"], ["f", "7"], ["o:job", "1"], ["t:a", "no claim"]]
        .map(|[field, value]| vec!["HSET".into(), field.into(), value.into()]);
    for mut made in strings.into_iter().chain(hashes) {
        made.insert(1, String::from_utf8(NAME.to_vec()).unwrap());
        bed.call(&made);
        for ttl in [None, Some(LONG)] {
            if let Some(ttl) = ttl {
                bed.on("PEXPIRE", 0, &[&ttl.to_string()]);
            }
            let stands = bed.on("DUMP", 0, &[]);
            for rival in [x(1), s(1), x(1).waits(), x(1).hash(), x(1).owner(b"job")] {
                let (free_in, seen) = bed.busy(&rival);
                let seen = seen.unwrap();
                assert_eq!((&*seen.kind, &*seen.mode, seen.holders), ("foreign", "x", 1));
                assert_eq!((&*seen.token, seen.fence, seen.held_for), ("", 0, -1));
                assert_eq!(free_in == -1, ttl.is_none(), "{made:?}");
                assert_eq!(seen.expires_in == -1, ttl.is_none(), "{made:?}");
            }
            assert_eq!(bed.ask(&p(2, 1)), Answer::OtherFamily("x".into()));
            assert_eq!((bed.renew(1, LONG, "7"), bed.record(1, "7")), (0, 0), "{made:?}");
            assert_eq!((bed.linger(1, 1), bed.withdraw(&x(1))), (0, 0), "{made:?}");
            assert_eq!((bed.force("token", &own), bed.force("fence", "7")), (0, 0), "{made:?}");
            assert_eq!(bed.on("DUMP", 0, &[]), stands, "{made:?} was touched");
            assert_eq!(bed.pttl(0) == -1, ttl.is_none(), "{made:?}");
        }
        assert_eq!((bed.force("any", ""), bed.look()), (1, None), "{made:?}");
        bed.empty();
    }
}

#[test]
fn data_of_another_type_is_told() {
    let bed = Bed::start();
    let base = std::str::from_utf8(NAME).unwrap();
    for (sort, made) in [
        ("list", vec!["RPUSH", base, "a"]),
        ("set", vec!["SADD", base, "a"]),
        ("stream", vec!["XADD", base, "*", "a", "b"]),
        ("zset", vec!["ZADD", base, "1", "a"]),
    ] {
        bed.call(&made);
        let stands = bed.on("DUMP", 0, &[]);
        for rival in [x(1), s(1), p(2, 1), x(1).owner(b"job"), x(1).fair().waits()] {
            assert_eq!(bed.ask(&rival), Answer::Data(sort.into()));
        }
        assert_eq!((bed.renew(1, LONG, ""), bed.linger(1, 1), bed.withdraw(&x(1))), (0, 0, 0));
        assert_eq!((bed.free(1), bed.record(1, "7"), bed.look()), (0, 0, None));
        assert_eq!((bed.force("any", ""), bed.force("token", &token(1))), (0, 0));
        assert_eq!(bed.on("DUMP", 0, &[]), stands, "{sort} was touched");
        bed.on("DEL", 0, &[]);
        bed.empty();
    }
}

// Owners.

#[test]
fn a_hash_without_an_owner_is_its_tokens() {
    let bed = Bed::start();
    let mut redisson = Ears::on(&bed, REDISSON);
    let fence = bed.granted(&x(1).hash().label(ODD));
    let fields =
        bed.on("HGETALL", 0, &[]).members().chunks(2).map(|f| f[0].text()).collect::<Vec<_>>();
    assert_eq!(fields, [format!("o:{}", token(1)), "f".into(), format!("t:{}", token(1))]);
    bed.lives(0, LONG);
    let seen = bed.look().unwrap();
    assert_eq!((&*seen.kind, seen.fence, &*seen.label), ("hash", fence, ODD));
    bed.busy(&x(2).hash());
    bed.busy(&x(2));
    assert_eq!((bed.withdraw(&x(2)), redisson.heard(&bed).len()), (0, 0));
    assert_eq!((bed.withdraw(&x(1)), redisson.heard(&bed)), (1, vec!["0".to_owned()]));
    assert!(bed.granted(&x(2).hash()) > fence);
}

#[test]
fn an_owner_enters_again_and_each_entry_counts_once() {
    let bed = Bed::start();
    let (mut ears, mut redisson) = (Ears::on(&bed, CHANNEL), Ears::on(&bed, REDISSON));
    for owner in [&b"job"[..], ODD, b"f", b"t:x"] {
        let count = || {
            let field = [b"o:", owner].concat();
            bed.call(&[b"HGET", NAME, field.as_slice()]).number()
        };
        let enters = |n: usize| x(n).owner(owner);
        let fence = bed.granted(&enters(1));
        assert_eq!(bed.granted(&enters(2).ttl(2 * LONG)), fence, "one tenure, one fence");
        bed.lives(0, 2 * LONG);
        assert_eq!(bed.granted(&enters(2)), fence, "asked again");
        assert_eq!(bed.granted(&s(3).owner(owner).ttl(1_000)), fence, "as a reader");
        assert_eq!(count(), Some(3));
        assert_eq!(bed.look().unwrap().holders, 3);
        bed.lives(0, 2 * LONG);
        for rival in [x(9), s(9), x(9).owner(b"another"), s(9).owner(b"another")] {
            bed.busy(&rival);
        }
        assert_eq!(bed.ask(&p(2, 9).owner(owner)), Answer::OtherFamily("x".into()));
        assert_eq!((bed.withdraw(&enters(2)), bed.withdraw(&enters(2))), (1, 0));
        assert_eq!((bed.withdraw(&enters(9)), count()), (0, Some(2)));
        bed.lives(0, LONG);
        assert_eq!((bed.withdraw(&enters(1)), count()), (1, Some(1)));
        assert_eq!(redisson.heard(&bed).len(), 0, "the owner is still in");
        assert_eq!((bed.withdraw(&enters(3)), bed.withdraw(&enters(3))), (1, 0));
        assert_eq!(redisson.heard(&bed), ["0"]);
        assert_eq!(ears.heard(&bed).len(), 3, "one message for each release");
        bed.empty();
    }
}

#[test]
fn dead_entries_of_an_owner_no_longer_count() {
    let bed = Bed::start();
    let enters = |n: usize| x(n).owner(b"job");
    let fence = bed.granted(&enters(1));
    bed.granted(&enters(2));
    bed.dies_inside(1);
    assert_eq!(bed.look().unwrap().holders, 1);
    assert_eq!(bed.granted(&enters(3)), fence);
    assert_eq!(bed.on("HGET", 0, &["o:job"]).number(), Some(2));
    assert_eq!(bed.on("HEXISTS", 0, &[&format!("t:{}", token(1))]).number(), Some(0));
    // Dead, and back with the same token.
    bed.dies_inside(2);
    assert_eq!(bed.granted(&enters(2)), fence);
    assert_eq!(bed.on("HGET", 0, &["o:job"]).number(), Some(2));
    // All dead, while the key still stands: free for everybody, and the fence is a new one.
    bed.dies_inside(2);
    bed.dies_inside(3);
    assert_eq!((bed.look(), bed.withdraw(&enters(2))), (None, 0));
    assert!(bed.granted(&x(4)) > fence);
    assert_eq!(bed.withdraw(&x(4)), 1);
    bed.empty();
}

// Readers and permits.

#[test]
fn readers_share_and_exclude_a_writer() {
    let bed = Bed::start();
    let first = bed.granted(&s(1).label(ODD));
    let second = bed.granted(&s(2).ttl(2 * LONG));
    assert!(second > first);
    bed.lives(0, 2 * LONG);
    bed.lives(1, 2 * LONG);
    let (free_in, seen) = bed.busy(&x(3));
    assert!((2 * LONG - SLACK..=2 * LONG).contains(&free_in));
    let seen = seen.unwrap();
    assert_eq!((&*seen.kind, &*seen.mode, seen.holders), ("zset", "s", 2));
    assert_eq!((seen.token, seen.fence, &*seen.label), (token(1), first, ODD));
    assert_eq!(bed.ask(&p(2, 3)), Answer::OtherFamily("s".into()));
    bed.busy(&x(3).owner(b"job"));
    assert_eq!((bed.withdraw(&s(1)), bed.withdraw(&s(1)), bed.withdraw(&s(2))), (1, 0, 1));
    bed.empty();
    assert!(bed.granted(&x(3)) > second);
}

#[test]
fn when_the_longest_of_two_goes_the_other_ones_end_counts() {
    let bed = Bed::start();
    for ask in SHARED.into_iter().chain([OWNED]) {
        bed.granted(&ask(1));
        bed.granted(&ask(2).ttl(3 * LONG));
        bed.lives(0, 3 * LONG);
        assert_eq!(bed.withdraw(&ask(2)), 1);
        bed.lives(0, LONG);
        bed.granted(&ask(3).ttl(3 * LONG));
        assert_eq!(bed.force("token", &token(3)), 1);
        bed.lives(0, LONG);
        if bed.number("EXISTS", 1, &[]) == 1 {
            bed.lives(1, LONG);
        }
        assert_eq!(bed.withdraw(&ask(1)), 1);
        bed.empty();
    }
}

#[test]
fn dead_readers_and_permits_go_with_their_notes() {
    let bed = Bed::start();
    for ask in SHARED {
        bed.granted(&ask(1));
        bed.granted(&ask(2));
        bed.dies(1);
        assert_eq!(bed.look().unwrap().token, token(2));
        let last = bed.granted(&ask(3));
        assert_eq!((bed.number("ZCARD", 0, &[]), bed.number("HLEN", 1, &[])), (2, 4));
        bed.dies(2);
        bed.dies(3);
        assert_eq!(bed.look(), None);
        assert!(bed.granted(&x(4)) > last);
        assert_eq!(bed.withdraw(&x(4)), 1);
        bed.empty();
    }
}

#[test]
fn what_claims_leave_that_were_deleted_by_hand_is_thrown_away() {
    let bed = Bed::start();
    bed.granted(&s(1));
    let last = bed.granted(&s(2));
    bed.on("DEL", 0, &[]);
    assert_eq!((bed.look(), bed.renew(1, LONG, ""), bed.withdraw(&s(1))), (None, 0, 0));
    assert!(bed.granted(&p(2, 3)) > last, "another family may come");
    assert_eq!(bed.number("HLEN", 1, &[]), 3);
    bed.on("DEL", 0, &[]);
    bed.granted(&x(4));
    assert_eq!(bed.withdraw(&x(4)), 1);
    assert_eq!(bed.number("EXISTS", 0, &[]), 0);
}

#[test]
fn no_more_permits_than_the_limit() {
    let bed = Bed::start();
    bed.granted(&p(2, 1));
    bed.granted(&p(2, 2).ttl(LONG / 2));
    let (free_in, seen) = bed.busy(&p(2, 3).waits());
    assert!((LONG / 2 - SLACK..=LONG / 2).contains(&free_in), "the first that ends: {free_in}");
    let seen = seen.unwrap();
    assert_eq!((&*seen.mode, seen.holders, seen.waiting), ("p2", 2, -1));
    for other in [p(3, 3), p(1, 3), x(3), s(3), x(3).owner(b"job")] {
        assert_eq!(bed.ask(&other), Answer::OtherFamily("p2".into()), "{other:?}");
    }
    bed.dies(2);
    bed.granted(&p(2, 3));
    bed.busy(&p(2, 4));
    assert_eq!(bed.withdraw(&p(2, 1)), 1);
    bed.granted(&p(2, 4));
    assert_eq!((bed.withdraw(&p(2, 3)), bed.withdraw(&p(2, 4))), (1, 1));
    bed.empty();
    bed.granted(&p(3, 5));
}

#[test]
fn ten_thousand_permits_have_growing_fences() {
    let bed = Bed::start();
    let mut last = 0;
    for round in 0..100 {
        // In half of the rounds somebody stays, so that the key does.
        if round == 50 {
            last = bed.granted(&p(9, 1));
        }
        let mut line = bed.line.borrow_mut();
        for n in 2..102 {
            line.send(&p(9, n).words(&bed)).unwrap();
            let token = token(n);
            let args = [CHANNEL, token.as_bytes(), b"0", b"", b"p9"];
            line.send(&bed.words("withdraw", &args)).unwrap();
        }
        for _ in 2..102 {
            let Answer::Granted(fence) = Answer::read(&line.read().unwrap()) else { panic!() };
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            assert_eq!(line.read().unwrap(), Reply::Int(1));
        }
    }
    // Also when the server's clock was set back.
    let ahead = bed.now_us() + 3_600_000_000;
    bed.on("HSET", 1, &["last", &ahead.to_string()]);
    assert_eq!((bed.granted(&p(9, 2)), bed.granted(&p(9, 3))), (ahead + 1, ahead + 2));
}

// Writers among readers.

#[test]
fn a_waiting_writer_keeps_new_readers_out_for_two_seconds_at_most() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    bed.granted(&s(1));
    bed.busy(&x(2));
    assert_eq!(bed.number("EXISTS", 2, &[]), 0, "who does not wait leaves no word");
    bed.granted(&s(3));
    bed.busy(&x(2).waits());
    assert_eq!(bed.on("GET", 2, &[]).text(), token(2));
    bed.on("PEXPIRE", 2, &["1000"]);
    bed.busy(&x(2).waits());
    assert!(bed.pttl(2) > 1_000, "asked again, it stands again");
    let (free_in, seen) = bed.busy(&s(4));
    assert!((1..=2_000).contains(&free_in), "{free_in}");
    assert_eq!(seen.unwrap().holders, 2);
    assert_eq!((bed.renew(1, LONG, ""), bed.granted(&s(1)) > 0), (1, true), "those inside stay");
    assert_eq!(ears.heard(&bed).len(), 0);
    // It gives up.
    assert_eq!((bed.withdraw(&x(2)), ears.heard(&bed)), (0, vec![String::new()]));
    bed.granted(&s(4));
    // It gets in; another one's word stands.
    bed.busy(&x(2).waits());
    assert_eq!((bed.withdraw(&s(1)), bed.withdraw(&s(3)), bed.withdraw(&s(4))), (1, 1, 1));
    bed.busy(&s(5));
    bed.granted(&x(6));
    assert_eq!(bed.number("EXISTS", 2, &[]), 1);
    assert_eq!(bed.withdraw(&x(6)), 1);
    bed.granted(&x(2).waits());
    assert_eq!(bed.number("EXISTS", 2, &[]), 0);
    bed.busy(&x(7).waits());
    assert_eq!(bed.number("EXISTS", 2, &[]), 0, "none behind another writer");
    assert_eq!(bed.withdraw(&x(2)), 1);
    bed.empty();
}

// The queue.

#[test]
fn the_queue_is_in_order() {
    let bed = Bed::start();
    bed.granted(&x(1).fair());
    let waiters: Vec<_> = [2, 3, 4].map(|n| x(n).fair().waits()).into();
    for (n, waiter) in waiters.iter().enumerate() {
        let (_, seen) = bed.busy(waiter);
        assert_eq!(seen.unwrap().waiting, i64::try_from(n).unwrap() + 1);
    }
    let tickets: Vec<_> = waiters.iter().map(|waiter| bed.place(waiter).unwrap()).collect();
    assert!(tickets.is_sorted_by(|a, b| a < b), "{tickets:?}");
    for waiter in waiters.iter().rev() {
        bed.busy(waiter);
    }
    let again: Vec<_> = waiters.iter().map(|waiter| bed.place(waiter).unwrap()).collect();
    assert_eq!(again, tickets, "asking again is no new place");
    assert_eq!(bed.withdraw(&x(1).fair()), 1);
    // Who does not wait takes no place, and overtakes nobody.
    for newcomer in [x(9).fair(), s(9).fair()] {
        let (free_in, seen) = bed.busy(&newcomer);
        assert!(seen.is_none() && (0..=2_000).contains(&free_in), "{free_in}");
        assert_eq!(bed.place(&newcomer), None);
    }
    for (n, waiter) in waiters.iter().enumerate() {
        for behind in &waiters[n + 1..] {
            bed.busy(behind);
        }
        bed.granted(waiter);
        assert_eq!(bed.place(waiter), None);
        assert_eq!(bed.withdraw(waiter), 1);
    }
    bed.empty();
}

#[test]
fn a_place_stands_two_seconds_at_most_and_is_gone_with_its_key() {
    let bed = Bed::start();
    bed.granted(&x(1));
    for (ttl, stands) in [(LONG, 2_000), (1_500, 1_500), (50, 600)] {
        let waiter = x(2).fair().waits().ttl(ttl);
        bed.busy(&waiter);
        let until = bed.on("ZSCORE", 4, &[&format!("x{}", token(2))]).number().unwrap();
        let left = until - bed.now();
        assert!((stands - 500..=stands).contains(&left), "a TTL of {ttl}: {left}");
        for key in [3, 4] {
            assert!((left - 1..=2_000).contains(&bed.pttl(key)), "it goes with its places");
        }
    }
    assert_eq!(bed.withdraw(&x(2).fair()), 0);
    assert_eq!(bed.withdraw(&x(1)), 1);
    bed.empty();
}

#[test]
fn five_dead_waiters_cost_two_seconds_at_most() {
    let bed = Bed::start();
    bed.granted(&x(1).fair());
    for n in 2..7 {
        bed.busy(&x(n).fair().waits());
    }
    let died = Instant::now();
    bed.busy(&x(7).fair().waits());
    assert_eq!(bed.withdraw(&x(1).fair()), 1);
    while bed.ask(&x(7).fair().waits()) != Answer::Granted(bed.look().map_or(0, |seen| seen.fence))
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = died.elapsed();
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    assert_eq!(bed.withdraw(&x(7).fair()), 1);
    bed.empty();
}

#[test]
fn who_is_not_heard_of_loses_the_place_and_who_gives_up_takes_it_along() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    let waiter = |n: usize| x(n).fair().waits();
    bed.granted(&x(1).fair());
    (2..6).for_each(|n| {
        let _ = bed.busy(&waiter(n));
    });
    bed.dies_in_line(&waiter(2));
    assert_eq!(bed.look().unwrap().waiting, 3);
    assert_eq!(bed.withdraw(&waiter(3)), 0);
    assert_eq!(ears.heard(&bed).len(), 0, "nobody may go yet");
    bed.busy(&waiter(2));
    assert_eq!(bed.withdraw(&x(1).fair()), 1);
    assert_eq!(ears.heard(&bed), texts(&[4]));
    assert_eq!(bed.withdraw(&waiter(4)), 0);
    assert_eq!(ears.heard(&bed), texts(&[5]), "the next one may go");
    bed.busy(&waiter(2));
    bed.granted(&waiter(5));
    assert_eq!(bed.withdraw(&waiter(5)), 1);
    bed.granted(&waiter(2));
    assert_eq!(bed.withdraw(&waiter(2)), 1);
    bed.empty();
}

#[test]
fn readers_go_in_together_up_to_the_next_writer() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    let (reader, writer) = (|n| s(n).fair().waits(), |n| x(n).fair().waits());
    bed.granted(&x(1).fair());
    bed.busy(&reader(2));
    bed.busy(&reader(3));
    bed.busy(&writer(4));
    bed.busy(&reader(5));
    assert_eq!(bed.withdraw(&x(1).fair()), 1);
    assert_eq!(ears.heard(&bed), texts(&[2, 3]));
    bed.busy(&reader(5));
    bed.busy(&s(6).fair());
    bed.granted(&reader(3));
    assert_eq!(ears.heard(&bed), texts(&[2]), "a reader in line may go beside it");
    bed.granted(&reader(2));
    assert_eq!(ears.heard(&bed).len(), 0, "a writer is next");
    bed.busy(&writer(4));
    assert_eq!((bed.withdraw(&reader(2)), ears.heard(&bed).len()), (1, 0), "one reader is left");
    assert_eq!((bed.withdraw(&reader(3)), ears.heard(&bed)), (1, texts(&[4])));
    bed.granted(&writer(4));
    assert_eq!(ears.heard(&bed).len(), 0);
    assert_eq!(bed.number("EXISTS", 2, &[]), 0, "a place needs no word besides");
    assert_eq!((bed.withdraw(&writer(4)), ears.heard(&bed)), (1, texts(&[5])));
    bed.granted(&reader(5));
    assert_eq!(bed.withdraw(&reader(5)), 1);
    bed.empty();
}

#[test]
fn as_many_permits_go_as_are_free() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    let waiter = |n: usize| p(2, n).fair().waits();
    bed.granted(&waiter(1));
    bed.granted(&waiter(2));
    (3..6).for_each(|n| {
        let _ = bed.busy(&waiter(n));
    });
    assert_eq!((bed.withdraw(&waiter(1)), ears.heard(&bed)), (1, texts(&[3])));
    bed.busy(&waiter(4));
    bed.busy(&p(2, 9).fair());
    assert_eq!((bed.withdraw(&waiter(2)), ears.heard(&bed)), (1, texts(&[3, 4])));
    bed.busy(&waiter(5));
    bed.granted(&waiter(4));
    assert_eq!(ears.heard(&bed), texts(&[3]));
    bed.granted(&waiter(3));
    assert_eq!(ears.heard(&bed).len(), 0);
    (3..6).for_each(|n| {
        let _ = bed.withdraw(&waiter(n));
    });
    bed.empty();
}

#[test]
fn another_family_in_line_is_told_at_once() {
    let bed = Bed::start();
    bed.granted(&x(1));
    bed.busy(&x(2).fair().waits());
    assert_eq!(bed.withdraw(&x(1)), 1);
    for other in [p(2, 3).fair(), p(2, 3).fair().waits()] {
        assert_eq!(bed.ask(&other), Answer::OtherFamily("x".into()));
    }
    assert_eq!(bed.number("ZCARD", 3, &[]), 1);
    bed.withdraw(&x(2).fair());
    bed.granted(&p(2, 1));
    bed.granted(&p(2, 2));
    bed.busy(&p(2, 3).fair().waits());
    assert_eq!((bed.withdraw(&p(2, 1)), bed.withdraw(&p(2, 2))), (1, 1));
    for other in [p(3, 4).fair(), x(4).fair(), s(4).fair().waits()] {
        assert_eq!(bed.ask(&other), Answer::OtherFamily("p2".into()));
    }
    bed.dies_in_line(&p(2, 3));
    bed.granted(&x(4).fair());
    assert_eq!(bed.withdraw(&x(4).fair()), 1);
    bed.empty();
}

#[test]
fn with_a_queue_and_without_exclude_each_other() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    bed.set(1, LONG, b"");
    bed.busy(&x(2).fair().waits());
    bed.busy(&s(3).waits());
    assert_eq!((bed.free(1), ears.heard(&bed)), (1, vec![String::new()]));
    // It may go past the line, but not into the lock.
    bed.set(4, LONG, b"");
    bed.busy(&x(2).fair().waits());
    assert_eq!((bed.withdraw(&x(4)), ears.heard(&bed)), (1, texts(&[2])));
    bed.granted(&x(2).fair().waits());
    bed.busy(&x(4));
    bed.busy(&s(4).waits());
    bed.busy(&s(5).fair());
    assert_eq!((bed.withdraw(&x(2).fair()), ears.heard(&bed)), (1, vec![String::new()]));
    bed.granted(&s(4));
    bed.granted(&s(5).fair());
    bed.busy(&x(6).waits());
    bed.busy(&x(7).fair().waits());
    assert_eq!((bed.withdraw(&s(4)), bed.withdraw(&s(5).fair())), (1, 1));
    bed.granted(&x(7).fair().waits());
    bed.busy(&x(6).waits());
    assert_eq!((bed.withdraw(&x(7).fair()), bed.withdraw(&x(6))), (1, 0));
    bed.empty();
}

#[test]
fn an_owner_does_not_wait_behind_those_who_wait_for_it() {
    let bed = Bed::start();
    let enters = |n: usize| x(n).owner(b"job").fair().waits();
    let fence = bed.granted(&enters(1));
    bed.busy(&x(2).fair().waits());
    assert_eq!(bed.granted(&enters(3)), fence);
    assert_eq!((bed.withdraw(&enters(1)), bed.withdraw(&enters(3))), (1, 1));
    bed.busy(&enters(4));
    bed.granted(&x(2).fair().waits());
}

#[test]
fn of_a_long_line_no_more_than_64_are_woken() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    bed.granted(&x(1).fair());
    (2..102).for_each(|n| {
        let _ = bed.busy(&s(n).fair().waits());
    });
    assert_eq!(bed.withdraw(&x(1).fair()), 1);
    assert_eq!(ears.heard(&bed), texts(&(2..66).collect::<Vec<_>>()));
    bed.granted(&s(2).fair().waits());
    assert_eq!(ears.heard(&bed), texts(&(3..67).collect::<Vec<_>>()), "the next ones follow");
    // From the front, all of them come in.
    (3..102).for_each(|n| {
        let _ = bed.granted(&s(n).fair().waits());
    });
    assert_eq!(bed.look().unwrap().holders, 100);
}

// Force and looks.

#[test]
fn force_takes_the_key_from_whom_it_is_told_to() {
    let bed = Bed::start();
    let mut ears = Ears::on(&bed, CHANNEL);
    assert_eq!((bed.force("any", ""), ears.heard(&bed).len()), (0, 0));
    // A bare claim: its fence is not known here yet.
    bed.set(1, LONG, b"");
    assert_eq!((bed.force("fence", "7"), bed.force("token", &token(2))), (-3, 0));
    assert_eq!(bed.record(1, "7"), 1);
    assert_eq!((bed.force("fence", "8"), ears.heard(&bed).len()), (0, 0));
    assert_eq!((bed.force("fence", "7"), ears.heard(&bed)), (1, vec![String::new()]));
    bed.set(1, LONG, b"");
    assert_eq!((bed.renew(1, LONG, ""), bed.force("fence", "7")), (1, 0), "it has none");
    assert_eq!(bed.force("token", &token(1)), 1);
    bed.empty();
    for ask in [SHARED[0], |n| p(5, n), OWNED] {
        let fences = [1, 2, 3, 4].map(|n| bed.granted(&ask(n).ttl(LONG + 1000)));
        assert_eq!((bed.force("token", &token(9)), bed.force("fence", "9")), (0, 0));
        assert_eq!((bed.force("token", &token(2)), bed.withdraw(&ask(2))), (1, 0));
        let same = if fences[0] == fences[3] { 3 } else { 1 };
        assert_eq!(bed.force("fence", &fences[3].to_string()), same);
        if same == 1 {
            assert_eq!(bed.look().unwrap().holders, 2);
            assert_eq!(bed.force("any", ""), 2);
        }
        bed.empty();
    }
    ears.heard(&bed);
    // Whoever is next in line is woken.
    bed.granted(&x(1).hash());
    let mut redisson = Ears::on(&bed, REDISSON);
    bed.busy(&x(2).fair().waits());
    assert_eq!((bed.force("any", ""), ears.heard(&bed)), (1, texts(&[2])));
    assert_eq!(redisson.heard(&bed), ["0"]);
}

#[test]
fn a_look_tells_of_the_one_who_has_held_longest() {
    let bed = Bed::start();
    assert_eq!(bed.look(), None);
    // The tokens fall, so that no other order is the right one by chance; the TTLs do too.
    let fences: Vec<_> = (0..100_usize)
        .map(|n| bed.granted(&s(500 - n).ttl(LONG + 100_000 - 1_000 * n as i64).label(b"mine")))
        .collect();
    let seen = bed.look().unwrap();
    assert_eq!((seen.token, seen.fence, seen.holders), (token(500), fences[0], 100));
    assert!((LONG + 100_000 - SLACK..=LONG + 100_000).contains(&seen.expires_in));
    bed.withdraw(&s(500));
    assert_eq!(bed.look().unwrap().fence, fences[1]);
}

// What it costs, and what is left.

#[test]
fn names_and_labels_of_any_bytes_keep_apart() {
    let mut bed = Bed::start();
    let names = [ODD.to_vec(), [ODD, b"x"].concat(), b"\xFF".to_vec(), b"lockkit:a b".to_vec()];
    for name in &names {
        bed.keys = keys_of(name);
        for asks in [[s(1), s(2)], [p(2, 1), p(2, 2)], [x(1).owner(ODD), x(2).owner(ODD)]] {
            for ask in &asks {
                bed.granted(&ask.clone().label(ODD));
            }
            let waiter = ask(if asks[0].mode == "s" { "x" } else { &asks[0].mode }, 3);
            bed.busy(&waiter.clone().fair().waits());
            assert_eq!(bed.look().unwrap().label, ODD);
            for ask in [&asks[0], &asks[1], &waiter] {
                bed.withdraw(ask);
            }
            bed.empty();
        }
    }
}

/// What `what` costs with so many waiters in line, once the line stands.
fn cost_in_line(mode: &str, waiters: usize) -> HashMap<String, usize> {
    let bed = Bed::start();
    bed.granted(&x(1).fair());
    let waits = |n| ask(mode, n).fair().waits();
    (2..waiters + 2).for_each(|n| {
        let _ = bed.busy(&waits(n));
    });
    bed.cost(|| {
        for n in 1..4 {
            bed.withdraw(&if n == 1 { x(1).fair() } else { waits(n) });
            bed.granted(&waits(n + 1));
            bed.busy(&x(5_000).fair());
            bed.renew(n + 1, 2 * LONG, "");
        }
    })
}

#[test]
fn a_hand_over_costs_the_same_with_a_hundred_and_with_a_thousand_waiters() {
    for mode in ["x", "s"] {
        let (few, many) = (cost_in_line(mode, 100), cost_in_line(mode, 1_000));
        println!("{mode}: three hand-overs: {few:?}");
        assert_eq!(few, many, "{mode}");
    }
}

/// What a claim costs, from its grant to its release, beside so many others.
fn cost_beside(mode: &str, holders: usize) -> HashMap<String, usize> {
    let bed = Bed::start();
    (2..holders + 2).for_each(|n| {
        let _ = bed.granted(&ask(mode, n));
    });
    bed.cost(|| {
        bed.granted(&ask(mode, 1));
        bed.granted(&ask(mode, 1));
        bed.renew(1, LONG, "");
        bed.linger(1, LONG);
        bed.withdraw(&ask(mode, 1));
        bed.ask(&x(9_000));
    })
}

#[test]
fn a_claim_costs_the_same_beside_a_hundred_and_beside_a_thousand_others() {
    for mode in ["s", "p5000"] {
        let (few, many) = (cost_beside(mode, 100), cost_beside(mode, 1_000));
        println!("{mode}: {few:?}");
        assert_eq!(few, many, "{mode}");
        assert!(!few.contains_key("hgetall"), "{few:?}");
    }
}
