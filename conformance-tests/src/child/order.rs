//! What a parent tells a child, one line each.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use lockkit_core::{Mode, Request, encoding};

/// A line on the child's standard input.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// Acquire, and keep the guard under `id`.
    Acquire { id: String, ask: Ask },
    /// Release the guard `id`, and keep it.
    Release { id: String },
    /// Say whether `id` is held.
    Held { id: String },
    /// Read, think and write a number in a file, so many times, each under the lock.
    Count { id: String, ask: Ask, file: PathBuf, times: u32 },
    /// Acquire and release until the process ends.
    Churn { id: String, ask: Ask },
    /// End the process without a word.
    Exit,
}

/// The request, as far as a child needs it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) key: String,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) timeout: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) owner: Option<String>,
}

impl Ask {
    pub(crate) fn new(key: &str, ttl: Duration, timeout: Duration) -> Self {
        let (mode, min_hold, owner) = (Mode::Exclusive, Duration::ZERO, None);
        Self { key: key.to_owned(), mode, ttl, timeout, min_hold, owner }
    }

    pub(crate) fn request(&self) -> Request {
        let request = Request::new(&self.key)
            .mode(self.mode)
            .ttl(self.ttl)
            .timeout(self.timeout)
            .min_hold(self.min_hold);
        match &self.owner {
            Some(owner) => request.owner(owner),
            None => request,
        }
    }

    fn parse(words: &[&str]) -> Option<Self> {
        let [key, mode, ttl, timeout, min_hold, owner] = words else { return None };
        let mode = match *mode {
            "exclusive" => Mode::Exclusive,
            "shared" => Mode::Shared,
            limit => Mode::Permit { limit: limit.parse::<NonZeroU32>().ok()? },
        };
        let [ttl, timeout, min_hold] = [ttl, timeout, min_hold].map(|text| millis(text));
        let key = encoding::decode(key)?;
        let owner = owner.strip_prefix('=').map(encoding::decode);
        let owner = owner.map_or(Some(None), |decoded| decoded.map(Some))?;
        Some(Self { key, mode, ttl: ttl?, timeout: timeout?, min_hold: min_hold?, owner })
    }
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Shared => "shared".to_owned(),
            Mode::Permit { limit } => limit.to_string(),
            _ => "exclusive".to_owned(),
        };
        let [ttl, timeout, min_hold] =
            [self.ttl, self.timeout, self.min_hold].map(|duration| duration.as_millis());
        let owner = self.owner.as_deref().map(|owner| format!("={}", encoding::encode(owner)));
        let owner = owner.as_deref().unwrap_or("-");
        write!(f, "{} {mode} {ttl} {timeout} {min_hold} {owner}", encoding::encode(&self.key))
    }
}

impl Order {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let id = words.get(1).map(ToString::to_string);
        Some(match words[0] {
            "acquire" => Self::Acquire { id: id?, ask: Ask::parse(words.get(2..)?)? },
            "churn" => Self::Churn { id: id?, ask: Ask::parse(words.get(2..)?)? },
            "release" => Self::Release { id: id? },
            "held" => Self::Held { id: id? },
            "count" => Self::Count {
                id: id?,
                times: words.get(2)?.parse().ok()?,
                file: encoding::decode(words.get(3)?)?.into(),
                ask: Ask::parse(words.get(4..)?)?,
            },
            "exit" => Self::Exit,
            _ => return None,
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { id, ask } => write!(f, "acquire {id} {ask}"),
            Self::Release { id } => write!(f, "release {id}"),
            Self::Held { id } => write!(f, "held {id}"),
            Self::Count { id, ask, file, times } => {
                let file = encoding::encode(&file.to_string_lossy());
                write!(f, "count {id} {times} {file} {ask}")
            }
            Self::Churn { id, ask } => write!(f, "churn {id} {ask}"),
            Self::Exit => f.write_str("exit"),
        }
    }
}
