//! Several Redis servers that know nothing of one another.

use std::ops::Deref;

use super::{Redis, RedisBuilder, Result};

/// Independent Redis servers, as Redlock wants them. A slice of [`Redis`].
#[derive(Debug)]
pub struct Nodes(Vec<Redis>);

impl Nodes {
    /// Starts `count` servers as they come.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn start(count: usize) -> Result<Self> {
        Self::start_as(count, &Redis::builder())
    }

    /// Starts `count` servers that are all as `builder` says.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn start_as(count: usize, builder: &RedisBuilder) -> Result<Self> {
        (0..count).map(|_| builder.start()).collect::<Result<_>>().map(Self)
    }

    /// Where they are, as URLs name them: `host:port,host:port`.
    pub fn hosts(&self) -> String {
        hosts(&self.0)
    }
}

impl Deref for Nodes {
    type Target = [Redis];

    fn deref(&self) -> &[Redis] {
        &self.0
    }
}

/// `host:port,host:port`.
pub(super) fn hosts<'a>(servers: impl IntoIterator<Item = &'a Redis>) -> String {
    let hosts: Vec<_> = servers.into_iter().map(|server| server.address().to_string()).collect();
    hosts.join(",")
}
