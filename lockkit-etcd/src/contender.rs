//! One claim in etcd.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use etcd_client::{KeyValue, Txn, TxnResponse};
use lockkit_core::{
    Attempt, BootInstant, Claim, Contender, Error, Holder, Lease, Mode, Released, Renewal, Result,
    Stage, Wake,
};
use tokio::time::Instant;

use crate::ask::{Ahead, Asks, Place, Seen};
use crate::client::Client;
use crate::fleet::{Answered, Failed};
use crate::lease::{Membership, ServerLease};
use crate::signal::{Target, Watching};
use crate::{inspect, value};

/// One claim in etcd.
#[derive(Debug)]
pub(crate) struct EtcdContender {
    client: Arc<Client>,
    claim: Claim,
    asks: Asks,
    /// Where its key stands, as far as is known.
    place: Option<Place>,
    /// The leases that its key is on, or may be.
    members: Vec<Membership>,
    /// Whether a request that was not answered may make a key yet.
    doubtful: bool,
    /// The lease of a request that may make a key, while it is under way: still there afterwards if
    /// the call was dropped.
    under_way: Option<Arc<ServerLease>>,
    watching: Option<Watching>,
    /// What the last answer said, for whoever asks again at once.
    latest: Option<(Seen, Instant)>,
}

/// An answer so young needs no other: what has changed since then, a watch from its revision on
/// tells.
const JUST_NOW: Duration = Duration::from_millis(100);

impl EtcdContender {
    pub(crate) fn new(client: Arc<Client>, claim: Claim) -> Self {
        let value = value::write(&claim, SystemTime::now());
        let asks = Asks::new(client.keys(&claim.key), &claim, value);
        Self {
            client,
            claim,
            asks,
            place: None,
            members: Vec::new(),
            doubtful: false,
            under_way: None,
            watching: None,
            latest: None,
        }
    }

    async fn txn(&self, txn: Txn, budget: Duration) -> Result<Answered<TxnResponse>, Failed> {
        self.client.txn(txn, budget).await
    }

    /// Sends what may make a key on `lease`.
    async fn create(
        &mut self,
        txn: Txn,
        lease: &Arc<ServerLease>,
        budget: Duration,
    ) -> Result<Answered<TxnResponse>, Failed> {
        self.under_way = Some(Arc::clone(lease));
        let answer = self.client.txn(txn, budget).await;
        self.under_way = None;
        let doubtful = match &answer {
            Ok(answered) => answered.doubtful,
            Err(failed) => failed.doubtful,
        };
        if doubtful {
            self.doubt(lease);
        }
        answer
    }

    /// What was asked for may take effect later, also after its own clean-up: on that lease, a key
    /// could then stay that nobody knows of.
    fn doubt(&mut self, lease: &ServerLease) {
        self.doubtful = true;
        lease.suspect();
    }

    /// A call that was dropped is a request without an answer.
    fn look_back(&mut self) {
        if let Some(lease) = self.under_way.take() {
            self.doubt(&lease);
        }
    }

    /// Comes in; `None` when the lease that it came with was gone.
    async fn enter(&mut self, stage: Stage, until: Instant) -> Result<Option<Seen>> {
        let member = self.client.leases.join(self.claim.ttl, left(until)).await?;
        let lease = Arc::clone(member.lease());
        lease.freshen();
        // From now on its key may be there.
        self.members.push(member);
        let answered = match (stage, self.asks.mode()) {
            (Stage::Try, Mode::Permit { limit }) => {
                match self.enter_if_few(limit.get(), &lease, until).await? {
                    Ok(seen) => return Ok(Some(seen)),
                    Err(failed) => Err(failed),
                }
            }
            (Stage::Try, _) => {
                let enter = self.asks.enter_if_free(lease.id(), self.doubtful, None);
                self.create(enter, &lease, left(until)).await
            }
            _ => self.create(self.asks.enter(lease.id()), &lease, left(until)).await,
        };
        match answered {
            Ok(answered) => {
                let seen = self.asks.entered(&answered.value, lease.id())?;
                // What was sent twice may have met itself.
                let itself = answered.doubtful && seen.own.is_none();
                Ok((!itself).then_some(seen))
            }
            Err(failed) => self.not_entered(failed, &lease),
        }
    }

