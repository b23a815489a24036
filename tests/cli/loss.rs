//! The lock is lost, or lockkit is killed, while the command runs.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Job, World, eventually, runs, warden_of};

const TTL: Duration = Duration::from_secs(2);
const FLAGS: [&str; 2] = ["--ttl", "2s"];

/// A command that goes on for ever, with a child of its own in the same group.
fn endless(world: &World, flags: &[&str]) -> (Job, Pid, Pid) {
    let job = world.run(flags, "echo $$ > outer; sleep 600 & echo $! > inner; wait");
    let (outer, inner) = (world.pid_in("outer"), world.pid_in("inner"));
    (job, outer, inner)
}

/// CLI-08, CLI-13.
#[test]
fn a_killed_lockkit_takes_the_whole_group_with_it_and_the_key_is_free_within_the_ttl() {
    let world = World::new();
    let (job, outer, inner) = endless(&world, &FLAGS);
    let since = Instant::now();
    job.signal(Signal::KILL);
    eventually("the command has gone", || !runs(outer));
    eventually("its child has gone", || !runs(inner));
    assert!(since.elapsed() < TTL, "{:?}", since.elapsed());
    let next = world.run(&["--wait", "20s"], "true").end();
    assert_eq!(next.code, Some(0), "{}", next.stderr);
    assert!(since.elapsed() < TTL + Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(world.claims(), 0);
}

/// The direct child at once, by the kernel: also if the warden was killed before.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_lockkit_takes_the_command_with_it_without_the_warden() {
    let world = World::new();
    let job = world.run(&[], "echo $$ > outer; exec sleep 600");
    let outer = world.pid_in("outer");
    kill_process(warden_of(&job), Signal::KILL).unwrap();
    assert!(runs(outer));
    job.signal(Signal::KILL);
    eventually("the command has gone", || !runs(outer));
}

/// Shows for how long it lives, until it is ended.
const PULSE: &str = "while :; do date +%s%N > beat; mv beat pulse; sleep 0.01; done";

#[test]
fn a_stopped_lockkit_loses_the_lock_and_the_command_with_it() {
    let world = World::new();
    let job = world.run(&FLAGS, &format!("sleep 600 & echo $! > inner; {PULSE}"));
    let inner = world.pid_in("inner");
    world.wait_for("pulse");
    job.signal(Signal::STOP);
    // The warden keeps the promise that lockkit no longer can.
    let next = world.run(&["--wait", "20s"], "date +%s%N > begun").end();
    assert_eq!(next.code, Some(0), "{}", next.stderr);
    assert!(!runs(inner), "the command's own child too");
    assert!(world.number_in("pulse") < world.number_in("begun"));
    job.signal(Signal::CONT);
    let end = job.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(76), ""), "{}", end.stderr);
    assert!(end.stderr.contains("was lost") && end.stderr.contains("signal 9"), "{}", end.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn a_stopped_lockkit_without_a_warden_ends_the_command_when_it_goes_on() {
    let world = World::new();
    let (job, outer, inner) = endless(&world, &FLAGS);
    kill_process(warden_of(&job), Signal::KILL).unwrap();
    job.signal(Signal::STOP);
    let next = world.run(&["--wait", "20s"], "true").end();
    assert_eq!(next.code, Some(0), "{}", next.stderr);
    assert!(runs(outer), "nobody was there to end it");
    let since = Instant::now();
    job.signal(Signal::CONT);
    let end = job.end();
    assert_eq!(end.code, Some(76), "{}", end.stderr);
    assert!(since.elapsed() < TTL, "{:?}", since.elapsed());
    assert!(!runs(outer));
    eventually("its child has gone", || !runs(inner));
    assert_eq!(world.claims(), 0);
}

/// CLI-01. The command notes when it was asked to end, and shows for how long it lived on.
#[test]
fn a_cut_off_holder_is_ended_before_another_one_can_begin() {
    let world = World::new();
    world.write("pulse", "");
    let script = format!("echo $$ > pid; trap 'date +%s%N > asked' TERM; {PULSE}");
    let job = world.run(&["--ttl", "3s", "--grace", "700ms"], &script);
    let pid = world.pid_in("pid");
    let mut waiter = world.run(&[], "date +%s%N > begun");
    world.let_wait(&mut waiter);
    let cut_off = nanos(SystemTime::now());
    let end = world.with_store_blocked(|| {
        let end = job.end();
        assert!(!runs(pid));
        end
    });
    assert_eq!((end.code, end.stdout.as_str()), (Some(76), ""), "{}", end.stderr);
    assert_eq!(waiter.end().code, Some(0));
    let [asked, last, begun] = ["asked", "pulse", "begun"].map(|name| world.number_in(name));
    assert!(asked < last, "it was given time after SIGTERM");
    assert!(last - asked > 300_000_000, "it was given the grace: {}", last - asked);
    assert!(last < begun, "it had ended before the other one began");
    assert!(last - cut_off < 3_000_000_000, "inside the TTL: {}", last - cut_off);
}

/// As `date +%s%N`.
fn nanos(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

#[test]
fn a_command_that_takes_leave_within_the_grace_is_not_killed() {
    let world = World::new();
    let script = "echo $$ > pid; trap 'touch tidied; exit 7' TERM; while :; do sleep 0.01; done";
    let job = world.run(&["--ttl", "3s", "--grace", "1s"], script);
    world.pid_in("pid");
    let end = world.with_store_blocked(|| job.end());
    assert_eq!(end.code, Some(76));
    assert!(world.exists("tidied"));
    assert!(end.stderr.contains("exited with 7"), "{}", end.stderr);
}

#[test]
fn a_short_outage_of_the_store_loses_nothing() {
    let world = World::new();
    let job =
        world.run(&["--ttl", "3s"], "touch held; while ! [ -e go ]; do sleep 0.01; done; exit 4");
    world.wait_for("held");
    // Longer than the time between two renewals, shorter than what is left.
    world.with_store_blocked(|| std::thread::sleep(Duration::from_millis(1300)));
    std::thread::sleep(Duration::from_secs(2));
    world.write("go", "");
    let end = job.end();
    assert_eq!(end.code, Some(4), "{}", end.stderr);
}

#[test]
fn a_claim_that_is_taken_away_ends_the_command_at_once() {
    let world = World::new();
    let (job, outer, inner) = endless(&world, &FLAGS);
    let since = Instant::now();
    world.ask("DELETE FROM lockkit_claims WHERE key = CAST('key' AS BLOB) RETURNING 1");
    let end = job.end();
    assert_eq!(end.code, Some(76), "{}", end.stderr);
    assert!(since.elapsed() < TTL, "{:?}", since.elapsed());
    assert!(!runs(outer));
    eventually("its child has gone", || !runs(inner));
}

/// GEN-34: both facts, neither hides the other.
#[test]
fn a_command_that_ends_by_itself_after_the_loss_is_told_with_both_facts() {
    let world = World::new();
    let script = "echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; exit 42";
    let job = world.run(&["--ttl", "30s"], script);
    let pid = world.pid_in("pid");
    job.signal(Signal::STOP);
    world.ask("DELETE FROM lockkit_claims WHERE key = CAST('key' AS BLOB) RETURNING 1");
    world.write("go", "");
    eventually("the command has ended", || !runs(pid));
    job.signal(Signal::CONT);
    let end = job.end();
    assert_eq!(end.code, Some(76), "{}", end.stderr);
    assert!(end.stderr.contains("lost") && end.stderr.contains("exited with 42"), "{}", end.stderr);
}
