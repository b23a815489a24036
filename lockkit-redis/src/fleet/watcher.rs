//! Watches for a failover while a client is used.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use super::sentinel::Sentinels;
use crate::opener::{As, Opener};
use crate::target::Address;

/// How often the sentinels are asked. What one of them knows it tells at once, but only those who
/// listen to that one.
const EVERY: Duration = Duration::from_secs(1);

/// For how long the same sentinel is listened to: one that is stopped or cut off looks like one
/// that has nothing to say.
const SAME: Duration = Duration::from_secs(10);

/// The pauses between attempts to subscribe.
const PAUSE: Duration = Duration::from_millis(100);

/// Where sentinels tell of a failover.
const CHANNEL: &str = "+switch-master";

/// Watches until the client is gone or unused.
pub(super) async fn watch(client: Weak<Sentinels>) {
    tokio::select! {
        () = ask_now_and_then(&client) => {}
        () = listen(&client) => {}
    }
}

async fn ask_now_and_then(client: &Weak<Sentinels>) {
    loop {
        sleep(EVERY).await;
        match client.upgrade() {
            Some(client) if !client.rest() => client.ask(),
            _ => return,
        }
    }
}

async fn listen(client: &Weak<Sentinels>) {
    let Some((sentinels, opener, master)) = client.upgrade().map(|c| c.doors()) else { return };
    let start = fastrand::usize(..sentinels.len().max(1));
    for sentinel in sentinels.iter().cycle().skip(start) {
        listen_to(client, sentinel, &opener, &master).await;
        sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
    }
}

/// Listens to one of them until it falls silent.
async fn listen_to(
    client: &Weak<Sentinels>,
    sentinel: &Address,
    opener: &Arc<Opener>,
    master: &str,
) {
    let Ok(mut messages) = opener.subscriber(sentinel, As::SentinelClient).await else { return };
    let subscribed = timeout(opener.timeout(), messages.subscribe(CHANNEL)).await;
    if !matches!(subscribed, Ok(Ok(()))) {
        return;
    }
    // What was told before is lost.
    if let Some(client) = client.upgrade() {
        client.ask_again();
    }
    let mut messages = messages.into_on_message();
    while let Ok(Some(message)) = timeout(SAME, messages.next()).await {
        // Name, then the old address and the new one.
        let text = String::from_utf8_lossy(message.get_payload_bytes());
        if text.strip_prefix(master).is_some_and(|rest| rest.starts_with(' '))
            && let Some(client) = client.upgrade()
        {
            client.news();
        }
    }
}
