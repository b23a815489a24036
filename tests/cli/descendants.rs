//! What the command leaves behind (CLI-07, CLI-08), and what it must not inherit.

use rustix::process::{Signal, kill_process};

use crate::world::{World, runs, warden_of};

#[test]
fn a_daemon_keeps_neither_the_lock_nor_lockkit() {
    let world = World::new();
    // It keeps the output open, in a session of its own.
    let job = world.run(&[], "setsid sh -c 'echo $$ > daemon; exec sleep 60' & while ! [ -s daemon ]; do sleep 0.01; done");
    let end = job.end();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let daemon = world.pid_in("daemon");
    assert!(runs(daemon), "the daemon is not lockkit's to end");
    assert_eq!(world.claims(), 0);
    assert_eq!(world.run(&["--no-wait"], "true").end().code, Some(0));
    kill_process(daemon, Signal::KILL).unwrap();
}

#[test]
fn a_background_job_of_the_command_lives_on_without_the_lock() {
    let world = World::new();
    let end = world.run(&[], "sleep 60 & echo $! > job").end();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let job = world.pid_in("job");
    assert_eq!(world.claims(), 0);
    assert_eq!(world.run(&["--no-wait"], "true").end().code, Some(0));
    assert!(runs(job));
    kill_process(job, Signal::KILL).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn no_descriptor_of_the_lock_leaks_into_the_command() {
    let world = World::new();
    let with = world.run(&[], "exec ls /proc/self/fd").end();
    let mut command = std::process::Command::new("ls");
    let without = world.start(command.arg("/proc/self/fd").current_dir(world.path(""))).end();
    assert_eq!(with.code, Some(0), "{}", with.stderr);
    assert_eq!(with.stdout, without.stdout);
}

/// Not even a dead process: not every container has somebody who buries it.
#[cfg(target_os = "linux")]
#[test]
fn nothing_of_lockkit_stays_behind() {
    let world = World::new();
    let job = world.run(&[], "touch held; while ! [ -e go ]; do sleep 0.01; done");
    world.wait_for("held");
    let warden = warden_of(&job);
    assert!(runs(warden));
    world.write("go", "");
    assert_eq!(job.end().code, Some(0));
    assert!(!std::fs::exists(format!("/proc/{}", warden.as_raw_nonzero())).unwrap());
}
