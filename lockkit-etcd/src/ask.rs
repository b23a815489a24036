//! The transactions of a claim, and what their answers say.

use std::num::NonZeroU32;
use std::ops::Range;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, ResponseHeader, SortOrder,
    SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use lockkit_core::{Claim, Mode};

use crate::errors::Problem;
use crate::keys::Keys;
use crate::signal::Target;

/// The transactions of one claim.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub(crate) keys: Keys,
    mode: Mode,
    /// Its own key.
    pub(crate) own: Vec<u8>,
    value: Vec<u8>,
}

/// Where the claim's own key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its create revision.
    pub(crate) created: i64,
    /// The lease that it is on.
    pub(crate) lease: i64,
}

/// What stands before a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// Nothing that keeps it from the key.
    Free,
    /// It has to wait for that.
    Taken(Target),
    /// Not told by this answer.
    Unknown,
}

/// What an answer says.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The revision of the store that it is about.
    pub(crate) revision: i64,
    /// The claim's own key, if it stands.
    pub(crate) own: Option<Place>,
    pub(crate) ahead: Ahead,
    /// The oldest key of the lock, if there is one and the answer tells it.
    pub(crate) first: Option<KeyValue>,
}

/// Of those that are ahead of a permit, so many more than the limit are told.
const MORE: i64 = 512;

