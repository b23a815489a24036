//! A Redis Cluster.

use std::time::Duration;

use super::{Fault, Redis, RedisBuilder, Result, eventually, nodes};

/// The least number that a majority can be of.
const PRIMARIES: usize = 3;

/// How many slots there are.
const SLOTS: u16 = 16_384;

/// How long a cluster may take to be of one mind.
const LIMIT: Duration = Duration::from_secs(40);

/// How a cluster is to be. Without further words: three primaries, no replicas, and a node counts
/// as down after 3 s.
#[derive(Debug, Clone)]
#[must_use]
pub struct ClusterBuilder {
    server: RedisBuilder,
    replicas: bool,
    node_timeout: Duration,
}

impl ClusterBuilder {
    /// Sets what the nodes are like. They may have a password, but no TLS.
    pub fn server(mut self, server: RedisBuilder) -> Self {
        self.server = server;
        self
    }

    /// Adds one replica for each primary.
    pub fn replicas(mut self) -> Self {
        self.replicas = true;
        self
    }

    /// Sets the `cluster-node-timeout`: how long a node that does not answer is waited for.
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = time;
        self
    }

    /// Starts it, and waits until all nodes say that it works. That takes two seconds at least,
    /// by Redis' own rules.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`], and if the nodes do not become of one mind.
    pub fn start(&self) -> Result<Cluster> {
        let node = self
            .server
            .as_peer()
            .set("cluster-enabled", "yes")
            .set("cluster-config-file", "nodes.conf")
            // Replicas stay with their primary.
            .set("cluster-migration-barrier", 100)
            .set("cluster-node-timeout", self.node_timeout.as_millis());
        let count = if self.replicas { 2 * PRIMARIES } else { PRIMARIES };
        let nodes = (0..count).map(|_| node.start()).collect::<Result<Vec<_>>>()?;
        let ids = nodes
            .iter()
            .map(|node| Ok(node.command(&["CLUSTER", "MYID"])?.text()))
            .collect::<Result<_>>()?;
        let cluster = Cluster { nodes, ids };
        cluster.introduce()?;
        cluster.wait_until_settled()?;
        Ok(cluster)
    }
}

/// A Redis Cluster of three primaries: nodes 0 to 2. With replicas, node 3 is at first that of
/// node 0, and so on. Ended when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
}

/// A node as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    node: usize,
    /// `None`: it is a primary.
    primary: Option<usize>,
    slots: Vec<(u16, u16)>,
}

