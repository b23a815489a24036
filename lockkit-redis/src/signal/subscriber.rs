//! The task behind one subscription connection.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use redis::Value;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::time::{sleep, timeout};

use super::topics::{LINGER, Topics};
use crate::errors::Problem;

/// Where a subscription is made.
#[async_trait]
pub(crate) trait Source: Debug + Send + Sync {
    /// Opens a connection to the server that tells releases now.
    async fn open(&self) -> Result<PubSub, Problem>;

    /// Resolves when another connection is to be opened instead.
    async fn moved(&self) {
        std::future::pending::<()>().await;
    }
}

/// How long the server may take to confirm.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// For how long the connection is kept when nobody waits.
const IDLE: Duration = Duration::from_secs(1);

/// The pauses between attempts to connect grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Starts the task; waiters are polled inside the lock thread's runtime.
pub(super) fn start(topics: &Arc<Topics>, source: Arc<dyn Source>, at: usize) {
    let task = Task { topics: Arc::downgrade(topics), source, at };
    tokio::spawn(async move { task.run().await });
}

struct Task {
    /// Weak: with the client, the subscription ends.
    topics: Weak<Topics>,
    source: Arc<dyn Source>,
    at: usize,
}

impl Drop for Task {
    fn drop(&mut self) {
        // Also when it is dropped on the way: the next waiter starts another one.
        if let Some(topics) = self.topics.upgrade() {
            topics.disconnected(self.at);
            topics.end(self.at, true);
        }
    }
}

/// How often the connection must prove that it still carries anything: a message that does not
/// come looks like a key that is not released.
const PROVE: Duration = Duration::from_secs(5);

/// What there was to wait for.
enum Event {
    /// A message, which was delivered.
    Message,
    /// Something that may need another look at who waits.
    Other,
}

/// How the time with one connection ended.
enum End {
    /// Nobody waits any more.
    Idle,
    /// It never carried anything.
    Broken,
    /// It is broken now, or to be replaced.
    Served,
}

impl Task {
    async fn run(&self) {
        let mut pause = PAUSES.0;
        loop {
            match self.source.open().await {
                Ok(connection) => match self.serve(connection).await {
                    End::Idle => return,
                    End::Broken => self.disconnected(),
                    End::Served => {
                        pause = PAUSES.0;
                        self.disconnected();
                    }
                },
                Err(problem) => self.trouble(&problem),
            }
            if self.may_end() {
                return;
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn trouble(&self, problem: &Problem) {
        if let Some(topics) = self.topics.upgrade() {
            topics.trouble(problem);
        }
    }

    fn disconnected(&self) {
        if let Some(topics) = self.topics.upgrade() {
            topics.disconnected(self.at);
        }
    }

    /// Nobody waits, or the client is gone.
    fn may_end(&self) -> bool {
        self.topics.upgrade().is_none_or(|topics| {
            topics.difference(&HashSet::new());
            topics.end(self.at, false)
        })
    }

    async fn serve(&self, connection: PubSub) -> End {
        let (mut sink, mut messages) = connection.split();
        let mut has = HashSet::new();
        let mut idle_since = None;
        let mut proven = Instant::now();
        loop {
            let Some(topics) = self.topics.upgrade() else { return End::Idle };
            if self.bring_in_line(&topics, &mut sink, &mut has).await.is_none() {
                return if has.is_empty() { End::Broken } else { End::Served };
            }
            if has.is_empty() {
                let since = *idle_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= IDLE && topics.end(self.at, false) {
                    return End::Idle;
                }
            } else {
                idle_since = None;
            }
            let tick = match (topics.lingers(), has.is_empty()) {
                (true, _) => LINGER / 2,
                (false, true) => IDLE / 4,
                (false, false) => Duration::MAX,
            };
            drop(topics);
            if proven.elapsed() >= PROVE {
                if !matches!(timeout(ANSWERS_WITHIN, sink.ping::<Value>()).await, Ok(Ok(_))) {
                    return End::Served;
                }
                proven = Instant::now();
            }
            loop {
                match self.next(&mut messages, tick).await {
                    Some(Event::Message) => {}
                    Some(Event::Other) => break,
                    None => return End::Served,
                }
            }
        }
    }

    /// Waits until something happens; `None` if the connection is over.
    async fn next(&self, messages: &mut PubSubStream, tick: Duration) -> Option<Event> {
        let changed = async {
            // The tick is behind it, so that a client that is gone does not stay.
            if let Some(topics) = self.topics.upgrade() {
                let _ = timeout(IDLE, topics.changed(self.at)).await;
            }
        };
        tokio::select! {
            message = messages.next() => {
                let message = message?;
                let channel: Vec<u8> = message.get_channel().ok()?;
                if let Some(topics) = self.topics.upgrade() {
                    topics.deliver(self.at, &channel, message.get_payload_bytes());
                }
                Some(Event::Message)
            }
            () = self.source.moved() => None,
            () = changed => Some(Event::Other),
            () = sleep(tick) => Some(Event::Other),
        }
    }

    /// Subscribes and unsubscribes what is missing; `None` if the connection is over.
    async fn bring_in_line(
        &self,
        topics: &Topics,
        sink: &mut PubSubSink,
        has: &mut HashSet<Vec<u8>>,
    ) -> Option<()> {
        let (add, drop) = topics.difference(has);
        if !add.is_empty() {
            if let Err(error) = timeout(ANSWERS_WITHIN, sink.subscribe(&add)).await.ok()? {
                topics.trouble(&Problem::new(&"the server", error));
                return None;
            }
            topics.confirm(self.at, &add);
            has.extend(add);
        }
        if !drop.is_empty() {
            timeout(ANSWERS_WITHIN, sink.unsubscribe(&drop)).await.ok()?.ok()?;
            has.retain(|channel| !drop.contains(channel));
        }
        Some(())
    }
}
