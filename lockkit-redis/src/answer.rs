//! What the scripts answer, as values of lockkit.
//!
//! Server answers are input like any other: whatever does not fit is an error, never a panic.

use std::num::NonZeroU32;
use std::time::Duration;

use lockkit_core::{Error, Holder, Key, Mode, Result};
use redis::Value;

/// The answer to an attempt.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted { fence: u64 },
    Busy { holder: Option<Holder>, free_in: Option<Duration> },
}

/// Reads what `ask.lua` answered.
pub(crate) fn attempt(key: &Key, wanted: Mode, answer: &Value) -> Result<Answer> {
    let parts = list(answer)?;
    match (number(parts.first())?, &parts[1..]) {
        (1, [fence, ..]) => Ok(Answer::Granted { fence: unsigned(fence)? }),
        (0, [free_in, seen @ ..]) => {
            Ok(Answer::Busy { free_in: millis(free_in)?, holder: holder(seen)? })
        }
        (-1, [other, ..]) => Err(Error::other_family(key, mode(other)?, wanted)),
        (-2, [kind, ..]) => Err(Error::configuration(format!(
            "`{key}` is no lock: its key holds a {} of somebody else; give locks a `prefix` of \
             their own",
            text(kind)?.escape_debug()
        ))),
        _ => Err(odd()),
    }
}

/// Reads what `look.lua` answered.
pub(crate) fn look(answer: &Value) -> Result<Option<Holder>> {
    match answer {
        Value::Nil => Ok(None),
        answer => holder(list(answer)?),
    }
}

/// Reads the fields that describe a holder; none if nobody was seen.
fn holder(fields: &[Value]) -> Result<Option<Holder>> {
    let [kind, mode_, holders, token, fence, label, held_for, expires_in, waiting] = fields else {
        return if fields.is_empty() { Ok(None) } else { Err(odd()) };
    };
    let mut holder = Holder::new(mode(mode_)?);
    holder.holders = usize::try_from(number(Some(holders))?).unwrap_or(1).max(1);
    holder.expires_in = millis(expires_in)?;
    holder.waiting = usize::try_from(number(Some(waiting))?).ok().filter(|n| *n > 0);
    if text(kind)? == "foreign" {
        return Ok(Some(holder));
    }
    holder.token = text(token)?.parse().ok();
    holder.fence = Some(unsigned(fence)?).filter(|fence| *fence > 0);
    holder.label = Some(text(label)?).filter(|label| !label.is_empty());
    holder.held_for = millis(held_for)?;
    Ok(Some(holder))
}

fn mode(value: &Value) -> Result<Mode> {
    let text = text(value)?;
    match text.as_str() {
        "x" => Ok(Mode::Exclusive),
        "s" => Ok(Mode::Shared),
        text => text
            .strip_prefix('p')
            .and_then(|limit| limit.parse().ok())
            .and_then(NonZeroU32::new)
            .map(|limit| Mode::Permit { limit })
            .ok_or_else(odd),
    }
}

/// A mode as the scripts take it.
pub(crate) fn mode_word(mode: Mode) -> String {
    match mode {
        Mode::Shared => "s".to_owned(),
        Mode::Permit { limit } => format!("p{limit}"),
        _ => "x".to_owned(),
    }
}

/// The server's time in microseconds, as `TIME` tells it.
pub(crate) fn time(value: &Value) -> Result<u64> {
    let part = |value: &Value| text(value)?.parse::<u64>().map_err(|_| odd());
    match list(value)? {
        [seconds, micros] => part(seconds)?
            .checked_mul(1_000_000)
            .and_then(|s| s.checked_add(part(micros).ok()?))
            .ok_or_else(odd),
        _ => Err(odd()),
    }
}

/// Whether a script did what it was to do.
pub(crate) fn done(value: &Value) -> Result<bool> {
    Ok(number(Some(value))? > 0)
}

/// A whole number.
pub(crate) fn number(value: Option<&Value>) -> Result<i64> {
    match value {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(odd()),
    }
}

fn unsigned(value: &Value) -> Result<u64> {
    u64::try_from(number(Some(value))?).map_err(|_| odd())
}

fn millis(value: &Value) -> Result<Option<Duration>> {
    Ok(u64::try_from(number(Some(value))?).ok().map(Duration::from_millis))
}

fn list(value: &Value) -> Result<&[Value]> {
    match value {
        Value::Array(parts) => Ok(parts),
        _ => Err(odd()),
    }
}

/// Text; bytes that are none are shown as such.
pub(crate) fn text(value: &Value) -> Result<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Ok(text.clone()),
        Value::Okay => Ok("OK".to_owned()),
        _ => Err(odd()),
    }
}

fn odd() -> Error {
    Error::unavailable(
        "the server's answer is none that lockkit's scripts give; is it Redis, and did nobody \
         edit the lock's keys?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_answers_are_errors() {
        let key = Key::new("a").unwrap();
        for answer in [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Int(1), Value::Int(-5)]),
            Value::Array(vec![Value::Int(7), Value::Int(1)]),
            Value::Array(vec![Value::Int(0), Value::Int(1), Value::Nil]),
            Value::Array(vec![Value::Int(-1), Value::SimpleString("p0".to_owned())]),
        ] {
            let result = attempt(&key, Mode::Exclusive, &answer);
            assert!(result.is_err(), "{answer:?}: {result:?}");
        }
    }

    #[test]
    fn time_is_in_microseconds() {
        let part = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let value = Value::Array(vec![part("1700000000"), part("42")]);
        assert_eq!(time(&value).unwrap(), 1_700_000_000_000_042);
        assert!(time(&Value::Array(vec![part("1"), part("x")])).is_err());
    }
}
