//! Several processes on one file. The children are this test binary, run for one function.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use lockkit_core::{DistributedLock, LockExt, Request, Settings};
use lockkit_sql::SqliteLock;

const ROLE: &str = "LOCKKIT_TEST_ROLE";
const PATH: &str = "LOCKKIT_TEST_PATH";

fn start(role: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(PATH, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for(child: &mut Child, word: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(word)), "the child never said {word}");
}

/// What the children do.
#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = PathBuf::from(std::env::var_os(PATH).unwrap());
    let mut settings = Settings::default();
    settings.op_timeout = Some(Duration::from_secs(20));
    let lock = SqliteLock::open(&path, settings).unwrap();
    match role.as_str() {
        "once" => {
            // One exchange, which nobody tries again.
            lock.ping().await.unwrap();
            visit(&lock, &path).await;
        }
        "loop" => {
            let start = Instant::now();
            let mut visits = 0;
            while start.elapsed() < Duration::from_secs(3) {
                visit(&lock, &path).await;
                visits += 1;
            }
            println!("{visits} visits");
        }
        "hold" => {
            let request = Request::new("a").ttl(Duration::from_secs(1));
            let guard = lock.acquire(request).await.unwrap();
            println!("held");
            let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
            let _ = line.await;
            guard.release().await.unwrap();
            println!("released");
        }
        other => panic!("{other}"),
    }
}

/// Acquires, and fails if anybody else is in: the mark can be made only by one at a time.
async fn visit(lock: &SqliteLock, path: &Path) {
    let request = Request::new("a").timeout(Duration::from_secs(60));
    let guard = lock.acquire(request).await.unwrap();
    let mark = path.with_extension("mark");
    OpenOptions::new().write(true).create_new(true).open(&mark).expect("somebody else is in");
    let mut log =
        OpenOptions::new().create(true).append(true).open(path.with_extension("log")).unwrap();
    writeln!(log, "{}", guard.fence().unwrap()).unwrap();
    std::fs::remove_file(&mark).unwrap();
    guard.release().await.unwrap();
}

fn fences(path: &Path) -> Vec<u64> {
    let log = std::fs::read_to_string(path.with_extension("log")).unwrap();
    log.lines().map(|line| line.parse().unwrap()).collect()
}

fn run_all(role: &str, count: usize, path: &Path) -> Vec<u64> {
    let children: Vec<_> = (0..count).map(|_| start(role, path)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    fences(path)
}

#[test]
fn twenty_processes_create_one_file_at_once() {
    for _ in 0..3 {
        let file = File::new();
        let fences = run_all("once", 20, &file.path);
        assert_eq!(fences.len(), 20);
        assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    }
}

#[test]
fn eight_processes_contend_without_an_error() {
    let file = File::new();
    let fences = run_all("loop", 8, &file.path);
    assert!(fences.len() > 100, "{}", fences.len());
    assert!(fences.is_sorted_by(|a, b| a < b));
    println!("{} grants in three seconds", fences.len());
}

#[tokio::test]
async fn a_killed_process_frees_its_key_within_its_ttl() {
    let file = File::new();
    let mut holder = start("hold", &file.path);
    wait_for(&mut holder, "held");
    let lock = file.lock();
    assert!(lock.try_acquire("a").await.unwrap().is_none());
    holder.kill().unwrap();
    let killed = Instant::now();
    lock.acquire("a").await.unwrap().release().await.unwrap();
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(1600), "{took:?}");
    holder.wait().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_release_in_another_process_wakes_at_once() {
    let file = File::new();
    let mut holder = start("hold", &file.path);
    wait_for(&mut holder, "held");
    let mut settings = Settings::default();
    settings.poll = (Duration::from_secs(4), Duration::from_secs(4));
    let lock = SqliteLock::open(&file.path, settings).unwrap();
    // The holder's lease is renewed, so its end wakes nobody.
    let waiter = tokio::spawn(async move {
        let guard = lock.acquire(Request::new("a").timeout(Duration::from_secs(20))).await.unwrap();
        let woken = Instant::now();
        guard.release().await.unwrap();
        woken
    });
    tokio::time::sleep(Duration::from_millis(1500)).await; // past the first lease
    holder.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let sent = Instant::now();
    let woken = waiter.await.unwrap();
    assert!(woken.saturating_duration_since(sent) < Duration::from_millis(300));
    assert!(holder.wait().unwrap().success());
}
