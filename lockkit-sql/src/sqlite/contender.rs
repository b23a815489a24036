//! One claim in the table, from first attempt to release.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lockkit_core::{
    Attempt, BootInstant, Claim, Contender, Lease, Mode, Released, Renewal, Result, Stage, Wake,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::boot::Moment;
use super::errors::{self, Kind};
use super::file::FileId;
use super::intent::Intent;
use super::lane::{Bound, Turn};
use super::seen::Seen;
use super::statements::Statement;
use super::store::Store;
use super::table;

/// How often one attempt asks again when the key was busy, but free by the time of the look.
const ROUNDS: u32 = 3;

#[derive(Debug)]
pub(super) struct SqliteContender {
    store: Arc<Store>,
    claim: Claim,
    intent: Intent,
    /// Whether the claim may have a row: it was granted, or the outcome of a request was never
    /// told.
    may_stand: bool,
    /// The file that the claim was granted in.
    file: Option<FileId>,
}

struct Grant {
    fence: i64,
    lease: Lease,
}

impl SqliteContender {
    pub(super) fn new(store: Arc<Store>, claim: Claim) -> Self {
        Self { store, claim, intent: Intent::default(), may_stand: false, file: None }
    }

    /// A statement about this claim: `?1` is the key, `?2` the token.
    fn query(&self, statement: &Statement) -> Bound {
        sqlx::query(statement.sql())
            .bind(self.claim.key.as_str().as_bytes())
            .bind(self.claim.token.as_bytes().as_slice())
    }

    /// A statement that moves an end: `?3` is the run, `?4` the time, `?5` the end.
    fn query_until(&self, statement: &Statement, now: Moment, end: Duration) -> Bound {
        let boot = &self.store.place.boot.id[..];
        self.query(statement).bind(boot).bind(now.stamp).bind(now.after(end))
    }

    fn lease(&self, now: Moment) -> Lease {
        Lease::new(now.sent, self.claim.ttl)
    }

    /// Asks for the key. `None` if it is busy.
    async fn ask(&mut self, mode: i64, budget: Duration) -> Result<Option<Grant>> {
        let store = Arc::clone(&self.store);
        let mut turn = store.writer.enter(&store.place, budget).await?;
        loop {
            match self.ask_once(mode, &mut turn).await {
                // The file was deleted or replaced: a claim in the old one stands against nobody.
                Ok(_) if !turn.is_current() => turn.refresh().await?,
                Ok(grant) => {
                    self.file = turn.file();
                    return Ok(grant);
                }
                Err(error) => turn.again(error).await?,
            }
        }
    }

    async fn ask_once(
        &mut self,
        mode: i64,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Grant>, sqlx::Error> {
        if self.may_stand
            && let Some(grant) = self.find_own(turn).await?
        {
            return Ok(Some(grant));
        }
        let place = &self.store.place;
        let now = place.boot.moment();
        let query = self
            .query(place.statements.acquire(self.claim.mode))
            .bind(mode)
            .bind(self.claim.label.as_deref())
            .bind(&place.boot.id[..])
            .bind(now.stamp)
            .bind(now.after(self.claim.ttl));
        self.may_stand = true;
        let result = turn.execute(query).await;
        self.may_stand = match &result {
            Ok(done) => done.rows_affected() == 1,
            // A busy database has done nothing.
            Err(error) => errors::kind(error) != Kind::Busy,
        };
        let fence = result?.last_insert_rowid();
        Ok(self.may_stand.then(|| Grant { fence, lease: self.lease(now) }))
    }

    /// An earlier request may have been granted without an answer: then it is armed anew.
    async fn find_own(&self, turn: &mut Turn<'_>) -> Result<Option<Grant>, sqlx::Error> {
        let now = self.store.place.boot.moment();
        let query = self.query_until(&self.store.place.statements.rearm, now, self.claim.ttl);
        let rows = turn.rows(query).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Grant { fence: row.try_get(0)?, lease: self.lease(now) }))
    }

    async fn busy(&mut self, stage: Stage, seen: &Seen, wake: Wake, left: Duration) -> Attempt {
        if stage != Stage::Try && self.claim.mode == Mode::Exclusive && seen.is_read() {
            // Only a courtesy: without it the writer waits longer.
            let _ = self.announce(left).await;
        }
        Attempt::Busy { wake, holder: seen.holder(), free_in: seen.free_in(self.claim.mode) }
    }

    /// Tells new readers that a writer waits.
    async fn announce(&mut self, budget: Duration) -> Result<()> {
        if self.intent.is_fresh(BootInstant::now()) {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        let mut turn = store.writer.enter(&store.place, budget).await?;
        let mut statement = &store.place.statements.intend;
        if self.intent.may_be_there() {
            statement = &store.place.statements.intend_on;
        }
        self.intent.sent();
        loop {
            let now = store.place.boot.moment();
            match turn.execute(self.query_until(statement, now, Intent::STANDS)).await {
                Ok(done) if done.rows_affected() == 0 => {
                    statement = &store.place.statements.intend;
                }
                Ok(_) => {
                    self.intent.stands_from(now.sent);
                    return Ok(());
                }
                Err(error) => turn.again(error).await?,
            }
        }
    }
}

