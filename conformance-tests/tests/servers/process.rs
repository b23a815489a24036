//! Processes start, stop and end when they are told to, and with the test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conformance_tests::servers::{
    Data, Fault, Launch, Process, Program, Redis, Result, free_port, on_free_port, until,
};
use rustix::process::Signal;

const SHELL: Program = Program { name: "sh", package: "dash" };
const PATIENCE: Duration = Duration::from_secs(10);

/// A shell that tells that it is ready, and then does this.
fn shell(script: &str) -> Launch {
    let script = format!("echo started >> log; echo ready; touch ready; {script}");
    Launch::new(SHELL).unwrap().args(["-c".to_owned(), script])
}

fn start(launch: Launch) -> Result<Process> {
    let ready = launch.data().join("ready");
    // Each start makes it anew.
    Process::start(launch, move || Ok(std::fs::remove_file(&ready)?))
}

/// What the kernel says that a process is doing: `S`, `T`, `Z`...; nothing if there is none.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_missing_program_names_its_package() {
    let missing = Program { name: "no-such-server", package: "its-package" };
    let fault = start(Launch::new(missing).unwrap()).unwrap_err().to_string();
    assert!(fault.contains("no-such-server") && fault.contains("its-package"), "{fault}");
}

#[test]
fn what_a_server_wrote_is_shown_when_it_does_not_start() {
    let launch = Launch::new(SHELL).unwrap().args(["-c", "echo the reason >&2; exit 3"]);
    let fault = start(launch).unwrap_err().to_string();
    assert!(fault.contains("the reason") && fault.contains("exit status: 3"), "{fault}");
}

#[test]
fn a_server_that_starts_again_shows_only_what_it_wrote_this_time() {
    let once = Launch::new(SHELL).unwrap();
    let script = "echo hello; [ -e once ] && exit 1; touch once; touch ready; exec sleep 60";
    let process = start(once.args(["-c", script])).unwrap();
    let fault = process.restart(Data::Kept).unwrap_err().to_string();
    assert_eq!(fault.matches("hello").count(), 1, "{fault}");
    assert_eq!(process.output().matches("hello").count(), 2);
}

#[test]
fn signals_reach_it() {
    let process = start(shell("exec sleep 60")).unwrap();
    process.stop().unwrap();
    assert_eq!(state(process.pid()), Some('T'));
    process.resume().unwrap();
    until("going on", PATIENCE, || Ok(state(process.pid()) == Some('S'))).unwrap();
    process.stop().unwrap();
    let status = process.terminate().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    assert!(!process.is_running().unwrap());
    assert!(process.signal(Signal::TERM).unwrap_err().to_string().contains("has ended"));
}

#[test]
fn a_start_keeps_the_data_or_empties_it() {
    let process = start(shell("exec sleep 60").file("given", "as given")).unwrap();
    let (data, first) = (process.launch().data(), process.pid());
    std::fs::write(data.join("given"), "changed").unwrap();
    let text = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    assert!(process.start_again(Data::Kept).unwrap_err().to_string().contains("still runs"));
    process.restart(Data::Kept).unwrap();
    assert_ne!(process.pid(), first);
    assert_eq!((text("log").as_str(), text("given").as_str()), ("started\nstarted\n", "changed"));
    process.restart(Data::Emptied).unwrap();
    assert_eq!((text("log").as_str(), text("given").as_str()), ("started\n", "as given"));
}

#[test]
fn dropping_it_ends_it_and_takes_its_directory_away() {
    let process = start(shell("exec sleep 60")).unwrap();
    let (pid, directory) = (process.pid(), process.launch().lasting().to_owned());
    drop(process);
    assert_eq!(state(pid), None);
    assert!(!directory.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let started = std::thread::spawn(|| start(shell("exec sleep 60")).unwrap());
    let process = started.join().unwrap();
    // The signal of a thread's end would come within microseconds.
    std::thread::sleep(Duration::from_millis(50));
    assert!(process.is_running().unwrap());
}

/// Runs the test below in another process, and kills that.
#[test]
fn a_server_does_not_outlive_a_killed_test() {
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["process::starts_and_waits_to_be_killed", "--exact", "--nocapture"])
        .env("LOCKKIT_TEST_KILLED", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.unwrap().strip_prefix("started ").map(str::to_owned));
    let (pid, directory) = line.as_deref().and_then(|line| line.split_once(' ')).unwrap();
    let pid: u32 = pid.parse().unwrap();
    assert!(state(pid).is_some());
    test.kill().unwrap();
    test.wait().unwrap();
    let gone = || Ok(matches!(state(pid), None | Some('Z')));
    until("the end of the server", PATIENCE, gone).unwrap();
    // Nobody else is left to do it.
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn starts_and_waits_to_be_killed() {
    if std::env::var_os("LOCKKIT_TEST_KILLED").is_none() {
        return;
    }
    let server = Redis::start().unwrap();
    println!(
        "\nstarted {} {}",
        server.process().pid(),
        server.process().launch().lasting().display()
    );
    std::thread::park_timeout(PATIENCE);
}

#[test]
fn ports_are_given_once_and_are_free() {
    let mut ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
    for &port in &ports {
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 50);
}

#[test]
fn a_start_on_a_port_that_was_taken_meanwhile_is_tried_on_another() {
    let mut taken = None;
    let mut tried = Vec::new();
    let port = on_free_port(|port| {
        tried.push(port);
        taken.get_or_insert_with(|| TcpListener::bind(("127.0.0.1", port)).unwrap());
        TcpListener::bind(("127.0.0.1", port))?;
        Ok(port)
    })
    .unwrap();
    assert_eq!((tried.len(), tried[1]), (2, port));
    let start = Instant::now();
    let other = on_free_port(|_| Err::<(), _>(Fault::new("something else"))).unwrap_err();
    assert_eq!(other.to_string(), "something else");
    assert!(start.elapsed() < PATIENCE);
}
