//! "Over" is final, whoever looks and whatever is answered at the same time.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{MS, bed, eventually};
use lockkit_core::testing::{Exchanged, Fault, Op, Outcome};
use lockkit_core::{BootInstant, LockExt, LossReason, Request, Stage};

/// Renewals are answered right around the deadline while two threads look at the guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_never_comes_back() {
    for round in 0..30_u64 {
        let bed = bed();
        let ttl = MS(60);
        // Deadline at 57.4 ms; renewal sent at 20 ms and answered at 50 to 65 ms.
        bed.faulty.every(Op::Renew, Fault::DelayAnswer(MS(30 + round / 2)));
        let request = Request::new("k").ttl(ttl).op_timeout(MS(60));
        let guard = Arc::new(bed.faulty.acquire(request).await.unwrap());
        let over = Arc::new(AtomicBool::new(false));
        let lookers: Vec<_> = (0..2)
            .map(|_| {
                let (guard, over) = (Arc::clone(&guard), Arc::clone(&over));
                std::thread::spawn(move || {
                    let end = std::time::Instant::now() + MS(90);
                    while std::time::Instant::now() < end {
                        let was_over = over.load(Ordering::SeqCst);
                        let held = guard.is_held();
                        assert!(!(was_over && held), "held again after it was over");
                        if !held {
                            over.store(true, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        for looker in lookers {
            looker.join().unwrap();
        }
        if over.load(Ordering::SeqCst) {
            assert!(!guard.is_held() && guard.loss().is_some());
        }
    }
}

#[tokio::test]
async fn a_renewal_answered_too_late_does_not_revive() {
    let bed = bed();
    bed.faulty.every(Op::Renew, Fault::Hold);
    let request = Request::new("k").ttl(MS(150)).op_timeout(MS(150));
    let guard = bed.faulty.acquire(request).await.unwrap();
    bed.faulty.logged(|log| log.iter().any(|e| e.op == Op::Renew)).await;
    let lost = guard.lost().await;
    bed.faulty.let_go();
    assert!(matches!(lost.reason, LossReason::Expired { .. }));
    tokio::time::sleep(MS(100)).await;
    assert!(!guard.is_held());
}

#[tokio::test]
async fn the_last_error_is_told() {
    let bed = bed();
    bed.faulty.every(Op::Renew, Fault::Refuse);
    let guard = bed.faulty.acquire(Request::new("k").ttl(MS(120))).await.unwrap();
    let LossReason::Expired { last_error: Some(error) } = guard.lost().await.reason else {
        panic!("no error told");
    };
    assert!(error.to_string().contains("injected"), "{error}");
    assert!(bed.faulty.count(Op::Renew) >= 3, "given up too soon");
}

#[tokio::test]
async fn the_deadline_counts_from_when_the_request_was_sent() {
    let bed = bed();
    let ttl = MS(600);
    bed.faulty.every(Op::Attempt(Stage::First), Fault::DelayAnswer(MS(80)));
    bed.faulty.every(Op::Renew, Fault::DelayAnswer(MS(80)));
    let begun = BootInstant::now();
    let guard = bed.faulty.acquire(Request::new("k").ttl(ttl)).await.unwrap();
    let log = bed.faulty.log();
    assert!(log[0].begun >= begun);
    let latest = log[0].begun + ttl;
    assert!(guard.deadline().unwrap() < latest, "counted from the answer");

    let renewed =
        |log: &[Exchanged]| log.iter().any(|e| e.op == Op::Renew && e.outcome == Outcome::Yes);
    bed.faulty.logged(renewed).await;
    let log = bed.faulty.log();
    let first = guard.deadline().unwrap();
    eventually("the deadline has moved", || guard.deadline().unwrap() > first || first > latest)
        .await;
    let sent = log.iter().find(|e| e.op == Op::Renew).unwrap().begun;
    assert!(guard.deadline().unwrap() < sent + ttl + MS(1), "counted from the answer");
}
