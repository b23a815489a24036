//! Fences and tokens of many claims of one key.

use std::collections::BTreeSet;
use std::time::Duration;

use conformance_tests::servers::Redis;

use crate::clients::*;

const NAME: &str = "order:lock:1001";

/// Between the acquires: attempts that fail, claims that expire, and keys that are deleted by
/// hand, which is all that the server knows of a plain lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_over_a_thousand_claims_whatever_happens_to_the_key() {
    for params in ["", "fair=true", "layout=hash"] {
        let server = Redis::start().unwrap();
        let (one, two) = (client(&server, params), client(&server, params));
        let (mut last, mut tokens) = (0, BTreeSet::new());
        for n in 0..1_000 {
            let (lock, rival) = if n % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let expires = n % 100 == 99;
            let request = if expires { dying(NAME, 100) } else { long(NAME) };
            let guard = grant(lock, request).await;
            let fence = guard.fence().expect("a fence");
            assert!(fence > last, "{params}: claim {n} has the fence {fence} after {last}");
            assert!(tokens.insert(guard.token().to_string()), "{params}: a token came twice");
            last = fence;
            if n % 10 == 3 {
                refused(rival, long(NAME), "held").await;
            }
            if expires {
                let lost = within(Duration::from_secs(1), "the end of the TTL", guard.lost());
                lost.await;
                std::mem::forget(guard);
            } else if n % 50 == 25 {
                ask(&server, &["DEL", &format!("lockkit:{NAME}")]);
                assert!(guard.release().await.unwrap_err().is_lost(), "{params}: it was deleted");
            } else {
                guard.release().await.unwrap();
            }
        }
        // A claim stands a little longer than its holder believes.
        eventually(PATIENCE, "no counter is kept", || {
            ask(&server, &["DBSIZE"]).number() == Some(0)
        })
        .await;
    }
}
