//! What all suites on Redis share: how a client is made, and that nothing of it stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::servers::{self, Fault};
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Result};
use lockkit_redis::RedisLock;

/// How long a server may take to notice that a client is gone, with its subscriptions.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// Makes one client.
pub(crate) fn connect(url: &ConnectUrl) -> Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(RedisLock::from_url(url)?))
}

/// What stands before all keys and channels of a case.
pub(crate) fn prefix(url: &ConnectUrl) -> servers::Result<String> {
    let prefix = url.clone().into_params().text_or_empty("prefix");
    prefix.ok_or_else(|| Fault::new("each case needs a `prefix` of its own"))
}

/// What `look` still sees when it has had time to go.
pub(crate) async fn what_stays(look: impl Fn() -> servers::Result<Vec<String>>) -> Vec<String> {
    let start = Instant::now();
    loop {
        let seen = look().unwrap_or_else(|fault| vec![format!("cannot look: {fault}")]);
        if seen.is_empty() || start.elapsed() > CLEAN_UP {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
