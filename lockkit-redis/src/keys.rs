//! The names of a lock's keys and channel.
//!
//! **Frozen.** Processes of different versions share a server; the golden tests hold every byte.
//!
//! The claim itself lies at `prefix + encoded name`: no byte of an encoded name is a brace or
//! 0xFF. Helper keys are `prefix`, the byte 0xFF, their kind, and the claim's key in braces, so
//! that none of them can be a lock's key and all of them share its slot in a cluster.

use std::sync::Arc;

use lockkit_core::{Error, Key, Result, Token};

/// A byte that no encoded name holds.
const MARK: u8 = 0xFF;

/// The longest prefix, in bytes.
const LONGEST_PREFIX: usize = 128;

/// What stands before every key and channel of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(Arc<str>);

impl Prefix {
    /// The prefix of clients that name none.
    pub(crate) const DEFAULT: &'static str = "lockkit:";

    /// # Errors
    /// For braces, which would move a lock's keys to different slots of a cluster, and for a
    /// prefix that is too long.
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        if prefix.contains(['{', '}']) {
            return Err(Error::configuration(
                "`prefix` must not hold `{` or `}`: they decide the slot in a cluster, and all \
                 keys of a lock have to share one",
            ));
        }
        if prefix.len() > LONGEST_PREFIX {
            return Err(Error::configuration(format!(
                "`prefix` has {} bytes; at most {LONGEST_PREFIX} are allowed",
                prefix.len()
            )));
        }
        Ok(Self(prefix.into()))
    }
}

/// The keys and the channel of one lock.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: Prefix,
    /// Where the claim lies.
    base: Arc<[u8]>,
}

impl Keys {
    pub(crate) fn new(prefix: &Prefix, key: &Key) -> Self {
        let base = [prefix.0.as_bytes(), key.encoded().as_bytes()].concat();
        Self { prefix: prefix.clone(), base: base.into() }
    }

    /// A key of no lock, to try out what the server allows.
    pub(crate) fn probe(prefix: &Prefix, token: Token) -> Self {
        let mut base = prefix.0.as_bytes().to_vec();
        base.push(MARK);
        base.extend_from_slice(format!("probe:{token}").as_bytes());
        Self { prefix: prefix.clone(), base: base.into() }
    }

    /// Where the claim lies.
    pub(crate) fn base(&self) -> &Arc<[u8]> {
        &self.base
    }

    fn helper(&self, kind: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.0.len() + self.base.len() + kind.len() + 3);
        key.extend_from_slice(self.prefix.0.as_bytes());
        key.push(MARK);
        key.extend_from_slice(kind.as_bytes());
        key.push(b'{');
        key.extend_from_slice(&self.base);
        key.push(b'}');
        key
    }

    /// All keys of the lock, in the order that the scripts take them in.
    pub(crate) fn all(&self) -> [Vec<u8>; 5] {
        let helpers = ["info", "writer", "queue", "places"].map(|kind| self.helper(kind));
        let [info, writer, queue, places] = helpers;
        [self.base.to_vec(), info, writer, queue, places]
    }

    /// Where a release is told.
    pub(crate) fn channel(&self) -> Vec<u8> {
        self.helper("wake")
    }

    /// Where nobody listens: what is told there wakes nobody.
    pub(crate) fn quiet_channel(&self) -> Vec<u8> {
        self.helper("quiet")
    }

    /// Where Redisson tells a release.
    pub(crate) fn redisson_channel(&self) -> Vec<u8> {
        [b"redisson_lock__channel:{", &*self.base, b"}"].concat()
    }

    /// The slot in a cluster.
    pub(crate) fn slot(&self) -> u16 {
        // No braces can be in it, so all of it counts.
        crc16(&self.base) % 16384
    }
}

/// CRC-16/XMODEM, by which Redis Cluster spreads its keys (Redis Cluster specification).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str, name: &str) -> Keys {
        Keys::new(&Prefix::new(prefix).unwrap(), &Key::new(name).unwrap())
    }

    /// FROZEN: other processes, also of other versions and languages, use the same names.
    #[test]
    fn golden_names() {
        let keys = keys("lockkit:", "order:{lock} 1");
        let name = "lockkit:order:%7Block%7D%201";
        let helper = |kind: &str| [b"lockkit:\xFF", kind.as_bytes()].concat();
        assert_eq!(&**keys.base(), name.as_bytes());
        let expected = ["info", "writer", "queue", "places"]
            .map(|kind| [&helper(kind)[..], b"{", name.as_bytes(), b"}"].concat());
        assert_eq!(keys.all()[1..], expected);
        assert_eq!(keys.channel(), [&helper("wake")[..], b"{", name.as_bytes(), b"}"].concat());
        assert_eq!(
            keys.redisson_channel(),
            b"redisson_lock__channel:{lockkit:order:%7Block%7D%201}"
        );
    }

    #[test]
    fn without_a_prefix_the_key_is_the_name() {
        assert_eq!(&**keys("", "order:lock:1001").base(), b"order:lock:1001");
    }

    /// From the Redis Cluster specification, and from `CLUSTER KEYSLOT` of a real server.
    #[test]
    fn golden_slots() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(keys("", "foo").slot(), 12182);
    }

    #[test]
    fn helpers_share_the_slot() {
        let keys = keys("lockkit:", "a}b{c");
        for helper in &keys.all()[1..] {
            let open = helper.iter().position(|b| *b == b'{').unwrap();
            let close = open + helper[open..].iter().position(|b| *b == b'}').unwrap();
            assert_eq!(crc16(&helper[open + 1..close]) % 16384, keys.slot());
        }
    }

    #[test]
    fn braces_are_refused() {
        assert!(Prefix::new("a{b").is_err() && Prefix::new("a}").is_err());
        assert!(Prefix::new(&"x".repeat(129)).is_err());
        assert!(Prefix::new("").is_ok());
    }
}
