//! Redlock: a claim stands on most of several independent servers.
//!
//! The algorithm is that of the page "Distributed Locks with Redis" of the Redis documentation
//! (S. Sanfilippo): ask all servers at the same time, hold if most of them granted and time is
//! left, counted from before the first request, else undo everywhere and try again after a random
//! pause. Here a quorum is also needed to renew, nothing is waited for that cannot change the
//! outcome, and what a server owes an answer for is cleaned up for as long as it could matter.
//!
//! - `votes` counts, `ballot` knows what may still happen on which server, `contender` acts.
//! - `site` is one server, `debts` what it is still to be told, `round` a question to all of them.

mod ballot;
mod contender;
mod debts;
mod quorum;
mod round;
mod site;
mod votes;

pub(crate) use self::contender::QuorumContender;
pub(crate) use self::quorum::Quorum;
