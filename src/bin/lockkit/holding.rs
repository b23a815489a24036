//! The command runs, and the lock is watched.

use std::time::Duration;

use lockkit::Guard;
use rustix::process::{Pid, Signal};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::child::{Change, Child};
use crate::signals::Signals;
use crate::terminal::{self, Terminal};
use crate::timing::Timing;
use crate::warden::Warden;

/// How long a killed command may take to end: what hangs in the kernel never does.
const LAST_RESPECTS: Duration = Duration::from_secs(5);

/// Why the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, or by a signal that was passed on.
    Own,
    /// It was stopped because the lock was lost, or about to be.
    Loss,
}

/// Waits until the command has ended, and ends it before the lock can pass on.
pub(crate) async fn hold(
    guard: &Guard,
    timing: Timing,
    child: &mut Child,
    terminal: &mut Terminal,
    warden: &mut Option<Warden>,
    signals: &mut Signals,
) -> End {
    let mut expiring = std::pin::pin!(guard.expiring(timing.lead()));
    let mut tick = interval(timing.tick());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            change = child.change() => match change {
                Change::Ended => return End::Own,
                Change::Stopped(signal) => terminal.stopped(signal),
            },
            () = &mut expiring => break,
            signal = signals.next() => pass_on(signal, child),
            _ = tick.tick() => {
                tell(warden, guard, timing);
                terminal.lend();
            }
        }
    }
    stop(guard, timing, child).await;
    End::Loss
}

fn pass_on(signal: Signal, child: &Child) {
    if signal == Signal::TSTP {
        terminal::refuse_to_stop();
    } else {
        child.signal(signal);
    }
}

/// Tells the warden whom to kill and when, before there is anybody to kill.
pub(crate) fn instruct(warden: &mut Option<Warden>, group: Pid, guard: &Guard, timing: Timing) {
    if let Some(warden) = warden {
        warden.watch(group);
    }
    tell(warden, guard, timing);
}

/// Tells the warden the deadline, once it is known to have moved.
fn tell(warden: &mut Option<Warden>, guard: &Guard, timing: Timing) {
    if let (Some(warden), Some(deadline)) = (warden, guard.deadline()) {
        warden.until(deadline - timing.safety() / 2);
    }
}

/// SIGTERM and, when the grace is over or the lock is lost, SIGKILL to the whole group.
async fn stop(guard: &Guard, timing: Timing, child: &mut Child) {
    if guard.is_held() {
        child.signal(Signal::TERM);
        // A stopped process cannot take leave.
        child.signal(Signal::CONT);
        let grace = guard.remaining().saturating_sub(timing.safety()).min(timing.grace);
        tokio::select! {
            () = child.ended() => {}
            () = sleep(grace) => {}
            _ = guard.lost() => {}
        }
    }
    // Also when the command itself has gone: others of its group may be left.
    child.signal(Signal::KILL);
    let _ = timeout(LAST_RESPECTS, child.ended()).await;
}
