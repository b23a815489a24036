//! Exit codes (CLI-11), and where lockkit speaks.

use crate::world::World;

#[track_caller]
fn code_of(script: &str, code: i32) {
    let world = World::new();
    let end = world.run(&[], script).end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(code), ""), "{script}: {}", end.stderr);
    assert_eq!(world.claims(), 0, "{script}");
}

#[test]
fn the_commands_own_code() {
    for code in [0, 1, 37, 255] {
        code_of(&format!("exit {code}"), code);
    }
}

#[test]
fn signals_are_counted_from_128() {
    code_of("kill -KILL $$", 128 + 9);
    code_of("ulimit -c 0; kill -SEGV $$", 128 + 11);
}

#[test]
fn a_command_that_is_not_there() {
    let world = World::new();
    let end = world.start(&mut world.lockkit(&["run", "--url", &world.url(), "key", "--", "./no"]));
    let end = end.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(127), ""));
    assert!(end.stderr.starts_with("lockkit: cannot run ./no: "), "{}", end.stderr);
    assert_eq!(world.claims(), 0);
}

#[test]
fn a_command_that_cannot_be_executed() {
    let world = World::new();
    world.write("text", "no program\n");
    let words = ["run", "--url", &world.url(), "key", "--", "./text"];
    let end = world.start(&mut world.lockkit(&words)).end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(126), ""));
    assert!(end.stderr.starts_with("lockkit: cannot run ./text: "), "{}", end.stderr);
    assert_eq!(world.claims(), 0);
}

#[test]
fn lockkit_adds_nothing_to_what_the_command_says() {
    let world = World::new();
    let end = world.run(&[], "echo out; echo err >&2").end();
    assert_eq!((end.stdout.as_str(), end.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn standard_input_is_the_commands() {
    let world = World::new();
    world.write("in", "text");
    let words = ["run", "--url", &world.url(), "key", "--", "cat"];
    let input = std::fs::File::open(world.path("in")).unwrap();
    let end = world.start(world.lockkit(&words).stdin(input)).end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "text"));
}

#[test]
fn the_command_is_told_about_its_lock() {
    let world = World::new();
    let script = r#"echo "$LOCKKIT_KEY $LOCKKIT_BACKEND"; echo "$LOCKKIT_FENCE" >> fences"#;
    for _ in 0..3 {
        assert_eq!(world.run(&[], script).end().stdout, "key sqlite\n");
    }
    let fences: Vec<u64> =
        world.read("fences").lines().map(|fence| fence.parse().unwrap()).collect();
    assert!(fences.len() == 3 && fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

#[test]
fn an_unreachable_store_is_69_or_77_and_never_starts_the_command() {
    let world = World::new();
    std::fs::create_dir(world.path("locks.db")).unwrap();
    let end = world.run(&[], "touch started").end();
    assert!(matches!(end.code, Some(64 | 69 | 77)), "{end:?}");
    assert!(end.stderr.starts_with("lockkit: ") && end.stdout.is_empty(), "{end:?}");
    assert!(!world.exists("started"));
}

/// A store that is busy for a while is no reason to fail; a short wait is kept all the same.
#[test]
fn a_busy_store_is_tried_again_within_the_wait() {
    let world = World::new();
    assert_eq!(world.run(&[], "true").end().code, Some(0));
    let (patient, hasty) = world.with_store_blocked(|| {
        let patient = world.run(&["--ttl", "1s"], "true");
        let hasty = world.run(&["--ttl", "1s", "--no-wait"], "touch started").end();
        (patient, hasty)
    });
    assert_eq!(hasty.code, Some(69), "{}", hasty.stderr);
    assert!(!world.exists("started"));
    assert_eq!(patient.end().code, Some(0));
}
