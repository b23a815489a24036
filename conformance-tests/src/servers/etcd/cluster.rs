//! Three etcd servers that are one store.

use std::time::Duration;

use serde_json::{Value, json};

use super::network::Network;
use super::{Etcd, EtcdBuilder, Membership, PEER};
use crate::servers::{Data, Fault, Result, eventually, free_port, on_free_port, ports};

/// The least number of which one may fail.
const MEMBERS: usize = 3;

/// How long the members may take to be of one mind.
const LIMIT: Duration = Duration::from_secs(40);

/// How long a member that is asked whom it follows is waited for: it may be stopped.
const ANSWER: Duration = Duration::from_secs(1);

/// How a cluster is to be. Without further words: members as [`EtcdBuilder`] has them.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct EtcdClusterBuilder {
    member: EtcdBuilder,
}

impl EtcdClusterBuilder {
    /// Sets what the members are like. They may have users, but no TLS.
    pub fn member(mut self, member: EtcdBuilder) -> Self {
        self.member = member;
        self
    }

    /// Starts it, and waits until all members follow one leader.
    ///
    /// # Errors
    /// As [`EtcdBuilder::start`], and if they do not become of one mind.
    pub fn start(&self) -> Result<EtcdCluster> {
        let cluster = on_free_port(|first| self.start_at(first))?;
        cluster.wait_until_settled()?;
        self.member.add_users(&cluster.members[0])?;
        for member in &cluster.members {
            if !self.member.users.is_empty() {
                member.gateway.guard();
            }
        }
        Ok(cluster)
    }

    fn start_at(&self, first: u16) -> Result<EtcdCluster> {
        let mut all = vec![first];
        while all.len() < MEMBERS {
            all.push(free_port()?);
        }
        let peers: Vec<_> = all.iter().map(|port| ports::at(port + PEER)).collect();
        let network = Network::start(&peers)?;
        let name = |member: usize| format!("member{member}");
        let urls = (0..MEMBERS).map(|member| format!("{}={}", name(member), Network::url(member)));
        let cluster = urls.collect::<Vec<_>>().join(",");
        let memberships = (0..MEMBERS).map(|member| Membership {
            name: name(member),
            peer_url: Network::url(member),
            cluster: cluster.clone(),
            variables: network.variables(member),
        });
        // At the same time: none of them is ready before most of them run.
        let members = std::thread::scope(|scope| {
            let start =
                |(port, membership)| scope.spawn(move || self.member.start_at(port, membership));
            let starts: Vec<_> = all.into_iter().zip(memberships).map(start).collect();
            let gone = |_| Err(Fault::new("a thread that starts a server has panicked"));
            starts.into_iter().map(|start| start.join().unwrap_or_else(gone)).collect::<Result<_>>()
        })?;
        Ok(EtcdCluster { members, network })
    }
}

/// An etcd cluster of three members. Ended when dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Etcd>,
    network: Network,
}

/// Whom a member follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Follows {
    term: u64,
    leader: usize,
}

/// What a member says of itself, in numbers of the store's own.
#[derive(Debug, Clone, Copy)]
struct Status {
    id: u64,
    /// 0 for none.
    leader: u64,
    term: u64,
}

impl EtcdCluster {
    /// Starts one as it comes.
    ///
    /// # Errors
    /// As [`EtcdClusterBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// One that is to be told more before it starts.
    pub fn builder() -> EtcdClusterBuilder {
        EtcdClusterBuilder::default()
    }

    /// All members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// Where the members are, as URLs name them: `host:port,host:port,host:port`.
    pub fn hosts(&self) -> String {
        let hosts = self.members.iter().map(|member| member.address().to_string());
        hosts.collect::<Vec<_>>().join(",")
    }

    /// Which member leads: the one that most members follow. One that is cut off, and has not
    /// noticed, may still think that it leads.
    ///
    /// # Errors
    /// If there is none at the moment.
    pub fn leader(&self) -> Result<usize> {
        let views = self.views();
        let seen: Vec<_> = views.iter().flatten().copied().collect();
        let followers = |view: &Follows| seen.iter().filter(|other| *other == view).count();
        let chosen = seen.iter().find(|view| 2 * followers(view) > self.members.len());
        // It must know of it.
        let leader = chosen.filter(|view| views[view.leader].as_ref() == Some(view));
        let leader = leader.map(|view| view.leader);
        leader.ok_or_else(|| Fault::new(format!("there is no leader: {views:?}")))
    }

