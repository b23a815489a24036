//! What works but bites later: found out when a client connects, and said aloud.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::{Error, Result};

use crate::answer;
use crate::errors::{Failed, Problem};
use crate::node::{Lane, Node};

/// What `INFO` says.
#[derive(Debug, Default)]
pub(crate) struct Info(HashMap<String, String>);

impl Info {
    fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// What tells one run of one server from all others.
    pub(crate) fn run_id(&self) -> &str {
        self.get("run_id")
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// Asks a server about itself; `None` if it does not tell us.
pub(crate) async fn ask(node: &Arc<Node>, budget: Duration) -> Result<Option<Info>, Failed> {
    let line = node.line(Lane::Work);
    let answer = tokio::time::timeout(budget, line.send(vec![redis::cmd("INFO")])).await;
    let answered = answer.unwrap_or_else(|_| {
        let text = format!("{} did not answer within {budget:?}", node.address());
        Err(Failed::unanswered(Problem::unavailable(text)))
    })?;
    match answered.values.first() {
        Some(value) => Ok(answer::text(value).ok().map(|text| Info::parse(&text))),
        None => Ok(None),
    }
}

/// The oldest major version whose scripts can ask the time and write.
const LEAST_MAJOR: u32 = 5;

/// Refuses what cannot work.
pub(crate) fn refuse(who: &str, info: &Info) -> Result<()> {
    let version = info.get("redis_version");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < LEAST_MAJOR) {
        return Err(Error::configuration(format!(
            "{who} is Redis {}, and locks need {LEAST_MAJOR}.0 at least",
            version.escape_debug()
        )));
    }
    if info.get("redis_mode") == "sentinel" {
        return Err(Error::configuration(format!(
            "{who} is a sentinel, which keeps no locks; write \
             `redis+sentinel://host,host,host/name` to be led to the primary"
        )));
    }
    Ok(())
}

/// What would bite, one sentence each. `quorum`: for claims on several servers.
pub(crate) fn dangers(who: &str, info: &Info, quorum: bool) -> Vec<String> {
    let mut dangers = Vec::new();
    let policy = info.get("maxmemory_policy");
    if info.get("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction" {
        dangers.push(format!(
            "{who} may evict lock keys when its memory is full (`maxmemory-policy {}`), and a \
             holder learns that only at its next renewal; use a server of its own for locks, with \
             `noeviction`",
            policy.escape_debug()
        ));
    }
    if info.get("role") == "slave" {
        dangers.push(format!(
            "{who} is a replica: it takes no locks, or forgets those it takes; connect to the \
             primary, or through the sentinels",
        ));
    }
    if quorum && info.get("aof_enabled") != "1" {
        dangers.push(format!(
            "{who} does not log its writes (`appendonly no`): restarted within a TTL it has \
             forgotten its votes, and two holders are possible; use `appendonly yes` with \
             `appendfsync always`, or start it again only after the longest TTL",
        ));
    }
    dangers
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHY: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\
        # Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\naof_enabled:0\r\n";

    fn with(name: &str, value: &str) -> Info {
        let mut info = Info::parse(HEALTHY);
        info.0.insert(name.to_owned(), value.to_owned());
        info
    }

    #[test]
    fn healthy_servers_are_not_warned_of() {
        let info = Info::parse(HEALTHY);
        assert!(refuse("s", &info).is_ok());
        assert_eq!(dangers("s", &info, false), Vec::<String>::new());
        assert_eq!(dangers("s", &with("maxmemory_policy", "allkeys-lru"), false).len(), 0);
    }

    #[test]
    fn each_danger_is_told() {
        let mut evicting = with("maxmemory", "1000000");
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            evicting.0.insert("maxmemory_policy".to_owned(), policy.to_owned());
            assert!(dangers("s", &evicting, false)[0].contains(policy));
        }
        assert!(dangers("s", &with("role", "slave"), false)[0].contains("replica"));
        assert!(dangers("s", &Info::parse(HEALTHY), true)[0].contains("appendonly"));
        assert_eq!(dangers("s", &with("aof_enabled", "1"), true).len(), 0);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(refuse("s", &with("redis_version", "4.0.14")).is_err());
        assert!(refuse("s", &with("redis_mode", "sentinel")).is_err());
        assert!(refuse("s", &with("redis_version", "unstable")).is_ok());
    }
}
