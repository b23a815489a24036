//! The signals that lockkit takes: all that end the wait, or are passed on to the command.

use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{self, Exit};

const PASSED_ON: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// The signals that came and were not looked at yet.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Takes the signals from now on; not those that lockkit was started with as ignored, which
    /// the command inherits as ignored (`nohup`, background jobs of scripts).
    pub(crate) fn take() -> Result<Self, Exit> {
        let ignored = ignored();
        let mut signals = Self(Vec::new());
        for signal in PASSED_ON {
            if ignored & bit(signal) == 0 {
                signals.add(signal)?;
            }
        }
        Ok(signals)
    }

    /// Takes another one.
    pub(crate) fn add(&mut self, signal: Signal) -> Result<(), Exit> {
        let stream = listen(signal)?;
        self.0.push((signal, stream));
        Ok(())
    }

    /// The next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            let came = self.0.iter_mut().find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The stream of one signal.
pub(crate) fn listen(signal: Signal) -> Result<unix::Signal, Exit> {
    unix::signal(SignalKind::from_raw(signal.as_raw())).map_err(|error| {
        Exit::new(exit::INTERNAL, format!("cannot take signal {}: {error}", signal.as_raw()))
    })
}

/// The mask of ignored signals, where the system tells it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask_in(&status)
}

fn mask_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let mask = mask_in("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001007\n");
        assert_eq!(mask & bit(Signal::HUP), 1);
        assert_ne!(mask & bit(Signal::QUIT), 0);
        assert_eq!(mask & bit(Signal::TERM), 0);
        assert_eq!(mask_in(""), 0);
    }
}
