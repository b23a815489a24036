//! How the suite starts servers, hands them to its cases, and ends them.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

use std::path::Path;
use std::process::{Command, Output};

use conformance_tests::servers::Redis;
use tempfile::TempDir;

/// One run of the suite on the subject `src/bin/started.rs`.
struct Run {
    output: Output,
    directory: TempDir,
}

impl Run {
    fn new(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_started"))
            .args(args)
            .env_remove("LOCKKIT_URL_MEMORY")
            .env_remove("LOCKKIT_UPDATE_RUNS")
            .env("STARTED_LOG", directory.path().join("log"))
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        Self { output, directory }
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    fn text(&self) -> String {
        let Output { stdout, stderr, .. } = &self.output;
        String::from_utf8_lossy(&[&stdout[..], stderr].concat()).into_owned()
    }

    /// Who said what, in the order in which it happened.
    fn log(&self) -> Vec<(u32, String)> {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let parse = |line: &str| {
            let (who, what) = line.split_once(' ').unwrap();
            (who.parse().unwrap(), what.to_owned())
        };
        log.lines().map(parse).collect()
    }
}

#[test]
fn servers_are_started_once_for_all_cases_and_ended_behind_them() {
    let run = Run::new(&["names::"], &[]);
    assert_eq!(run.code(), Some(0), "{}", run.text());
    let log = run.log();
    let (suite, started) = &log[0];
    let server = started.strip_prefix("starts ").unwrap();
    assert!(!Path::new("/proc").join(server).exists());
    let of_suite: Vec<_> = log.iter().filter(|(who, _)| who == suite).collect();
    let words: Vec<_> = of_suite.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(words, [started, "sees 0", "midway"]);
    let midway = log.iter().position(|(_, what)| what == "midway").unwrap();
    let before = log[2..midway].iter().all(|(_, what)| what == "sees 0");
    let behind = log[midway + 1..].iter().all(|(_, what)| what == "sees 1");
    assert!(before && behind && midway > 2 && midway + 1 < log.len(), "{log:?}");
    assert!(run.text().contains("between::names::of_this_subject"), "{}", run.text());
}

#[test]
fn a_server_that_the_user_names_is_used_and_left_alone() {
    let server = Redis::start().unwrap();
    let url = format!("memory:{{space}}-{}", server.port());
    let run = Run::new(&["names::"], &[("LOCKKIT_URL_MEMORY", &url)]);
    assert_eq!(run.code(), Some(0), "{}", run.text());
    let log = run.log();
    assert!(log.len() > 2 && log.iter().all(|(_, what)| what == "sees 0"), "{log:?}");
    assert!(run.text().contains("somebody else's"), "{}", run.text());
}

#[test]
fn a_missing_server_fails_the_run() {
    let run = Run::new(&[], &[("STARTED_DOES", "miss-its-server")]);
    assert_eq!(run.code(), Some(101));
    let text = run.text();
    assert!(text.contains("`memory` is not there") && text.contains("its-package"), "{text}");
    assert_eq!(run.log(), []);
}

#[test]
fn a_named_server_that_is_not_there_fails_the_run() {
    let gone = Redis::start().unwrap();
    let url = format!("memory:{{space}}-{}", gone.port());
    drop(gone);
    let run = Run::new(&[], &[("LOCKKIT_URL_MEMORY", &url)]);
    assert_eq!(run.code(), Some(101));
    assert!(run.text().contains("`memory` is not there"), "{}", run.text());
}

#[test]
fn a_failure_midway_fails_the_run() {
    let run = Run::new(&["names::"], &[("STARTED_DOES", "fail-midway")]);
    assert_eq!(run.code(), Some(101));
    assert!(run.text().contains("it is told to fail"), "{}", run.text());
}

#[test]
fn a_list_starts_nothing() {
    let run = Run::new(&["--list"], &[]);
    assert_eq!(run.code(), Some(0));
    let text = run.text();
    assert!(text.contains("between::names::") && text.contains("fence::"), "{text}");
    assert_eq!(run.log(), []);
}