    /// A permit that will not wait comes in if there are few enough, and nobody came meanwhile.
    async fn enter_if_few(
        &mut self,
        limit: u32,
        lease: &Arc<ServerLease>,
        until: Instant,
    ) -> Result<Result<Seen, Failed>> {
        loop {
            let counted = match self.txn(self.asks.count(), left(until)).await {
                Ok(counted) => counted,
                Err(failed) => {
                    // Nothing was asked for that could have an effect.
                    self.leave(lease.id());
                    return Err(failed.into());
                }
            };
            let (seen, count) = self.asks.counted(&counted.value)?;
            if count == i64::MAX && self.other_family(&seen).is_none() {
                self.leave(lease.id());
                return Err(self.behind_permits());
            }
            if seen.own.is_some() || count >= i64::from(limit) || self.other_family(&seen).is_some()
            {
                return Ok(Ok(seen));
            }
            let enter = self.asks.enter_if_free(lease.id(), true, Some(seen.revision));
            let answered = match self.create(enter, lease, left(until)).await {
                Ok(answered) => answered,
                Err(failed) => return Ok(Err(failed)),
            };
            let seen = self.asks.entered(&answered.value, lease.id())?;
            if seen.own.is_some() {
                return Ok(Ok(seen));
            }
        }
    }

    fn not_entered(&mut self, failed: Failed, lease: &Arc<ServerLease>) -> Result<Option<Seen>> {
        if failed.lacks_lease() {
            lease.over("etcd no longer has the lease: it ran out or was revoked");
        }
        if !failed.doubtful {
            self.leave(lease.id());
        }
        if failed.lacks_lease() && !failed.doubtful {
            return Ok(None);
        }
        Err(failed.into())
    }

    /// The mode of what is there, if this claim cannot be beside it.
    fn other_family(&self, seen: &Seen) -> Option<Mode> {
        let (mode, _) = self.asks.keys.read(seen.first.as_ref()?.key());
        (!mode.same_family(self.claim.mode)).then_some(mode)
    }

    /// Another client's claim, which counts as exclusive, is in line behind permits.
    fn behind_permits(&self) -> Error {
        Error::other_family(&self.claim.key, Mode::Exclusive, self.claim.mode)
    }

    /// Nothing of the claim is on that lease.
    fn leave(&mut self, lease: i64) {
        self.members.retain(|member| member.lease().id() != lease);
    }

    fn lease(&self, id: i64) -> Option<&Arc<ServerLease>> {
        self.members.iter().map(Membership::lease).find(|lease| lease.id() == id)
    }

    /// The lease that a key which stands is on; puts it on another one if need be.
    async fn settle(
        &mut self,
        mut place: Place,
        until: Instant,
    ) -> Result<Option<Arc<ServerLease>>> {
        loop {
            self.place = Some(place);
            let good = |lease: &&Arc<ServerLease>| !lease.is_suspect();
            if let Some(lease) = self.lease(place.lease).filter(good).map(Arc::clone) {
                // Its key can be on one lease only, unless something is under way.
                if self.members.len() > 1 {
                    self.members.retain(|member| member.lease().id() == lease.id());
                }
                return Ok(Some(lease));
            }
            let member = self.client.leases.join(self.claim.ttl, left(until)).await?;
            let lease = Arc::clone(member.lease());
            self.members.push(member);
            let moved = self.txn(self.asks.relocate(place, lease.id()), left(until)).await;
            let moved = match moved {
                Ok(answered) => self.asks.relocated(&answered.value, place, lease.id())?,
                Err(failed) => {
                    if failed.lacks_lease() {
                        lease.over("etcd no longer has the lease: it ran out or was revoked");
                    }
                    return Err(failed.into());
                }
            };
            match moved {
                Some(now) if now.lease == lease.id() => {
                    self.place = Some(now);
                    self.members.retain(|member| member.lease().id() == lease.id());
                    return Ok(Some(lease));
                }
                // An earlier move has landed meanwhile.
                Some(now) => place = now,
                None => {
                    self.place = None;
                    return Ok(None);
                }
            }
        }
    }

