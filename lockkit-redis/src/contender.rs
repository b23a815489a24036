//! One claim on one server (or on the server of its slot).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{
    Attempt, BootInstant, Claim, Contender, Error, Lease, Released, Renewal, Result, Stage, Wake,
};
use redis::Value;
use tokio::runtime::Handle;

use crate::answer::{self, Answer};
use crate::client::Client;
use crate::errors::{Answered, Failed};
use crate::keys::Keys;
use crate::notes::Note;
use crate::request::Request;
use crate::scripts::{self, Script};
use crate::signal::Listening;
use crate::store::For;
use crate::value::{self, millis};

/// One claim on one server.
#[derive(Debug)]
pub(crate) struct RedisContender {
    client: Arc<Client>,
    claim: Claim,
    keys: Keys,
    /// The caller's runtime, whose connection the first attempt and the release go over.
    home: Option<Handle>,
    listening: Option<Listening>,
    fence: Option<u64>,
    /// Whether the store may hold more of this claim than its key: a place, an intent, or what a
    /// request without an answer did.
    untidy: bool,
    /// Whether a request to undo a claim that too few replicas had may take effect at any time.
    spoilt: bool,
    /// Whether it was asked for before.
    asked: bool,
    /// How many replicas have confirmed the last attempt.
    replicas: u32,
}

impl RedisContender {
    pub(crate) fn new(client: Arc<Client>, claim: Claim) -> Self {
        let keys = client.keys(&claim.key);
        Self {
            client,
            keys,
            claim,
            home: Handle::try_current().ok(),
            listening: None,
            fence: None,
            untidy: false,
            spoilt: false,
            asked: false,
            replicas: 0,
        }
    }

    /// Sends a request; one without an answer makes the claim untidy.
    async fn send(
        &mut self,
        who: Sender,
        request: &Request,
        budget: Duration,
    ) -> Result<Answered, Failed> {
        let who = match who {
            Sender::Caller => For::Caller(self.home.as_ref()),
            Sender::Watchdog => For::Renewal,
            Sender::Background => For::Background,
        };
        let result = self.client.store.exchange(self.keys.slot(), who, request, budget).await;
        self.untidy |= match &result {
            Ok(answered) => answered.sent_twice,
            Err(failed) => failed.may_have_effect,
        };
        result
    }

    async fn run(
        &mut self,
        who: Sender,
        script: &'static Script,
        args: Vec<Vec<u8>>,
        budget: Duration,
    ) -> Result<Value> {
        let request = Request::Script { script, keys: self.keys.all().to_vec(), args };
        Ok(self.send(who, &request, budget).await?.first())
    }

