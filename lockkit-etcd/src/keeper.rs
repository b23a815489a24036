//! Extending a lease, and revoking it in the end: one task on the lock thread per lease.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{LeaseKeepAliveStream, LeaseKeeper};
use lockkit_core::BootInstant;
use tokio::time::timeout;

use crate::errors::{Problem, Verdict};
use crate::fleet::Fleet;
use crate::lease::{Duty, ServerLease};

/// Looks after `lease` until it is gone.
pub(crate) async fn keep(lease: Arc<ServerLease>, fleet: Arc<Fleet>) {
    let mut keeper = Keeper { lease, fleet, stream: None, failures: 0, not_before: None };
    loop {
        let (at, extend) = match keeper.lease.duty() {
            Duty::Nothing => return,
            Duty::Revoke => return keeper.revoke().await,
            Duty::Look(at) => (at, false),
            Duty::Extend(at) => (keeper.not_before.map_or(at, |then| at.max(then)), true),
        };
        let now = BootInstant::now();
        if now < at {
            // Woken or not: what is to be done may be something else now.
            let _ = timeout(at.since(now), keeper.lease.changed.notified()).await;
        } else if extend {
            keeper.extend().await;
        }
    }
}

struct Keeper {
    lease: Arc<ServerLease>,
    fleet: Arc<Fleet>,
    stream: Option<Stream>,
    failures: u32,
    not_before: Option<BootInstant>,
}

/// A stream of requests to one server, and of its answers.
struct Stream {
    asks: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// The pauses after failures grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The longest that one answer may take: a stopped leader makes the streams of its followers
/// silent, and another stream finds the new one.
const LONGEST: Duration = Duration::from_secs(2);

impl Keeper {
    fn patience(&self) -> Duration {
        self.lease.period().min(LONGEST)
    }

    async fn extend(&mut self) {
        let (sent, patience) = (BootInstant::now(), self.patience());
        let result = match &mut self.stream {
            Some(stream) => timeout(patience, stream.extend())
                .await
                .unwrap_or_else(|_| Err(Problem::silent(format!("no answer within {patience:?}")))),
            None => self.open().await,
        };
        match result {
            Ok(()) => {
                self.lease.extended(sent);
                self.failures = 0;
                self.not_before = None;
            }
            Err(problem) if problem.verdict() == Verdict::NoLease => {
                self.lease.over("etcd no longer has the lease: it ran out or was revoked");
            }
            Err(problem) => {
                self.stream = None;
                self.lease.not_extended(problem.to_string());
                self.not_before = Some(BootInstant::now() + self.pause());
            }
        }
    }

    /// Opens a stream at the next server; its first answer has extended the lease.
    async fn open(&mut self) -> Result<(), Problem> {
        let (node, turn) = self.fleet.first();
        let patience = self.patience();
        let id = self.lease.id();
        let mut generation = None;
        let open = async {
            let opened = node.client().await?;
            generation = Some(opened.generation);
            let stream = opened.client.lease_client().keep_alive(id).await;
            let stream = stream.map_err(|error| Problem::of(&node.name(), error));
            if stream.as_ref().is_err_and(|problem| problem.verdict() == Verdict::StaleToken) {
                // What is wrong with the user is what the next try says.
                let _ = opened.client.refresh_token().await;
            }
            stream
        };
        let opened = timeout(patience, open).await.unwrap_or_else(|_| {
            Err(Problem::silent(format!("{} did not answer within {patience:?}", node.name())))
        });
        match opened {
            Ok((asks, answers)) => {
                self.stream = Some(Stream { asks, answers });
                Ok(())
            }
            Err(problem) => {
                if problem.verdict() != Verdict::NoLease {
                    self.fleet.avoid(turn);
                }
                if let (Verdict::Unknown, Some(generation)) = (problem.verdict(), generation) {
                    node.doubt(generation);
                }
                Err(problem)
            }
        }
    }

    fn pause(&mut self) -> Duration {
        let pause = PAUSES.0 * 2_u32.saturating_pow(self.failures.min(8));
        self.failures += 1;
        let longest = PAUSES.1.min(self.lease.ttl() / 12).max(PAUSES.0);
        pause.min(longest).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    async fn revoke(mut self) {
        self.stream = None;
        let id = self.lease.id();
        loop {
            let revoke = |client: Arc<etcd_client::Client>| async move {
                client.lease_client().revoke(id).await
            };
            match self.fleet.call(self.patience(), revoke).await {
                Ok(_) => break,
                Err(failed) if failed.lacks_lease() => break,
                // Nothing extends it any more, so it ends by itself.
                Err(_) if BootInstant::now() >= self.lease.end() => break,
                Err(_) => tokio::time::sleep(self.pause()).await,
            }
        }
        self.lease.given_back();
    }
}

impl Stream {
    async fn extend(&mut self) -> Result<(), Problem> {
        let of = |error| Problem::of(&"the stream that extends the lease", error);
        self.asks.keep_alive().await.map_err(of)?;
        match self.answers.message().await.map_err(of)? {
            Some(answer) if answer.ttl() > 0 => Ok(()),
            Some(_) => Err(Problem::no_lease()),
            None => Err(Problem::silent("the stream that extends the lease has ended")),
        }
    }
}
