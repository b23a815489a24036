//! Starts servers that end with this process, however it ends.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};

use super::{Program, Result};

/// Asks the kernel to kill what it becomes when its parent ends, then becomes that.
const SETPRIV: Program = Program { name: "setpriv", package: "util-linux" };

type Order = (Command, Sender<io::Result<Child>>);

/// The beginning of a command whose process does not outlive this one, not even when this one
/// is killed. Start it with [`spawn`]. Where there is no `setpriv`, it only ends with its
/// [`Process`](super::Process).
pub(super) fn command(program: &Program) -> Result<Command> {
    let path = program.find()?;
    let Ok(setpriv) = SETPRIV.find() else { return Ok(Command::new(path)) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(path);
    Ok(command)
}

/// Starts `command` from a thread that never ends: "parent" means the thread, and those of tests
/// end early.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts servers is gone");
    let (answer, answered) = mpsc::channel();
    orders()?.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn orders() -> io::Result<&'static Sender<Order>> {
    static ORDERS: OnceLock<io::Result<Sender<Order>>> = OnceLock::new();
    let started = ORDERS.get_or_init(|| {
        let (orders, queue) = mpsc::channel::<Order>();
        std::thread::Builder::new().name("server-spawner".to_owned()).spawn(move || {
            for (mut command, answer) in queue {
                // Whoever asked may be gone; then the child is dropped, but not ended.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill().and_then(|()| child.wait());
                }
            }
        })?;
        Ok(orders)
    });
    started.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}
