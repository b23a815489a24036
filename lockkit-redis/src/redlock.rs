//! Redlock: a claim stands on most of several independent servers.
//!
//! The algorithm is that of the page "Distributed Locks with Redis" of the Redis documentation
//! (S. Sanfilippo): ask all servers at the same time, hold if most of them granted and time is
//! left, counted from before the first request, else undo everywhere. Here a quorum is also needed
//! to renew, and what a server owes an answer for is cleaned up for as long as it could matter.

mod contender;
mod debts;
mod quorum;
mod round;
mod site;

pub(crate) use self::contender::QuorumContender;
pub(crate) use self::quorum::Quorum;
