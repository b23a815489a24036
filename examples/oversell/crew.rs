//! The processes that sell, as their parent sees them.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Result;
use crate::args::{LOCK_URL, Post};
use crate::instance::{GO_ON, INSIDE, READY, START};

/// One process that sells.
#[derive(Debug)]
struct Seller {
    process: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Seller {
    fn start(post: &Post) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("instance").arg("--books").arg(&post.books);
        command.args(["--round", &post.round, "--key", &post.key]);
        command.args(["--instance", &post.instance.to_string()]);
        command.args(["--workers", &post.workers.to_string()]);
        command.args(["--ttl", &post.ttl.as_millis().to_string()]);
        command.args(["--think", &post.think.as_millis().to_string()]);
        command.args(post.fenced.then_some("--fenced"));
        command.args(post.pausing.then_some("--pausing"));
        match &post.lock {
            Some(url) => command.env(LOCK_URL, url),
            None => command.env_remove(LOCK_URL),
        };
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let (Some(orders), Some(said)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a process was started without its pipes".into());
        };
        Ok(Self { process, orders, said: BufReader::new(said).lines() })
    }

    /// Waits until it says `word`.
    async fn says(&mut self, word: &str) -> Result<()> {
        match self.said.next_line().await? {
            Some(said) if said == word => Ok(()),
            Some(said) => Err(format!("a process said `{said}` instead of `{word}`").into()),
            None => Err("a process has ended too early".into()),
        }
    }

    async fn order(&mut self, order: &str) -> Result<()> {
        Ok(self.orders.write_all(format!("{order}\n").as_bytes()).await?)
    }

    /// Stops it, and returns when it stands still.
    async fn stop(&self) -> Result<()> {
        kill_process(self.pid()?, Signal::STOP)?;
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while waitid(WaitId::Pid(self.pid()?), stopped)?.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<()> {
        Ok(kill_process(self.pid()?, Signal::CONT)?)
    }

    async fn ended(&mut self) -> Result<()> {
        let status = self.process.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("a process failed: {status}").into()) }
    }

    fn pid(&self) -> Result<Pid> {
        let pid = self.process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        pid.ok_or_else(|| "a process has ended too early".into())
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Crew(Vec<Seller>);

impl Crew {
    /// Starts them, and returns when all are ready.
    pub(crate) async fn assemble(&mut self, posts: impl Iterator<Item = Post>) -> Result<()> {
        for post in posts {
            self.0.push(Seller::start(&post)?);
        }
        for seller in &mut self.0 {
            seller.says(READY).await?;
        }
        Ok(())
    }

    /// Lets all begin together.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        for seller in &mut self.0 {
            seller.order(START).await?;
        }
        Ok(())
    }

    /// Lets the first begin, and stops it between its read and its write. Then lets the others
    /// begin. When one of them has sold (`rivals_sell` says whether), the first may write.
    pub(crate) async fn begin_with_one_stopped(
        &mut self,
        rivals_sell: impl AsyncFn() -> Result<bool>,
    ) -> Result<()> {
        let Some((first, others)) = self.0.split_first_mut() else { return Ok(()) };
        first.order(START).await?;
        first.says(INSIDE).await?;
        first.stop().await?;
        for seller in others {
            seller.order(START).await?;
        }
        while !rivals_sell().await? {
            // It was stopped in the middle of a write to the lock's own file, say, and keeps
            // everybody out of that. It gets the time to finish, but may not sell yet.
            first.go_on()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
            first.stop().await?;
        }
        first.order(GO_ON).await?;
        first.go_on()
    }

    /// Waits until all have ended well.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        for seller in &mut self.0 {
            seller.ended().await?;
        }
        Ok(())
    }

    /// Kills those that are left, stopped ones too, and waits for all.
    pub(crate) async fn dismiss(mut self) {
        for seller in &mut self.0 {
            let _ = seller.process.kill().await;
        }
    }
}