    /// Renews a claim that lies in one key by naming that key only, where that can matter; `None`
    /// if the server does not do it. Of a slot that is on the move, servers serve requests for
    /// several keys only if all of them are there, and most of a lock's keys never are.
    async fn renew_on_the_move(
        &mut self,
        args: &[Vec<u8>],
        budget: Duration,
    ) -> Result<Option<Value>> {
        if !self.client.store.fleet.has_slots() || self.claim.mode != lockkit_core::Mode::Exclusive
        {
            return Ok(None);
        }
        let (script, keys) = (&*scripts::RENEW, vec![self.keys.base().to_vec()]);
        let request = Request::Script { script, keys, args: args.to_vec() };
        match self.send(Sender::Watchdog, &request, budget).await {
            Ok(answered) => Ok(answered.values.into_iter().next()),
            // Perhaps others are in by now, who take several keys.
            Err(failed) if !failed.may_have_effect => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    fn token(&self) -> Vec<u8> {
        self.claim.token.to_string().into_bytes()
    }

    fn ttl(&self) -> Vec<u8> {
        millis(self.claim.ttl).to_string().into_bytes()
    }

    /// Two or three bare commands in one go. `None`: only a script can tell.
    async fn attempt_bare(&mut self, stage: Stage, budget: Duration) -> Result<Option<Attempt>> {
        let fences = self.client.options.fences;
        let request = Request::Set {
            base: Arc::clone(self.keys.base()),
            value: value::first(&self.claim),
            ttl: self.claim.ttl,
            fence: fences,
            look: stage == Stage::Try,
        };
        let sent = BootInstant::now();
        let request = self.replicated(request, budget);
        let Answered { values, sent_twice } = self.send(Sender::Caller, &request, budget).await?;
        self.count_replicas(&values);
        if sent_twice && !matches!(values.first(), Some(Value::Okay)) {
            // It may be this very claim that is there.
            return Ok(None);
        }
        if matches!(values.first(), Some(Value::Okay)) {
            let fence = values.get(1).filter(|_| fences).map(answer::time).transpose()?;
            return Ok(Some(self.granted(fence, sent)));
        }
        let holder = match values.get(1 + usize::from(fences)) {
            // It will wait, and then a script looks.
            None => None,
            // Released since.
            Some(Value::Nil) => None,
            Some(Value::BulkString(seen)) if value::token(seen) != Some(self.claim.token) => {
                Some(value::holder(seen))
            }
            Some(_) => return Ok(None),
        };
        Ok(Some(Attempt::Busy { wake: Wake::never(), holder, free_in: None }))
    }

    async fn attempt_by_script(
        &mut self,
        stage: Stage,
        wake: Wake,
        budget: Duration,
    ) -> Result<Attempt> {
        let options = &self.client.options;
        let (fair, fences) = (options.fair, options.fences);
        // In a queue the place is taken at once; the wake-up is prepared behind that.
        let stays = stage == Stage::Wait || (fair && stage == Stage::First);
        let layout = match options.layout {
            crate::Layout::Hash => "hash",
            crate::Layout::String => "string",
        };
        let owner = self.claim.owner.as_ref().map(|owner| owner.as_str().as_bytes().to_vec());
        let args = vec![
            self.keys.channel(),
            self.token(),
            answer::mode_word(self.claim.mode).into_bytes(),
            self.ttl(),
            if stays { "wait" } else { "try" }.into(),
            if fair { "1" } else { "0" }.into(),
            layout.into(),
            owner.unwrap_or_default(),
            self.claim.label.as_deref().unwrap_or_default().as_bytes().to_vec(),
            self.client.redisson_channel(&self.keys),
        ];
        let who = if stage == Stage::Wait { Sender::Background } else { Sender::Caller };
        // A place or an intent may be there from now on.
        self.untidy |= stays;
        let keys = self.keys.all().to_vec();
        let request = Request::Script { script: &scripts::ASK, keys, args };
        let request = self.replicated(request, budget);
        let sent = BootInstant::now();
        let values = self.send(who, &request, budget).await?.values;
        self.count_replicas(&values);
        let answer = values.into_iter().next().unwrap_or(Value::Nil);
        match answer::attempt(&self.claim.key, self.claim.mode, &answer)? {
            Answer::Granted { fence } => Ok(self.granted(Some(fence).filter(|_| fences), sent)),
            Answer::Busy { holder, mut free_in } => {
                if fair {
                    // Each question keeps its place for as long again.
                    let often = value::place_stands(self.claim.ttl) / 3;
                    free_in = Some(free_in.map_or(often, |free_in| free_in.min(often)));
                }
                Ok(Attempt::Busy { wake, holder, free_in })
            }
        }
    }

    /// The release of a plain claim that left nothing else, with as little work as can be.
    fn lean_release(&self) -> Request {
        Request::Free {
            base: Arc::clone(self.keys.base()),
            token: self.claim.token,
            channel: self.keys.channel(),
        }
    }

    fn full_release(&self) -> Request {
        let fair = if self.client.options.fair { "1" } else { "0" };
        let redisson = self.client.redisson_channel(&self.keys);
        let mode = answer::mode_word(self.claim.mode).into_bytes();
        let args = vec![self.keys.channel(), self.token(), fair.into(), redisson, mode];
        Request::Script { script: &scripts::WITHDRAW, keys: self.keys.all().to_vec(), args }
    }

    /// Has replicas confirm what `request` writes, if that is wanted.
    fn replicated(&self, request: Request, budget: Duration) -> Request {
        let options = &self.client.options;
        if options.wait_replicas == 0 {
            return request;
        }
        // Some time is left for undoing it.
        let timeout = options.wait_timeout.min(budget * 3 / 4);
        let (request, replicas) = (Box::new(request), options.wait_replicas);
        Request::Replicated { request, replicas, timeout }
    }

    fn count_replicas(&mut self, answers: &[Value]) {
        if self.client.options.wait_replicas > 0 {
            let count = answer::number(answers.last()).ok();
            self.replicas = count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        }
    }

    /// Undoes a claim that too few replicas have.
    async fn require_replicas(&mut self, answer: Attempt, budget: Duration) -> Result<Attempt> {
        let (has, wanted) = (self.replicas, self.client.options.wait_replicas);
        if has >= wanted || !matches!(answer, Attempt::Granted { .. }) {
            return Ok(answer);
        }
        self.untidy = true;
        // The engine looks again after an attempt that failed. (Boxed by `async_trait`.)
        self.spoilt = true;
        let undone = self.release(budget).await;
        // Not reached where the engine gives up first.
        self.spoilt = undone.is_err();
        let how = if undone.is_ok() { "was" } else { "is being" };
        Err(Error::unavailable(format!(
            "the claim reached {has} of the {wanted} replicas that `wait_replicas` demands in \
             time, and {how} undone"
        )))
    }

    /// Nothing is asked for by a token that is being undone at a time that nobody knows: the late
    /// undo would take what was granted since. The wait ends with an error, and the engine's
    /// clean-up behind it.
    async fn refuse_if_spoilt(&mut self, budget: Duration) -> Result<()> {
        if !self.spoilt {
            return Ok(());
        }
        // The sooner it is gone, the sooner others can have the key.
        let _ = self.release(budget).await;
        Err(Error::unavailable(
            "the claim reached too few of the replicas that `wait_replicas` demands, and the \
             request to undo it was not answered; ask anew",
        ))
    }

    fn granted(&mut self, fence: Option<u64>, sent: BootInstant) -> Attempt {
        self.listening = None;
        self.fence = fence;
        if let Some(fence) = fence {
            self.note(fence, sent);
        }
        Attempt::Granted { fence, lease: Lease::new(sent, self.claim.ttl) }
    }

    /// Has the fence written into a plain claim, and looks at the server's clock.
    fn note(&self, fence: u64, sent: BootInstant) {
        if !self.client.is_plain(&self.claim) {
            return;
        }
        let now = BootInstant::now();
        let note = Note {
            granted: now,
            slot: self.keys.slot(),
            base: Arc::clone(self.keys.base()),
            fence,
        };
        self.client.store.notes.add(&self.client.store, self.claim.token, note);
        self.client.watch_clock(fence, sent, now);
    }

    /// Listens for wake-ups, from now until the claim is granted or over.
    async fn listen(&mut self, patience: Duration) -> Wake {
        let (client, keys, token) = (&self.client, &self.keys, self.claim.token);
        let listening =
            self.listening.get_or_insert_with(|| client.signal.listen(keys.channel(), token));
        listening.ready(patience).await
    }
}

/// Who sends a request.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Caller,
    Watchdog,
    Background,
}

#[async_trait]
impl Contender for RedisContender {
    async fn attempt(&mut self, stage: Stage, budget: Duration) -> Result<Attempt> {
        let start = BootInstant::now();
        self.refuse_if_spoilt(budget).await?;
        let wake = if stage == Stage::Wait { self.listen(budget / 2).await } else { Wake::never() };
        // Only a script recognizes what an earlier request has done already.
        let first = stage != Stage::Wait && !self.untidy && !self.asked;
        let bare = first && self.client.is_plain(&self.claim);
        self.asked = true;
        if bare && let Some(answer) = self.attempt_bare(stage, budget).await? {
            return self.require_replicas(answer, budget).await;
        }
        let rest = budget.saturating_sub(BootInstant::now().since(start)).max(LEAST);
        let answer = Box::pin(self.attempt_by_script(stage, wake, rest)).await?;
        self.require_replicas(answer, rest).await
    }

