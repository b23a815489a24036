//! One lease in etcd, which many claims share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::{BootInstant, Error, Lease, Result, SharedLease};
use tokio::sync::Notify;
use tokio::time::timeout;

/// One lease in etcd, which many claims share.
///
/// It is extended when a claim is renewed, and while claims wait: not for claims that nobody looks
/// after.
#[derive(Debug)]
pub(crate) struct ServerLease {
    id: i64,
    ttl: Duration,
    /// What the engine knows of it.
    shared: SharedLease,
    state: Mutex<State>,
    /// Rung when the keeper has something to look at.
    pub(crate) changed: Notify,
    /// Rung when it was extended, or is over.
    progress: Notify,
}

#[derive(Debug)]
struct State {
    /// When the last request was sent that the server answered by extending the lease.
    sent: BootInstant,
    /// A request that is sent from then on is wanted.
    asked: BootInstant,
    /// Until when it is extended without being asked for: for those that wait.
    wanted: BootInstant,
    /// How many claims have a key on it, or may have.
    members: usize,
    standing: Standing,
    /// Whether somebody went without taking the key out: it stays for its time.
    abandoned: bool,
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
    /// Look again at this time.
    Look(BootInstant),
    /// Nobody is on it, and nobody will be.
    Revoke,
    /// Nothing, for ever.
    Nothing,
}

/// Those who ask for an extension at nearly the same time get one.
const GATHER: Duration = Duration::from_millis(5);

