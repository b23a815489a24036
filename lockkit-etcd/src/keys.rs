//! The names of a lock's keys.
//!
//! **Frozen.** Processes of different versions share a server; the golden tests hold every byte.
//!
//! All claims of a lock lie under its *base*, `prefix + encoded name + "/"`, each at a key of its
//! own, in the order of their create revisions: as Go's `concurrency.Mutex` and `etcdctl lock`
//! have it, whose keys are the base and a lease in hexadecimal. The name of a key tells the mode,
//! so that a transaction can ask whether there are claims of a family:
//!
//! - exclusive: base, token;
//! - shared: base, `~s-`, token;
//! - one of N permits: base, `~pN-`, token.
//!
//! No byte of an encoded name is a slash, so that no lock's keys lie under another one's base.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use lockkit_core::{Error, Key, Mode, Result, Token};

/// The longest prefix, in bytes.
const LONGEST_PREFIX: usize = 128;

/// A byte that no encoded name holds.
const MARK: u8 = 0xFF;

/// What stands before every key of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(Arc<str>);

impl Prefix {
    /// The prefix of clients that name none.
    pub(crate) const DEFAULT: &'static str = "lockkit:";

    /// # Errors
    /// For a prefix that is too long.
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        if prefix.len() > LONGEST_PREFIX {
            return Err(Error::configuration(format!(
                "`prefix` has {} bytes; at most {LONGEST_PREFIX} are allowed",
                prefix.len()
            )));
        }
        Ok(Self(prefix.into()))
    }

    /// A key of no lock, to try out what the server allows.
    pub(crate) fn probe(&self) -> Vec<u8> {
        let mut key = self.0.as_bytes().to_vec();
        key.push(MARK);
        key.extend_from_slice(b"probe");
        key
    }
}

/// The keys of one lock.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    base: Arc<[u8]>,
}

impl Keys {
    pub(crate) fn new(prefix: &Prefix, key: &Key) -> Self {
        let base = [prefix.0.as_bytes(), key.encoded().as_bytes(), b"/"].concat();
        Self { base: base.into() }
    }

    fn at(&self, suffix: &str) -> Vec<u8> {
        [&self.base, suffix.as_bytes()].concat()
    }

    /// The key of one claim.
    pub(crate) fn claim(&self, mode: Mode, token: Token) -> Vec<u8> {
        self.at(&format!("{}{token}", mark(mode)))
    }

    /// Where all claims of the lock lie.
    pub(crate) fn all(&self) -> Range<Vec<u8>> {
        // The byte after the slash.
        let mut end = self.base.to_vec();
        end.pop();
        end.push(b'0');
        self.base.to_vec()..end
    }

    /// Where claims of `mode` lie, if it is one that marks its keys.
    fn marked(&self, mark: &str) -> Range<Vec<u8>> {
        // The byte after the hyphen.
        let end = mark.strip_suffix('-').unwrap_or(mark);
        self.at(mark)..self.at(&format!("{end}."))
    }

    /// Where claims lie that must not be there when one of `mode` comes in.
    pub(crate) fn other_families(&self, mode: Mode) -> Vec<Range<Vec<u8>>> {
        match mode {
            Mode::Permit { .. } => self.without(&mark(mode)),
            // All permits: the byte after `p` ends them.
            _ => vec![self.at("~p")..self.at("~q")],
        }
    }

    /// Where claims lie that a reader waits for.
    pub(crate) fn writers(&self) -> Vec<Range<Vec<u8>>> {
        self.without(SHARED)
    }

    fn without(&self, mark: &str) -> Vec<Range<Vec<u8>>> {
        let (all, marked) = (self.all(), self.marked(mark));
        vec![all.start..marked.start, marked.end..all.end]
    }