    /// From what was seen to the answer for the engine.
    /// `rung` listens since before the question.
    async fn conclude(
        &mut self,
        seen: Seen,
        rung: Option<Wake>,
        until: Instant,
    ) -> Result<Option<Attempt>> {
        let Some(place) = seen.own else {
            self.gone();
            return Ok(None);
        };
        let Some(lease) = self.settle(place, until).await? else { return Ok(None) };
        match seen.ahead {
            Ahead::Free => {
                self.watching = None;
                lease.freshened(left(until)).await;
                let fence = u64::try_from(place.created).ok();
                Ok(Some(Attempt::Granted { fence, lease: lease.terms() }))
            }
            Ahead::Taken(target) => {
                lease.want(BootInstant::now() + lease.ttl() + self.client.longest_pause());
                let again = self.watching.as_ref().is_some_and(|w| w.is_for(&target));
                let wake = match rung.filter(|_| again) {
                    Some(wake) => wake,
                    None => self.watch(target, seen.revision + 1),
                };
                Ok(Some(busy(wake, self.holder(seen.first.as_ref()))))
            }
            Ahead::Unknown => Ok(None),
        }
    }

    fn watch(&mut self, target: Target, from: i64) -> Wake {
        // A server that refuses watches must not be asked as fast as it answers: this time, only
        // the poll is left.
        let refused = self.watching.as_ref().is_some_and(Watching::is_broken);
        let watching = self.client.signal.watch(target, from);
        let wake = if refused { Wake::never() } else { watching.listen() };
        self.watching = Some(watching);
        wake
    }

    /// Its key does not stand. What may come yet, comes on a lease that is not used any more.
    fn gone(&mut self) {
        self.place = None;
        self.watching = None;
        self.latest = None;
        if !self.doubtful {
            self.members.clear();
        }
    }

    fn holder(&self, first: Option<&KeyValue>) -> Option<Holder> {
        first.map(|first| inspect::holder(&self.asks.keys, first))
    }

    async fn wait_in_line(&mut self, stage: Stage, until: Instant) -> Result<Attempt> {
        loop {
            // A ring between the question and the wait is not lost.
            let rung = self.watching.as_ref().map(Watching::listen);
            let seen = match (self.place, self.latest.take()) {
                (Some(_), Some((seen, at))) if at.elapsed() < JUST_NOW => seen,
                (Some(place), _) => {
                    let answered = self.txn(self.asks.look(place.created), left(until)).await?;
                    self.asks.looked(&answered.value, place.created)?
                }
                (None, _) => match self.come_in_line(stage, until).await? {
                    Some(seen) if seen.own.is_none() && self.other_family(&seen).is_none() => {
                        // What keeps it out stands behind the first.
                        self.gone();
                        if let Mode::Permit { .. } = self.claim.mode {
                            return Err(self.behind_permits());
                        }
                        return Ok(busy(Wake::never(), self.holder(seen.first.as_ref())));
                    }
                    Some(seen) => seen,
                    None => continue,
                },
            };
            if seen.own.is_none()
                && let Some(other) = self.other_family(&seen)
            {
                self.gone();
                return Err(Error::other_family(&self.claim.key, other, self.claim.mode));
            }
            if stage == Stage::First && matches!(seen.ahead, Ahead::Taken(_)) {
                // Whoever waits asks once more, at once; the wake-up is for then.
                let holder = self.holder(seen.first.as_ref());
                self.place = seen.own;
                self.latest = Some((seen, Instant::now()));
                return Ok(busy(Wake::never(), holder));
            }
            if let Some(answer) = self.conclude(seen, rung, until).await? {
                return Ok(answer);
            }
        }
    }

    /// Comes in at once if it can: that is the lesser question. Else it gets in line.
    async fn come_in_line(&mut self, stage: Stage, until: Instant) -> Result<Option<Seen>> {
        let lean = stage == Stage::First && !matches!(self.asks.mode(), Mode::Permit { .. });
        if lean {
            match self.enter(Stage::Try, until).await? {
                Some(seen) if seen.own.is_some() || self.other_family(&seen).is_some() => {
                    return Ok(Some(seen));
                }
                Some(_) => self.gone(),
                None => return Ok(None),
            }
        }
        self.enter(Stage::Wait, until).await
    }