impl ServerLease {
    pub(crate) fn new(id: i64, ttl: Duration, sent: BootInstant) -> Arc<Self> {
        Arc::new(Self {
            id,
            ttl,
            shared: SharedLease::new(),
            state: Mutex::new(State {
                sent,
                asked: sent,
                wanted: sent,
                members: 0,
                standing: Standing::Open,
                abandoned: false,
                trouble: None,
            }),
            changed: Notify::new(),
            progress: Notify::new(),
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

    /// The greatest age of what a new claim is granted, and how often a lease is extended for those
    /// that wait: so that what is left is most of a TTL, even if one answer is missing.
    pub(crate) fn period(&self) -> Duration {
        self.ttl / 6
    }

    /// Puts one more claim on it, if it takes any.
    pub(crate) fn join(self: &Arc<Self>, now: BootInstant) -> Option<Membership> {
        let mut state = self.state();
        if state.standing != Standing::Open {
            return None;
        }
        if now >= self.worn(&state) {
            // It may be over before anything is on it.
            state.standing = Standing::Closed;
            drop(state);
            self.changed.notify_one();
            return None;
        }
        state.members += 1;
        drop(state);
        Some(Membership(Arc::clone(self)))
    }

    /// When it takes no new claims if it is not extended.
    fn worn(&self, state: &State) -> BootInstant {
        state.sent + self.ttl * 2 / 3
    }

    /// No new claims from now on.
    pub(crate) fn close(&self) {
        self.worsen(Standing::Closed);
    }

    /// No new claims from now on, and those that are on it move away.
    pub(crate) fn suspect(&self) {
        self.worsen(Standing::Suspect);
    }

    /// As [`suspect`](Self::suspect); and a key of somebody who is gone stays on it for its time.
    pub(crate) fn abandon(&self) {
        self.state().abandoned = true;
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
        self.progress.notify_waiters();
    }

    /// It was revoked because nothing is on it. Claims that have just moved away are not lost: the
    /// engine may not know yet that they have.
    pub(crate) fn given_back(&self) {
        self.worsen(Standing::Over);
        self.progress.notify_waiters();
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
        drop(state);
        self.progress.notify_waiters();
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

    /// Somebody waits on it, and looks again until then.
    pub(crate) fn want(&self, until: BootInstant) {
        let mut state = self.state();
        let more = until > state.wanted;
        state.wanted = state.wanted.max(until);
        drop(state);
        if more {
            self.changed.notify_one();
        }
    }

    fn ask(&self, since: BootInstant) {
        let mut state = self.state();
        state.asked = state.asked.max(since);
        drop(state);
        self.changed.notify_one();
    }

    fn is_fresh(&self, now: BootInstant) -> bool {
        now < self.state().sent + self.period()
    }

    /// Has it extended if that is worth it for a new claim. Waits for nothing.
    pub(crate) fn freshen(&self) {
        let now = BootInstant::now();
        if !self.is_fresh(now) {
            self.ask(now);
        }
    }

    /// Waits for what [`freshen`](Self::freshen) has asked for, if anything; an answer that does not
    /// come leaves less of the TTL.
    pub(crate) async fn freshened(&self, budget: Duration) {
        let now = BootInstant::now();
        if !self.is_fresh(now) {
            // Whoever asks only now counts from now on.
            let since = now - self.period();
            let _ = self.extend(since, budget).await;
        }
    }

    /// Has it extended by a request that is sent after `since`, and waits for that.
    ///
    /// # Errors
    /// If there is no answer within `budget`, or the lease is over.
    pub(crate) async fn extend(&self, since: BootInstant, budget: Duration) -> Result<()> {
        if self.state().sent >= since {
            return Ok(());
        }
        self.ask(since);
        let extended = async {
            loop {
                let mut progress = std::pin::pin!(self.progress.notified());
                progress.as_mut().enable();
                {
                    let state = self.state();
                    if state.sent >= since || state.standing == Standing::Over {
                        return;
                    }
                }
                progress.await;
            }
        };
        let _ = timeout(budget, extended).await;
        let state = self.state();
        if state.sent >= since {
            return Ok(());
        }
        Err(Error::unavailable(match (&state.trouble, state.standing) {
            (_, Standing::Over) => "the lease is over".to_owned(),
            (Some(trouble), _) => format!("the lease was not extended: {trouble}"),
            (None, _) => format!("etcd did not extend the lease within {budget:?}"),
        }))
    }

    /// What is to be done with it.
    pub(crate) fn duty(&self) -> Duty {
        let now = BootInstant::now();
        let state = self.state();
        let end = state.sent + self.ttl;
        match state.standing {
            Standing::Over => Duty::Nothing,
            Standing::Closed | Standing::Suspect if state.members == 0 => {
                if state.abandoned && now < end { Duty::Look(end) } else { Duty::Revoke }
            }
            _ if state.asked > state.sent => Duty::Extend(state.sent + GATHER),
            // Nobody has used it for so long.
            Standing::Open if state.members == 0 => {
                let worn = self.worn(&state);
                if now >= worn { Duty::Revoke } else { Duty::Look(worn) }
            }
            _ if now < state.wanted => Duty::Extend(state.sent + self.period()),
            _ => Duty::Look(BootInstant::FAR_FUTURE),
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
        let last = state.members == 0;
        // Many claims come and go; the keeper looks by itself when an open lease is worn.
        let done = last && (state.standing != Standing::Open || state.wanted > state.sent);
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
    const SECOND: Duration = Duration::from_secs(1);

    fn lease() -> (Arc<ServerLease>, BootInstant) {
        let now = BootInstant::now();
        (ServerLease::new(1, TTL, now), now)
    }

    /// One that was extended so long ago.
    fn old(age: Duration) -> Arc<ServerLease> {
        ServerLease::new(1, TTL, BootInstant::now() - age)
    }

    #[test]
    fn claims_join_while_it_is_open_and_not_worn() {
        let (lease, now) = lease();
        assert!(lease.join(now + SECOND * 3).is_some());
        assert!(lease.join(now + SECOND * 4).is_none(), "two thirds are over");
        lease.extended(now + SECOND * 4);
        assert!(lease.join(now + SECOND * 4).is_none(), "closed for good");
    }

    #[test]
    fn it_is_revoked_behind_its_last_claim() {
        let (lease, now) = lease();
        let (one, two) = (lease.join(now).unwrap(), lease.join(now).unwrap());
        lease.suspect();
        drop(one);
        assert_eq!(lease.duty(), Duty::Look(BootInstant::FAR_FUTURE));
        drop(two);
        assert_eq!(lease.duty(), Duty::Revoke);
        lease.over("test");
        assert_eq!(lease.duty(), Duty::Nothing);
    }

    #[test]
    fn what_was_abandoned_keeps_its_time() {
        let (lease, now) = lease();
        drop(lease.join(now));
        lease.abandon();
        assert_eq!(lease.duty(), Duty::Look(now + TTL));
        let lease = old(TTL);
        lease.abandon();
        assert_eq!(lease.duty(), Duty::Revoke);
    }

    #[test]
    fn it_is_revoked_when_nobody_uses_it() {
        let (lease, now) = lease();
        assert_eq!(lease.duty(), Duty::Look(now + SECOND * 4));
        assert_eq!(old(SECOND * 4).duty(), Duty::Revoke);
        let worn = old(SECOND * 4);
        worn.ask(BootInstant::now());
        assert!(matches!(worn.duty(), Duty::Extend(_)), "somebody does");
    }

    #[test]
    fn it_is_not_extended_for_those_whom_nobody_looks_after() {
        let (lease, now) = lease();
        let _one = lease.join(now).unwrap();
        assert_eq!(lease.duty(), Duty::Look(BootInstant::FAR_FUTURE));
        lease.ask(now + SECOND);
        assert_eq!(lease.duty(), Duty::Extend(now + GATHER));
        lease.extended(now + SECOND);
        assert_eq!(lease.duty(), Duty::Look(BootInstant::FAR_FUTURE));
    }

    #[test]
    fn it_is_extended_for_those_who_wait() {
        let (lease, now) = lease();
        let _one = lease.join(now).unwrap();
        lease.want(now + TTL * 10);
        assert_eq!(lease.duty(), Duty::Extend(now + SECOND));
    }

    #[test]
    fn an_older_answer_does_not_set_it_back() {
        let (lease, now) = lease();
        lease.extended(now - SECOND);
        assert_eq!(lease.terms().sent, now);
    }

    #[test]
    fn giving_it_back_takes_nobody_with_it() {
        let (lease, _) = lease();
        lease.given_back();
        assert!(lease.is_over() && !lease.shared.has_ended());
        lease.over("test");
        assert!(lease.shared.has_ended());
    }

    #[test]
    fn nothing_makes_it_better() {
        let (lease, _) = lease();
        lease.suspect();
        lease.close();
        assert!(lease.is_suspect());
    }

    #[tokio::test]
    async fn whoever_asks_is_told() {
        let (lease, now) = lease();
        assert!(lease.extend(now, Duration::ZERO).await.is_ok());
        let since = now + SECOND;
        lease.not_extended("cut off".to_owned());
        let error = lease.extend(since, Duration::from_millis(1)).await.unwrap_err();
        assert!(error.to_string().contains("cut off"), "{error}");
        let (asked, ()) = tokio::join!(lease.extend(since, TTL), async {
            lease.changed.notified().await;
            lease.extended(since);
        });
        asked.unwrap();
        let (asked, ()) = tokio::join!(lease.extend(since + TTL, TTL), async {
            lease.over("test");
        });
        assert!(asked.unwrap_err().to_string().contains("over"));
    }
}
