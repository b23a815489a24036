//! Re-entrancy by an owner that the caller names: counted in the client, without a round trip.

use std::time::Duration;

use lockkit_core::LockExt;
use lockkit_core::testing::Op;

use crate::bed::{SLACK, Test};
use crate::case::clause;
use crate::check::{free_now, grant, grant_free, is_lost, refused, release, timed, until, within};

clause! { "reentry";
    same_owner_enters_again;
    other_owners_do_not_enter;
    same_owner_in_another_client_does_not_enter [LocalReentrancy];
    costs_no_exchange;
    comes_before_any_queue;
    free_after_the_last_in_any_order;
    concurrent_acquires_of_one_owner_share_one_claim;
    lost_claim_is_not_entered [Expires];
    writer_reads_again [Shared];
    reader_does_not_become_a_writer [Shared];
    renewed_until_the_last;
    waiting_owner_enters_what_its_other_task_got;
}

async fn same_owner_enters_again(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let request = || t.request(&key).owner("job-7");
    let guards = [
        grant(&*a, request()).await,
        grant_free(&*a, request(), "its owner holds it").await,
        grant_free(&*a, request(), "its owner holds it").await,
    ];
    assert!(guards.iter().all(|guard| guard.fence() == guards[0].fence()), "one claim, one fence");
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()), "one claim, one token");
    for guard in &guards {
        refused(&*b, t.request(&key), "guards of the owner are left").await;
        assert!(guard.is_held());
        release(guard).await;
        assert!(!guard.is_held());
    }
    free_now(&*b, t.request(&key), "the last guard was released").await;
}

async fn other_owners_do_not_enter(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let guard = grant(&*client, t.request(&key).owner("job-7")).await;
    for (who, request) in [
        ("another owner", t.request(&key).owner("job-8")),
        ("an owner that differs in case", t.request(&key).owner("JOB-7")),
        ("nobody in particular", t.request(&key)),
        ("a label like the owner", t.request(&key).label("job-7")),
    ] {
        refused(&*client, request, who).await;
    }
    release(&guard).await;
    let guard = grant(&*client, t.request(&key)).await;
    refused(&*client, t.request(&key).owner("job-7"), "its holder has no owner").await;
    release(&guard).await;
}

async fn same_owner_in_another_client_does_not_enter(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key).owner("job-7")).await;
    refused(&*b, t.request(&key).owner("job-7"), "owners are counted in one client").await;
    release(&guard).await;
}

async fn costs_no_exchange(t: Test) {
    let (key, client) = (t.key("a"), t.faulty().await);
    let request = || t.request(&key).ttl(t.long_ttl()).owner("job-7");
    let first = grant(&*client, request()).await;
    let before = client.log().len();
    for _ in 0..50 {
        release(&grant(&*client, request()).await).await;
    }
    assert_eq!(client.log().len(), before, "re-entry asked the store");
    release(&first).await;
    assert_eq!(client.count(Op::Release), 1);
}

async fn comes_before_any_queue(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*a, t.request(&key).owner("job-7")).await;
    let waiters = [a.acquire(t.request(&key)), b.acquire(t.request(&key))].map(|waiting| {
        tokio::spawn(async move { release(&waiting.await.expect("a grant")).await })
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    let again = a.acquire(t.request(&key).owner("job-7"));
    let again = within(SLACK, "re-entry past those who wait", again).await.expect("a grant");
    release(&again).await;
    release(&guard).await;
    for waiter in waiters {
        within(t.prompt() * 2, "the waiters get in", waiter).await.unwrap();
    }
}

async fn free_after_the_last_in_any_order(t: Test) {
    let (client, other) = (t.client().await, t.client().await);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
        let key = t.key("a");
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(Some(grant(&*client, t.request(&key).owner("job-7")).await));
        }
        for (released, at) in order.into_iter().enumerate() {
            refused(&*other, t.request(&key), &format!("{released} of 3 released")).await;
            let guard = guards[at].take().expect("each once");
            release(&guard).await;
            guard.release().await.expect("the second release of a guard counts no second time");
        }
        free_now(&*other, t.request(&key), "all three were released").await;
    }
}