    /// Leaves nothing when busy.
    async fn come_in(&mut self, until: Instant) -> Result<Attempt> {
        loop {
            let seen = match self.place {
                Some(place) => {
                    let answered = self.txn(self.asks.look(place.created), left(until)).await?;
                    self.asks.looked(&answered.value, place.created)?
                }
                None => match self.enter(Stage::Try, until).await? {
                    Some(seen) => seen,
                    None => continue,
                },
            };
            let Some(place) = seen.own else {
                let other = self.other_family(&seen);
                if self.doubtful {
                    // What comes later finds no lease then.
                    self.remove(left(until)).await?;
                }
                self.gone();
                return match (other, self.holder(seen.first.as_ref())) {
                    (Some(other), _) => {
                        Err(Error::other_family(&self.claim.key, other, self.claim.mode))
                    }
                    (None, Some(holder)) => Ok(busy(Wake::never(), Some(holder))),
                    // The key was taken out; that may be done twice, and must not hit a new one.
                    (None, None) if self.doubtful => Ok(busy(Wake::never(), None)),
                    // It went between two requests.
                    (None, None) => continue,
                };
            };
            self.place = Some(place);
            match seen.ahead {
                Ahead::Free => {
                    if let Some(answer) = self.conclude(seen, None, until).await? {
                        return Ok(answer);
                    }
                }
                // An earlier request that was not answered has come in behind somebody.
                Ahead::Taken(_) => {
                    self.remove(left(until)).await?;
                    return Ok(busy(Wake::never(), self.holder(seen.first.as_ref())));
                }
                Ahead::Unknown => {}
            }
        }
    }

    /// Takes its key out.
    async fn remove(&mut self, budget: Duration) -> Result<Released> {
        let deleted = self.client.delete(&self.asks.own, budget).await?;
        self.place = None;
        self.watching = None;
        self.latest = None;
        self.members.clear();
        Ok(if deleted { Released::Freed } else { Released::NotFound })
    }

    /// Has the lease extended, and looks whether the key stands.
    async fn prove(&mut self, until: Instant) -> Result<Option<Lease>> {
        let Some(place) = self.place else { return Ok(None) };
        let since = BootInstant::now();
        let now_on = self.lease(place.lease).map(Arc::clone);
        let extend = async {
            if let Some(lease) = now_on.filter(|lease| !lease.is_suspect()) {
                // Whether it was is asked below.
                let _ = lease.extend(since, left(until)).await;
            }
        };
        let (standing, ()) =
            tokio::join!(self.client.standing(&self.asks.own, left(until)), extend);
        let Some(standing) = standing?.filter(|now| now.created == place.created) else {
            self.gone();
            return Ok(None);
        };
        let Some(lease) = self.settle(standing, until).await? else { return Ok(None) };
        lease.extend(since, left(until)).await?;
        Ok(Some(lease.terms()))
    }
}

#[async_trait]
impl Contender for EtcdContender {
    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt> {
        self.look_back();
        let until = Instant::now() + budget;
        match stage {
            Stage::Try => self.come_in(until).await,
            Stage::First | Stage::Wait => self.wait_in_line(stage, until).await,
        }
    }

    async fn renew(&mut self, budget: Duration) -> Result<Renewal> {
        self.look_back();
        let proof = self.prove(Instant::now() + budget).await?;
        Ok(proof.map_or(Renewal::Gone, Renewal::Extended))
    }

    async fn release(&mut self, budget: Duration) -> Result<Released> {
        self.look_back();
        if self.place.is_none() && self.members.is_empty() && !self.doubtful {
            // Nothing was ever asked for, or what was is gone.
            return Ok(Released::NotFound);
        }
        self.remove(budget).await
    }

    async fn linger(&mut self, rest: Duration, budget: Duration) -> Result<Option<Released>> {
        self.look_back();
        let until = Instant::now() + budget;
        let Some(place) = self.place else { return Ok(Some(Released::NotFound)) };
        // A lease of its own, which nobody extends.
        let lease = self.client.leases.lone(rest, left(until)).await?;
        let mut place = place;
        let moved = loop {
            let moved = self.txn(self.asks.relocate(place, lease), left(until)).await?;
            match self.asks.relocated(&moved.value, place, lease)? {
                // An earlier move has landed meanwhile.
                Some(now) if now.lease != lease => {
                    place = now;
                    self.place = Some(now);
                }
                moved => break moved.is_some(),
            }
        };
        self.place = None;
        self.members.clear();
        Ok(Some(if moved { Released::Freed } else { Released::NotFound }))
    }
}

impl Drop for EtcdContender {
    fn drop(&mut self) {
        self.look_back();
        // What is there was never taken out: nobody else may extend the lease that it is on.
        for member in &self.members {
            member.lease().abandon();
        }
    }
}

fn busy(wake: Wake, holder: Option<Holder>) -> Attempt {
    Attempt::Busy { wake, holder, free_in: None }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