impl Cluster {
    /// Starts three primaries without replicas.
    ///
    /// # Errors
    /// As [`ClusterBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// One that is to be told more before it starts.
    pub fn builder() -> ClusterBuilder {
        let node_timeout = Duration::from_secs(3);
        ClusterBuilder { server: Redis::builder(), replicas: false, node_timeout }
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Where the nodes are, as URLs name them: `host:port,host:port`.
    pub fn hosts(&self) -> String {
        nodes::hosts(&self.nodes)
    }

    /// The slot of `key`.
    ///
    /// # Errors
    /// If node 0 does not answer.
    pub fn slot(&self, key: &str) -> Result<u16> {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key])?;
        let slot = slot.number().and_then(|slot| u16::try_from(slot).ok());
        slot.ok_or_else(|| Fault::new("not a slot"))
    }

    /// Which node has `slot`, as the first node that runs sees it.
    ///
    /// # Errors
    /// If no node runs, or none has it.
    pub fn owner(&self, slot: u16) -> Result<usize> {
        let seen = self.view_of(self.first_running()?)?;
        let has = |seen: &&Seen| seen.slots.iter().any(|&(a, b)| (a..=b).contains(&slot));
        let owner = seen.iter().find(has).map(|seen| seen.node);
        owner.ok_or_else(|| Fault::new(format!("nobody has slot {slot}")))
    }

    /// Begins to move `slot` to the node `to`: from now on its owner sends clients there for keys
    /// that it does not have (`ASK`). Nothing has moved yet.
    ///
    /// # Errors
    /// If `to` has it, or if a node refuses.
    pub fn begin_move(&self, slot: u16, to: usize) -> Result<SlotMove<'_>> {
        let from = self.owner(slot)?;
        let moving = SlotMove { cluster: self, slot, from, to };
        moving.set(to, &["IMPORTING", &self.ids[from]])?;
        moving.set(from, &["MIGRATING", &self.ids[to]])?;
        Ok(moving)
    }

    /// Moves `slot` with all of its keys to the node `to`, and waits until all nodes know.
    ///
    /// # Errors
    /// If `to` has it, or if a node refuses.
    pub fn move_slot(&self, slot: u16, to: usize) -> Result<()> {
        let moving = self.begin_move(slot, to)?;
        moving.move_keys()?;
        moving.finish()
    }

    /// Makes the replica of the node `primary` the primary in its place, although nothing is
    /// wrong; waits until all nodes know, and gives the new one.
    ///
    /// # Errors
    /// If it has no replica, or if that does not become a primary.
    pub fn failover(&self, primary: usize) -> Result<usize> {
        let seen = self.view_of(primary)?;
        let replica = seen.iter().find(|seen| seen.primary == Some(primary));
        let replica = replica.ok_or_else(|| Fault::new("it has no replica"))?.node;
        self.nodes[replica].command(&["CLUSTER", "FAILOVER"])?;
        self.wait_for_primary(replica)?;
        self.wait_until_settled()?;
        Ok(replica)
    }

    /// Waits until all nodes that run see the node `node` as a primary with slots.
    ///
    /// # Errors
    /// After 40 s.
    pub fn wait_for_primary(&self, node: usize) -> Result<()> {
        eventually("a new primary", LIMIT, || {
            for at in self.running()? {
                let seen = self.view_of(at)?;
                let is_primary = |seen: &Seen| seen.node == node && !seen.slots.is_empty();
                if !seen.iter().any(is_primary) {
                    return Err(Fault::new(format!("node {at} sees {seen:?}")));
                }
            }
            Ok(())
        })
    }

    /// Waits until all nodes run, say that the cluster works, and see the same; and until the
    /// replicas copy their primaries.
    ///
    /// # Errors
    /// After 40 s, with what is not yet so.
    pub fn wait_until_settled(&self) -> Result<()> {
        eventually("nodes of one mind", LIMIT, || self.check_settled())
    }

    fn check_settled(&self) -> Result<()> {
        let first = self.view_of(0)?;
        for (i, node) in self.nodes.iter().enumerate() {
            let seen = self.view_of(i)?;
            let info = node.command(&["CLUSTER", "INFO"])?.text();
            if seen.len() != self.nodes.len() || seen != first {
                return Err(Fault::new(format!("node {i} sees {seen:?}")));
            }
            if !info.contains("cluster_state:ok") || !info.contains("cluster_slots_ok:16384") {
                return Err(Fault::new(format!("node {i} says {info}")));
            }
        }
        for seen in &first {
            if let Some(primary) = seen.primary {
                self.nodes[seen.node].check_copies(&self.nodes[primary])?;
            }
        }
        Ok(())
    }

    /// Makes a cluster of nodes that know nothing.
    fn introduce(&self) -> Result<()> {
        let share = SLOTS.div_ceil(PRIMARIES as u16);
        // So that they need not find out who is first. A node takes that only while it knows no
        // other one.
        for (i, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()])?;
        }
        for (i, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[i + 1..] {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()])?;
            }
        }
        for (i, node) in (0..).zip(&self.nodes[..PRIMARIES]) {
            let slots = i * share..((i + 1) * share).min(SLOTS);
            let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
            let slots = slots.iter().map(String::as_str);
            let command: Vec<_> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect();
            node.command(&command).map_err(|_| Fault::new("cannot give slots"))?;
        }
        for (i, replica) in self.nodes[PRIMARIES..].iter().enumerate() {
            // It must have met its primary.
            eventually("a replica", LIMIT, || {
                replica.command(&["CLUSTER", "REPLICATE", &self.ids[i]])
            })?;
        }
        Ok(())
    }

    /// How the node `at` sees those that are not down, in their order.
    fn view_of(&self, at: usize) -> Result<Vec<Seen>> {
        let text = self.nodes[at].command(&["CLUSTER", "NODES"])?.text();
        let index = |id: &str| self.ids.iter().position(|known| known == id);
        let mut all = Vec::new();
        for line in text.lines() {
            // id address flags primary ping pong epoch link slots...
            let words: Vec<_> = line.split(' ').collect();
            let [id, _, flags, primary, _, _, _, _, slots @ ..] = &words[..] else { continue };
            let (Some(node), false) = (index(id), flags.contains("fail")) else { continue };
            let slots = slots.iter().filter_map(|word| {
                let (from, to) = word.split_once('-').unwrap_or((word, word));
                // What is on the move has brackets, and stands there besides.
                Some((from.parse().ok()?, to.parse().ok()?))
            });
            all.push(Seen { node, primary: index(primary), slots: slots.collect() });
        }
        all.sort_unstable();
        Ok(all)
    }

    fn running(&self) -> Result<Vec<usize>> {
        let mut running = Vec::new();
        for (i, node) in self.nodes.iter().enumerate() {
            if node.process().is_running()? {
                running.push(i);
            }
        }
        Ok(running)
    }

    fn first_running(&self) -> Result<usize> {
        self.running()?.first().copied().ok_or_else(|| Fault::new("no node runs"))
    }
}