async fn concurrent_acquires_of_one_owner_share_one_claim(t: Test) {
    let (key, client, other) = (t.key("a"), t.client().await, t.client().await);
    for _ in 0..5 {
        let tasks: Vec<_> =
            (0..10).map(|_| tokio::spawn(client.acquire(t.request(&key).owner("job-7")))).collect();
        let mut guards = Vec::new();
        for task in tasks {
            let guard = within(t.prompt() * 2, "ten acquires of one owner", task).await;
            guards.push(guard.unwrap().expect("a grant"));
        }
        assert!(guards.iter().all(|guard| guard.token() == guards[0].token()), "several claims");
        for guard in guards {
            refused(&*other, t.request(&key), "the owner holds it").await;
            release(&guard).await;
        }
        free_now(&*other, t.request(&key), "all ten were released").await;
    }
}

async fn lost_claim_is_not_entered(t: Test) {
    let (key, client, other) = (t.key("a"), t.client().await, t.client().await);
    let request = || t.brief(&key).owner("job-7");
    let first = grant(&*client, request().renew(false)).await;
    let second = grant(&*client, request()).await;
    until(first.deadline().expect("a live claim")).await;
    assert!(!second.is_held(), "the second guard outlives the claim");
    let rival = grant(&*other, t.brief(&key)).await;
    refused(&*client, request(), "the owner's claim is lost, and another has the key").await;
    release(&rival).await;
    let again = grant_free(&*client, request(), "nobody holds it").await;
    assert_ne!(again.token(), first.token(), "a lost claim was entered again");
    for guard in [&first, &second] {
        is_lost(guard.release().await, "the release of a guard of a lost claim");
    }
    assert!(again.is_held(), "guards of a lost claim ended the claim after it");
    release(&again).await;
}

async fn writer_reads_again(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let writer = grant(&*client, t.request(&key).owner("job-7")).await;
    let reader = grant_free(&*client, t.request(&key).owner("job-7").shared(), "covered").await;
    release(&reader).await;
    assert!(writer.is_held());
    release(&writer).await;
}

async fn reader_does_not_become_a_writer(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let reader = grant(&*client, t.request(&key).owner("job-7").shared()).await;
    let writer = t.request(&key).owner("job-7").timeout(Duration::from_secs(5));
    let (took, result) = timed(client.acquire(writer)).await;
    assert!(result.is_err(), "a reader became a writer");
    assert!(took < Duration::from_secs(1), "waited {took:?} for itself");
    assert!(reader.is_held());
    release(&reader).await;
}

async fn renewed_until_the_last(t: Test) {
    let (key, client, other) = (t.key("a"), t.client().await, t.client().await);
    let request = || t.brief(&key).owner("job-7");
    let (first, second) = (grant(&*client, request()).await, grant(&*client, request()).await);
    release(&first).await;
    tokio::time::sleep(t.ttl() * 3).await;
    assert!(second.is_held(), "not renewed after the first guard's release");
    drop(second);
    let next = other.acquire(t.brief(&key));
    let next = within(Duration::from_secs(2), "the last guard was dropped", next).await;
    release(&next.expect("a grant")).await;
}

async fn waiting_owner_enters_what_its_other_task_got(t: Test) {
    let (key, client, holder) = (t.key("a"), t.client().await, t.client().await);
    let guard = grant(&*holder, t.request(&key)).await;
    let request = || t.request(&key).owner("job-7");
    let waiting = [client.acquire(request()), client.acquire(request())].map(tokio::spawn);
    tokio::time::sleep(Duration::from_millis(100)).await;
    release(&guard).await;
    let mut guards = Vec::new();
    for waiter in waiting {
        // Neither releases before both are in.
        let guard = within(t.prompt() * 2, "both waits of one owner end", waiter).await;
        guards.push(guard.unwrap().expect("a grant"));
    }
    for guard in &guards {
        release(guard).await;
    }
}
