//! What must not be left when a case is over.

use std::time::{Duration, Instant};

use lockkit_core::testing::{Fault, lock_thread_tasks, watchdog_entries};

use crate::bed::{Client, Left, Test, close};
use crate::check::{eventually, free_within, grant, release};
use crate::space::parse;

/// How long clean-up may go on behind a case: one `op_timeout` and a retry.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// What a process has that holds no lock and has no client, but had both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Baseline {
    tasks: usize,
    entries: usize,
    files: usize,
}

impl Baseline {
    /// Uses the lock thread once, and waits until it rests.
    pub(crate) async fn take(test: &Test) -> Self {
        let key = test.key("warm-up");
        let client = test.client().await;
        release(&grant(&*client, test.request(&key)).await).await;
        assert!(close(&client).await, "a client that only released did not close");
        drop(client);
        test.left(|left| left.clients.clear());
        let mut seen = Self::now();
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_millis(40) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let now = Self::now();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        seen
    }

    fn now() -> Self {
        let (tasks, entries) = (lock_thread_tasks(), watchdog_entries());
        Self { tasks, entries, files: open_files().len() }
    }

    /// Compares with what the case left.
    ///
    /// # Panics
    /// If anything is left.
    pub(crate) async fn compare(self, test: &Test) {
        let Left { keys, clients, faulty } = test.left(std::mem::take);
        for faulty in &faulty {
            faulty.all(&Fault::None);
            faulty.let_go();
        }
        for client in &clients {
            assert!(close(client).await, "left behind: clean-up that does not end");
        }
        drop((clients, faulty));
        keys_are_free(test, &keys).await;
        let left = test.subject().leftovers(&parse(test.url())).await;
        assert!(left.is_empty(), "left in the store:\n{}", left.join("\n"));
        eventually(CLEAN_UP, &format!("tasks left on the lock thread, more than {self:?}"), || {
            Self::now().tasks <= self.tasks
        })
        .await;
        eventually(CLEAN_UP, &format!("claims left in the watchdog, more than {self:?}"), || {
            Self::now().entries <= self.entries
        })
        .await;
        let start = Instant::now();
        while Self::now().files > self.files {
            let open = open_files();
            let limit = start.elapsed() < CLEAN_UP;
            assert!(limit, "files left open, more than {self:?}:\n{}", open.join("\n"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// What this process has open, as far as the machine tells.
fn open_files() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let name = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok();
    let names = entries.flatten().filter_map(name).map(|name| name.display().to_string());
    // The runtimes' own, which they make when they first need them.
    names.filter(|name| !name.starts_with("anon_inode:[")).collect()
}

/// Every key can be acquired by a client that knows nothing, and nobody waits for it.
async fn keys_are_free(test: &Test, keys: &[String]) {
    let client = test.client().await;
    for key in keys {
        let why = format!("left behind: a claim of `{key}`");
        release(&free_within(&*client, test.request(key), CLEAN_UP, &why).await).await;
    }
    assert!(close(&client).await, "the client of the leak check did not close");
    drop::<Client>(client);
    test.left(|left| left.clients.clear());
}
