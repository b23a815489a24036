//! A Redis primary with replicas, and three Sentinels that watch over it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Fault, Redis, RedisBuilder, Reply, Result, nodes, until};

/// What the Sentinels call the primary.
const NAME: &str = "mymaster";

/// Three, so that two of them decide.
const SENTINELS: usize = 3;

/// How long a failover may take: with Sentinel's own periods the old primary is told after 10 s.
const LIMIT: Duration = Duration::from_secs(40);

/// How often quick Sentinels do what others do every 10 s (ask for roles), 2 s (tell one another)
/// and 1 s (ping).
const QUICK: [&str; 8] =
    ["info-period", "200", "publish-period", "200", "ping-period", "100", "ask-period", "100"];

/// How a group is to be. Without further words: one replica, a primary counts as down after
/// 500 ms, and quick Sentinels.
#[derive(Debug, Clone)]
#[must_use]
pub struct SentinelsBuilder {
    server: RedisBuilder,
    replicas: usize,
    down_after: Duration,
    quick: bool,
}

impl SentinelsBuilder {
    /// Sets what the primary and its replicas are like. They may have a password, but no TLS.
    pub fn server(mut self, server: RedisBuilder) -> Self {
        self.server = server;
        self
    }

    /// Sets how many replicas there are.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets how long a primary that does not answer is waited for. More than a machine under
    /// load stands still, where nothing but the test may cause a failover.
    pub fn down_after(mut self, time: Duration) -> Self {
        self.down_after = time;
        self
    }

    /// Leaves Sentinel its own periods. An old primary that is alive then takes writes for about
    /// ten seconds after another one was made, as it does in the field; quick Sentinels tell it
    /// within about one.
    pub fn unhurried(mut self) -> Self {
        self.quick = false;
        self
    }

    /// Starts it, and waits until all Sentinels know all replicas and one another.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`], and if they do not find one another.
    pub fn start(&self) -> Result<Sentinels> {
        let primary = self.server.as_peer().start()?;
        let replica = self.server.as_peer().replica_of(&primary);
        let mut servers = vec![primary];
        for _ in 0..self.replicas {
            servers.push(replica.start()?);
        }
        // A Sentinel that finds no replica at first asks again only much later.
        for replica in &servers[1..] {
            replica.wait_until_copying(&servers[0], LIMIT)?;
        }
        let mut sentinel = Redis::sentinel()
            .set("sentinel monitor", format!("{NAME} 127.0.0.1 {} 2", servers[0].port()))
            .set(
                "sentinel down-after-milliseconds",
                format!("{NAME} {}", self.down_after.as_millis()),
            )
            // The least time between two failovers is twice this.
            .set("sentinel failover-timeout", format!("{NAME} 3000"));
        if let Some((user, password)) = servers[0].peer() {
            sentinel = sentinel
                .set("sentinel auth-user", format!("{NAME} {user}"))
                .set("sentinel auth-pass", format!("{NAME} {password}"));
        }
        let sentinels = (0..SENTINELS).map(|_| sentinel.start()).collect::<Result<Vec<_>>>()?;
        if self.quick {
            for sentinel in &sentinels {
                // Versions before 7.0 cannot, and are slow.
                let _ = sentinel.command(&[&["SENTINEL", "DEBUG"], &QUICK[..]].concat());
            }
        }
        let group = Sentinels { servers, sentinels };
        group.wait_until_settled()?;
        Ok(group)
    }
}

