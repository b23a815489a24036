//! A `timerfd` on the clock that counts suspend.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

pub(in crate::engine) struct Alarm(OwnedFd);

impl Alarm {
    pub(in crate::engine) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Rings at `nanos` after boot, or never for `u64::MAX`; replaces what was set.
    pub(in crate::engine) fn set(&self, nanos: u64) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = if nanos == u64::MAX { zero } else { timespec(nanos) };
        let spec = Itimerspec { it_interval: zero, it_value: at };
        // It cannot fail: the descriptor is ours and the time is in range.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
    }

    /// Needs the runtime's context.
    pub(in crate::engine) fn listen(&self) -> Listener {
        // Tokio's `AsyncFd` has only unsafe constructors. A pipe's receiving end is, for
        // tokio, any descriptor that can be polled and read, and the "unchecked" constructor
        // is a safe one that does not insist on a real pipe.
        let clone = self.0.try_clone();
        Listener(clone.and_then(Receiver::from_owned_fd_unchecked).ok())
    }
}

pub(in crate::engine) struct Listener(Option<Receiver>);

impl Listener {
    pub(in crate::engine) async fn rung(&mut self) {
        let readable = match &self.0 {
            Some(fd) => fd.readable().await.is_ok(),
            None => false,
        };
        match &self.0 {
            // Reading takes the ring off; what it counts does not matter.
            Some(fd) if readable => drop(fd.try_read(&mut [0_u8; 8])),
            // Out of descriptors: look every few milliseconds instead.
            _ => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}

fn timespec(nanos: u64) -> Timespec {
    let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    let rest = i64::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Timespec { tv_sec: seconds, tv_nsec: rest }
}
