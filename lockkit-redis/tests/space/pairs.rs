//! Keys that one client holds and another one waits for.

use lockkit_core::{DistributedLock, LockExt, Request};
use lockkit_redis::RedisLock;

use crate::clients::*;

/// How many keys are contended at a time.
const AT_ONCE: usize = 32;

/// For each of these names, what the rival asks for: the holder has it, the rival waits in line
/// and listens, gets it when the holder releases, and releases it.
pub(crate) async fn contend(
    holder: &RedisLock,
    rival: &RedisLock,
    pairs: impl Iterator<Item = (String, Request)>,
) {
    let mut pairs = pairs.peekable();
    while pairs.peek().is_some() {
        let (mut guards, mut waiters) = (Vec::new(), Vec::new());
        for (name, request) in pairs.by_ref().take(AT_ONCE) {
            guards.push(grant(holder, long(&name)).await);
            waiters.push((name, tokio::spawn(rival.acquire(request))));
        }
        if rival.core().capabilities().fair {
            for (name, _) in &waiters {
                waiting(rival, name, 1).await;
            }
        } else {
            eventually(PATIENCE, "they wait", || rival.core().waiting() == waiters.len()).await;
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
        for (name, waiter) in waiters {
            let next = within(PATIENCE, &name, waiter).await.unwrap().unwrap();
            next.release().await.unwrap();
        }
    }
}
