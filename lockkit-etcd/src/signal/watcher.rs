//! The task behind the stream of watches.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use etcd_client::{Client, KeyValue, WatchRequestSender, WatchResponse, WatchResponseStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

use super::watch::Watch;
use super::{Command, Line};
use crate::fleet::Fleet;

/// The task behind the stream of watches.
pub(super) struct Watcher {
    /// Weak: with the client, the watching ends.
    line: Weak<Line>,
    fleet: Arc<Fleet>,
    commands: UnboundedReceiver<Command>,
    watches: HashMap<i64, Watch>,
}

/// For how long the task is kept when nobody waits: where a key is handed on, the next one comes
/// at once.
const IDLE: Duration = Duration::from_millis(500);

/// How long a server may take to open the stream, or to take one more watch.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The pauses between attempts to open a stream grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// An open stream.
struct Stream {
    asks: WatchRequestSender,
    answers: WatchResponseStream,
    client: Arc<Client>,
    /// The turn of its server.
    turn: usize,
}

/// How the time with one stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nobody waits any more.
    Idle,
    /// It is broken, or another server is to be asked.
    Broken,
}

impl Watcher {
    pub(super) fn new(
        line: Weak<Line>,
        fleet: Arc<Fleet>,
        commands: UnboundedReceiver<Command>,
    ) -> Self {
        Self { line, fleet, commands, watches: HashMap::new() }
    }

    pub(super) async fn run(mut self) {
        let mut pause = PAUSES.0;
        while self.wanted().await {
            match self.open().await {
                Some(stream) => {
                    pause = PAUSES.0;
                    if self.serve(stream).await == End::Idle {
                        continue;
                    }
                }
                None => pause = (pause * 2).min(PAUSES.1),
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
    }

    /// Waits until there is something to watch; false if the task is to end.
    async fn wanted(&mut self) -> bool {
        loop {
            while let Ok(command) = self.commands.try_recv() {
                self.note(command);
            }
            if !self.watches.is_empty() {
                return true;
            }
            match timeout(IDLE, self.commands.recv()).await {
                Ok(Some(command)) => self.note(command),
                Ok(None) => return false,
                Err(_) => match self.line.upgrade() {
                    Some(line) if !line.end(&self.commands) => {}
                    _ => return false,
                },
            }
        }
    }

    fn note(&mut self, command: Command) {
        match command {
            Command::Add(watch) => {
                self.watches.insert(watch.id, watch);
            }
            Command::Cancel(id) => {
                self.watches.remove(&id);
            }
        }
    }

    /// Opens a stream with all watches on it.
    async fn open(&mut self) -> Option<Stream> {
        let (node, turn) = self.fleet.first();
        let open = async {
            let client = node.client().await.ok()?.client;
            let mut all = self.watches.values().map(Watch::request);
            let (key, options) = all.next()?;
            let stream = client.watch_client().watch(key, Some(options)).await.ok()?;
            let (mut asks, answers) = stream.split();
            for (key, options) in all {
                asks.watch(key, Some(options)).await.ok()?;
            }
            Some(Stream { asks, answers, client, turn })
        };
        let opened = timeout(ANSWERS_WITHIN, open).await.ok().flatten();
        if opened.is_none() {
            self.fleet.avoid(turn);
        }
        opened
    }

    async fn serve(&mut self, mut stream: Stream) -> End {
        let fleet = Arc::clone(&self.fleet);
        loop {
            let mut moved = std::pin::pin!(fleet.moved.notified());
            moved.as_mut().enable();
            if fleet.first().1 != stream.turn {
                return End::Broken;
            }
            tokio::select! {
                () = moved => {}
                command = self.commands.recv() => {
                    let Some(command) = command else { return End::Idle };
                    if !self.pass_on(&mut stream, command).await {
                        return End::Broken;
                    }
                }
                () = sleep(IDLE), if self.watches.is_empty() => return End::Idle,
                answer = stream.answers.message() => {
                    let Ok(Some(answer)) = answer else { return End::Broken };
                    if !self.see(&stream.client, &answer).await {
                        return End::Broken;
                    }
                }
            }
        }
    }

    /// Whether the stream took it.
    async fn pass_on(&mut self, stream: &mut Stream, command: Command) -> bool {
        let pass = async {
            match &command {
                Command::Add(watch) => {
                    let (key, options) = watch.request();
                    stream.asks.watch(key, Some(options)).await
                }
                Command::Cancel(id) if self.watches.contains_key(id) => {
                    stream.asks.cancel(*id).await
                }
                Command::Cancel(_) => Ok(()),
            }
        };
        let passed = timeout(ANSWERS_WITHIN, pass).await;
        self.note(command);
        matches!(passed, Ok(Ok(())))
    }

    /// Whether the stream is still of use.
    async fn see(&mut self, client: &Client, answer: &WatchResponse) -> bool {
        let id = answer.watch_id();
        if answer.canceled() {
            if answer.cancel_reason().contains("auth token") {
                // What is wrong with the user is what the waiter's next question is told.
                let _ = timeout(ANSWERS_WITHIN, client.refresh_token()).await;
            }
            return match self.watches.remove(&id) {
                Some(watch) => {
                    watch.fail();
                    true
                }
                // Whose watch it was is not said; or it was cancelled by us.
                None => id >= 0,
            };
        }
        let Some(watch) = self.watches.get_mut(&id) else { return true };
        for event in answer.events() {
            watch.see(event);
        }
        let last = answer.events().iter().filter_map(|event| event.kv());
        if let Some(last) = last.map(KeyValue::mod_revision).max() {
            watch.seen_to(last);
        }
        true
    }
}
