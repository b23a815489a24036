//! What the key of a claim holds: for people only, no decision reads it.
//!
//! **Frozen**: `mode:millis:label`. The mode is `x`, `s` or `pN`; the number is the time at which
//! the claim was made, by its own process's clock, in milliseconds since 1970. The token is in the
//! name of the key.

use std::time::{SystemTime, UNIX_EPOCH};

use lockkit_core::{Claim, Mode};

/// The value of `claim`.
pub(crate) fn write(claim: &Claim, now: SystemTime) -> Vec<u8> {
    let mode = match claim.mode {
        Mode::Shared => "s".to_owned(),
        Mode::Permit { limit } => format!("p{limit}"),
        _ => "x".to_owned(),
    };
    let millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let label = claim.label.as_deref().unwrap_or_default();
    format!("{mode}:{millis}:{label}").into_bytes()
}

/// The label in a value; `None` if it is not of ours, or has none.
pub(crate) fn label(value: &[u8]) -> Option<String> {
    let value = std::str::from_utf8(value).ok()?;
    let mut parts = value.splitn(3, ':');
    let (mode, millis, label) = (parts.next()?, parts.next()?, parts.next()?);
    let ours = mode.starts_with(['x', 's', 'p'])
        && !millis.is_empty()
        && millis.bytes().all(|byte| byte.is_ascii_digit());
    (ours && !label.is_empty()).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use lockkit_core::Key;
    use proptest::prelude::*;

    fn claim(mode: Mode, label: &str) -> Claim {
        let mut claim = Claim::new(Key::new("a").unwrap(), mode, Duration::from_secs(30));
        claim.label = Some(label.into());
        claim
    }

    /// FROZEN: other versions read it.
    #[test]
    fn golden_values() {
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let limit = NonZeroU32::new(3).unwrap();
        for (mode, mark) in
            [(Mode::Exclusive, "x"), (Mode::Shared, "s"), (Mode::Permit { limit }, "p3")]
        {
            let claim = claim(mode, "job:7");
            let value = String::from_utf8(write(&claim, now)).unwrap();
            assert_eq!(value, format!("{mark}:1700000000123:job:7"));
        }
    }

    #[test]
    fn foreign_values_tell_nothing() {
        for value in ["", "x", "x::a", "a:1:b", "x:1z:b", "x:1"] {
            assert_eq!(label(value.as_bytes()), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text in any::<String>()) {
            let value = write(&claim(Mode::Shared, &text), SystemTime::now());
            prop_assert_eq!(label(&value).unwrap_or_default(), text);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(value in any::<Vec<u8>>()) {
            let _ = label(&value);
        }
    }
}
