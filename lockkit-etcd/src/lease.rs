//! One lease in etcd, which many claims share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::{BootInstant, Error, Lease, Result, SharedLease};
use tokio::sync::Notify;

/// One lease in etcd, which many claims share.
#[derive(Debug)]
pub(crate) struct ServerLease {
    id: i64,
    ttl: Duration,
    /// What the engine knows of it.
    shared: SharedLease,
    state: Mutex<State>,
    /// Rung when the keeper has something to look at.
    pub(crate) changed: Notify,
}

#[derive(Debug)]
struct State {
    /// When the last request was sent that the server answered by extending the lease.
    sent: BootInstant,
    /// How many claims have a key on it, or may have.
    members: usize,
    /// Since when there are none.
    idle: Option<BootInstant>,
    standing: Standing,
    /// Why it was not extended, if the last try failed.
    trouble: Option<String>,
}

/// How far a lease may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// New claims may come.
    Open,
    /// No new claims; those that are on it stay, and it is revoked behind the last of them.
    Closed,
    /// As `Closed`, and its claims move away: something that nobody waits for any more may land on
    /// it yet.
    Suspect,
    /// The server does not have it any more.
    Over,
}

/// What is to be done with a lease next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Extend it at this time.
    Extend(BootInstant),
    /// Nobody is on it, and nobody will be.
    Revoke,
    /// Nothing.
    Nothing,
}

impl ServerLease {
    pub(crate) fn new(id: i64, ttl: Duration, sent: BootInstant) -> Arc<Self> {
        Arc::new(Self {
            id,
            ttl,
            shared: SharedLease::new(),
            state: Mutex::new(State {
                sent,
                members: 0,
                idle: Some(BootInstant::now()),
                standing: Standing::Open,
                trouble: None,
            }),
            changed: Notify::new(),
        })
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// What the server granted.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it is extended: so that what a new claim gets is at least two thirds of a TTL,
    /// even if one answer is missing.
    pub(crate) fn period(&self) -> Duration {
        self.ttl / 6
    }

    /// Puts one more claim on it, if it takes any.
    pub(crate) fn join(self: &Arc<Self>, now: BootInstant) -> Option<Membership> {
        let mut state = self.state();
        if state.standing != Standing::Open {
            return None;
        }
        if now >= state.sent + self.ttl * 2 / 3 {
            // Whatever is wrong: what could be granted on it now would hardly last.
            state.standing = Standing::Closed;
            drop(state);
            self.changed.notify_one();
            return None;
        }
        state.members += 1;
        state.idle = None;
        drop(state);
        Some(Membership(Arc::clone(self)))
    }

    /// No new claims from now on.
    pub(crate) fn close(&self) {
        self.worsen(Standing::Closed);
    }

    /// No new claims from now on, and those that are on it move away.
    pub(crate) fn suspect(&self) {
        self.worsen(Standing::Suspect);
    }

    fn worsen(&self, standing: Standing) {
        let mut state = self.state();
        state.standing = state.standing.max(standing);
        drop(state);
        self.changed.notify_one();
    }

    /// The server does not have it any more: all its claims are lost.
    pub(crate) fn over(&self, detail: &str) {
        self.worsen(Standing::Over);
        self.shared.end(detail);
    }

    /// Whether the server is known not to have it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.state().standing == Standing::Over
    }

