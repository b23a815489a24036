//! What a test sees of a server's store, and does to it behind the backs of its clients.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Etcd, base64};
use crate::servers::{Fault, Result, until};

/// One key in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdKey {
    /// Its name.
    pub key: Vec<u8>,
    /// What it holds.
    pub value: Vec<u8>,
    /// The revision at which it came to be.
    pub created: i64,
    /// The revision at which it was last written.
    pub modified: i64,
    /// The lease at whose end it goes; 0 for none.
    pub lease: i64,
}

impl EtcdKey {
    /// Its name, readable.
    pub fn name(&self) -> String {
        self.key.escape_ascii().to_string()
    }
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdLease {
    /// What was granted.
    pub granted: Duration,
    /// What of it is left, in whole seconds.
    pub left: Duration,
    /// Which keys go with it.
    pub keys: Vec<Vec<u8>>,
}

impl Etcd {
    /// The keys that begin with `prefix`, in the order in which they came to be.
    ///
    /// # Errors
    /// If the server does not answer within 10 s.
    pub fn keys(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<EtcdKey>> {
        let prefix = prefix.as_ref();
        let (key, end) = if prefix.is_empty() {
            // A zero byte as the end stands for none.
            (vec![0], vec![0])
        } else {
            (prefix.to_vec(), behind(prefix))
        };
        let found = self.gateway.call(
            "kv/range",
            &json!({
                "key": base64::encode(key),
                "range_end": base64::encode(end),
                "sort_target": "CREATE",
                "sort_order": "ASCEND",
            }),
        )?;
        found["kvs"].as_array().into_iter().flatten().map(key_of).collect()
    }

    /// Writes a key, bound to a lease unless that is 0, and gives the store's revision then.
    ///
    /// # Errors
    /// If the server does not answer within 10 s, or refuses.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lease: i64) -> Result<i64> {
        let (key, value) = (base64::encode(key), base64::encode(value));
        let put = json!({ "key": key, "value": value, "lease": lease.to_string() });
        Ok(number(&self.gateway.call("kv/put", &put)?["header"], "revision"))
    }

    /// Deletes a key, and says whether it was there.
    ///
    /// # Errors
    /// If the server does not answer within 10 s.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let deleted =
            self.gateway.call("kv/deleterange", &json!({ "key": base64::encode(key) }))?;
        Ok(number(&deleted, "deleted") > 0)
    }

    /// All leases.
    ///
    /// # Errors
    /// If the server does not answer within 10 s.
    pub fn leases(&self) -> Result<Vec<i64>> {
        let found = self.gateway.call("lease/leases", &json!({}))?;
        let leases = found["leases"].as_array();
        Ok(leases.into_iter().flatten().map(|lease| number(lease, "ID")).collect())
    }

    /// What is known of a lease; `None` if there is none.
    ///
    /// # Errors
    /// If the server does not answer within 10 s.
    pub fn lease(&self, id: i64) -> Result<Option<EtcdLease>> {
        let asked = json!({ "ID": id.to_string(), "keys": true });
        let found = self.gateway.call("lease/timetolive", &asked)?;
        let seconds = |name| u64::try_from(number(&found, name)).ok().map(Duration::from_secs);
        let Some(left) = seconds("TTL") else { return Ok(None) };
        let keys = found["keys"].as_array().into_iter().flatten();
        let keys = keys.map(|key| base64::decode(key.as_str().unwrap_or_default()));
        let granted = seconds("grantedTTL").unwrap_or_default();
        Ok(Some(EtcdLease { granted, left, keys: keys.collect::<Result<_>>()? }))
    }

    /// Grants a lease of so many whole seconds, and gives its number.
    ///
    /// # Errors
    /// If the server does not answer within 10 s.
    pub fn grant(&self, ttl: Duration) -> Result<i64> {
        let granted = self.gateway.call("lease/grant", &json!({ "TTL": ttl.as_secs() }))?;
        Ok(number(&granted, "ID"))
    }

    /// Ends a lease, and with it its keys.
    ///
    /// # Errors
    /// If there is none, or if the server does not answer within 10 s.
    pub fn revoke(&self, lease: i64) -> Result<()> {
        self.gateway.call("lease/revoke", &json!({ "ID": lease.to_string() })).map(drop)
    }

    /// The number of this member, as it stands in metrics and messages: hexadecimal.
    ///
    /// # Errors
    /// If the server does not answer within 10 s.
    pub fn id(&self) -> Result<String> {
        let status = self.gateway.call("maintenance/status", &json!({}))?;
        let id = status["header"]["member_id"].as_str().and_then(|id| id.parse::<u64>().ok());
        id.map(|id| format!("{id:x}")).ok_or_else(|| Fault::new("a member without a number"))
    }