#[async_trait]
impl Contender for SqliteContender {
    /// What is sent on a lane runs in order, so a release comes after whatever was given up before
    /// it. Only a connection that is replaced may have a last statement under way: it waits for
    /// the file for a few milliseconds at most.
    fn late_effects(&self) -> Duration {
        Duration::from_millis(100)
    }

    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt> {
        let mode = table::number(self.claim.mode)?;
        let deadline = Instant::now() + budget;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut wake = None;
        let mut rounds = 0;
        // A waiter takes the write lock only when the key looks free. It cannot tell its own
        // claim from another's by looking, so a claim that may stand asks.
        let mut look_first = stage == Stage::Wait && !self.may_stand;
        loop {
            if !look_first && let Some(grant) = self.ask(mode, left()).await? {
                let fence = u64::try_from(grant.fence).ok();
                return Ok(Attempt::Granted { fence, lease: grant.lease });
            }
            if stage != Stage::Try && wake.is_none() {
                wake = Some(self.store.listen());
            }
            let seen = self.store.look(&self.claim.key, left()).await?;
            rounds += 1;
            if seen.blocks(&self.claim.key, self.claim.mode)? || rounds > ROUNDS {
                let wake = wake.unwrap_or_else(Wake::never);
                return Ok(self.busy(stage, &seen, wake, left()).await);
            }
            look_first = false;
        }
    }

    async fn renew(&mut self, budget: Duration) -> Result<Renewal> {
        let store = Arc::clone(&self.store);
        if self.file != FileId::of(&store.place.path) {
            return Ok(Renewal::Gone);
        }
        let mut turn = store.renewer.enter(&store.place, budget).await?;
        turn.refresh().await?;
        loop {
            let now = store.place.boot.moment();
            let query = self.query_until(&store.place.statements.renew, now, self.claim.ttl);
            match turn.execute(query).await {
                Ok(done) if done.rows_affected() == 0 => return Ok(Renewal::Gone),
                // Deleted in between: whoever comes next does not see this file.
                Ok(_) if self.file != FileId::of(&store.place.path) => return Ok(Renewal::Gone),
                Ok(_) => return Ok(Renewal::Extended(self.lease(now))),
                Err(error) => turn.again(error).await?,
            }
        }
    }

    async fn release(&mut self, budget: Duration) -> Result<Released> {
        let store = Arc::clone(&self.store);
        // A waiter that was only ever told that the key is busy has nothing to take out.
        if !self.may_stand && !self.intent.may_be_there() {
            return Ok(Released::NotFound);
        }
        let mut turn = store.writer.enter(&store.place, budget).await?;
        let statements = &store.place.statements;
        let claims = loop {
            let claims = if self.intent.may_be_there() {
                let rows = turn.rows(self.query(&statements.release_all)).await;
                rows.and_then(|rows| count_claims(&rows))
            } else {
                turn.execute(self.query(&statements.release)).await.map(|done| done.rows_affected())
            };
            match claims {
                Ok(claims) => break claims,
                Err(error) => turn.again(error).await?,
            }
        };
        store.sweep(&mut turn).await;
        Ok(if claims > 0 { Released::Freed } else { Released::NotFound })
    }

    async fn linger(&mut self, rest: Duration, budget: Duration) -> Result<Option<Released>> {
        let store = Arc::clone(&self.store);
        if FileId::of(&store.place.path).is_none() {
            return Ok(Some(Released::NotFound));
        }
        if self.intent.may_be_there() {
            let mut turn = store.writer.enter(&store.place, budget).await?;
            // It goes away by itself soon.
            let _ = turn.execute(self.query(&store.place.statements.intend_no_more)).await;
        }
        // On this lane, behind whatever renewal may still be on its way.
        let mut turn = store.renewer.enter(&store.place, budget).await?;
        loop {
            let now = store.place.boot.moment();
            let query = self.query_until(&store.place.statements.linger, now, rest);
            match turn.execute(query).await {
                Ok(done) if done.rows_affected() == 0 => return Ok(Some(Released::NotFound)),
                Ok(_) => return Ok(Some(Released::Freed)),
                Err(error) => turn.again(error).await?,
            }
        }
    }
}

/// How many claims there are in the rows of the statement `release_all`.
fn count_claims(rows: &[SqliteRow]) -> Result<u64, sqlx::Error> {
    let mut claims = 0;
    for row in rows {
        claims += u64::from(row.try_get::<i64, _>(0)? != table::INTENT);
    }
    Ok(claims)
}
