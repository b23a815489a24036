//! Signals, while the command runs and while lockkit waits.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::world::{Job, World, eventually, runs};

const ALL: [(Signal, &str); 6] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::TERM, "TERM"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

/// CLI-02.
#[test]
fn a_signal_reaches_the_command_and_lockkit_waits_for_it() {
    for (signal, name) in ALL {
        let world = World::new();
        let script = format!(
            "trap 'sleep 0.3; echo {name} > got; exit 5' {name}; touch ready; \
             while :; do sleep 0.01; done"
        );
        let job = world.run(&[], &script);
        world.wait_for("ready");
        job.signal(signal);
        let end = job.end();
        assert_eq!((end.code, end.stdout.as_str()), (Some(5), ""), "{name}: {}", end.stderr);
        assert_eq!(world.read("got"), format!("{name}\n"));
        assert_eq!(world.claims(), 0, "{name}");
    }
}

#[test]
fn a_command_that_a_signal_ends_is_128_plus_n() {
    for (signal, name) in ALL {
        let world = World::new();
        // The whole group gets it: the inner `sleep` too.
        let job = world.run(&[], "ulimit -c 0; sleep 60 & echo $! > inner; touch ready; wait");
        world.wait_for("ready");
        let inner = world.pid_in("inner");
        job.signal(signal);
        let end = job.end();
        assert_eq!(end.code, Some(128 + signal.as_raw()), "{name}: {}", end.stderr);
        // Commands that a script starts in the background ignore these two.
        if signal == Signal::INT || signal == Signal::QUIT {
            rustix::process::kill_process(inner, Signal::KILL).unwrap();
        }
        eventually("the command's own child has got it too", || !runs(inner));
        assert_eq!(world.claims(), 0, "{name}");
    }
}

#[test]
fn the_command_leads_a_group_of_its_own() {
    let world = World::new();
    let end = world.run(&[], "echo $$; ps -o pgid= -p $$").end();
    let numbers: Vec<&str> = end.stdout.split_whitespace().collect();
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{end:?}");
}

#[test]
fn ignored_signals_stay_ignored() {
    let world = World::new();
    let inner = "touch ready; while ! [ -e go ]; do sleep 0.01; done; exit 3";
    let words = ["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_lockkit"), "run"];
    let mut command = std::process::Command::new("sh");
    command.args(words).args(["--url", &world.url(), "key", "--", "sh", "-c", inner]);
    let job = world.start(command.current_dir(world.path("")));
    world.wait_for("ready");
    job.signal(Signal::HUP);
    world.write("go", "");
    let end = job.end();
    assert_eq!(end.code, Some(3), "{}", end.stderr);
}

fn waiter(world: &World) -> (Job, Job) {
    let holder = world.run(&[], "touch held; exec sleep 60");
    world.wait_for("held");
    let mut waiter = world.run(&[], "touch started");
    world.let_wait(&mut waiter);
    (holder, waiter)
}

/// CLI-04.
#[test]
fn a_signal_ends_the_wait_at_once_and_leaves_nothing() {
    for (signal, name) in ALL {
        let world = World::new();
        let (holder, waiter) = waiter(&world);
        let since = Instant::now();
        waiter.signal(signal);
        let end = waiter.end();
        let took = since.elapsed();
        assert_eq!(end.code, Some(128 + signal.as_raw()), "{name}: {}", end.stderr);
        assert!(end.stderr.contains("while waiting for the key"), "{}", end.stderr);
        assert!(took < Duration::from_millis(500), "{name}: {took:?}");
        assert_eq!(world.claims(), 1, "only the holder's");
        holder.signal(Signal::TERM);
        assert_eq!(holder.end().code, Some(143));
        assert_eq!(world.claims(), 0);
        assert!(!world.exists("started"));
    }
}

/// The exchange in flight is finished and taken back, also when the store answers late.
#[test]
fn a_signal_in_the_middle_of_an_exchange_leaves_nothing() {
    let world = World::new();
    let (holder, waiter) = waiter(&world);
    let end = world.with_store_blocked(|| {
        // The waiter's next question now hangs, and the key is about to become free.
        std::thread::sleep(Duration::from_millis(600));
        waiter.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(100));
        holder.signal(Signal::TERM);
        waiter
    });
    let end = end.end();
    assert_eq!(end.code, Some(143), "{}", end.stderr);
    holder.end();
    assert_eq!(world.claims(), 0);
    assert!(!world.exists("started"));
}

/// Wherever it comes: while connecting, asking, starting, running, releasing.
#[test]
fn a_signal_at_any_moment_leaves_nothing() {
    let world = World::new();
    assert_eq!(world.run(&[], "true").end().code, Some(0));
    let mut cut = 0;
    for step in 0..60 {
        let job = world.run(&[], "echo $$ > child; exec sleep 0.01");
        std::thread::sleep(Duration::from_micros(700 * step));
        job.signal(Signal::TERM);
        let end = job.end();
        cut += u32::from(end.code == Some(143) || end.signal == Some(15));
        let ended = end.code == Some(0) || end.code == Some(143) || end.signal == Some(15);
        assert!(ended, "step {step}: {end:?}");
        assert_eq!(world.claims(), 0, "step {step}: {end:?}");
        assert!(end.stdout.is_empty(), "{end:?}");
    }
    assert!(cut > 0, "no signal came in time to cut anything");
}
