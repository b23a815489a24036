//! The checker on histories that are made up: it finds what is wrong with them, and nothing else.

use std::time::Duration;

use lockkit_core::BootInstant;

use crate::checker::{Broken, Known, SLACK, check};
use crate::record::{Hold, Outcome, Pass, Stall};

const SECOND: u64 = 1_000_000_000;
const LIMIT: Duration = Duration::from_secs(5);

fn at(second: u64) -> BootInstant {
    BootInstant::from_nanos(second * SECOND)
}

/// A writer that believed from then until then.
fn held(fence: u64, from: u64, until: u64) -> Pass {
    Pass {
        process: 0,
        key: "a".to_owned(),
        shared: false,
        asked: at(from),
        ended: at(from),
        limit: LIMIT,
        outcome: Outcome::Granted(Hold {
            fence,
            believed: Some((at(from), at(until))),
            deadline: at(until + 3),
            loss: None,
        }),
    }
}

fn read(fence: u64, from: u64, until: u64) -> Pass {
    Pass { shared: true, ..held(fence, from, until) }
}

fn with(mut pass: Pass, change: impl FnOnce(&mut Hold)) -> Pass {
    if let Outcome::Granted(hold) = &mut pass.outcome {
        change(hold);
    }
    pass
}

fn lost(pass: Pass, kind: &str, told: u64) -> Pass {
    with(pass, |hold| hold.loss = Some((at(told), kind.to_owned())))
}

fn known() -> Known {
    Known { ttl: Duration::from_secs(3), ..Known::default() }
}

fn kinds(passes: &[Pass], known: &Known) -> Vec<&'static str> {
    let kind = |broken: &Broken| match broken {
        Broken::Overlap(..) => "overlap",
        Broken::Fence(..) => "fence",
        Broken::Vanished(..) => "vanished",
        Broken::Untold(..) => "untold",
        Broken::Late(..) => "late",
    };
    check(passes, known).iter().map(kind).collect()
}

fn finds(passes: &[Pass], expected: &[&str]) {
    assert_eq!(kinds(passes, &known()), expected, "{passes:?}");
}

#[test]
fn one_after_the_other_is_right() {
    finds(&[held(1, 10, 20), held(2, 20, 30), read(3, 31, 40), read(4, 32, 35)], &[]);
    // Readers that came in together, in the order of the wake-ups.
    finds(&[read(4, 10, 20), read(3, 11, 15), held(5, 20, 21)], &[]);
    // Told in any order.
    finds(&[held(2, 20, 30), held(1, 10, 20)], &[]);
}

#[test]
fn two_who_believed_are_found() {
    finds(&[held(1, 10, 20), held(2, 19, 30)], &["overlap"]);
    // Not only beside the last one.
    finds(&[held(1, 10, 40), held(2, 11, 12), held(3, 30, 31)], &["overlap", "overlap"]);
    finds(&[held(1, 10, 20), read(2, 19, 30)], &["overlap"]);
    finds(&[read(1, 10, 30), read(2, 11, 12), held(3, 20, 40)], &["overlap"]);
    let other = Pass { key: "b".to_owned(), ..held(2, 19, 30) };
    finds(&[held(1, 10, 20), other], &[]);
}

#[test]
fn who_ran_out_of_time_believed_until_the_deadline() {
    let stopped = || lost(held(1, 10, 20), "expired", 25);
    finds(&[stopped(), held(2, 20, 21)], &[]);
    finds(&[stopped(), held(2, 19, 21)], &["overlap"]);
}

#[test]
fn fences_that_do_not_grow_are_found() {
    finds(&[held(2, 10, 20), held(1, 20, 30)], &["fence"]);
    finds(&[held(1, 10, 20), held(1, 20, 30)], &["fence", "fence"]);
    finds(&[held(3, 10, 20), held(1, 20, 30), held(2, 30, 40)], &["fence", "fence"]);
    finds(&[held(2, 10, 20), read(1, 20, 30)], &["fence"]);
    finds(&[read(3, 10, 20), read(1, 11, 12), held(2, 20, 30)], &["fence"]);
}

/// Its acquire returned when it was over already: no order can be told from that.
#[test]
fn who_never_believed_is_in_nobodys_way() {
    let late = with(held(1, 15, 15), |hold| hold.believed = None);
    finds(&[held(2, 10, 20), late.clone()], &[]);
    finds(&[held(1, 10, 20), late], &["fence"]);
}

#[test]
fn a_claim_that_vanished_is_found() {
    for kind in ["gone", "session_ended"] {
        finds(&[lost(held(1, 10, 20), kind, 21)], &["vanished"]);
        // Behind its deadline, the store may have dropped it.
        finds(&[lost(held(1, 10, 20), kind, 23)], &[]);
    }
}

#[test]
fn a_revoked_lease_excuses_what_it_must() {
    let revoked = |since, done| Known { revoked: vec![(at(since), at(done))], ..known() };
    let passes = [lost(held(1, 10, 20), "gone", 20), held(2, 18, 30)];
    assert_eq!(kinds(&passes, &revoked(18, 19)), [""; 0]);
    assert_eq!(kinds(&passes, &revoked(19, 19)), ["overlap"], "it was in before that");
    assert_eq!(kinds(&passes, &revoked(8, 9)), ["vanished", "overlap"], "that was before it came");
    assert_eq!(kinds(&passes, &revoked(21, 22)), ["vanished", "overlap"], "it knew before that");
    assert_eq!(kinds(&passes[..1], &revoked(15, 16)), ["untold"], "a TTL is over");
    // Whoever was not told of a loss is not excused.
    let passes = [held(1, 10, 20), held(2, 18, 30)];
    assert_eq!(kinds(&passes, &revoked(18, 19)), ["overlap"]);
}

#[test]
fn whoever_waits_too_long_is_found() {
    let waited = |seconds: u64| Pass {
        ended: at(10 + seconds) + SLACK,
        outcome: Outcome::Refused("timeout".to_owned()),
        ..held(1, 10, 10)
    };
    finds(&[waited(5)], &[]);
    finds(&[waited(6)], &["late"]);
    let stalls = |process| vec![Stall { process, from: at(12), to: at(14) }];
    let stood = |process| Known { stalls: stalls(process), ..known() };
    assert_eq!(kinds(&[waited(7)], &stood(0)), [""; 0], "while it stood still it could not return");
    assert_eq!(kinds(&[waited(8)], &stood(0)), ["late"]);
    assert_eq!(kinds(&[waited(7)], &stood(1)), ["late"], "that was another one");
}
