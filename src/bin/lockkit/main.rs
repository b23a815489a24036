//! `lockkit`: runs a command under a distributed lock.

#[cfg(not(unix))]
compile_error!("the command-line tool needs process groups and signals, so a Unix system");

mod args;
mod child;
mod exit;
mod holding;
mod home;
mod run;
mod signals;
mod terminal;
mod tether;
mod timing;
mod waiting;
mod warden;

use std::process::ExitCode;

use exit::Exit;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    // Before anything else: these two are started once per run, and must cost nothing.
    match words.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(tether::WORD) => tether::main(words),
        Some(warden::WORD) => warden::main(),
        _ => lockkit(),
    }
}

fn lockkit() -> ExitCode {
    let exit = match args::parse() {
        Ok(run) => on_this_thread(run::run(run)),
        Err(exit) => exit,
    };
    if let Some(reason) = &exit.reason {
        exit::say(reason);
    }
    ExitCode::from(exit.code)
}

/// The main thread must start the command: a tethered process is killed when the *thread* that
/// started it ends.
fn on_this_thread(work: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(work);
            runtime.shutdown_background();
            exit
        }
        Err(error) => Exit::new(exit::INTERNAL, format!("cannot start: {error}")),
    }
}
