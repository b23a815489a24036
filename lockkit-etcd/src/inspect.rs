//! Who holds a key, and taking it from them.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp,
};
use lockkit_core::{Holder, Key, Mode, Result, Which};

use crate::client::Client;
use crate::keys::Keys;
use crate::value;

/// Of a lock with more claims than this, the first are told.
const TOLD: i64 = 4096;

/// How many keys one transaction takes out: etcd takes 128 operations.
const AT_ONCE: usize = 100;

/// How many leases are asked for their ends.
const ENDS: usize = 8;

/// The holder whose key is `first`, as far as that tells it.
pub(crate) fn holder(keys: &Keys, first: &KeyValue) -> Holder {
    let (mode, token) = keys.read(first.key());
    let mut holder = Holder::new(mode);
    holder.token = token;
    holder.fence = u64::try_from(first.create_revision()).ok();
    holder.label = value::label(first.value());
    holder
}

/// How many of those in line, oldest first, hold the key.
fn holding(modes: impl Iterator<Item = Mode>) -> usize {
    let mut modes = modes.peekable();
    match modes.peek().copied() {
        None => 0,
        Some(Mode::Shared) => modes.take_while(|mode| *mode == Mode::Shared).count(),
        Some(Mode::Permit { limit }) => {
            modes.count().min(usize::try_from(limit.get()).unwrap_or(usize::MAX))
        }
        Some(_) => 1,
    }
}

impl Client {
    /// Those in line, oldest first, and how many there are.
    async fn line(&self, keys: &Keys, budget: Duration) -> Result<(Vec<KeyValue>, usize)> {
        let all = keys.all();
        let ask = |client: Arc<etcd_client::Client>| {
            let all = all.clone();
            let options = GetOptions::new()
                .with_range(all.end)
                .with_sort(SortTarget::Create, SortOrder::Ascend)
                .with_limit(TOLD);
            async move { client.kv_client().get(all.start, Some(options)).await }
        };
        let mut answer = self.fleet.call(budget, ask).await?.value;
        let count = usize::try_from(answer.count()).unwrap_or_default();
        Ok((answer.take_kvs(), count))
    }

    pub(crate) async fn inspect(&self, key: &Key) -> Result<Option<Holder>> {
        let (keys, budget) = (self.keys(key), self.core.op_timeout());
        let (line, count) = self.line(&keys, budget).await?;
        let Some(first) = line.first() else { return Ok(None) };
        let holding = holding(line.iter().map(|kv| keys.read(kv.key()).0));
        let mut holder = holder(&keys, first);
        holder.holders = holding;
        holder.waiting = Some(count.saturating_sub(holding)).filter(|waiting| *waiting > 0);
        holder.expires_in = self.ends(line.iter().take(holding), budget).await?;
        Ok(Some(holder))
    }

    /// After which time the last of the leases of these keys ends, if that can be told.
    async fn ends(
        &self,
        holding: impl Iterator<Item = &KeyValue>,
        budget: Duration,
    ) -> Result<Option<Duration>> {
        let mut leases: Vec<i64> = holding.map(KeyValue::lease).collect();
        leases.sort_unstable();
        leases.dedup();
        if leases.contains(&0) || leases.len() > ENDS {
            return Ok(None);
        }
        let mut last = None;
        for lease in leases {
            let ask = |client: Arc<etcd_client::Client>| async move {
                client.lease_client().time_to_live(lease, None).await
            };
            let left = self.fleet.call(budget, ask).await?.value.ttl();
            // In whole seconds; less than one is told as none.
            last = last.max(u64::try_from(left).ok().map(|s| Duration::from_secs(s.max(1))));
        }
        Ok(last)
    }

    pub(crate) async fn force(&self, key: &Key, which: Which) -> Result<bool> {
        let (keys, budget) = (self.keys(key), self.core.op_timeout());
        let (line, _) = self.line(&keys, budget).await?;
        let holding = holding(line.iter().map(|kv| keys.read(kv.key()).0));
        let hit = |kv: &&KeyValue| match which {
            Which::Fence(fence) => u64::try_from(kv.create_revision()) == Ok(fence),
            Which::Token(token) => keys.read(kv.key()).1 == Some(token),
            _ => true,
        };
        let hit: Vec<&KeyValue> = line.iter().take(holding).filter(hit).collect();
        let mut any = false;
        for part in hit.chunks(AT_ONCE) {
            any |= self.take_out(part, budget).await?;
        }
        Ok(any)
    }

    /// Takes these keys out as far as they are still the same; whether one of them was.
    async fn take_out(&self, kvs: &[&KeyValue], budget: Duration) -> Result<bool> {
        let each = kvs.iter().map(|kv| {
            let same = Compare::create_revision(kv.key(), CompareOp::Equal, kv.create_revision());
            let delete = TxnOp::delete(kv.key(), None::<DeleteOptions>);
            TxnOp::txn(Txn::new().when([same]).and_then([delete]))
        });
        let answer = self.txn(Txn::new().and_then(each.collect::<Vec<_>>()), budget).await?;
        let parts = answer.value.op_responses();
        let taken = parts
            .iter()
            .any(|part| matches!(part, etcd_client::TxnOpResponse::Txn(one) if one.succeeded()));
        // What was sent twice may have taken them out the first time.
        Ok(taken || answer.doubtful)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn who_holds_is_at_the_front() {
        let permit = Mode::Permit { limit: NonZeroU32::new(2).unwrap() };
        let (x, s, p) = (Mode::Exclusive, Mode::Shared, permit);
        for (line, expected) in [
            (vec![], 0),
            (vec![x, x, s], 1),
            (vec![s, s, x, s], 2),
            (vec![p], 1),
            (vec![p, p, p], 2),
        ] {
            assert_eq!(holding(line.clone().into_iter()), expected, "{line:?}");
        }
    }
}
