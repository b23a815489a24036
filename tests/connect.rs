//! From a URL to a backend.

#![allow(clippy::unwrap_used, clippy::panic)]

use lockkit::{Error, Require};
use proptest::prelude::*;

async fn refused(url: &str) -> String {
    match lockkit::connect(url).await {
        Err(error @ Error::Configuration(_)) => error.to_string(),
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn memory_is_always_there() {
    let lock = lockkit::connect("memory:").await.unwrap();
    assert_eq!(lock.core().capabilities().name, "memory");
}

#[tokio::test]
async fn an_unknown_scheme_lists_the_known_ones() {
    let error = refused("nosuch://user:s3cret@host").await;
    assert!(
        error.contains("`nosuch:`") && error.contains("`memory:`") && error.contains("`sqlite:`"),
        "{error}"
    );
    assert!(!error.contains("s3cret") && !error.contains("host"), "{error}");
    assert!(refused("locks.db").await.contains("no scheme"));
}

#[tokio::test]
async fn a_planned_backend_is_not_pretended() {
    for scheme in ["zk", "postgres", "mysql", "ZK"] {
        let error = refused(&format!("{scheme}://user:s3cret@host")).await;
        assert!(error.contains("no backend") && error.contains("yet"), "{error}");
        assert!(!error.contains("s3cret") && !error.contains("host"), "{error}");
    }
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn a_missing_feature_is_named() {
    assert!(refused("sqlite:locks.db").await.contains("enable feature `sqlite`"));
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn a_missing_feature_is_named_for_each_scheme() {
    for scheme in ["redis", "rediss", "redis+sentinel", "redis+cluster", "redlock"] {
        let error = refused(&format!("{scheme}://user:s3cret@host")).await;
        assert!(error.contains(scheme) && error.contains("enable feature `redis`"), "{error}");
        assert!(!error.contains("s3cret") && !error.contains("host"), "{error}");
    }
}

#[cfg(not(feature = "etcd"))]
#[tokio::test]
async fn a_missing_etcd_is_named_for_each_scheme() {
    for scheme in ["etcd", "etcds"] {
        let error = refused(&format!("{scheme}://user:s3cret@host")).await;
        assert!(error.contains(scheme) && error.contains("enable feature `etcd`"), "{error}");
        assert!(!error.contains("s3cret") && !error.contains("host"), "{error}");
    }
}

#[tokio::test]
async fn demands_are_compared_with_what_the_backend_has() {
    lockkit::connect_with("memory:", Require::cp().fenced()).await.unwrap();
    let error = lockkit::connect_with("memory:", Require::cp().fair()).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    assert!(error.to_string().contains("fair"), "{error}");
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use lockkit::LockExt;

    #[tokio::test]
    async fn demands_come_before_anything_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        let url = format!("sqlite:{}", path.display());
        lockkit::connect_with(&url, Require::nothing().fair()).await.unwrap_err();
        assert!(!path.exists());
        lockkit::connect_with(&url, Require::cp().fenced()).await.unwrap();
        assert!(path.exists());
    }

    #[tokio::test]
    async fn one_lock_through_two_clients() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        let (one, two) =
            (lockkit::connect(&url).await.unwrap(), lockkit::connect(&url).await.unwrap());
        let guard = one.acquire("order:lock:1001").await.unwrap();
        assert!(two.try_acquire("order:lock:1001").await.unwrap().is_none());
        guard.release().await.unwrap();
        assert!(two.try_acquire("order:lock:1001").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_wrong_parameter_is_named_with_the_right_ones() {
        let error = refused("sqlite:locks.db?tll=5s").await;
        assert!(error.contains("`tll`") && error.contains("`ttl`"), "{error}");
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_opened_fails_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().display());
        lockkit::connect(&url).await.unwrap_err();
    }
}

proptest! {
    /// A file that the text happens to name would be created: only other schemes here.
    #[test]
    fn no_text_makes_it_panic(text in any::<String>().prop_filter("a file", |t| !t.trim_start().to_ascii_lowercase().starts_with("sqlite"))) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = runtime.block_on(lockkit::connect(&text));
    }

    #[test]
    #[cfg(feature = "sqlite")]
    fn no_sqlite_url_makes_it_panic(name in "[a-zA-Z0-9 é%?&=:._-]{0,24}") {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/{name}", directory.path().display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = runtime.block_on(lockkit::connect(&url));
    }

    #[test]
    fn no_memory_url_makes_it_panic(rest in any::<String>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = runtime.block_on(lockkit::connect(&format!("memory:{rest}")));
    }

    #[test]
    fn what_is_secret_stays_secret(scheme in "[a-z]{3,8}", rest in "[a-z/@:?&=%#]{0,20}") {
        prop_assume!(scheme != "sqlite" && scheme != "memory" && !scheme.starts_with("red"));
        let url = format!("{scheme}://u:s3cret@{rest}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(lockkit::connect(&url)).unwrap_err();
        let shown = format!("{error} {error:?}");
        prop_assert!(!shown.contains("s3cret"), "{}", shown);
    }
}

/// What no acquire could keep is told at start-up.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn times_that_cannot_be_kept_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("locks.db").display());
    for url in [sqlite.as_str(), "memory:times"] {
        for wrong in ["ttl=1ms", "ttl=1000d", "op_timeout=0s"] {
            let error = lockkit::connect(&format!("{url}?{wrong}")).await.unwrap_err();
            assert!(matches!(error, lockkit::Error::Configuration(_)), "{url} {wrong}: {error}");
        }
    }
}
