//! One lock shared with `etcdctl lock`, which is Go's `concurrency.Mutex`.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

#[allow(dead_code)] // clients of this lock need no prefix here
mod clients;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clients::*;
use conformance_tests::servers::Etcd;
use lockkit_core::url::ConnectUrl;
use lockkit_core::{DistributedLock, Key, LockExt, Mode, Request, Which};
use lockkit_etcd::EtcdLock;

const NAME: &str = "order:lock:1001";
const SOON: Duration = Duration::from_secs(3);

fn plain(server: &Etcd) -> EtcdLock {
    let url = format!("etcd://{}?prefix=&ttl=5s", server.address());
    EtcdLock::from_url(&ConnectUrl::parse(&url).unwrap()).unwrap()
}

/// `etcdctl lock`; killed at the end. It holds the lock until then.
struct Neighbour(Child);

impl Neighbour {
    fn lock(server: &Etcd) -> Self {
        let child = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &server.address().to_string()])
            .args(["lock", "--ttl", "5", NAME])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// As SIGINT does: it gives the lock back.
    fn release(mut self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        self.0.wait().unwrap();
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn in_line(server: &Etcd, count: usize) {
    eventually(SOON, "so many in line", || server.keys(NAME).unwrap().len() == count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waits_for_the_other_in_one_queue() {
    let server = Etcd::start().unwrap();
    let lock = plain(&server);
    let ours = grant(&lock, NAME).await;
    let theirs = Neighbour::lock(&server);
    in_line(&server, 2).await;
    let next = tokio::spawn(plain(&server).acquire(Request::new(NAME).timeout(SOON * 5)));
    in_line(&server, 3).await;
    let order: Vec<_> = server.keys(NAME).unwrap().into_iter().map(|key| key.key).collect();
    ours.release().await.unwrap();
    in_line(&server, 2).await;
    // It is theirs now, and ours waits behind it.
    assert_eq!(server.keys(NAME).unwrap()[0].key, order[1]);
    let seen = lock.inspect(&Key::new(NAME).unwrap()).await.unwrap().unwrap();
    assert_eq!((seen.mode, seen.token, seen.waiting), (Mode::Exclusive, None, Some(1)));
    assert!(lock.try_acquire(NAME).await.unwrap().is_none());
    assert!(!next.is_finished());
    theirs.release();
    let guard = next.await.unwrap().unwrap();
    assert!(guard.fence() > ours.fence());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_is_exclusive_for_all_modes() {
    let server = Etcd::start().unwrap();
    let lock = plain(&server);
    let _theirs = Neighbour::lock(&server);
    in_line(&server, 1).await;
    let brief = || Request::new(NAME).timeout(Duration::from_millis(100));
    assert!(lock.acquire(brief()).await.unwrap_err().is_not_acquired());
    assert!(lock.shared(brief()).await.unwrap_err().is_not_acquired());
    let two = std::num::NonZeroU32::new(2).unwrap();
    let error = lock.permit(brief(), two).await.unwrap_err();
    assert_eq!(error.reason(), "configuration", "{error}");
    in_line(&server, 1).await;
    assert!(lock.force_release(&Key::new(NAME).unwrap(), Which::Whoever).await.unwrap());
    grant(&lock, NAME).await.release().await.unwrap();
}

/// No permit overtakes it; who comes with one is told at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_in_line_behind_permits_lets_no_other_permit_in() {
    let server = Etcd::start().unwrap();
    let lock = plain(&server);
    let three = std::num::NonZeroU32::new(3).unwrap();
    let ours = lock.permit(NAME, three).await.unwrap();
    let neighbour = format!("{NAME}/694d77aa9e38260f");
    server.put(&neighbour, "", 0).unwrap();
    let before = server.messages("Txn").unwrap();
    let request = || Request::new(NAME).permit(three);
    let error = lock.try_acquire(request()).await.unwrap_err();
    assert_eq!(error.reason(), "configuration", "{error}");
    let error = lock.acquire(request()).await.unwrap_err();
    assert_eq!(error.reason(), "configuration", "{error}");
    let asked = server.messages("Txn").unwrap() - before;
    assert!(asked < 10, "{asked} transactions for two answers");
    assert!(server.delete(&neighbour).unwrap());
    lock.acquire(request()).await.unwrap().release().await.unwrap();
    ours.release().await.unwrap();
}
