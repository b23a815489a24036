//! The trait, the engine and the memory backend of lockkit.
//!
//! Users depend on the facade crate `lockkit`. Backend authors implement [`DistributedLock`] and
//! [`Contender`]; everything that all backends share (waiting, deadlines, renewal, loss, release,
//! re-entrancy, events) is in [`Core`].

mod capability;
mod clock;
mod contender;
mod core;
pub mod encoding;
mod engine;
mod error;
mod event;
mod guard;
mod holder;
mod key;
mod lock;
mod loss;
mod memory;
mod mode;
mod request;
mod require;
mod settings;
mod shared_lease;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
pub mod url;
mod wake;

pub use crate::core::Core;
pub use capability::{Capabilities, Capability, Consistency, Fencing, LeaseKind};
pub use clock::{BootInstant, Clock};
pub use contender::{Attempt, Claim, Contender, Lease, Released, Renewal, Stage};
pub use engine::acquire::{Acquire, TryAcquire};
pub use engine::thread::on_lock_thread;
pub use error::{Error, Failure, NotAcquired, Result};
pub use event::{Event, EventKind, Events, Subject};
pub use guard::{Guard, Interrupted};
pub use holder::{Holder, Which};
pub use key::Key;
pub use lock::{DistributedLock, LockExt};
pub use loss::{LossReason, Lost};
pub use memory::Memory;
pub use mode::Mode;
pub use request::{Owner, Request, Wait};
pub use require::Require;
pub use settings::Settings;
pub use shared_lease::SharedLease;
pub use token::Token;
pub use wake::{Bell, Wake};
