//! What sentinels say about who is the primary, and which of them to believe.

use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value};

use crate::answer;
use crate::errors::Problem;
use crate::target::Address;

/// A primary as a sentinel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) address: Address,
    /// Grows with every failover: tells whose word is newer.
    pub(super) epoch: u64,
}

/// For how long only older words than the last one are heard before they are believed. Sentinels
/// tell one another within two seconds; after that, somebody has set them up anew.
const OLD_WORDS: Duration = Duration::from_secs(5);

/// The questions. The first one names a new primary as soon as it is one; the other one, which
/// tells the epoch, only when all replicas follow it.
pub(super) fn questions(master: &str) -> Vec<Cmd> {
    ["GET-MASTER-ADDR-BY-NAME", "MASTER"]
        .map(|what| {
            let mut question = redis::cmd("SENTINEL");
            question.arg(what).arg(master);
            question
        })
        .into()
}

/// Reads the answers of the sentinel at `who`.
pub(super) fn read(who: &Address, master: &str, answers: &[Value]) -> Result<Named, Problem> {
    let address = match answers.first() {
        Some(Value::Nil) => {
            return Err(Problem::configuration(format!(
                "the sentinel at {who} watches over no primary named `{}`; the name at the end \
                 of the URL must be the one in `sentinel monitor`",
                master.escape_debug()
            )));
        }
        Some(Value::ServerError(error)) => {
            let error = RedisError::from(error.clone());
            return Err(if error.to_string().contains("unknown command") {
                Problem::configuration(format!(
                    "{who} is no sentinel; those listen at a port of their own, mostly 26379"
                ))
            } else {
                Problem::new(who, error)
            });
        }
        Some(Value::Array(parts)) => match &parts[..] {
            [host, port] => address(host, port),
            _ => None,
        },
        _ => None,
    };
    let address = address
        .ok_or_else(|| Problem::unavailable(format!("{who} does not answer as sentinels do")))?;
    Ok(Named { address, epoch: answers.get(1).and_then(epoch).unwrap_or(0) })
}

fn address(host: &Value, port: &Value) -> Option<Address> {
    let (host, port) = (answer::text(host).ok()?, answer::text(port).ok()?);
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then_some(Address { host, port })
}

/// The epoch among the names and values that describe a primary. None if the user may not ask.
fn epoch(description: &Value) -> Option<u64> {
    let Value::Array(parts) = description else { return None };
    let mut pairs = parts.chunks_exact(2);
    let pair = pairs.find(|pair| answer::text(&pair[0]).is_ok_and(|name| name == "config-epoch"));
    answer::text(&pair?[1]).ok()?.parse().ok()
}

/// The last word of the sentinels.
#[derive(Debug, Default)]
pub(super) struct LastWord {
    word: Option<Named>,
    /// Since when only older words are heard.
    older_since: Option<Instant>,
}

impl LastWord {
    /// Where the primary is; `None` before anything was said.
    pub(super) fn address(&self) -> Option<&Address> {
        self.word.as_ref().map(|named| &named.address)
    }

    /// Hears what some sentinels have said; whether the primary is another one now.
    ///
    /// A sentinel that was cut off, or is about to hear of a failover, names the old primary. So
    /// the newest word counts, also against one that is heard later.
    pub(super) fn hear(&mut self, said: &[Named], now: Instant) -> bool {
        let Some(newest) = said.iter().map(|named| named.epoch).max() else { return false };
        if let Some(word) = &self.word {
            let older = newest < word.epoch;
            if older && now.duration_since(*self.older_since.get_or_insert(now)) < OLD_WORDS {
                return false;
            }
            self.older_since = None;
            if said.contains(word) && !older {
                return false;
            }
        }
        let new = said.iter().find(|named| named.epoch == newest);
        let another = new.map(|named| &named.address) != self.address();
        self.word = new.cloned();
        another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address { host: "h".to_owned(), port }
    }

    fn named(port: u16, epoch: u64) -> Named {
        Named { address: at(port), epoch }
    }

    fn bytes(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_newest_word_counts() {
        let (mut last, now) = (LastWord::default(), Instant::now());
        assert!(!last.hear(&[], now));
        assert!(last.hear(&[named(1, 3), named(2, 4), named(1, 3)], now));
        assert_eq!(last.address(), Some(&at(2)));
        assert!(!last.hear(&[], now), "silence");
        assert!(!last.hear(&[named(1, 3)], now), "one that has not heard yet");
        assert_eq!(last.address(), Some(&at(2)));
        assert!(!last.hear(&[named(2, 5)], now), "a newer word about the same");
        assert!(!last.hear(&[named(1, 4)], now), "which is as old as the rest now");
        assert!(last.hear(&[named(1, 4), named(3, 6)], now));
        assert_eq!(last.address(), Some(&at(3)));
    }

    #[test]
    fn sentinels_that_were_set_up_anew_are_believed_in_the_end() {
        let (mut last, start) = (LastWord::default(), Instant::now());
        let almost = start + OLD_WORDS - Duration::from_millis(1);
        last.hear(&[named(1, 7)], start);
        assert!(!last.hear(&[named(2, 0)], start));
        assert!(!last.hear(&[named(2, 0)], almost));
        // A word as new as the last one shows that the others are merely late.
        assert!(!last.hear(&[named(1, 7), named(2, 0)], almost));
        assert!(!last.hear(&[named(2, 0)], start + OLD_WORDS));
        assert!(last.hear(&[named(2, 0)], start + OLD_WORDS * 2));
        assert_eq!(last.address(), Some(&at(2)));
    }

    #[test]
    fn of_two_words_as_new_the_one_known_stays() {
        let (mut last, now) = (LastWord::default(), Instant::now());
        last.hear(&[named(1, 0)], now);
        assert!(!last.hear(&[named(2, 0), named(1, 0)], now));
        assert!(last.hear(&[named(2, 0)], now), "the sentinels were told another address");
    }

    #[test]
    fn answers_are_read() {
        let who = at(26379);
        let description = ["name", "m", "config-epoch", "12", "quorum", "2"].map(bytes);
        let answers =
            [Value::Array(vec![bytes("::1"), bytes("6379")]), Value::Array(description.into())];
        let read_ = read(&who, "m", &answers).unwrap();
        assert_eq!(read_, Named { address: Address { host: "::1".into(), port: 6379 }, epoch: 12 });
        assert_eq!(read(&who, "m", &answers[..1]).unwrap().epoch, 0, "may not ask");
    }

    #[test]
    fn odd_answers_are_errors() {
        for odd in [
            vec![],
            vec![Value::Okay],
            vec![Value::Array(vec![bytes("h")])],
            vec![Value::Array(vec![bytes("h"), bytes("0")])],
            vec![Value::Array(vec![bytes(""), bytes("1")])],
            vec![Value::Array(vec![bytes("h"), bytes("70000")])],
        ] {
            let problem = read(&at(1), "m", &odd).unwrap_err();
            assert!(!problem.is_permanent(), "{odd:?}: {problem:?}");
        }
        let unknown = read(&at(1), "orders", &[Value::Nil]).unwrap_err();
        assert!(unknown.is_permanent() && format!("{unknown:?}").contains("`orders`"));
    }
}
