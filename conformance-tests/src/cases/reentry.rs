//! Re-entrancy by an owner that the caller names: counted in the client, without a round trip;
//! between clients and processes where the store counts too.

use std::time::Duration;

use lockkit_core::testing::Op;
use lockkit_core::{Attempt, BootInstant, LockExt, Released, Renewal, Stage};

use crate::bed::{SLACK, Test};
use crate::case::clause;
use crate::cases::contender::{BUDGET, contend};
use crate::check::{
    free_now, free_within, grant, grant_free, is_lost, refused, release, timed, until, within,
};
use crate::child::{Ask, Child};

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
    owner_enters_from_another_client [StoredReentrancy];
    other_clients_free_after_the_last_in_any_order [StoredReentrancy];
    other_clients_guards_count_once_each [StoredReentrancy];
    other_clients_entry_comes_before_any_queue [StoredReentrancy];
    rival_gets_in_after_the_last_of_all_clients [StoredReentrancy];
    latest_end_of_all_clients_counts [StoredReentrancy Expires];
    reads_again_from_another_client [StoredReentrancy Shared];
    reader_in_another_client_does_not_become_a_writer [StoredReentrancy Shared];
    killed_first_process_leaves_the_key_to_the_second [StoredReentrancy Processes Expires];
    killed_second_process_leaves_the_key_to_the_first [StoredReentrancy Processes Expires];
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
        // What those asked for that found the owner inside goes in the background.
        let free = within(t.prompt(), "all ten were released", other.acquire(t.request(&key)));
        release(&free.await.expect("a grant")).await;
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

async fn owner_enters_from_another_client(t: Test) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let request = || t.request(&key).owner("job-7");
    let first = grant(&*a, request()).await;
    let second = grant_free(&*b, request(), "its owner holds it").await;
    assert_eq!(first.fence(), second.fence(), "one owner is in: one fence");
    assert_ne!(first.token(), second.token(), "each client has a claim of its own");
    for (left, guard) in [(2, &first), (1, &second)] {
        for (who, request) in [
            ("another owner", t.request(&key).owner("job-8")),
            ("an owner that differs in case", t.request(&key).owner("JOB-7")),
            ("nobody in particular", t.request(&key)),
            ("a label like the owner", t.request(&key).label("job-7")),
        ] {
            refused(&*c, request, &format!("{who}, while it is held {left} times")).await;
        }
        assert!(guard.is_held());
        release(guard).await;
    }
    let next = grant_free(&*c, t.request(&key).owner("job-8"), "both have released").await;
    if let (Some(before), Some(after)) = (first.fence(), next.fence()) {
        assert!(after > before, "the next owner has the fence {after} after {before}");
    }
    refused(&*a, request(), "another owner is in").await;
    release(&next).await;
}

async fn other_clients_free_after_the_last_in_any_order(t: Test) {
    let (clients, other) = (t.clients(3).await, t.client().await);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
        let key = t.key("a");
        let mut guards = Vec::new();
        for client in &clients {
            guards.push(grant_free(&**client, t.request(&key).owner("job-7"), "the owner").await);
        }
        for (released, at) in order.into_iter().enumerate() {
            refused(&*other, t.request(&key), &format!("{released} of 3 released")).await;
            release(&guards[at]).await;
        }
        free_now(&*other, t.request(&key), "all three were released").await;
    }
}

/// However often a client says that it released, and though its claims of before are gone.
async fn other_clients_guards_count_once_each(t: Test) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let request = || t.request(&key).owner("job-7");
    let first = grant(&*a, request()).await;
    for _ in 0..3 {
        // Sent again, as after an answer that was lost.
        let mut again = contend(&b, request());
        let answer = again.attempt(Stage::Try, BUDGET).await.expect("an attempt");
        assert!(matches!(answer, Attempt::Granted { .. }), "its owner holds it: {answer:?}");
        let answer = again.attempt(Stage::Wait, BUDGET).await.expect("an attempt");
        assert!(matches!(answer, Attempt::Granted { .. }), "it is in: {answer:?}");
        assert_eq!(again.release(BUDGET).await.expect("a release"), Released::Freed);
        for _ in 0..3 {
            assert_eq!(again.release(BUDGET).await.expect("a release"), Released::NotFound);
        }
        refused(&*c, t.request(&key), "the first is in").await;
        assert!(matches!(again.renew(BUDGET).await, Ok(Renewal::Gone)), "it was released");
    }
    release(&first).await;
    free_now(&*c, t.request(&key), "one entry was left, and it was released").await;
}

