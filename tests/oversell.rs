//! The example, as its readers run it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The example is built with the tests, two directories above this test's own file.
fn oversell(words: &[&str]) -> Output {
    let test: PathBuf = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().parent().unwrap().join("examples/oversell");
    let hint = "`cargo test` builds the examples, `cargo test --test oversell` alone does not";
    assert!(example.exists(), "{}: {hint}", example.display());
    Command::new(example).args(words).output().unwrap()
}

fn rounds(output: &Output) -> (Value, Vec<Value>) {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    let summary: Value = serde_json::from_str(&text).unwrap();
    let rounds = summary["rounds"].as_array().unwrap().clone();
    (summary, rounds)
}

#[test]
fn every_round_shows_what_it_claims() {
    let since = Instant::now();
    let (summary, rounds) = rounds(&oversell(&["--json"]));
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert_eq!(summary["backend"], "sqlite");
    let names: Vec<_> = rounds.iter().map(|round| round["name"].as_str().unwrap()).collect();
    let expected = ["no lock", "in-process lock", "lockkit", "lockkit, one holder stopped"];
    assert_eq!(names, expected);
    for round in &rounds {
        let number = |name: &str| round[name].as_i64().unwrap();
        assert_eq!(round.as_object().unwrap().len(), 5, "{round}");
        assert_eq!(number("stock"), 100);
        assert_eq!(number("oversold"), (number("sold") - number("stock")).max(0));
    }
    assert!(rounds[0]["oversold"].as_i64() > Some(0), "{summary}");
    assert!(rounds[1]["oversold"].as_i64() > Some(0), "{summary}");
    assert_eq!((&rounds[2]["sold"], &rounds[2]["refused"]), (&100.into(), &0.into()));
    assert_eq!(rounds[3]["sold"], 100);
    assert!(rounds[3]["refused"].as_i64() >= Some(1), "{summary}");
}

#[test]
fn the_smallest_stock_is_oversold_too() {
    let words = ["--json", "--stock", "1", "--instances", "2", "--workers", "1"];
    let (summary, rounds) = rounds(&oversell(&words));
    assert_eq!(rounds[2]["sold"], 1, "{summary}");
}

#[test]
fn a_table_for_people() {
    let output = oversell(&["--stock", "5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{text}");
    assert!(text.lines().next().unwrap().ends_with("oversold  refused"), "{text}");
    assert!(
        text.contains("lockkit, one holder stopped        5       5         0        1"),
        "{text}"
    );
}

#[test]
fn memory_is_refused_with_the_reason() {
    let output = oversell(&["--url", "memory:"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("inside one process"), "{text}");
}