    async fn renew(&mut self, budget: Duration) -> Result<Renewal> {
        let fence = self.fence.map(|fence| fence.to_string()).unwrap_or_default();
        let args = vec![self.token(), self.ttl(), fence.into_bytes()];
        let sent = BootInstant::now();
        let answer = match self.renew_on_the_move(&args, budget).await? {
            Some(answer) => answer,
            None => self.run(Sender::Watchdog, &scripts::RENEW, args, budget).await?,
        };
        Ok(if answer::done(&answer)? {
            Renewal::Extended(Lease::new(sent, self.claim.ttl))
        } else {
            Renewal::Gone
        })
    }

    async fn release(&mut self, budget: Duration) -> Result<Released> {
        self.client.store.notes.remove(self.claim.token);
        self.listening = None;
        let request = if !self.untidy && self.client.is_plain(&self.claim) {
            self.lean_release()
        } else {
            self.full_release()
        };
        let answered = self.send(Sender::Caller, &request, budget).await?;
        let sent_twice = answered.sent_twice;
        match answer::done(&answered.first())? {
            true => Ok(Released::Freed),
            // It may have freed the claim the first time.
            false if sent_twice => Err(Error::unavailable(
                "the connection broke while the claim was released; it is free now, but may have \
                 been lost before",
            )),
            false => Ok(Released::NotFound),
        }
    }

    async fn linger(&mut self, rest: Duration, budget: Duration) -> Result<Option<Released>> {
        self.client.store.notes.remove(self.claim.token);
        let args = vec![self.token(), millis(rest).to_string().into_bytes()];
        let answer = self.run(Sender::Caller, &scripts::LINGER, args, budget).await?;
        Ok(Some(if answer::done(&answer)? { Released::Freed } else { Released::NotFound }))
    }
}

/// What an exchange is given at least: with less, it could only be sent in vain.
const LEAST: Duration = Duration::from_millis(1);
