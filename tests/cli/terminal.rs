//! A command that reads the terminal. `script` makes one.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::world::World;

/// Runs a line of shell at a terminal of its own, types `keys`, and returns what it showed.
fn at_a_terminal(world: &World, line: &str, keys: &str) -> (Option<i32>, String) {
    let mut command = Command::new("script");
    command.args(["-qec", line, "/dev/null"]).current_dir(world.path("")).stdin(Stdio::piped());
    command.env("LOCKKIT", env!("CARGO_BIN_EXE_lockkit")).env("LOCKKIT_URL", world.url());
    let mut job = world.start(&mut command);
    world.wait_for("ready");
    job.stdin().write_all(keys.as_bytes()).unwrap();
    let end = job.end();
    (end.code, end.stdout)
}

#[test]
fn the_terminal_is_lent_and_comes_back() {
    let world = World::new();
    let inner = r#"touch ready; read word; echo "inner: $word""#;
    // The second `read` is of the shell around it, whose group must have the terminal again.
    let line = format!("\"$LOCKKIT\" run key -- sh -c '{inner}'; read word; echo \"outer: $word\"");
    let (code, shown) = at_a_terminal(&world, &line, "one\ntwo\n");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("inner: one") && shown.contains("outer: two"), "{shown}");
}

#[test]
fn ctrl_c_ends_the_command_and_lockkit() {
    let world = World::new();
    let line = "\"$LOCKKIT\" run key -- sh -c 'touch ready; exec sleep 60'";
    let (code, shown) = at_a_terminal(&world, line, "\u{3}");
    assert_eq!(code, Some(130), "{shown}");
    assert_eq!(world.claims(), 0);
}

#[test]
fn ctrl_z_does_not_stop_who_must_renew() {
    let world = World::new();
    let line = "\"$LOCKKIT\" run key -- sh -c 'touch ready; while ! [ -e go ]; do sleep 0.01; done; exit 6'";
    let world = &world;
    let (code, shown) = std::thread::scope(|scope| {
        let run = scope.spawn(|| at_a_terminal(world, line, "\u{1a}"));
        world.wait_for("ready");
        std::thread::sleep(std::time::Duration::from_millis(500));
        world.write("go", "");
        run.join().unwrap()
    });
    assert_eq!(code, Some(6), "{shown}");
    assert!(shown.contains("not suspended"), "{shown}");
}
