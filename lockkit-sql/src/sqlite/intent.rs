//! The word that a writer leaves while it waits for readers, so that no new ones come in.

use std::time::Duration;

use lockkit_core::BootInstant;

/// What a claim knows of its own word.
#[derive(Debug, Default)]
pub(super) struct Intent {
    may_be_there: bool,
    until: Option<BootInstant>,
}

impl Intent {
    /// How long the word stands that is not given again: a writer that vanished holds readers
    /// back no longer than this.
    pub(super) const STANDS: Duration = Duration::from_secs(2);

    /// Whether it stands for long enough to be left alone. Not at every question: each word is a
    /// write, which wakes all who wait.
    pub(super) fn is_fresh(&self, now: BootInstant) -> bool {
        self.until.is_some_and(|until| until.since(now) > Self::STANDS * 3 / 4)
    }

    /// Whether there may be a row.
    pub(super) fn may_be_there(&self) -> bool {
        self.may_be_there
    }

    /// It was sent; from now on there may be a row.
    pub(super) fn sent(&mut self) {
        self.may_be_there = true;
    }

    /// It was given at `sent`.
    pub(super) fn stands_from(&mut self, sent: BootInstant) {
        self.until = Some(sent + Self::STANDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_again_before_it_ends() {
        let mut intent = Intent::default();
        let now = BootInstant::from_nanos(1_000_000_000_000);
        assert!(!intent.is_fresh(now) && !intent.may_be_there());
        intent.sent();
        intent.stands_from(now);
        assert!(intent.is_fresh(now + Duration::from_millis(499)));
        assert!(!intent.is_fresh(now + Duration::from_millis(501)));
        assert!(!intent.is_fresh(now + Duration::from_secs(60)));
    }
}
