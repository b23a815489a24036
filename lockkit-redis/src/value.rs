//! What a plain exclusive claim stores: a string that begins with its token.
//!
//! **Frozen**, also in the scripts: `token:kind:number:label`. The client writes kind `t` with
//! the TTL in milliseconds, since it knows the server's time only after the claim stands. A
//! script that comes later makes it kind `f` (the fence, which is the server's time in
//! microseconds) or `s` (the server's time in milliseconds, where there are no fences).

use std::io::Write as _;
use std::time::Duration;

use lockkit_core::{Claim, Holder, Mode, Token};

/// The value with which a claim is set.
pub(crate) fn first(claim: &Claim) -> Vec<u8> {
    let label = claim.label.as_deref().unwrap_or_default();
    let mut value = Vec::with_capacity(64 + label.len());
    // Writing into memory cannot fail.
    let _ = write!(value, "{}:t:{}:{label}", claim.token, millis(claim.ttl));
    value
}

/// Who holds the key, as far as a value alone tells it. Values of other clients tell nothing.
pub(crate) fn holder(value: &[u8]) -> Holder {
    let mut holder = Holder::new(Mode::Exclusive);
    let Some((token, label)) = own(value) else { return holder };
    holder.token = Some(token);
    holder.label = label.filter(|label| !label.is_empty()).map(str::to_owned);
    holder
}

/// The token in a value of ours.
pub(crate) fn token(value: &[u8]) -> Option<Token> {
    own(value).map(|(token, _)| token)
}

fn own(value: &[u8]) -> Option<(Token, Option<&str>)> {
    let token = std::str::from_utf8(value.get(..32)?).ok()?.parse().ok()?;
    let rest = value.get(32..)?.strip_prefix(b":")?;
    let mut parts = rest.splitn(3, |byte| *byte == b':');
    let (kind, number, label) = (parts.next()?, parts.next()?, parts.next()?);
    let ours = matches!(kind, b"t" | b"f" | b"s")
        && !number.is_empty()
        && number.iter().all(u8::is_ascii_digit);
    ours.then(|| (token, std::str::from_utf8(label).ok()))
}

/// A TTL as Redis takes it: whole milliseconds, at least one.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// For how long a place in the queue stands that is not asked for again; `ask.lua` has the same.
pub(crate) fn place_stands(ttl: Duration) -> Duration {
    ttl.clamp(Duration::from_millis(600), Duration::from_secs(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkit_core::Key;
    use proptest::prelude::*;

    fn claim(label: Option<&str>) -> Claim {
        let key = Key::new("a").unwrap();
        let mut claim = Claim::new(key, Mode::Exclusive, Duration::from_secs(30));
        claim.label = label.map(Into::into);
        claim
    }

    /// FROZEN: other versions read it.
    #[test]
    fn golden_value() {
        let claim = claim(Some("job:7"));
        let value = String::from_utf8(first(&claim)).unwrap();
        assert_eq!(value, format!("{}:t:30000:job:7", claim.token));
    }

    #[test]
    fn foreign_values_tell_nothing() {
        let token = Token::new();
        for value in
            ["", "x", &token.to_string(), &format!("{token}:q:1:"), &format!("{token}:t::")]
        {
            assert_eq!(holder(value.as_bytes()), Holder::new(Mode::Exclusive), "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(label in any::<String>()) {
            let claim = claim(Some(&label));
            let seen = holder(&first(&claim));
            prop_assert_eq!(seen.token, Some(claim.token));
            prop_assert_eq!(seen.label.unwrap_or_default(), label);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(value in any::<Vec<u8>>()) {
            let _ = holder(&value);
        }
    }
}
