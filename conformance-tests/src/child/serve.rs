//! The child's side: does what it is told, and says what happened and when.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkit_core::{BootInstant, DistributedLock, Guard, LockExt};

use super::URL;
use super::order::{Ask, Order};
use crate::runner::runtime;
use crate::space::parse;
use crate::subject::Subject;

/// The URL, if this process is to be a child.
pub(crate) fn asked_for() -> Option<String> {
    std::env::var(URL).ok()
}

/// Serves until standard input ends, which it also does when the parent dies.
pub(crate) fn serve(subject: &'static dyn Subject, url: &str) {
    let runtime = runtime();
    let lock = runtime.block_on(subject.connect(&parse(url))).expect("a client in a child");
    let child = Child { lock, guards: Arc::default() };
    say("child", "ready", "");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let order = Order::parse(&line).unwrap_or_else(|| panic!("no order: {line}"));
        if matches!(order, Order::Exit) {
            std::process::exit(0);
        }
        let child = child.clone();
        runtime.spawn(async move { child.obey(order).await });
    }
    std::process::exit(0);
}

fn say(id: &str, word: &str, rest: impl std::fmt::Display) {
    // One write per line, so that lines of several threads stay whole.
    println!("{id} {word} {} {rest}", BootInstant::now().as_nanos());
}

#[derive(Clone)]
struct Child {
    lock: Arc<dyn DistributedLock>,
    guards: Arc<Mutex<HashMap<String, Arc<Guard>>>>,
}

impl Child {
    async fn obey(&self, order: Order) {
        match order {
            Order::Acquire { id, ask } => self.acquire(id, ask).await,
            Order::Release { id } => {
                let outcome = self.guard(&id).release().await;
                say(&id, "released", outcome.map_or_else(|e| e.reason(), |()| "ok"));
            }
            Order::Held { id } => say(&id, "held", self.guard(&id).is_held()),
            Order::Count { id, ask, file, times } => {
                for _ in 0..times {
                    self.count(&ask, &file).await;
                }
                say(&id, "counted", times);
            }
            Order::Churn { id, ask } => loop {
                let guard = self.lock.acquire(ask.request()).await.expect("churn: acquire");
                say(&id, "round", guard.fence().unwrap_or(0));
                // Any outcome: the parent may have taken the key away.
                let _ = guard.release().await;
            },
            Order::Exit => {}
        }
    }

    async fn acquire(&self, id: String, ask: Ask) {
        let guard = match self.lock.acquire(ask.request()).await {
            Ok(guard) => Arc::new(guard),
            Err(e) => return say(&id, "failed", e),
        };
        let (fence, lost) = (guard.fence().unwrap_or(0), guard.lost());
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), guard);
        say(&id, "acquired", fence);
        let lost = lost.await;
        say(&id, "lost", lost.reason.reason());
    }

    fn guard(&self, id: &str) -> Arc<Guard> {
        let guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(guards.get(id).expect("a guard of this name"))
    }

    /// Read, think, write: goes wrong if anybody else does the same at the same time.
    async fn count(&self, ask: &Ask, file: &Path) {
        let guard = self.lock.acquire(ask.request()).await.expect("count: acquire");
        let number: u64 = std::fs::read_to_string(file).expect("read").trim().parse().expect("n");
        tokio::time::sleep(Duration::from_millis(2)).await;
        std::fs::write(file, (number + 1).to_string()).expect("write");
        guard.release().await.expect("count: release");
    }
}
