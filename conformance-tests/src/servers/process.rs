//! One server process that this process has started.

use std::fmt;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::{Fault, Launch, Result, until};

/// How long a server may take to start, and to end.
const LIMIT: Duration = Duration::from_secs(30);

/// What becomes of a server's data when it is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// It stays as the server left it on its disk.
    Kept,
    /// It is gone, as on a new machine with the same address.
    Emptied,
}

type Ready = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// A running server. Killed and reaped when dropped; killed by the kernel when this process ends
/// without dropping it.
pub struct Process {
    launch: Launch,
    ready: Ready,
    child: Mutex<Child>,
}

impl Process {
    /// Starts a server, and waits until `ready` is content with it: that is asked every few
    /// milliseconds, and must be able to tell this server from another one at the same port.
    ///
    /// # Errors
    /// If the program is missing, if the process ends, or if it is not ready within 30 seconds:
    /// with what it wrote.
    pub fn start(
        launch: Launch,
        ready: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let from = launch.output_len();
        let child = Mutex::new(launch.spawn()?);
        let process = Self { launch, ready: Box::new(ready), child };
        process.wait_until_ready(from)?;
        Ok(process)
    }

    /// The number of the process: another one after each start.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// How it was started, and where its directories are.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// What it has written to its standard output and standard error, over all starts.
    pub fn output(&self) -> String {
        self.launch.output(0)
    }

    /// Whether it runs or is stopped, rather than ended.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn is_running(&self) -> Result<bool> {
        Ok(self.child().try_wait()?.is_none())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // Held until the signal is sent: only a child that nobody has reaped keeps its number.
        let mut child = self.child();
        if child.try_wait()?.is_some() {
            return Err(Fault::new(format!("`{}` has ended", self.launch.name())));
        }
        Ok(kill_process(Pid::from_child(&child), signal)?)
    }

    /// Stops it where it is (SIGSTOP): its connections stay open and answer nothing. Returns when
    /// all of its threads have stopped.
    ///
    /// # Errors
    /// If it has ended.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let child = self.child();
        let which = WaitId::Pid(Pid::from_child(&child));
        let what = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(which, what)?;
        match status.is_some_and(|status| status.stopped()) {
            true => Ok(()),
            false => Err(Fault::new(format!("`{}` ended", self.launch.name()))),
        }
    }

    /// Lets it go on after [`stop`](Self::stop) (SIGCONT).
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end (SIGTERM), also when it is stopped, and waits until it has.
    ///
    /// # Errors
    /// If it has ended before, or does not within 30 seconds.
    pub fn terminate(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        // It may have ended meanwhile.
        let _ = self.signal(Signal::CONT);
        self.wait(LIMIT)
    }

    /// Kills it (SIGKILL), as a crash would, and waits until it has ended. Nothing happens if it
    /// has already.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill(&self) -> Result<ExitStatus> {
        let mut child = self.child();
        child.kill()?;
        Ok(child.wait()?)
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// If it has not within `limit`.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        let mut status = None;
        until(&format!("the end of `{}`", self.launch.name()), limit, || {
            status = self.child().try_wait()?;
            Ok(status.is_some())
        })?;
        status.ok_or_else(|| Fault::new("ended without a status"))
    }

    /// Starts it again after it has ended, with the same arguments, port and directory, and waits
    /// until it is ready.
    ///
    /// # Errors
    /// If it has not ended; and as [`start`](Self::start).
    pub fn start_again(&self, data: Data) -> Result<()> {
        let from = self.launch.output_len();
        {
            let mut child = self.child();
            if child.try_wait()?.is_none() {
                return Err(Fault::new(format!("`{}` still runs", self.launch.name())));
            }
            if data == Data::Emptied {
                self.launch.empty()?;
            }
            *child = self.launch.spawn()?;
        }
        self.wait_until_ready(from)
    }

    /// [`kill`](Self::kill), then [`start_again`](Self::start_again).
    ///
    /// # Errors
    /// As those.
    pub fn restart(&self, data: Data) -> Result<()> {
        self.kill()?;
        self.start_again(data)
    }

    /// The beginning of what it writes from now on is at the byte `from` of its output.
    fn wait_until_ready(&self, from: u64) -> Result<()> {
        let mut last = None;
        let waited = until("ready", LIMIT, || {
            // First, so that an answer cannot come from another server after this one ended.
            if let Some(status) = self.child().try_wait()? {
                return Err(Fault::new(format!("it ended ({status})")));
            }
            last = (self.ready)().err();
            Ok(last.is_none())
        });
        waited.map_err(|fault| {
            let last = last.map(|last| format!("\nlast: {last}")).unwrap_or_default();
            let said = self.launch.output(from);
            let said = said.trim_end();
            Fault::new(format!("`{}`: {fault}{last}\nit wrote:\n{said}", self.launch.name()))
        })
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A server that has ended is what is wanted.
        let _ = self.kill();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Process");
        shown.field("program", &self.launch.name()).field("pid", &self.pid());
        shown.finish_non_exhaustive()
    }
}
