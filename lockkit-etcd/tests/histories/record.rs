//! What a process tells of one pass: from the question for a key to the end of holding it.

use std::time::Duration;

use lockkit_core::BootInstant;

/// One pass, as the process saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) process: usize,
    pub(crate) key: String,
    /// As a reader.
    pub(crate) shared: bool,
    pub(crate) asked: BootInstant,
    /// When the acquire returned.
    pub(crate) ended: BootInstant,
    /// How long the acquire was allowed to wait.
    pub(crate) limit: Duration,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted(Hold),
    /// Not granted, with the reason in one word.
    Refused(String),
}

/// What was believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) fence: u64,
    /// The first and the last instant at which it believed; `None` if it never did, as when the
    /// process was stopped before the acquire returned.
    pub(crate) believed: Option<(BootInstant, BootInstant)>,
    /// Until when it would have believed without any news.
    pub(crate) deadline: BootInstant,
    /// When it learned of a loss, and the kind of it in one word.
    pub(crate) loss: Option<(BootInstant, String)>,
}

/// Stands before what a process tells, since the test harness writes to the same output.
const MARK: &str = "PASS ";

impl Pass {
    /// As one line.
    pub(crate) fn to_line(&self) -> String {
        let Self { key, shared, asked, ended, limit, outcome, .. } = self;
        let head = format!(
            "{MARK}{key} {shared} {} {} {}",
            asked.as_nanos(),
            ended.as_nanos(),
            limit.as_millis()
        );
        let Hold { fence, believed, deadline, loss } = match outcome {
            Outcome::Refused(reason) => return format!("{head} refused {reason}"),
            Outcome::Granted(hold) => hold,
        };
        let (from, until) = believed.unwrap_or((NEVER, NEVER));
        let (told, kind) = loss.clone().unwrap_or((NEVER, "-".to_owned()));
        let [from, until, deadline, told] =
            [from, until, *deadline, told].map(|at| at.as_nanos().to_string());
        format!("{head} granted {fence} {from} {until} {deadline} {told} {kind}")
    }

    /// From a line of the process `process`; `None` if it is about something else.
    pub(crate) fn from_line(process: usize, line: &str) -> Option<Self> {
        let (_, told) = line.split_once(MARK)?;
        let words: Vec<_> = told.split(' ').collect();
        let [key, shared, asked, ended, limit, ref rest @ ..] = words[..] else { return None };
        let outcome = match *rest {
            ["refused", reason] => Outcome::Refused(reason.to_owned()),
            ["granted", fence, from, until, deadline, told, kind] => {
                let (from, until, told) = (instant(from)?, instant(until)?, instant(told)?);
                Outcome::Granted(Hold {
                    fence: fence.parse().ok()?,
                    believed: (from != NEVER).then_some((from, until)),
                    deadline: instant(deadline)?,
                    loss: (told != NEVER).then(|| (told, kind.to_owned())),
                })
            }
            _ => return None,
        };
        Some(Self {
            process,
            key: key.to_owned(),
            shared: shared.parse().ok()?,
            asked: instant(asked)?,
            ended: instant(ended)?,
            limit: Duration::from_millis(limit.parse().ok()?),
            outcome,
        })
    }

    pub(crate) fn hold(&self) -> Option<&Hold> {
        match &self.outcome {
            Outcome::Granted(hold) => Some(hold),
            Outcome::Refused(_) => None,
        }
    }
}

const NEVER: BootInstant = BootInstant::from_nanos(0);

fn instant(text: &str) -> Option<BootInstant> {
    text.parse().ok().map(BootInstant::from_nanos)
}

/// A time in which a process stood still: stopped, or on a machine that had no time for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) process: usize,
    pub(crate) from: BootInstant,
    pub(crate) to: BootInstant,
}

const STALL: &str = "STOOD ";

impl Stall {
    /// As one line.
    pub(crate) fn to_line(&self) -> String {
        format!("{STALL}{} {}", self.from.as_nanos(), self.to.as_nanos())
    }

    /// As [`Pass::from_line`].
    pub(crate) fn from_line(process: usize, line: &str) -> Option<Self> {
        let (from, to) = line.split_once(STALL)?.1.split_once(' ')?;
        Some(Self { process, from: instant(from)?, to: instant(to)? })
    }
}

#[test]
fn what_is_told_is_what_is_heard() {
    let at = BootInstant::from_nanos;
    let granted =
        |believed, loss| Outcome::Granted(Hold { fence: 7, believed, deadline: at(40), loss });
    for outcome in [
        Outcome::Refused("timeout".to_owned()),
        granted(None, None),
        granted(Some((at(20), at(30))), Some((at(35), "gone".to_owned()))),
    ] {
        let pass = Pass {
            process: 3,
            key: "order:lock:1001".to_owned(),
            shared: true,
            asked: at(10),
            ended: at(20),
            limit: Duration::from_millis(5),
            outcome,
        };
        let line = format!("test child::child ... {}", pass.to_line());
        assert_eq!(Pass::from_line(3, &line), Some(pass));
    }
    let stall = Stall { process: 3, from: at(10), to: at(20) };
    assert_eq!(Stall::from_line(3, &stall.to_line()), Some(stall.clone()));
    assert_eq!(Pass::from_line(3, &stall.to_line()), None);
    assert_eq!(Stall::from_line(3, "running 1 test"), None);
}
