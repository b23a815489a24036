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
use crate::servers::{self, Fault, Started};
use crate::space::{self, Space, parse};
use crate::stall::Stalls;
use crate::subject::{Midway, Subject};
use crate::{cases, child, runs};

/// Tells the binary to be one case.
const CASE: &str = "LOCKKIT_SUITE_CASE";

/// How long a case may take before it counts as hanging.
const CASE_LIMIT: Duration = Duration::from_secs(90);

/// How much longer the process around it may live, to say so itself.
const GRACE: Duration = Duration::from_secs(15);

/// How often a case is run if it is late while the machine stands still.
const ATTEMPTS: u32 = 3;

/// How many runs were repeated.
static TRIED_AGAIN: AtomicU32 = AtomicU32::new(0);

/// The exit code of a case that failed while the machine stood still.
const STALLED: i32 = 102;

/// What each case did: `runs`, or the reason why it does not apply.
type Ran = Mutex<BTreeMap<String, String>>;

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
    args.test_threads = args.test_threads.or(Some(subject.at_a_time()));
    // A list needs no servers.
    let suite = if args.list { Suite::unstarted(subject) } else { Suite::start(subject) };
    let suite = match suite {
        Ok(suite) => Arc::new(suite),
        Err(reason) => {
            eprintln!("`{}` is not there: {reason}", subject.name());
            return ExitCode::from(101);
        }
    };
    let show = args.nocapture;
    let trial = |case| trial(&suite, case, show);
    let mut trials: Vec<_> = cases::all().into_iter().map(trial).collect();
    if let Some(midway) = subject.midway() {
        trials.retain(|trial| !args.is_filtered_out(trial));
        trials.insert(trials.len() / 2, between(&suite, midway));
    }
    let conclusion = libtest_mimic::run(&args, trials);
    let again = TRIED_AGAIN.load(Ordering::Relaxed);
    if again > 0 {
        println!("{again} runs were late while the machine stood still, and were repeated alone");
    }
    if args.list {
        return ExitCode::SUCCESS;
    }
    let ran = suite.ran.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = args.filter.is_none() && args.skip.is_empty() && !args.ignored;
    if let Err(difference) = runs::check(subject, &ran, whole) {
        eprintln!("{difference}");
        return ExitCode::from(101);
    }
    conclusion.exit_code()
}

/// What all trials of a run share.
struct Suite {
    subject: &'static dyn Subject,
    started: Option<Started>,
    /// Unknown when nothing is to be run.
    has: Option<Capabilities>,
    ran: Ran,
}

impl Suite {
    fn unstarted(subject: &'static dyn Subject) -> servers::Result<Self> {
        Ok(Self { subject, started: None, has: None, ran: Ran::default() })
    }

    /// Starts the servers, unless the user named one, and looks whether they are there.
    fn start(subject: &'static dyn Subject) -> servers::Result<Self> {
        let given = space::given(subject);
        let started = if given.is_some() { None } else { subject.start()? };
        let started_url = started.as_ref().map(|started| started.url().to_owned());
        let url = given.or(started_url).unwrap_or_else(|| subject.url().to_owned());
        let has = runtime().block_on(capabilities(subject, &url));
        let has = has.map_err(|error| Fault::new(error.to_string()))?;
        Ok(Self { started, has: Some(has), ..Self::unstarted(subject)? })
    }
}

fn trial(suite: &Arc<Suite>, case: Case, show: bool) -> Trial {
    let suite = Arc::clone(suite);
    Trial::ignorable_test(case.name().to_owned(), move || {
        let unmet = suite.has.as_ref().and_then(|has| case.unmet(suite.subject, has));
        let outcome = unmet.clone().unwrap_or_else(|| runs::RUNS.to_owned());
        let mut ran = suite.ran.lock().unwrap_or_else(PoisonError::into_inner);
        ran.insert(case.name().to_owned(), outcome);
        drop(ran);
        match unmet {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => repeatedly(&suite, &case, show).map(|()| Completion::Completed),
        }
    })
}

/// What is done between two cases, when no case runs.
fn between(suite: &Arc<Suite>, midway: Midway) -> Trial {
    let suite = Arc::clone(suite);
    Trial::ignorable_test(format!("between::{}", midway.name), move || {
        let Some(started) = &suite.started else {
            return Ok(Completion::ignored_with("the servers are somebody else's"));
        };
        let _alone = Turn::wait(true);
        (midway.act)(started)?;
        Ok(Completion::Completed)
    })
}

/// Runs a case; again, and alone, if it was late while the machine stood still.
fn repeatedly(suite: &Suite, case: &Case, show: bool) -> Result<(), Failed> {
    for attempt in 1.. {
        let turn = Turn::wait(case.is_heavy() || attempt > 1);
        match in_own_process(suite, case, show)? {
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
fn in_own_process(suite: &Suite, case: &Case, show: bool) -> std::io::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(CASE, case.name()).stdin(Stdio::null()).process_group(0);
    if let Some(started) = &suite.started {
        command.env(space::variable(suite.subject), started.url());
    }
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
        let has = capabilities(subject, &space::template(subject)).await;
        let has = has.unwrap_or_else(|e| panic!("`{}` is not there: {e}", subject.name()));
        let test = Test::new(subject, has);
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

async fn capabilities(subject: &dyn Subject, template: &str) -> lockkit_core::Result<Capabilities> {
    let space = Space::fresh(template);
    let client = subject.connect(&parse(space.url())).await?;
    Ok(client.core().capabilities().clone())
}
