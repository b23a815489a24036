//! Loss is told before a rival can get in, once and for good.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkit_core::{BootInstant, Interrupted, LossReason};

use crate::bed::{SLACK, Test};
use crate::case::clause;
use crate::check::{grant, is_lost, release, safe, timed, until, within};

clause! { "lost";
    told_before_the_rival_enters [Expires];
    final_and_without_any_answer [Expires];
    told_to_everyone_who_asks [Expires];
    pending_after_a_release;
    dropped_quietly [Expires];
    run_stops_the_work [Expires];
    run_gives_output_and_loss [Expires];
    run_gives_the_output;
    run_leaves_the_key_held_when_cancelled;
    expiring_comes_before_the_loss [Expires];
    expiring_is_pending_while_renewed;
    expiring_is_pending_after_a_release;
    asking_costs_nothing;
}

async fn told_before_the_rival_enters(t: Test) {
    let (a, b) = (t.client().await, t.client().await);
    for round in 0..4 {
        let key = t.key("a");
        let guard = grant(&*a, t.brief(&key).renew(false)).await;
        let lost = guard.lost();
        let told = tokio::spawn(async move {
            lost.await;
            BootInstant::now()
        });
        let rival = grant(&*b, t.brief(&key)).await;
        let entered = BootInstant::now();
        safe!(!guard.is_held(), "round {round}: two believe to hold the key");
        let told = told.await.unwrap();
        let late = told.since(entered);
        assert!(late.is_zero(), "round {round}: told {late:?} after the rival had entered");
        release(&rival).await;
    }
}

async fn final_and_without_any_answer(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key).renew(false)).await;
    until(guard.deadline().expect("a live claim")).await;
    for _ in 0..2 {
        assert!(!guard.is_held() && guard.deadline().is_none() && guard.remaining().is_zero());
        assert!(matches!(guard.loss().map(|lost| lost.reason), Some(LossReason::Expired { .. })));
        is_lost(guard.ensure_held(), "ensure_held() after the deadline");
        within(SLACK, "lost() after the deadline", guard.lost()).await;
        is_lost(guard.release().await, "release() after the deadline");
        // The key comes and goes, the loss stays.
        release(&grant(&*b, t.brief(&key)).await).await;
    }
}

async fn told_to_everyone_who_asks(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(guard.lost())).collect();
    for lost in waiting {
        within(t.ttl() + SLACK, "lost() of ten", lost).await.unwrap();
    }
    within(SLACK, "a late lost()", guard.lost()).await;
}

async fn pending_after_a_release(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    let before = guard.lost();
    release(&guard).await;
    let after = guard.lost();
    tokio::select! {
        _ = before => panic!("lost() taken before a release resolved"),
        _ = after => panic!("lost() taken after a release resolved"),
        () = tokio::time::sleep(t.ttl() * 2) => {}
    }
    assert!(guard.loss().is_none());
}

async fn dropped_quietly(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.brief(&key).renew(false)).await;
    guard.lost().await;
    drop(guard);
    release(&grant(&*b, t.brief(&key)).await).await;
}

async fn run_stops_the_work(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    let alive = Arc::new(());
    let inside = Arc::clone(&alive);
    let work = async move {
        let _inside = inside;
        std::future::pending::<()>().await;
    };
    let run = within(t.ttl() + SLACK, "run() ends with the claim", guard.run(work)).await;
    let interrupted = run.expect_err("the claim was lost");
    assert!(interrupted.output.is_none());
    assert_eq!(Arc::strong_count(&alive), 1, "the work was not dropped");
}

async fn run_gives_output_and_loss(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    let ttl = t.ttl();
    let work = async move {
        std::thread::sleep(ttl * 3 / 2);
        42
    };
    let interrupted = guard.run(work).await.expect_err("the claim ended while it ran");
    assert_eq!(interrupted.output, Some(42), "the output is lost");
    is_lost(guard.release().await, "release() after run()");
}

async fn run_gives_the_output(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    let ttl = t.ttl();
    let work = async move {
        tokio::time::sleep(ttl * 2).await;
        42
    };
    assert_eq!(guard.run(work).await.expect("nothing was lost"), 42);
    assert!(guard.is_held(), "run() must not release");
    release(&guard).await;
    let run = guard.run(async { panic!("work without the key") });
    let refused: Interrupted<()> = run.await.expect_err("the guard was released");
    assert!(matches!(refused.lost.reason, LossReason::Released), "{refused}");
}

async fn run_leaves_the_key_held_when_cancelled(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    let run = guard.run(std::future::pending::<()>());
    tokio::time::timeout(Duration::from_millis(50), run).await.expect_err("it is pending");
    assert!(guard.is_held(), "dropping run() ended the claim");
    release(&guard).await;
}

async fn expiring_comes_before_the_loss(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key).renew(false)).await;
    let (lead, deadline) = (t.ttl() / 2, guard.deadline().expect("a live claim"));
    within(t.ttl(), "expiring()", guard.expiring(lead)).await;
    let early = (deadline - lead).since(BootInstant::now());
    assert!(early.is_zero(), "expiring() came {early:?} early");
    assert!(guard.is_held(), "expiring() came with the loss, not {lead:?} before");
    guard.lost().await;
    within(SLACK, "expiring() after a loss", guard.expiring(lead)).await;
}

async fn expiring_is_pending_while_renewed(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    let expiring = tokio::time::timeout(t.ttl() * 4, guard.expiring(t.ttl() / 4)).await;
    assert!(expiring.is_err(), "expiring() although it was renewed");
    release(&guard).await;
}

async fn expiring_is_pending_after_a_release(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.brief(&key)).await;
    let before = guard.expiring(t.ttl() / 4);
    release(&guard).await;
    let after = guard.expiring(t.ttl() / 4);
    tokio::select! {
        () = before => panic!("expiring() taken before a release resolved"),
        () = after => panic!("expiring() taken after a release resolved"),
        () = tokio::time::sleep(t.ttl() * 2) => {}
    }
}

async fn asking_costs_nothing(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = Arc::new(grant(&*client, t.brief(&key)).await);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let guard = Arc::clone(&guard);
            tokio::spawn(async move {
                let start = Instant::now();
                (0..1000).for_each(|_| assert!(guard.is_held() && guard.loss().is_none()));
                start.elapsed()
            })
        })
        .collect();
    for task in tasks {
        let took = timed(task).await.1.unwrap();
        assert!(took < Duration::from_millis(500), "1000 questions took {took:?}: not a clock");
    }
    release(&guard).await;
}