    /// The revision at which the store is.
    ///
    /// # Errors
    /// If the server does not answer within 10 s.
    pub fn revision(&self) -> Result<i64> {
        Ok(number(&self.gateway.call("maintenance/status", &json!({}))?["header"], "revision"))
    }

    /// Forgets all revisions before the last one: who wants to watch from one of those is told
    /// that it is compacted.
    ///
    /// # Errors
    /// If the server does not answer within 10 s, or if that revision is compacted already.
    pub fn compact(&self) -> Result<i64> {
        let revision = self.revision()?;
        let compaction = json!({ "revision": revision.to_string(), "physical": true });
        self.gateway.call("kv/compaction", &compaction)?;
        Ok(revision)
    }

    /// One of the server's metrics: the sum over all series of this name that have all of these
    /// labels, each as `name="value"`. Looking at it counts as no call.
    ///
    /// # Errors
    /// If there is no such series, or if the server does not answer within 10 s.
    pub fn metric(&self, name: &str, labels: &[&str]) -> Result<u64> {
        let page = self.gateway.page("/metrics")?;
        let mut found = page.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (this, with) = series.split_once('{').unwrap_or((series, ""));
            let fits = this == name && labels.iter().all(|label| with.contains(label));
            fits.then(|| value.parse::<f64>().ok()).flatten()
        });
        let none = || Fault::new(format!("there is no metric `{name}` with {labels:?}"));
        let first = found.next().ok_or_else(none)?;
        Ok((first + found.sum::<f64>()) as u64)
    }

    /// How many keys and ranges are watched for at this server.
    ///
    /// # Errors
    /// As [`metric`](Self::metric).
    pub fn watchers(&self) -> Result<u64> {
        self.metric("etcd_debugging_mvcc_watcher_total", &[])
    }

    /// Waits until exactly so much is [watched](Self::watchers) for.
    ///
    /// # Errors
    /// After `limit`, and as [`metric`](Self::metric).
    pub fn wait_until_watchers(&self, count: u64, limit: Duration) -> Result<()> {
        let waited = until("watchers", limit, || Ok(self.watchers()? == count));
        waited.map_err(|fault| match self.watchers() {
            Ok(seen) => fault.during(&format!("{seen} and not {count}")),
            Err(_) => fault,
        })
    }

    /// How many messages this server has had from its clients for a method, as `Txn`, `Range`,
    /// `LeaseKeepAlive` or `Watch`: each of them asks for an answer. Those of the test bed itself
    /// count too, except for looks at metrics.
    ///
    /// # Errors
    /// As [`metric`](Self::metric).
    pub fn messages(&self, method: &str) -> Result<u64> {
        let label = format!("grpc_method=\"{method}\"");
        let service = "grpc_service=\"etcdserverpb.";
        self.metric("grpc_server_msg_received_total", &[&label, service])
    }

    /// The same for all methods, each by itself, without those that had none.
    ///
    /// # Errors
    /// As [`metric`](Self::metric).
    pub fn messages_by_method(&self) -> Result<BTreeMap<String, u64>> {
        let page = self.gateway.page("/metrics")?;
        let lines = page.lines().filter_map(|line| {
            let of = line.strip_prefix("grpc_server_msg_received_total{grpc_method=\"")?;
            let (method, rest) = of.split_once('"')?;
            let count = rest.rsplit_once(' ')?.1.parse::<f64>().ok()? as u64;
            (count > 0).then(|| (method.to_owned(), count))
        });
        Ok(lines.collect())
    }
}

/// The first key behind all of those that begin with `prefix`, which is not empty.
pub(super) fn behind(prefix: impl AsRef<[u8]>) -> Vec<u8> {
    let mut end = prefix.as_ref().to_vec();
    while end.last() == Some(&0xFF) {
        end.pop();
    }
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

fn key_of(found: &Value) -> Result<EtcdKey> {
    let bytes = |name: &str| base64::decode(found[name].as_str().unwrap_or_default());
    Ok(EtcdKey {
        key: bytes("key")?,
        value: bytes("value")?,
        created: number(found, "create_revision"),
        modified: number(found, "mod_revision"),
        lease: number(found, "lease"),
    })
}

/// A number of 64 bits, which comes as text; not at all if it is zero.
fn number(of: &Value, name: &str) -> i64 {
    let text = of[name].as_str().and_then(|text| text.parse().ok());
    text.or_else(|| of[name].as_i64()).unwrap_or(0)
}