/// A slot on its way from one primary to another. Dropping this leaves it there.
#[derive(Debug)]
pub struct SlotMove<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl SlotMove<'_> {
    /// The node that gives it away.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The node that gets it.
    pub fn to(&self) -> usize {
        self.to
    }

    /// Moves one key; nothing happens if it is not there.
    ///
    /// # Errors
    /// If the nodes refuse.
    pub fn move_key(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let source = &self.cluster.nodes[self.from];
        let to = self.cluster.nodes[self.to].port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &to, "", "0", "10000"];
        if let Some((user, password)) = source.peer() {
            command.extend(["AUTH2", user, password]);
        }
        command.push("KEYS");
        let mut command: Vec<&[u8]> = command.into_iter().map(str::as_bytes).collect();
        command.push(key.as_ref());
        source.command(&command).map(drop)
    }

    /// Moves all keys that are there, and gives how many they were.
    ///
    /// # Errors
    /// If the nodes refuse.
    pub fn move_keys(&self) -> Result<usize> {
        let source = &self.cluster.nodes[self.from];
        let slot = self.slot.to_string();
        let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000000"])?;
        for key in keys.members() {
            self.move_key(key.bytes())?;
        }
        Ok(keys.members().len())
    }

    /// Gives the slot to its new owner, and waits until all nodes know.
    ///
    /// # Errors
    /// If the old owner still has keys of it, or if a node refuses.
    pub fn finish(self) -> Result<()> {
        let new = &self.cluster.ids[self.to];
        let seen = self.cluster.view_of(self.to)?;
        let primaries = seen.iter().filter(|seen| seen.primary.is_none()).map(|seen| seen.node);
        let others = primaries.filter(|node| ![self.to, self.from].contains(node));
        for node in [self.to, self.from].into_iter().chain(others) {
            self.set(node, &["NODE", new])?;
        }
        self.cluster.wait_until_settled()
    }

    fn set(&self, node: usize, state: &[&str]) -> Result<()> {
        let slot = self.slot.to_string();
        let begin = ["CLUSTER", "SETSLOT", &slot];
        self.cluster.nodes[node].command(&[&begin, state].concat()).map(drop)
    }
}
