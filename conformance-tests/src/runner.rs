//! Runs every case as a test of its own, in a process of its own.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use lockkit_core::Capabilities;

use crate::alone::Turn;
use crate::bed::Test;
use crate::case::Case;
use crate::leaks::Baseline;
use crate::space::{Space, parse};
use crate::stall::Stalls;
use crate::subject::Subject;
use crate::{cases, child, runs};

/// Tells the binary to be one case.
const CASE: &str = "LOCKKIT_SUITE_CASE";

/// How long a case may take before it counts as hanging.
const CASE_LIMIT: Duration = Duration::from_secs(90);

/// How much longer the process around it may live, to say so itself.
const GRACE: Duration = Duration::from_secs(15);

/// Cases mostly wait, so more of them than there are processors run at a time; but few enough
/// that none waits for a processor for long.
const AT_A_TIME: usize = 6;

/// How often a case is run if it is late while the machine stands still.
const ATTEMPTS: u32 = 3;

/// How many runs were repeated.
static TRIED_AGAIN: AtomicU32 = AtomicU32::new(0);

/// The exit code of a case that failed while the machine stood still.
const STALLED: i32 = 102;

/// What each case did: `runs`, or the reason why it does not apply.
type Ran = Arc<Mutex<BTreeMap<String, String>>>;

/// The `main` of a backend's test target.
pub fn main(subject: &'static dyn Subject) -> ExitCode {
    if let Some(url) = child::asked_for() {
        child::serve(subject, &url);
        return ExitCode::SUCCESS;
    }
    match std::env::var(CASE) {
        Ok(name) => run_case(subject, &name),
        Err(_) => run_suite(subject),
    }
}

fn run_suite(subject: &'static dyn Subject) -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(AT_A_TIME));
    let has = runtime().block_on(capabilities(subject));
    let ran: Ran = Arc::default();
    let trial = |case| trial(subject, case, &has, &ran, args.nocapture);
    let trials = cases::all().into_iter().map(trial).collect();
    let conclusion = libtest_mimic::run(&args, trials);
    let again = TRIED_AGAIN.load(Ordering::Relaxed);
    if again > 0 {
        println!("{again} runs were late while the machine stood still, and were repeated alone");
    }
    if args.list {
        return ExitCode::SUCCESS;
    }
    let ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = args.filter.is_none() && args.skip.is_empty() && !args.ignored;
    if let Err(difference) = runs::check(subject, &ran, whole) {
        eprintln!("{difference}");
        return ExitCode::from(101);
    }
    conclusion.exit_code()
}

fn trial(
    subject: &'static dyn Subject,
    case: Case,
    has: &Capabilities,
    ran: &Ran,
    show: bool,
) -> Trial {
    let unmet = case.unmet(subject, has);
    let ran = Arc::clone(ran);
    Trial::ignorable_test(case.name().to_owned(), move || {
        let outcome = unmet.clone().unwrap_or_else(|| runs::RUNS.to_owned());
        ran.lock().unwrap_or_else(PoisonError::into_inner).insert(case.name().to_owned(), outcome);
        match unmet {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => repeatedly(&case, show).map(|()| Completion::Completed),
        }
    })
}

/// Runs a case; again, and alone, if it was late while the machine stood still.
fn repeatedly(case: &Case, show: bool) -> Result<(), Failed> {
    for attempt in 1.. {
        let turn = Turn::wait(case.is_heavy() || attempt > 1);
        match in_own_process(case, show)? {
            Outcome::Passed => return Ok(()),
            Outcome::Stalled(_) if attempt < ATTEMPTS => {
                TRIED_AGAIN.fetch_add(1, Ordering::Relaxed);
                eprintln!("{}: late, and the machine stood still: trying again", case.name());
            }
            Outcome::Failed(text) | Outcome::Stalled(text) => return Err(text.into()),
        }
        drop(turn);
    }
    Ok(())
}

/// How a process that is one case ended.
enum Outcome {
    Passed,
    /// With what it said.
    Failed(String),
    /// The same, but the machine was not on time.
    Stalled(String),
}

/// Runs this binary again, as `case` alone; ends it and whatever it started if it hangs.
fn in_own_process(case: &Case, show: bool) -> std::io::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(CASE, case.name()).stdin(Stdio::null()).process_group(0);
    if !show {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let mut process = command.spawn()?;
    let output = [
        process.stdout.take().map(|pipe| std::thread::spawn(move || read(pipe))),
        process.stderr.take().map(|pipe| std::thread::spawn(move || read(pipe))),
    ];
    let status = wait(&mut process)?;
    let text: String =
        output.into_iter().flatten().filter_map(|thread| thread.join().ok()).collect();
    let text = text.trim();
    Ok(match status {
        Some(status) if status.success() => Outcome::Passed,
        Some(status) if status.code() == Some(STALLED) => Outcome::Stalled(text.to_owned()),
        Some(status) => Outcome::Failed(format!("{text}\n({status})")),
        None => Outcome::Failed(format!("{text}\n(hangs)")),
    })
}

fn read(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is better than nothing.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How it ended; `None` if it had to be ended.
fn wait(process: &mut std::process::Child) -> std::io::Result<Option<ExitStatus>> {
    let limit = Instant::now() + CASE_LIMIT + GRACE;
    while Instant::now() < limit {
        if let Some(status) = process.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let group = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL)?;
    }
    process.wait()?;
    Ok(None)
}

/// Runs one case here, then looks at what it left.
fn run_case(subject: &'static dyn Subject, name: &str) -> ExitCode {
    let Some(case) = cases::all().into_iter().find(|case| case.name() == name) else {
        eprintln!("there is no case `{name}`");
        return ExitCode::from(101);
    };
    let stalls = Stalls::watch();
    let passed = catch_unwind(AssertUnwindSafe(|| run_here(subject, &case)));
    match (passed, stalls.excuse()) {
        (Ok(()), _) => ExitCode::SUCCESS,
        (Err(_), None) => ExitCode::from(101),
        (Err(_), Some(time)) => {
            eprintln!("the machine stood still for {time:?} meanwhile");
            ExitCode::from(u8::try_from(STALLED).unwrap_or(101))
        }
    }
}

fn run_here(subject: &'static dyn Subject, case: &Case) {
    let runtime = runtime();
    runtime.block_on(async {
        let test = Test::new(subject, capabilities(subject).await);
        let baseline = Baseline::take(&test).await;
        let running = tokio::time::timeout(CASE_LIMIT, case.run(test.clone()));
        running.await.unwrap_or_else(|_| panic!("not over within {CASE_LIMIT:?}"));
        baseline.compare(&test).await;
    });
    // A case may have left a thread of this runtime blocked on purpose.
    runtime.shutdown_background();
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

async fn capabilities(subject: &dyn Subject) -> Capabilities {
    let space = Space::fresh(subject);
    let client = subject.connect(&parse(space.url())).await;
    let client = client.unwrap_or_else(|e| panic!("`{}` is not there: {e}", subject.name()));
    client.core().capabilities().clone()
}
