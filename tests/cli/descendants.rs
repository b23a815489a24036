//! What the command leaves behind (CLI-07, CLI-08), and what it must not inherit.

use rustix::process::{Signal, kill_process};

use crate::world::{World, eventually, runs};

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

#[test]
fn nothing_of_lockkit_stays_behind() {
    let world = World::new();
    assert_eq!(world.run(&[], "exit 0").end().code, Some(0));
    eventually("the warden has gone", || !warden_in(&world));
}

/// Whether a process of lockkit is left that this world's directory was told to.
fn warden_in(world: &World) -> bool {
    let marker = world.path("locks.db").display().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        std::fs::read(process.path().join("cmdline")).is_ok_and(|words| {
            let words = String::from_utf8_lossy(&words).into_owned();
            words.contains(&marker) && words.contains("lockkit")
        })
    })
}