    /// Whether no claim is on it.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().members == 0
    }

    /// Whether claims should be on another one.
    pub(crate) fn is_suspect(&self) -> bool {
        self.state().standing >= Standing::Suspect
    }

    /// The server has extended it, by its answer to a request that was sent then.
    pub(crate) fn extended(&self, sent: BootInstant) {
        let mut state = self.state();
        state.sent = state.sent.max(sent);
        state.trouble = None;
    }

    /// The last try to extend it failed.
    pub(crate) fn not_extended(&self, trouble: String) {
        self.state().trouble = Some(trouble);
    }

    /// What a claim on it is granted.
    pub(crate) fn terms(&self) -> Lease {
        let sent = self.state().sent;
        Lease::new(sent, self.ttl).on(self.shared.clone())
    }

    /// What a claim on it is granted by a renewal.
    ///
    /// # Errors
    /// If the server has not extended it lately.
    pub(crate) fn renewed(&self, now: BootInstant) -> Result<Lease> {
        let state = self.state();
        if now < state.sent + self.ttl / 3 {
            drop(state);
            return Ok(self.terms());
        }
        Err(Error::unavailable(match &state.trouble {
            Some(trouble) => format!("the lease was not extended: {trouble}"),
            None => "etcd has not answered for a third of the lease's time".to_owned(),
        }))
    }

    /// What is to be done with it.
    pub(crate) fn duty(&self, now: BootInstant) -> Duty {
        let state = self.state();
        match (state.standing, state.idle) {
            (Standing::Over, _) => Duty::Nothing,
            (Standing::Closed | Standing::Suspect, Some(_)) => Duty::Revoke,
            (Standing::Open, Some(since)) if now.since(since) >= self.ttl => Duty::Revoke,
            _ => Duty::Extend(state.sent + self.period()),
        }
    }

    /// When the server has dropped it by itself if nothing extends it any more.
    pub(crate) fn end(&self) -> BootInstant {
        self.state().sent + self.ttl
    }
}

/// That a claim has a key on a lease, or may have.
#[derive(Debug)]
pub(crate) struct Membership(Arc<ServerLease>);

impl Membership {
    pub(crate) fn lease(&self) -> &Arc<ServerLease> {
        &self.0
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.members = state.members.saturating_sub(1);
        if state.members > 0 {
            return;
        }
        state.idle = Some(BootInstant::now());
        let done = state.standing != Standing::Open;
        drop(state);
        if done {
            self.0.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(6);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(seconds * 1_000_000_000)
    }

    fn far() -> BootInstant {
        BootInstant::now() + TTL * 10
    }

    #[test]
    fn claims_join_while_it_is_open_and_fresh() {
        let lease = ServerLease::new(1, TTL, at(100));
        assert!(lease.join(at(103)).is_some());
        assert!(lease.join(at(104)).is_none(), "two thirds are over");
        lease.extended(at(104));
        assert!(lease.join(at(104)).is_none(), "closed for good");
    }

    #[test]
    fn it_is_revoked_behind_its_last_claim() {
        let lease = ServerLease::new(1, TTL, at(100));
        let (one, two) = (lease.join(at(100)).unwrap(), lease.join(at(100)).unwrap());
        lease.suspect();
        assert_eq!(lease.duty(at(100)), Duty::Extend(at(101)));
        drop(one);
        assert_eq!(lease.duty(far()), Duty::Extend(at(101)));
        drop(two);
        assert_eq!(lease.duty(at(100)), Duty::Revoke);
        lease.over("test");
        assert_eq!(lease.duty(at(100)), Duty::Nothing);
    }

    #[test]
    fn it_is_revoked_when_nobody_uses_it() {
        let lease = ServerLease::new(1, TTL, at(100));
        assert_eq!(lease.duty(BootInstant::now()), Duty::Extend(at(101)));
        assert_eq!(lease.duty(far()), Duty::Revoke);
        let one = lease.join(at(100)).unwrap();
        assert_eq!(lease.duty(far()), Duty::Extend(at(101)));
        drop(one);
        assert_eq!(lease.duty(BootInstant::now()), Duty::Extend(at(101)));
    }

    #[test]
    fn a_renewal_needs_a_recent_answer() {
        let lease = ServerLease::new(1, TTL, at(100));
        assert_eq!(lease.renewed(at(101)).unwrap().sent, at(100));
        lease.not_extended("cut off".to_owned());
        assert!(lease.renewed(at(102)).unwrap_err().to_string().contains("cut off"));
        lease.extended(at(102));
        assert_eq!(lease.renewed(at(103)).unwrap().sent, at(102));
    }

    #[test]
    fn an_older_answer_does_not_set_it_back() {
        let lease = ServerLease::new(1, TTL, at(100));
        lease.extended(at(99));
        assert_eq!(lease.terms().sent, at(100));
    }

    #[test]
    fn nothing_makes_it_better() {
        let lease = ServerLease::new(1, TTL, at(100));
        lease.suspect();
        lease.close();
        assert!(lease.is_suspect());
    }
}