/// A primary, its replicas, and three Sentinels (two of them decide). Ended when dropped.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Sentinels {
    /// Starts a primary, one replica and three quick Sentinels.
    ///
    /// # Errors
    /// As [`SentinelsBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// One that is to be told more before it starts.
    pub fn builder() -> SentinelsBuilder {
        let down_after = Duration::from_millis(500);
        SentinelsBuilder { server: Redis::builder(), replicas: 1, down_after, quick: true }
    }

    /// What the Sentinels call the primary: `mymaster`.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Where the Sentinels are, as URLs name them: `host:port,host:port,host:port`.
    pub fn hosts(&self) -> String {
        nodes::hosts(&self.sentinels)
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The primary and its replicas; the first one was the primary at the start.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// Who is the primary, as the first Sentinel that answers says.
    ///
    /// # Errors
    /// If none answers.
    pub fn primary(&self) -> Result<&Redis> {
        let answers = self.sentinels.iter().map(|sentinel| self.primary_of(sentinel));
        answers.reduce(Result::or).unwrap_or_else(|| Err(Fault::new("no Sentinels")))
    }

    /// Makes another server the primary although nothing is wrong, and waits until everything has
    /// come to rest: all Sentinels say so, the new primary is one, and the others copy it.
    ///
    /// # Errors
    /// If the Sentinels refuse, or if it takes more than 40 s.
    pub fn failover(&self) -> Result<()> {
        self.begin_failover()?;
        self.wait_until_settled()
    }

    /// Makes another server the primary, and waits only until all Sentinels say so. The old one
    /// may take writes for a while yet, which are then lost: about a second, with
    /// [unhurried](SentinelsBuilder::unhurried) Sentinels about ten.
    ///
    /// # Errors
    /// If the Sentinels refuse, or if it takes more than 40 s.
    pub fn begin_failover(&self) -> Result<()> {
        let old = self.primary()?.port();
        // Shortly after a failover there may be no good replica yet.
        super::eventually("a failover", LIMIT, || {
            self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME])
        })?;
        self.wait_for_other_primary(old)
    }

    /// Kills the primary, and gives it. Nobody has noticed yet.
    ///
    /// # Errors
    /// If no Sentinel tells who it is.
    pub fn kill_primary(&self) -> Result<&Redis> {
        let primary = self.primary()?;
        primary.process().kill()?;
        Ok(primary)
    }

    /// Waits until all Sentinels that run say that the primary is one that runs, and not the
    /// server at `old` (a port).
    ///
    /// # Errors
    /// After 40 s.
    pub fn wait_for_other_primary(&self, old: u16) -> Result<()> {
        until("another primary", LIMIT, || {
            for sentinel in self.running(&self.sentinels)? {
                let primary = self.primary_of(sentinel)?;
                if primary.port() == old || primary.role()? != "master" {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Waits until all servers and Sentinels that run are of one mind: the Sentinels name one
    /// primary, which is one, every other server copies it, and they know all of them.
    ///
    /// # Errors
    /// After 40 s, with what is not yet so.
    pub fn wait_until_settled(&self) -> Result<()> {
        super::eventually("Sentinels of one mind", LIMIT, || self.check_settled())
    }

    fn check_settled(&self) -> Result<()> {
        let primary = self.primary()?;
        if primary.role()? != "master" {
            return Err(Fault::new("the primary is none"));
        }
        let servers = self.running(&self.servers)?;
        for replica in servers.iter().filter(|server| server.port() != primary.port()) {
            replica.check_copies(primary)?;
        }
        let sentinels = self.running(&self.sentinels)?;
        for sentinel in &sentinels {
            let knows = fields(&sentinel.command(&["SENTINEL", "MASTER", NAME])?);
            let says = |name: &str| knows.get(name).cloned().unwrap_or_default();
            let seen = (says("port"), says("flags"), says("num-other-sentinels"));
            let others = (self.sentinels.len() - 1).to_string();
            if seen != (primary.port().to_string(), "master".to_owned(), others) {
                return Err(Fault::new(format!("a Sentinel says {seen:?}")));
            }
            let replicas = sentinel.command(&["SENTINEL", "REPLICAS", NAME])?;
            let good = replicas.members().iter().map(fields).filter(|replica| {
                replica.get("flags").is_some_and(|flags| flags == "slave")
                    && replica.get("master-link-status").is_some_and(|status| status == "ok")
            });
            let good = good.count();
            if good != servers.len() - 1 {
                return Err(Fault::new(format!("a Sentinel knows {good} good replicas")));
            }
        }
        Ok(())
    }

    fn running<'a>(&self, servers: &'a [Redis]) -> Result<Vec<&'a Redis>> {
        let mut running = Vec::new();
        for server in servers {
            if server.process().is_running()? {
                running.push(server);
            }
        }
        Ok(running)
    }

    fn primary_of(&self, sentinel: &Redis) -> Result<&Redis> {
        let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        let port = address.members().get(1).and_then(Reply::number);
        let mut servers = self.servers.iter();
        let found = servers.find(|server| port == Some(i64::from(server.port())));
        found.ok_or_else(|| Fault::new(format!("the Sentinel names {address:?}")))
    }
}

/// Names and values that came as one list.
fn fields(reply: &Reply) -> BTreeMap<String, String> {
    let texts = reply.texts();
    texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