impl Asks {
    pub(crate) fn new(keys: Keys, claim: &Claim, value: Vec<u8>) -> Self {
        let own = keys.claim(claim.mode, claim.token);
        Self { keys, mode: claim.mode, own, value }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Gets in line, and asks what is ahead: in one step, with the least that the answer must hold.
    /// An own key that stands already is told, and left as it is.
    pub(crate) fn enter(&self, lease: i64) -> Txn {
        let mut queue = vec![self.put(lease), self.first()];
        queue.extend(self.latest());
        Txn::new().when(self.may_queue()).and_then(queue).or_else([self.first(), self.standing()])
    }

    /// Comes in if nothing keeps it from the key; leaves nothing otherwise. Every byte of this is
    /// written to the disk of every member, so it asks for nothing that is not needed. `again`:
    /// the own key may stand already. `as_of` is for permits: no key came in since that revision.
    pub(crate) fn enter_if_free(&self, lease: i64, again: bool, as_of: Option<i64>) -> Txn {
        let mut free = match self.mode {
            Mode::Exclusive => vec![empty(self.keys.all())],
            Mode::Shared => self.keys.writers().into_iter().map(empty).collect(),
            Mode::Permit { .. } => {
                self.keys.other_families(self.mode).into_iter().map(empty).collect()
            }
            // A mode that this version does not know is never free.
            _ => vec![Compare::version(self.own.clone(), CompareOp::Less, 0)],
        };
        if let Some(revision) = as_of {
            let all = self.keys.all();
            let unchanged = Compare::mod_revision(all.start, CompareOp::Less, revision + 1);
            free.push(unchanged.with_range(all.end));
        }
        let mut busy = vec![self.first()];
        // A reader's own key does not keep it from the key; what is sent twice may have come in.
        if again || self.mode == Mode::Shared {
            free.push(absent(&self.own));
            busy.push(self.standing());
        }
        Txn::new().when(free).and_then([self.put(lease)]).or_else(busy)
    }

    /// Looks where the claim stands, and what is ahead of it now.
    pub(crate) fn look(&self, created: i64) -> Txn {
        let mut ops = vec![self.first(), self.standing()];
        ops.extend(self.older(created));
        Txn::new()
            .when([Compare::create_revision(self.own.clone(), CompareOp::Equal, created)])
            .and_then(ops)
            .or_else([self.first(), self.standing()])
    }

    /// Looks how many claims there are, for a permit that will not wait.
    pub(crate) fn count(&self) -> Txn {
        let all = self.keys.all();
        let count = GetOptions::new().with_range(all.end).with_count_only();
        let ops = [self.first(), self.standing(), TxnOp::get(all.start, Some(count))];
        let others = self.keys.other_families(self.mode).into_iter().map(empty);
        Txn::new().when(others.collect::<Vec<_>>()).and_then(ops.clone()).or_else(ops)
    }

    /// Puts the claim on another lease. Its create revision, and so its place, stays. Never makes
    /// one, and never takes it back: what lands late finds it on another lease than it was on.
    pub(crate) fn relocate(&self, place: Place, lease: i64) -> Txn {
        let put = PutOptions::new().with_lease(lease).with_ignore_value();
        let key = || self.own.clone();
        Txn::new()
            .when([
                Compare::create_revision(key(), CompareOp::Equal, place.created),
                Compare::lease(key(), CompareOp::Equal, place.lease),
            ])
            .and_then([TxnOp::put(key(), Vec::new(), Some(put))])
            .or_else([self.standing()])
    }

    /// Reads the answer to [`relocate`](Self::relocate): where the claim is now, if it stands.
    pub(crate) fn relocated(
        &self,
        answer: &TxnResponse,
        place: Place,
        lease: i64,
    ) -> Result<Option<Place>, Problem> {
        if answer.succeeded() {
            return Ok(Some(Place { lease, ..place }));
        }
        match &answer.op_responses()[..] {
            [TxnOpResponse::Get(own)] => Ok(own
                .kvs()
                .first()
                .filter(|kv| kv.create_revision() == place.created)
                .map(|kv| Place { lease: kv.lease(), ..place })),
            _ => Err(Problem::malformed("a part")),
        }
    }

    fn put(&self, lease: i64) -> TxnOp {
        let options = PutOptions::new().with_lease(lease);
        TxnOp::put(self.own.clone(), self.value.clone(), Some(options))
    }

    fn standing(&self) -> TxnOp {
        TxnOp::get(self.own.clone(), Some(GetOptions::new().with_keys_only()))
    }

    fn first(&self) -> TxnOp {
        let all = self.keys.all();
        let options = by_age(SortOrder::Ascend).with_range(all.end).with_limit(1);
        TxnOp::get(all.start, Some(options))
    }

    /// Whether the claim is new, and of the family of those that are there.
    fn may_queue(&self) -> Vec<Compare> {
        let others = self.keys.other_families(self.mode).into_iter().map(empty);
        std::iter::once(absent(&self.own)).chain(others).collect()
    }

    /// What is ahead of a claim that has just come in: the youngest but for itself.
    fn latest(&self) -> Vec<TxnOp> {
        match self.mode {
            Mode::Permit { limit } => {
                vec![ahead(self.keys.all(), SortOrder::Ascend, told(limit), None)]
            }
            Mode::Shared => self.writers(None),
            _ => vec![ahead(self.keys.all(), SortOrder::Descend, 2, None)],
        }
    }

    /// What is ahead of a claim of that age.
    fn older(&self, created: i64) -> Vec<TxnOp> {
        let than = Some(created - 1);
        match self.mode {
            Mode::Permit { limit } => {
                vec![ahead(self.keys.all(), SortOrder::Ascend, told(limit), than)]
            }
            Mode::Shared => self.writers(than),
            _ => vec![ahead(self.keys.all(), SortOrder::Descend, 1, than)],
        }
    }

    fn writers(&self, than: Option<i64>) -> Vec<TxnOp> {
        let ranges = self.keys.writers().into_iter();
        ranges.map(|range| ahead(range, SortOrder::Descend, 1, than)).collect()
    }

    /// Reads the answer to [`enter`](Self::enter) or [`enter_if_free`](Self::enter_if_free).
    pub(crate) fn entered(&self, answer: &TxnResponse, lease: i64) -> Result<Seen, Problem> {
        let revision = revision(answer)?;
        let parts = answer.op_responses();
        if !answer.succeeded() {
            return self.found(revision, &parts, None);
        }
        let own = Place { created: revision, lease };
        let (first, ahead) = match &parts[..] {
            [_, TxnOpResponse::Get(first), rest @ ..] => {
                (first.kvs().first().cloned(), self.judge(rest, own.created))
            }
            // It was asked for nothing that could be ahead.
            _ => (None, Ahead::Free),
        };
        Ok(Seen { revision, own: Some(own), ahead, first })
    }

    /// Reads the answer to [`look`](Self::look).
    pub(crate) fn looked(&self, answer: &TxnResponse, created: i64) -> Result<Seen, Problem> {
        let created = answer.succeeded().then_some(created);
        self.found(revision(answer)?, &answer.op_responses(), created)
    }

    /// Reads the answer to [`count`](Self::count): what is there, and how many; so many as no limit
    /// allows if one of them is of another family.
    pub(crate) fn counted(&self, answer: &TxnResponse) -> Result<(Seen, i64), Problem> {
        let parts = answer.op_responses();
        let seen = self.found(revision(answer)?, &parts, None)?;
        match &parts[..] {
            [.., TxnOpResponse::Get(_)] if !answer.succeeded() => Ok((seen, i64::MAX)),
            [.., TxnOpResponse::Get(count)] => Ok((seen, count.count())),
            _ => Err(Problem::malformed("a part")),
        }
    }

    fn found(
        &self,
        revision: i64,
        parts: &[TxnOpResponse],
        created: Option<i64>,
    ) -> Result<Seen, Problem> {
        let [TxnOpResponse::Get(first), rest @ ..] = parts else {
            return Err(Problem::malformed("a part"));
        };
        let (own, rest) = match rest {
            [TxnOpResponse::Get(own), rest @ ..] => (own.kvs().first(), rest),
            // It cannot stand.
            _ => (None, rest),
        };
        let own = own.map(|kv| Place { created: kv.create_revision(), lease: kv.lease() });
        let ahead = created.map_or(Ahead::Unknown, |created| self.judge(rest, created));
        Ok(Seen { revision, own, ahead, first: first.kvs().first().cloned() })
    }

    fn judge(&self, parts: &[TxnOpResponse], created: i64) -> Ahead {
        let gets = parts.iter().filter_map(|part| match part {
            TxnOpResponse::Get(get) => Some(get),
            _ => None,
        });
        let older = gets.flat_map(GetResponse::kvs).filter(|kv| kv.create_revision() < created);
        let older = older.map(|kv| (kv.create_revision(), kv.key().to_vec()));
        rank(self.mode, older.collect(), created, &self.keys)
    }
}

/// What a claim of `mode` waits for, of those that are `older`. They need not be all, but the
/// youngest that the mode waits for, and of permits as many as its limit, must be among them.
fn rank(mode: Mode, older: Vec<(i64, Vec<u8>)>, than: i64, keys: &Keys) -> Ahead {
    if let Mode::Permit { limit } = mode {
        let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
        // As many must go as are too many.
        return match (older.len() + 1).checked_sub(limit) {
            None | Some(0) => Ahead::Free,
            Some(count) => Ahead::Taken(Target::Older { range: keys.all(), than, count }),
        };
    }
    match older.into_iter().max() {
        Some((_, youngest)) => Ahead::Taken(Target::Key(youngest)),
        None => Ahead::Free,
    }
}

fn told(limit: NonZeroU32) -> i64 {
    i64::from(limit.get()) + MORE
}

fn ahead(range: Range<Vec<u8>>, order: SortOrder, limit: i64, than: Option<i64>) -> TxnOp {
    let mut options = by_age(order).with_range(range.end).with_limit(limit).with_keys_only();
    if let Some(than) = than {
        options = options.with_max_create_revision(than);
    }
    TxnOp::get(range.start, Some(options))
}

fn by_age(order: SortOrder) -> GetOptions {
    GetOptions::new().with_sort(SortTarget::Create, order)
}

fn empty(range: Range<Vec<u8>>) -> Compare {
    Compare::version(range.start, CompareOp::Equal, 0).with_range(range.end)
}

fn absent(key: &[u8]) -> Compare {
    Compare::version(key, CompareOp::Equal, 0)
}

/// The revision that an answer is about.
pub(crate) fn revision(answer: &TxnResponse) -> Result<i64, Problem> {
    answer
        .header()
        .map(ResponseHeader::revision)
        .filter(|revision| *revision > 0)
        .ok_or_else(|| Problem::malformed("a revision"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keys::Prefix;
    use conformance_tests::servers::Etcd;
    use lockkit_core::Key;

    fn keys() -> Keys {
        Keys::new(&Prefix::new("p").unwrap(), &Key::new("a").unwrap())
    }

    fn older(revisions: &[i64]) -> Vec<(i64, Vec<u8>)> {
        revisions.iter().map(|at| (*at, at.to_string().into_bytes())).collect()
    }

    #[test]
    fn nobody_ahead_is_free() {
        let limit = NonZeroU32::MIN;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { limit }] {
            assert_eq!(rank(mode, Vec::new(), 9, &keys()), Ahead::Free, "{mode}");
        }
    }

    #[test]
    fn it_is_waited_for_the_youngest_ahead() {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let ahead = rank(mode, older(&[3, 7, 5]), 9, &keys());
            assert_eq!(ahead, Ahead::Taken(Target::Key(b"7".to_vec())), "{mode}");
        }
    }

    #[test]
    fn permits_wait_until_few_enough_are_ahead() {
        let mode = Mode::Permit { limit: NonZeroU32::new(3).unwrap() };
        assert_eq!(rank(mode, older(&[1, 2]), 9, &keys()), Ahead::Free);
        for (ahead, expected) in [(vec![1, 2, 3], 1), (vec![1, 2, 3, 4, 5], 3)] {
            let Ahead::Taken(Target::Older { count, than, .. }) =
                rank(mode, older(&ahead), 9, &keys())
            else {
                panic!("three are too many")
            };
            assert_eq!((count, than), (expected, 9));
        }
    }

    /// A server, a client of it, and the questions of one claim.
    async fn real(mode: Mode) -> (Etcd, etcd_client::Client, Asks) {
        let server = Etcd::start().unwrap();
        let client = etcd_client::Client::connect([server.address().to_string()], None);
        let claim = Claim::new(Key::new("a").unwrap(), mode, Duration::from_secs(30));
        (server, client.await.unwrap(), Asks::new(keys(), &claim, Vec::new()))
    }

    #[tokio::test]
    async fn a_move_that_lands_late_does_not_take_the_claim_back() {
        let (server, mut client, asks) = real(Mode::Exclusive).await;
        let [one, two, three] = [0; 3].map(|_| server.grant(Duration::from_secs(60)).unwrap());
        let entered = client.txn(asks.enter(one)).await.unwrap();
        let on_one = asks.entered(&entered, one).unwrap().own.unwrap();
        let first = asks.relocate(on_one, two);
        let moved = client.txn(first.clone()).await.unwrap();
        let on_two = asks.relocated(&moved, on_one, two).unwrap().unwrap();
        assert_eq!(on_two, Place { created: on_one.created, lease: two });
        // Who is there already is told so.
        let again = client.txn(first.clone()).await.unwrap();
        assert_eq!(asks.relocated(&again, on_one, two).unwrap(), Some(on_two));
        let moved = client.txn(asks.relocate(on_two, three)).await.unwrap();
        let on_three = asks.relocated(&moved, on_two, three).unwrap().unwrap();
        let late = client.txn(first).await.unwrap();
        assert_eq!(asks.relocated(&late, on_one, two).unwrap(), Some(on_three));
        assert_eq!(server.keys("p").unwrap()[0].lease, three);
        assert!(server.delete(&asks.own).unwrap());
        let gone = client.txn(asks.relocate(on_three, one)).await.unwrap();
        assert_eq!(asks.relocated(&gone, on_three, one).unwrap(), None);
    }

    #[tokio::test]
    async fn what_comes_in_twice_keeps_its_place() {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let (server, mut client, asks) = real(mode).await;
            let lease = server.grant(Duration::from_secs(60)).unwrap();
            let enter = asks.enter_if_free(lease, false, None);
            let answer = client.txn(enter.clone()).await.unwrap();
            let own = asks.entered(&answer, lease).unwrap().own.unwrap();
            let answer = client.txn(enter).await.unwrap();
            let again = asks.entered(&answer, lease).unwrap().own;
            assert!(again.is_none_or(|again| again == own), "{mode}: {again:?}, not {own:?}");
            let created = client.txn(asks.look(own.created)).await.unwrap();
            assert_eq!(asks.looked(&created, own.created).unwrap().own, Some(own), "{mode}");
        }
    }
}
