//! Several copies at once.

use std::time::{Duration, Instant};

use crate::world::{Job, World};

/// A copy that holds the key until the file `go` is there.
fn holder(world: &World, flags: &[&str]) -> Job {
    let job =
        world.run(flags, "echo $LOCKKIT_FENCE > held; while ! [ -e go ]; do sleep 0.01; done");
    world.wait_for("held");
    job
}

#[test]
fn one_holds_the_other_waits() {
    let world = World::new();
    let first = holder(&world, &[]);
    let mut second = world.run(&[], "[ -e go ] && touch after");
    world.let_wait(&mut second);
    assert_eq!(world.claims(), 1);
    world.write("go", "");
    assert_eq!(first.end().code, Some(0));
    assert_eq!(second.end().code, Some(0));
    assert!(world.exists("after"));
    assert_eq!(world.claims(), 0);
}

#[test]
fn no_wait_and_a_short_wait_end_with_75_or_the_code_that_was_asked_for() {
    let world = World::new();
    let first = holder(&world, &[]);
    for (flags, code, least) in [
        (&["--no-wait"][..], 75, 0),
        (&["--wait", "300ms"], 75, 300),
        (&["--no-wait", "--conflict-exit-code", "0"], 0, 0),
        (&["--wait", "0s", "--conflict-exit-code", "99"], 99, 0),
    ] {
        let since = Instant::now();
        let end = world.run(flags, "touch started").end();
        assert_eq!((end.code, end.stdout.as_str()), (Some(code), ""), "{flags:?}: {}", end.stderr);
        let told = if least == 0 { "is busy" } else { "was not acquired within 3" };
        assert!(end.stderr.starts_with(&format!("lockkit: `key` {told}")), "{}", end.stderr);
        assert!(since.elapsed() >= Duration::from_millis(least), "{flags:?}");
        assert!(since.elapsed() < Duration::from_millis(least + 2500), "{flags:?}");
    }
    assert!(!world.exists("started"));
    assert_eq!(world.claims(), 1);
    world.write("go", "");
    assert_eq!(first.end().code, Some(0));
}

#[test]
fn who_holds_the_key_is_told() {
    let world = World::new();
    let first = holder(&world, &[]);
    let end = world.run(&["--wait", "200ms"], "true").end();
    let pid = format!("process {} ", first.pid().as_raw_nonzero());
    assert!(end.stderr.contains(&pid), "{pid}: {}", end.stderr);
}

#[test]
fn readers_share_and_permits_are_counted() {
    let world = World::new();
    let reader = holder(&world, &["--shared"]);
    assert_eq!(world.run(&["--shared", "--no-wait"], "true").end().code, Some(0));
    assert_eq!(world.run(&["--no-wait"], "true").end().code, Some(75));
    // Another family of claims is a mistake, not a wait.
    assert_eq!(world.run(&["--permits", "2"], "true").end().code, Some(64));
    world.write("go", "");
    assert_eq!(reader.end().code, Some(0));

    let world = World::new();
    let first = holder(&world, &["--permits", "2"]);
    let second =
        world.run(&["--permits", "2"], "touch second; while ! [ -e go ]; do sleep 0.01; done");
    world.wait_for("second");
    assert_eq!(world.run(&["--permits", "2", "--no-wait"], "true").end().code, Some(75));
    world.write("go", "");
    assert_eq!((first.end().code, second.end().code), (Some(0), Some(0)));
}

/// SQ-04. `mkdir` is the judge: it fails if another one is inside.
#[test]
fn twenty_copies_on_a_new_file_run_one_at_a_time() {
    let world = World::new();
    let script = "mkdir inside || exit 9; echo $LOCKKIT_FENCE >> fences; sleep 0.02; rmdir inside";
    let jobs: Vec<Job> = (0..20).map(|_| world.run(&[], script)).collect();
    for job in jobs {
        let end = job.end();
        assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    }
    let fences: Vec<u64> = world.read("fences").lines().map(|f| f.parse().unwrap()).collect();
    assert!(fences.len() == 20 && fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(world.claims(), 0);
}

/// CLI-14: short jobs that several machines start at about the same time.
#[test]
fn min_hold_keeps_the_key_after_the_process_has_gone() {
    let world = World::new();
    let since = Instant::now();
    let end = world.run(&["--min-hold", "3s"], "echo x >> runs").end();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert!(since.elapsed() < Duration::from_millis(2500), "the store keeps it, not the process");
    for _ in 0..4 {
        let end = world.run(&["--no-wait", "--min-hold", "3s"], "echo x >> runs").end();
        assert_eq!(end.code, Some(75), "{}", end.stderr);
    }
    assert_eq!(world.read("runs"), "x\n");
    // Then it is free, by itself.
    assert_eq!(world.run(&["--wait", "20s"], "true").end().code, Some(0));
    assert!(since.elapsed() >= Duration::from_secs(3));
}

/// CLI-10, CLI-13: the TTL is not how long the command may take, however it is given.
#[track_caller]
fn keeps_the_key_for_five_ttls(world: &World, mut job: Job) {
    world.wait_for("held");
    let mut asked = 0;
    while !job.has_ended() {
        let end = world.run(&["--no-wait"], "true").end();
        assert!(end.code == Some(75) || world.exists("over"), "{end:?}");
        asked += 1;
    }
    let end = job.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert!(asked > 5, "asked {asked} times only");
}

const FIVE_TTLS: &str = "touch held; sleep 4.5; touch over";

#[test]
fn a_long_command_keeps_the_key_with_a_ttl_of_the_url() {
    let world = World::new();
    let url = format!("{}?ttl=900ms", world.url());
    let words = ["run", "--url", &url, "key", "--", "sh", "-c", FIVE_TTLS];
    let job = world.start(&mut world.lockkit(&words));
    keeps_the_key_for_five_ttls(&world, job);
}

#[test]
fn a_long_command_keeps_the_key_with_a_ttl_of_the_command_line() {
    let world = World::new();
    let job = world.run(&["--ttl", "900ms"], FIVE_TTLS);
    keeps_the_key_for_five_ttls(&world, job);
}
