//! Cases: one promise each, with what a backend must have for it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use lockkit_core::{Capabilities, Capability, LeaseKind, Mode};

use crate::bed::Test;
use crate::subject::Subject;

pub(crate) type Running = Pin<Box<dyn Future<Output = ()>>>;

/// What a backend must have for a case to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Fences.
    Fenced,
    /// A queue in the store.
    Fair,
    /// Shared mode.
    Shared,
    /// Permits.
    Permits,
    /// Inspection of the holder.
    Inspection,
    /// Forced release.
    ForcedRelease,
    /// Claims that expire by themselves.
    Expires,
    /// Other processes that reach the same store.
    Processes,
    /// A re-entrancy that stays inside one client.
    LocalReentrancy,
    /// A re-entrancy that other clients and processes share.
    StoredReentrancy,
}

impl Need {
    /// Why `subject` does not meet this need; `None` if it does.
    pub fn unmet(self, subject: &dyn Subject, has: &Capabilities) -> Option<String> {
        let capability = match self {
            Self::Fenced => Capability::Fenced,
            Self::Fair => Capability::Fair,
            Self::Shared => Capability::Shared,
            Self::Permits => Capability::Permits,
            Self::Inspection => Capability::Inspection,
            Self::ForcedRelease => Capability::ForcedRelease,
            Self::StoredReentrancy => Capability::StoredReentrancy,
            Self::Expires => {
                return (has.lease != LeaseKind::Expires).then(|| "no expiring leases".to_owned());
            }
            Self::Processes => return subject.processes().err().map(str::to_owned),
            Self::LocalReentrancy => {
                return has
                    .has(Capability::StoredReentrancy)
                    .then(|| "owners re-enter from other clients".to_owned());
            }
        };
        (!has.has(capability)).then(|| format!("no {capability}"))
    }
}

/// One promise of the contract.
#[derive(Clone)]
pub struct Case {
    name: String,
    needs: Vec<Need>,
    heavy: bool,
    run: Arc<dyn Fn(Test) -> Running + Send + Sync>,
}

impl Case {
    pub(crate) fn new(
        name: String,
        needs: &[Need],
        run: impl Fn(Test) -> Running + Send + Sync + 'static,
    ) -> Self {
        Self { name, needs: needs.to_vec(), heavy: false, run: Arc::new(run) }
    }

    /// One case for each mode, with the capability that the mode needs.
    pub(crate) fn for_modes(
        name: &str,
        needs: &[Need],
        run: impl Fn(Test, Mode) -> Running + Send + Sync + Copy + 'static,
    ) -> Vec<Self> {
        let permit = Mode::Permit { limit: std::num::NonZeroU32::MIN };
        let modes = [
            ("exclusive", Mode::Exclusive, None),
            ("shared", Mode::Shared, Some(Need::Shared)),
            ("permit", permit, Some(Need::Permits)),
        ];
        let case = |(word, mode, need): (&str, Mode, Option<Need>)| {
            let needs: Vec<_> = needs.iter().copied().chain(need).collect();
            Self::new(format!("{name}/{word}"), &needs, move |t| run(t, mode))
        };
        modes.into_iter().map(case).collect()
    }

    pub(crate) fn heavy(mut self, heavy: bool) -> Self {
        self.heavy = heavy;
        self
    }

    /// The clause and the promise: `clause::promise`, with `/mode` behind it where there is one
    /// case for each mode.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a backend must have.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// Whether it loads the machine so much that cases beside it would measure it instead of
    /// the backend.
    pub fn is_heavy(&self) -> bool {
        self.heavy
    }

    /// Why it does not apply to `subject`.
    pub(crate) fn unmet(&self, subject: &dyn Subject, has: &Capabilities) -> Option<String> {
        let unmet: Vec<_> = self.needs.iter().filter_map(|need| need.unmet(subject, has)).collect();
        (!unmet.is_empty()).then(|| unmet.join(", "))
    }

    pub(crate) fn run(&self, test: Test) -> Running {
        (self.run)(test)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// What a claim of `mode` keeps out, and is kept out by: a writer for a reader, else its like.
pub(crate) fn rival(mode: Mode) -> Mode {
    if mode == Mode::Shared { Mode::Exclusive } else { mode }
}

/// The cases of one clause of the contract: `name [Need Need] heavy;`, each an
/// `async fn name(t: Test)`; `name(modes)` is one case for each mode, an
/// `async fn name(t: Test, mode: Mode)`.
macro_rules! clause {
    ($clause:literal; $($name:ident $(($modes:ident))? $([$($need:ident)*])? $($heavy:ident)? ;)*) => {
        pub(super) fn cases() -> Vec<$crate::case::Case> {
            let mut cases = Vec::new();
            $({
                let needs: &[$crate::case::Need] = &[$($($crate::case::Need::$need),*)?];
                let heavy = clause!(@heavy $($heavy)?);
                let name = concat!($clause, "::", stringify!($name));
                let made = clause!(@make name needs $name $($modes)?);
                cases.extend(made.into_iter().map(|case| case.heavy(heavy)));
            })*
            cases
        }
    };
    (@heavy) => { false };
    (@heavy heavy) => { true };
    (@make $text:ident $needs:ident $name:ident) => {
        [$crate::case::Case::new($text.to_owned(), $needs, |t| Box::pin($name(t)))]
    };
    (@make $text:ident $needs:ident $name:ident modes) => {
        $crate::case::Case::for_modes($text, $needs, |t, mode| Box::pin($name(t, mode)))
    };
}
pub(crate) use clause;