    /// Waits for a leader that is not the member `old`, and gives it.
    ///
    /// # Errors
    /// After 40 s.
    pub fn wait_for_other_leader(&self, old: usize) -> Result<usize> {
        eventually("another leader", LIMIT, || {
            let leader = self.leader()?;
            if leader == old { Err(Fault::new("it is the old one")) } else { Ok(leader) }
        })
    }

    /// Waits until all members run, follow one leader, and answer reads that it confirms.
    ///
    /// # Errors
    /// After 40 s, with what is not yet so.
    pub fn wait_until_settled(&self) -> Result<()> {
        eventually("members of one mind", LIMIT, || {
            let views = self.views();
            if views[0].is_none() || views.iter().any(|view| *view != views[0]) {
                return Err(Fault::new(format!("they follow {views:?}")));
            }
            self.members.iter().try_for_each(|member| member.gateway.page("/health").map(drop))
        })
    }

    /// Has the leader give its place to the member `to`, although nothing is wrong; waits until
    /// all members follow that.
    ///
    /// # Errors
    /// If the leader refuses, or if it takes more than 40 s.
    pub fn move_leader(&self, to: usize) -> Result<()> {
        let leader = self.leader()?;
        if leader != to {
            let target = self.status(to)?.id.to_string();
            let order = json!({ "targetID": target });
            self.members[leader].gateway.call("maintenance/transfer-leadership", &order)?;
        }
        eventually("the new leader", LIMIT, || {
            let all = |view: &Option<Follows>| view.is_some_and(|view| view.leader == to);
            let views = self.views();
            let settled = views.iter().all(all);
            if settled { Ok(()) } else { Err(Fault::new(format!("they follow {views:?}"))) }
        })
    }

    /// Cuts the member `member` off from the others: nothing passes between them any more, in
    /// either direction, and none of them is told. Clients reach all of them as before.
    pub fn cut_off(&self, member: usize) {
        self.network.cut_off(member);
    }

    /// Undoes [`cut_off`](Self::cut_off), and does not wait for the consequences.
    pub fn heal(&self, member: usize) {
        self.network.heal(member);
    }

    /// Kills all members at the same time, as a power cut does.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill_all(&self) -> Result<()> {
        self.members.iter().try_for_each(|member| member.process().kill().map(drop))
    }

    /// Starts all members that have ended, with what they have on their disks, and waits until
    /// all of them follow one leader.
    ///
    /// # Errors
    /// If one does not start, or if it takes more than 40 s.
    pub fn start_all_again(&self) -> Result<()> {
        // At the same time: none of them is ready before most of them run.
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let start = |member| scope.spawn(move || start_if_ended(member));
            let starts: Vec<_> = self.members.iter().map(start).collect();
            let gone = |_| Err(Fault::new("a thread that starts a server has panicked"));
            starts.into_iter().map(|start| start.join().unwrap_or_else(gone)).collect()
        });
        outcomes.into_iter().collect::<Result<()>>()?;
        self.wait_until_settled()
    }

    /// Whom each member follows; `None` for nobody, and where a member does not say.
    fn views(&self) -> Vec<Option<Follows>> {
        let all = 0..self.members.len();
        let statuses: Vec<_> = all.map(|member| self.status(member).ok()).collect();
        let index = |id: u64| {
            statuses.iter().position(|status| status.is_some_and(|status| status.id == id))
        };
        let follows = |status: &Option<Status>| {
            let Status { leader, term, .. } = (*status)?;
            Some(Follows { term, leader: index(leader)? })
        };
        statuses.iter().map(follows).collect()
    }

    /// What a member says of itself.
    fn status(&self, member: usize) -> Result<Status> {
        let gateway = &self.members[member].gateway;
        let status = gateway.call_within("maintenance/status", &json!({}), ANSWER)?;
        let number = |text: &Value| text.as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        let id = number(&status["header"]["member_id"]);
        Ok(Status { id, leader: number(&status["leader"]), term: number(&status["raftTerm"]) })
    }
}

fn start_if_ended(member: &Etcd) -> Result<()> {
    if member.process().is_running()? {
        return Ok(());
    }
    member.process().start_again(Data::Kept)
}