    /// What the name of a key under the base says.
    pub(crate) fn read(&self, key: &[u8]) -> (Mode, Option<Token>) {
        let foreign = (Mode::Exclusive, None);
        let Some(suffix) = key.strip_prefix(&*self.base) else { return foreign };
        let Ok(suffix) = std::str::from_utf8(suffix) else { return foreign };
        let (mode, token) = match suffix.strip_prefix('~') {
            None => (Mode::Exclusive, suffix),
            Some(marked) => match marked.split_once('-') {
                Some(("s", token)) => (Mode::Shared, token),
                Some((permit, token)) => match limit(permit) {
                    Some(limit) => (Mode::Permit { limit }, token),
                    None => return foreign,
                },
                None => return foreign,
            },
        };
        let token = (token.len() == 32).then(|| token.parse().ok()).flatten();
        (mode, token)
    }
}

const SHARED: &str = "~s-";

fn mark(mode: Mode) -> String {
    match mode {
        Mode::Shared => SHARED.to_owned(),
        Mode::Permit { limit } => format!("~p{limit}-"),
        _ => String::new(),
    }
}

fn limit(permit: &str) -> Option<NonZeroU32> {
    permit.strip_prefix('p')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str, name: &str) -> Keys {
        Keys::new(&Prefix::new(prefix).unwrap(), &Key::new(name).unwrap())
    }

    fn permit(limit: u32) -> Mode {
        Mode::Permit { limit: NonZeroU32::new(limit).unwrap() }
    }

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    /// FROZEN: other processes, also of other versions and languages, use the same names.
    #[test]
    fn golden_names() {
        let keys = keys("lockkit:", "order/1 é");
        let token: Token = TOKEN.parse().unwrap();
        let base = "lockkit:order%2F1%20%C3%A9/";
        let name = |mode| String::from_utf8(keys.claim(mode, token)).unwrap();
        assert_eq!(name(Mode::Exclusive), format!("{base}{TOKEN}"));
        assert_eq!(name(Mode::Shared), format!("{base}~s-{TOKEN}"));
        assert_eq!(name(permit(12)), format!("{base}~p12-{TOKEN}"));
        let all = keys.all();
        assert_eq!(all.start, base.as_bytes());
        assert_eq!(all.end, b"lockkit:order%2F1%20%C3%A90");
    }

    #[test]
    fn an_empty_prefix_shares_the_place_of_other_clients() {
        assert_eq!(keys("", "order:lock:1001").all().start, b"order:lock:1001/");
    }

    #[test]
    fn names_tell_mode_and_token() {
        let keys = keys("p", "a");
        let token: Token = TOKEN.parse().unwrap();
        for mode in [Mode::Exclusive, Mode::Shared, permit(1), permit(u32::MAX)] {
            assert_eq!(keys.read(&keys.claim(mode, token)), (mode, Some(token)));
        }
        for foreign in ["694d77aa9e38260f", "", "~", "~s", "~p0-x", "~p-x", "~x-y"] {
            assert_eq!(keys.read(&keys.at(foreign)), (Mode::Exclusive, None), "{foreign}");
        }
    }

    #[test]
    fn ranges_hold_what_they_should() {
        let keys = keys("p", "a");
        let token = Token::new();
        let within = |ranges: &[Range<Vec<u8>>], key: &[u8]| {
            ranges.iter().any(|range| range.start.as_slice() <= key && key < range.end.as_slice())
        };
        let modes = [Mode::Exclusive, Mode::Shared, permit(1), permit(2), permit(10), permit(21)];
        for mode in modes {
            for other in modes {
                let key = keys.claim(other, token);
                assert!(within(&[keys.all()], &key));
                let expected = !mode.same_family(other);
                assert_eq!(within(&keys.other_families(mode), &key), expected, "{mode} {other}");
            }
        }
        assert!(within(&keys.writers(), &keys.claim(Mode::Exclusive, token)));
        assert!(within(&keys.writers(), &keys.at("694d77aa9e38260f")));
        assert!(!within(&keys.writers(), &keys.claim(Mode::Shared, token)));
    }

    #[test]
    fn one_name_does_not_lie_under_another() {
        let (a, b) = (keys("p", "a"), keys("p", "a/b"));
        let inside = b.claim(Mode::Exclusive, Token::new());
        assert!(!(a.all().start <= inside && inside < a.all().end));
    }

    #[test]
    fn long_prefixes_are_refused() {
        assert!(Prefix::new(&"x".repeat(129)).is_err());
        assert!(Prefix::new("").is_ok());
    }
}
