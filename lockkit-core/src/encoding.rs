//! The stored form of a key where the store has rules for names (Redis, etcd, ZooKeeper).
//!
//! **Frozen.** Two versions of lockkit that encode a name differently would not exclude each
//! other. Do not change a byte of the output; the golden tests hold it.
//!
//! `A-Z a-z 0-9 : _ . -` stay as they are, every other byte becomes `%XX` (upper case). A name
//! made of dots alone (`.`, `..`, ...) has every dot escaped, because paths give those a meaning.
//! The percent sign itself is always escaped, so the encoding is injective.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b':').remove(b'_').remove(b'.').remove(b'-');

/// Encodes a name. See the [module](self) for the rules.
pub fn encode(name: &str) -> String {
    if name.bytes().all(|b| b == b'.') {
        return "%2E".repeat(name.len());
    }
    utf8_percent_encode(name, ESCAPED).to_string()
}

/// Reads a stored name back; `None` if [`encode`] cannot have written it.
pub fn decode(stored: &str) -> Option<String> {
    let name = percent_decode_str(stored).decode_utf8().ok()?.into_owned();
    (encode(&name) == stored).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        let table = [
            ("order:lock:1001", "order:lock:1001"),
            ("A-Z_a.z", "A-Z_a.z"),
            ("a b ", "a%20b%20"),
            ("a/b", "a%2Fb"),
            ("{tag}", "%7Btag%7D"),
            ("100%", "100%25"),
            ("%2F", "%252F"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "%2E%2E%2E"),
            (".a.", ".a."),
            ("é", "%C3%A9"),
            ("🔒", "%F0%9F%94%92"),
            ("\u{0}\n\u{7f}", "%00%0A%7F"),
            ("~!*'()", "%7E%21%2A%27%28%29"),
        ];
        for (name, stored) in table {
            assert_eq!(encode(name), stored);
            assert_eq!(decode(stored).as_deref(), Some(name));
        }
    }

    #[test]
    fn foreign_names_are_not_decoded() {
        for stored in ["a/b", "a%2fb", "%41", "%", "%ZZ", "%FF", "..", "a b"] {
            assert_eq!(decode(stored), None, "{stored}");
        }
    }

    proptest! {
        #[test]
        fn decoding_gives_the_name_back(name in any::<String>()) {
            let decoded = decode(&encode(&name));
            prop_assert_eq!(decoded.as_deref(), Some(name.as_str()));
        }

        #[test]
        fn only_safe_bytes_come_out(name in any::<String>()) {
            let stored = encode(&name);
            prop_assert!(stored.bytes().all(|b| b.is_ascii_alphanumeric() || b":_.-%".contains(&b)));
            prop_assert_eq!(stored.is_empty(), name.is_empty());
            prop_assert!(stored.is_empty() || !stored.bytes().all(|b| b == b'.'));
        }
    }
}
