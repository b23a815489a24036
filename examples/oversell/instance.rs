//! One process that sells. It tells its parent what it does on standard output, and is told what
//! to do on standard input.

use std::sync::Arc;
use std::time::Duration;

use lockkit::{DistributedLock, Error, Guard, LockExt, Request, Require};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

use crate::Result;
use crate::args::Post;
use crate::books::{Books, Entry};
use crate::report;

/// To the parent: all is open, the barrier may fall.
pub(crate) const READY: &str = "ready";
/// To the parent: the holder that is to be stopped is between its read and its write.
pub(crate) const INSIDE: &str = "inside";
/// From the parent: the barrier falls.
pub(crate) const START: &str = "start";
/// From the parent: the holder may write.
pub(crate) const GO_ON: &str = "go on";

type Lock = Arc<dyn DistributedLock>;

/// What the workers of one process share.
struct Shop {
    post: Post,
    books: Books,
    lock: Option<Lock>,
    /// Whether a sale of this process is still to pause; the first one takes it.
    pause: Mutex<bool>,
    go_on: Notify,
}

pub(crate) async fn run(post: Post) -> Result<()> {
    let books = Books::open(&post.books, &post.round, post.workers).await?;
    let lock = match &post.lock {
        Some(url) => Some(lockkit::connect_with(url, Require::nothing().fenced()).await?),
        None => None,
    };
    let pause = Mutex::new(post.pausing);
    let shop = Arc::new(Shop { post, books, lock, pause, go_on: Notify::new() });

    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    report::tell(READY);
    if orders.next_line().await?.as_deref() != Some(START) {
        return Err("the parent has gone before the start".into());
    }
    tokio::select! {
        done = sell_out(&shop) => done,
        gone = follow(&mut orders, &shop) => gone,
    }
}

/// Follows the parent's orders. Ends only if it has gone: nobody would stop this process then.
async fn follow(orders: &mut Lines<BufReader<Stdin>>, shop: &Shop) -> Result<()> {
    while let Some(order) = orders.next_line().await? {
        if order == GO_ON {
            shop.go_on.notify_one();
        }
    }
    Err("the parent has gone".into())
}

async fn sell_out(shop: &Arc<Shop>) -> Result<()> {
    let mut workers: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..shop.post.workers {
        let shop = Arc::clone(shop);
        workers.spawn(async move {
            while shop.next_customer().await? {}
            Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    if let Some(lock) = &shop.lock {
        lock.close(Duration::from_secs(2)).await;
    }
    Ok(())
}

impl Shop {
    /// Sells one piece. Returns whether there may be more.
    async fn next_customer(&self) -> Result<bool> {
        let guard = self.enter().await?;
        let fence = guard.as_ref().and_then(Guard::fence).unwrap_or_default();
        let left = self.books.left().await?;
        if left > 0 {
            self.think().await;
            // No look at `guard.is_held()` here: the process may be stopped after any look. The
            // books themselves must refuse.
            let entry = Entry { instance: self.post.instance, fence: i64::try_from(fence)? };
            let sold = self.books.sell(left - 1, entry, self.post.fenced).await?;
            if !sold && guard.as_ref().is_some_and(Guard::is_held) {
                return Err("a write was refused although its lock is held".into());
            }
        }
        match guard {
            Some(guard) => leave(&guard).await?,
            None => tokio::task::yield_now().await,
        }
        Ok(left > 0)
    }

    async fn enter(&self) -> Result<Option<Guard>> {
        let Some(lock) = &self.lock else { return Ok(None) };
        let request = Request::new(&self.post.key).ttl(self.post.ttl);
        let request = request.timeout(Duration::from_secs(30));
        Ok(Some(lock.acquire(request).await?))
    }

    async fn think(&self) {
        let pauses = std::mem::take(&mut *self.pause.lock().await);
        if pauses {
            report::tell(INSIDE);
            self.go_on.notified().await;
        } else {
            tokio::time::sleep(self.post.think).await;
        }
    }
}

async fn leave(guard: &Guard) -> Result<()> {
    match guard.release().await {
        // A loss is what the last round is about, and the books have dealt with it. A release
        // that was not confirmed is repeated in the background.
        Ok(()) | Err(Error::Lost(_) | Error::Unavailable(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
