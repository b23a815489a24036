//! The scripts: each is one atomic step of the server.
//!
//! **Frozen** as far as their meaning goes: processes of different versions share a server. The
//! golden test holds every byte.

use std::sync::LazyLock;

/// A script, and the digest by which servers know it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) sha: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, sha: sha1_smol::Sha1::from(text).digest().to_string() }
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $($part:literal)+;)*) => {
        $($(#[$doc])* pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!($part)),+)));)*

        #[cfg(test)]
        fn all() -> Vec<(&'static str, &'static Script)> {
            vec![$((stringify!($name), &*$name)),*]
        }
    };
}

scripts! {
    /// Asks for a claim.
    ASK = "scripts/common.lua" "scripts/ask.lua";
    /// Extends a claim.
    RENEW = "scripts/common.lua" "scripts/renew.lua";
    /// Frees a plain claim.
    FREE = "scripts/free.lua";
    /// Takes away a claim and all that belongs to it.
    WITHDRAW = "scripts/common.lua" "scripts/withdraw.lua";
    /// Has a claim end by itself.
    LINGER = "scripts/common.lua" "scripts/linger.lua";
    /// Tells who holds a key.
    LOOK = "scripts/common.lua" "scripts/look.lua";
    /// Takes a key from its holder.
    FORCE = "scripts/common.lua" "scripts/force.lua";
    /// Writes a fence into a plain claim.
    RECORD = "scripts/record.lua";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FROZEN: change one only knowing what processes of other versions make of it.
    #[test]
    fn golden_digests() {
        let digests: Vec<_> = all().iter().map(|(name, s)| format!("{name} {}", s.sha)).collect();
        assert_eq!(digests.join("\n"), include_str!("scripts/digests.txt").trim_end());
    }
}