async fn other_clients_entry_comes_before_any_queue(t: Test) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let first = grant(&*a, t.request(&key).owner("job-7")).await;
    let waiters = [b.acquire(t.request(&key)), c.acquire(t.request(&key))].map(|waiting| {
        tokio::spawn(async move { release(&waiting.await.expect("a grant")).await })
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    let d = t.client().await;
    let second = grant_free(&*d, t.request(&key).owner("job-7"), "past those who wait").await;
    release(&first).await;
    release(&second).await;
    for waiter in waiters {
        within(t.prompt() * 2, "the waiters get in", waiter).await.unwrap();
    }
}

async fn rival_gets_in_after_the_last_of_all_clients(t: Test) {
    let (key, a, b, rival) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let request = || t.request(&key).owner("job-7").ttl(t.long_ttl());
    let (first, second) = (grant(&*a, request()).await, grant(&*b, request()).await);
    let mut waiting = tokio::spawn(rival.acquire(t.request(&key)));
    release(&first).await;
    let early = tokio::time::timeout(t.prompt(), &mut waiting).await;
    assert!(early.is_err(), "the owner is in by another client: {early:?}");
    release(&second).await;
    let guard = within(t.prompt(), "the last of the owner has released", waiting).await;
    release(&guard.unwrap().expect("a grant")).await;
}

/// In whatever order they end, the key is held as long as the owner's last claim can live.
async fn latest_end_of_all_clients_counts(t: Test) {
    let (a, b, c) = (t.client().await, t.client().await, t.client().await);
    for long_first in [true, false] {
        let key = t.key("a");
        let brief = || t.brief(&key).owner("job-7").renew(false);
        let long = || brief().ttl(t.ttl() * 3);
        let (one, two) = if long_first { (long(), brief()) } else { (brief(), long()) };
        let (one, two) = (grant(&*a, one).await, grant_free(&*b, two, "the owner").await);
        let (brief, long) = if long_first { (&two, &one) } else { (&one, &two) };
        until(brief.deadline().expect("a live claim") + t.granularity() + t.ttl() / 2).await;
        assert!(!brief.is_held() && long.is_held());
        is_lost(brief.release().await, "the release of what expired");
        refused(&*c, t.brief(&key), "the owner's other claim lives").await;
        let end = long.deadline().expect("a live claim");
        let rival = grant(&*c, t.brief(&key)).await;
        let now = BootInstant::now();
        assert!(now >= end, "taken over before the end of the owner's last claim");
        let late = now.since(end);
        assert!(late <= t.granularity() + SLACK + t.ttl() / 10, "free {late:?} after the end");
        release(&rival).await;
    }
}

async fn reads_again_from_another_client(t: Test) {
    let (key, a, b, c) = (t.key("a"), t.client().await, t.client().await, t.client().await);
    let writer = grant(&*a, t.request(&key).owner("job-7")).await;
    let reader = t.request(&key).owner("job-7").shared();
    let reader = grant_free(&*b, reader, "covered by its own writer").await;
    refused(&*c, t.request(&key).shared(), "a writer is in").await;
    release(&writer).await;
    refused(&*c, t.request(&key), "the owner is in").await;
    release(&reader).await;
    free_now(&*c, t.request(&key), "both have released").await;
}

async fn reader_in_another_client_does_not_become_a_writer(t: Test) {
    let (key, a, b) = (t.key("a"), t.client().await, t.client().await);
    let reader = grant(&*a, t.request(&key).owner("job-7").shared()).await;
    refused(&*b, t.request(&key).owner("job-7"), "a reader is in").await;
    release(&reader).await;
    free_now(&*b, t.request(&key).owner("job-7"), "it has released").await;
}

fn by_owner(t: &Test, key: &str) -> Ask {
    let mut ask = t.ask(key);
    ask.owner = Some("job 7/a".to_owned());
    ask
}

/// Two processes of one owner hold the key, and one of them is killed: which one stays, and which
/// is dead.
async fn one_of_two_killed(t: &Test, key: &str, dead: usize) -> [Child; 2] {
    let mut processes = [t.child().await, t.child().await];
    let fences = [
        processes[0].acquire("a", by_owner(t, key)).await.fence(),
        processes[1].acquire("a", by_owner(t, key)).await.fence(),
    ];
    assert_eq!(fences[0], fences[1], "one owner is in: one fence");
    processes[dead].kill().await;
    let client = t.client().await;
    let start = BootInstant::now();
    while BootInstant::now().since(start) < t.ttl() * 2 + t.granularity() {
        refused(&*client, t.brief(key), "the owner's other process lives").await;
        tokio::time::sleep(t.ttl() / 8).await;
    }
    assert!(processes[1 - dead].is_held("a").await, "it lost what it renews");
    processes
}

async fn killed_first_process_leaves_the_key_to_the_second(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let [_, mut living] = one_of_two_killed(&t, &key, 0).await;
    assert_eq!(living.release("a").await.rest, "ok");
    free_now(&*client, t.request(&key), "the dead one's claim is over for long").await;
}

async fn killed_second_process_leaves_the_key_to_the_first(t: Test) {
    let (key, client) = (t.key("a"), t.client().await);
    let [mut living, _] = one_of_two_killed(&t, &key, 1).await;
    living.kill().await;
    let limit = t.ttl() + t.granularity() + SLACK;
    let next = free_within(&*client, t.brief(&key), limit, "both processes are dead").await;
    release(&next).await;
}
