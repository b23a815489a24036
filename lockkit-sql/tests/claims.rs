//! Single claims on real files, step by step, without the engine.

#![cfg(test)] // for clippy: the helpers here may panic as the tests may

mod common;

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use common::*;
use lockkit_core::{
    Attempt, BootInstant, DistributedLock, Error, Key, Mode, Released, Renewal, Stage, Which,
};
use sqlx::{Connection, Executor, Row, SqliteConnection};

#[tokio::test]
async fn two_clients_exclude_each_other() {
    let file = File::new();
    let (one, two) = (file.lock(), file.lock());
    let mut holder = contend(&one, "k", Mode::Exclusive, 30_000);
    let mut rival = contend(&two, "k", Mode::Exclusive, 30_000);
    let (first, lease) = try_once(&mut holder).await.unwrap();
    assert_eq!(lease.ttl, Duration::from_secs(30));
    assert!(try_once(&mut rival).await.is_none());
    assert!(try_once(&mut contend(&two, "K", Mode::Exclusive, 30_000)).await.is_some());
    assert!(try_once(&mut contend(&two, "k ", Mode::Exclusive, 30_000)).await.is_some());
    assert_eq!(holder.release(BUDGET).await.unwrap(), Released::Freed);
    assert_eq!(holder.release(BUDGET).await.unwrap(), Released::NotFound);
    let (second, _) = try_once(&mut rival).await.unwrap();
    assert!(second > first);
    assert_eq!(holder.release(BUDGET).await.unwrap(), Released::NotFound);
    assert!(matches!(rival.renew(BUDGET).await.unwrap(), Renewal::Extended(_)));
}

#[tokio::test]
async fn a_claim_that_was_only_refused_writes_nothing() {
    let file = File::new();
    let (one, two) = (file.lock(), file.lock());
    let mut holder = contend(&one, "k", Mode::Exclusive, 30_000);
    try_once(&mut holder).await.unwrap();
    let mut watch = file.raw().await;
    let mut version = async || {
        let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut watch).await;
        version.map(|version: i64| version).unwrap()
    };
    two.ping().await.unwrap();
    let before = version().await;
    let mut waiter = contend(&two, "k", Mode::Exclusive, 30_000);
    for stage in [Stage::Try, Stage::First, Stage::Wait] {
        assert!(matches!(waiter.attempt(stage, BUDGET).await.unwrap(), Attempt::Busy { .. }));
    }
    // Nobody can write now, and a release need not.
    let mut foreign = file.raw().await;
    foreign.execute("BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(waiter.release(Duration::from_millis(50)).await.unwrap(), Released::NotFound);
    assert_eq!(version().await, before, "who waits wakes nobody");
}

#[tokio::test]
async fn a_busy_key_tells_its_holder() {
    let file = File::new();
    let (one, two) = (file.lock(), file.lock());
    let mut mine = claim("k", Mode::Exclusive, Duration::from_secs(30));
    mine.label = Some("checkout-7".into());
    let token = mine.token;
    let mut holder = one.contend(mine);
    let (fence, _) = try_once(&mut holder).await.unwrap();
    let answer = contend(&two, "k", Mode::Exclusive, 1000).attempt(Stage::Try, BUDGET).await;
    let Attempt::Busy { holder: Some(seen), free_in: Some(free_in), .. } = answer.unwrap() else {
        panic!("busy, with its holder")
    };
    assert_eq!((seen.fence, seen.token), (Some(fence), Some(token)));
    assert_eq!(seen.label.as_deref(), Some("checkout-7"));
    assert!(seen.held_for.unwrap() < Duration::from_secs(5));
    assert!(free_in <= Duration::from_secs(30) && free_in > Duration::from_secs(25));
    let inspected = two.inspect(&Key::new("k").unwrap()).await.unwrap().unwrap();
    assert_eq!((inspected.fence, inspected.holders), (Some(fence), 1));
    assert_eq!(two.inspect(&Key::new("other").unwrap()).await.unwrap(), None);
}

#[tokio::test]
async fn one_of_ten_reclaims_an_expired_claim() {
    let file = File::new();
    let mut dead = contend(&file.lock(), "k", Mode::Exclusive, 100);
    let (old, lease) = try_once(&mut dead).await.unwrap();
    let clients: Vec<_> = (0..10).map(|_| file.lock()).collect();
    for client in &clients {
        client.ping().await.unwrap();
    }
    eventually(async || BootInstant::now() > lease.sent + lease.ttl).await;
    let attempts = clients.into_iter().map(|client| {
        tokio::spawn(async move {
            let mut contender = contend(&client, "k", Mode::Exclusive, 30_000);
            try_once(&mut contender).await
        })
    });
    let mut granted = Vec::new();
    for attempt in attempts.collect::<Vec<_>>() {
        granted.extend(attempt.await.unwrap());
    }
    assert_eq!(granted.len(), 1);
    assert!(granted[0].0 > old);
    assert_eq!(file.rows().await.len(), 1, "the dead row went in the same step");
    assert!(matches!(dead.renew(BUDGET).await.unwrap(), Renewal::Gone));
}

/// A holder that was stopped between reading the clock and sending its renewal.
#[tokio::test]
async fn a_renewal_that_believes_in_an_old_time_revives_nothing() {
    let file = File::new();
    let lock = file.lock();
    let mine = claim("k", Mode::Exclusive, Duration::from_millis(100));
    let token = mine.token;
    let mut stopped = lock.contend(mine);
    let (_, lease) = try_once(&mut stopped).await.unwrap();
    let stamp = i64::try_from(lease.sent.as_nanos()).unwrap();
    eventually(async || BootInstant::now() > lease.sent + lease.ttl).await;
    let mut successor = contend(&file.lock(), "k", Mode::Exclusive, 30_000);
    assert!(try_once(&mut successor).await.is_some());
    let mut raw = file.raw().await;
    let boot: Vec<u8> = sqlx::query_scalar("SELECT boot FROM lockkit_claims WHERE mode = 0")
        .fetch_one(&mut raw)
        .await
        .unwrap();
    let done = sqlx::query(statement(RENEW))
        .bind(&b"k"[..])
        .bind(&token.as_bytes()[..])
        .bind(boot)
        .bind(stamp + 1)
        .bind(stamp + 60_000_000_000)
        .execute(&mut raw)
        .await
        .unwrap();
    assert_eq!(done.rows_affected(), 0);
    assert_eq!(file.rows().await.len(), 1);
}

/// At the very nanosecond of the end, either the holder goes on or a rival gets in, never both
/// and never neither.
#[tokio::test]
async fn nobody_overlaps_at_the_boundary() {
    let mut db = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    db.execute(sqlx::AssertSqlSafe(lockkit_sql::schema("lockkit_claims").unwrap())).await.unwrap();
    let boot = [7_u8; 16];
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((random >> 33) % below).unwrap()
    };
    let (mut holder, mut expires, mut fence) = (0_u64, 0_i64, 0_i64);
    for rival in 1..10_000_u64 {
        let now = expires + next(3) - 1;
        let ttl = 1 + next(3);
        let renewed = async |db: &mut SqliteConnection| {
            let done = sqlx::query(statement(RENEW))
                .bind(&b"k"[..])
                .bind(&holder.to_be_bytes()[..])
                .bind(&boot[..])
                .bind(now)
                .bind(now + ttl)
                .execute(db)
                .await;
            done.unwrap().rows_affected() == 1
        };
        let renewed_first = next(2) == 0;
        let before = renewed_first && renewed(&mut db).await;
        let done = sqlx::query(statement(ACQUIRE))
            .bind(&b"k"[..])
            .bind(&rival.to_be_bytes()[..])
            .bind(0_i64)
            .bind(None::<&str>)
            .bind(&boot[..])
            .bind(now)
            .bind(now + ttl)
            .execute(&mut db)
            .await
            .unwrap();
        let granted = done.rows_affected() == 1;
        let holds = before || (!renewed_first && renewed(&mut db).await);
        assert!(granted != holds, "at {now}, end {expires}: granted {granted}, held {holds}");
        if granted {
            assert!(done.last_insert_rowid() > fence);
            fence = done.last_insert_rowid();
            holder = rival;
            expires = now + ttl;
        } else {
            expires = expires.max(now + ttl);
        }
    }
}

#[tokio::test]
async fn a_restart_of_the_machine_frees_all_keys() {
    let file = File::new();
    let lock = file.lock();
    let mut before = contend(&lock, "k", Mode::Exclusive, 3_600_000);
    let (old, _) = try_once(&mut before).await.unwrap();
    file.raw().await.execute("UPDATE lockkit_claims SET boot = x'00'").await.unwrap();
    assert!(matches!(before.renew(BUDGET).await.unwrap(), Renewal::Gone));
    // A client of the new run, which begins it.
    let mut after = contend(&file.lock(), "k", Mode::Exclusive, 1000);
    let (new, _) = try_once(&mut after).await.unwrap();
    assert!(new > old + (1 << 26), "numbers that a power cut took away are skipped");
}

/// What became of the first request is unknown: it was dropped after it was sent.
async fn dropped_attempt(contender: &mut Box<dyn lockkit_core::Contender>) {
    let mut attempt = pin!(contender.attempt(Stage::Try, BUDGET));
    let mut context = Context::from_waker(Waker::noop());
    // Rarely the answer is there at once; then it is not collected.
    let _ = attempt.as_mut().poll(&mut context);
}

#[tokio::test]
async fn a_claim_in_doubt_finds_itself() {
    for mode in [Mode::Exclusive, Mode::Shared, permit(1)] {
        let file = File::new();
        let lock = file.lock();
        lock.ping().await.unwrap();
        let mut contender = contend(&lock, "k", mode, 30_000);
        dropped_attempt(&mut contender).await;
        eventually(async || file.rows().await.len() == 1).await;
        let (fence, lease) =
            try_once(&mut contender).await.expect("its own claim is not in its way");
        let mut raw = file.raw().await;
        let row = sqlx::query("SELECT id, expires FROM lockkit_claims WHERE key = x'6b'")
            .fetch_all(&mut raw)
            .await
            .unwrap();
        assert_eq!(row.len(), 1);
        assert_eq!(row[0].get::<i64, _>(0), i64::try_from(fence).unwrap());
        let end = i64::try_from((lease.sent + lease.ttl).as_nanos()).unwrap();
        assert_eq!(row[0].get::<i64, _>(1), end, "armed anew in full");
        // Asked once more although the answer came: it is still one claim.
        assert_eq!(try_once(&mut contender).await.unwrap().0, fence);
        assert_eq!(file.rows().await.len(), 1);
    }
}

#[tokio::test]
async fn a_release_after_a_dropped_attempt_leaves_nothing() {
    let file = File::new();
    let lock = file.lock();
    lock.ping().await.unwrap();
    for _ in 0..200 {
        let mut contender = contend(&lock, "k", Mode::Exclusive, 30_000);
        dropped_attempt(&mut contender).await;
        assert_eq!(contender.release(BUDGET).await.unwrap(), Released::Freed);
    }
    assert_eq!(file.rows().await, []);
}

#[tokio::test]
async fn a_claim_that_never_asked_touches_nothing() {
    let file = File::new();
    let mut contender = contend(&file.lock(), "k", Mode::Exclusive, 30_000);
    assert_eq!(contender.release(BUDGET).await.unwrap(), Released::NotFound);
    assert!(!file.path.exists());
}

#[tokio::test]
async fn a_claim_can_linger_for_exactly_so_long() {
    let file = File::new();
    let lock = file.lock();
    let mut contender = contend(&lock, "k", Mode::Exclusive, 30_000);
    try_once(&mut contender).await.unwrap();
    let before = BootInstant::now();
    let rest = Duration::from_millis(300);
    assert_eq!(contender.linger(rest, BUDGET).await.unwrap(), Some(Released::Freed));
    let rival_lock = file.lock();
    eventually(async || {
        try_once(&mut contend(&rival_lock, "k", Mode::Exclusive, 30_000)).await.is_some()
    })
    .await;
    let took = BootInstant::now().since(before);
    assert!(took >= rest && took < rest + Duration::from_millis(200), "{took:?}");
    assert_eq!(contender.linger(rest, BUDGET).await.unwrap(), Some(Released::NotFound));
}

#[tokio::test]
async fn forced_release_hits_whom_it_names() {
    let file = File::new();
    let (one, two) = (file.lock(), file.lock());
    let key = Key::new("k").unwrap();
    let mine = claim("k", Mode::Exclusive, Duration::from_secs(30));
    let token = mine.token;
    let mut holder = one.contend(mine);
    let (fence, _) = try_once(&mut holder).await.unwrap();
    for wrong in
        [Which::Fence(fence - 1), Which::Fence(u64::MAX), Which::Token(lockkit_core::Token::new())]
    {
        assert!(!two.force_release(&key, wrong).await.unwrap());
    }
    assert!(!two.force_release(&Key::new("k ").unwrap(), Which::Whoever).await.unwrap());
    assert!(matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Extended(_)));
    for right in [Which::Fence(fence), Which::Token(token), Which::Whoever] {
        let mut victim = one.contend(claim("v", Mode::Exclusive, Duration::from_secs(30)));
        let key = if right == Which::Whoever {
            try_once(&mut victim).await.unwrap();
            Key::new("v").unwrap()
        } else {
            key.clone()
        };
        if matches!(right, Which::Token(_)) {
            continue;
        }
        assert!(two.force_release(&key, right).await.unwrap());
        assert!(!two.force_release(&key, right).await.unwrap());
    }
    assert!(matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Gone));
    let again = claim("k", Mode::Exclusive, Duration::from_secs(30));
    let token = again.token;
    try_once(&mut one.contend(again)).await.unwrap();
    assert!(!two.force_release(&key, Which::Fence(fence)).await.unwrap(), "not the successor");
    assert!(two.force_release(&key, Which::Token(token)).await.unwrap());
}

#[tokio::test]
async fn a_waiting_writer_holds_new_readers_back_for_two_seconds() {
    let file = File::new();
    let (one, two, three) = (file.lock(), file.lock(), file.lock());
    let mut reader = contend(&one, "k", Mode::Shared, 30_000);
    try_once(&mut reader).await.unwrap();
    try_once(&mut contend(&two, "k", Mode::Shared, 30_000)).await.expect("a second reader");

    let mut writer = contend(&two, "k", Mode::Exclusive, 30_000);
    assert!(try_once(&mut writer).await.is_none());
    let intents = async || file.rows().await.iter().filter(|(mode, _)| *mode == -2).count();
    assert_eq!(intents().await, 0, "who will not wait leaves nothing");
    for stage in [Stage::First, Stage::Wait, Stage::Wait] {
        let answer = writer.attempt(stage, BUDGET).await.unwrap();
        assert!(matches!(answer, Attempt::Busy { .. }));
        assert_eq!(intents().await, 1);
    }
    let end: i64 = sqlx::query_scalar("SELECT expires FROM lockkit_claims WHERE mode = -2")
        .fetch_one(&mut file.raw().await)
        .await
        .unwrap();
    let end = BootInstant::from_nanos(u64::try_from(end).unwrap());
    assert!(end < BootInstant::now() + Duration::from_secs(2));
    assert!(try_once(&mut contend(&three, "k", Mode::Shared, 30_000)).await.is_none());

    eventually(async || try_once(&mut contend(&three, "k", Mode::Shared, 30_000)).await.is_some())
        .await;
    let now = BootInstant::now();
    assert!(now >= end && now.since(end) < Duration::from_millis(500), "{:?}", now.since(end));

    assert!(matches!(writer.attempt(Stage::Wait, BUDGET).await.unwrap(), Attempt::Busy { .. }));
    assert_eq!(intents().await, 1);
    assert_eq!(writer.release(BUDGET).await.unwrap(), Released::NotFound, "a word is no claim");
    assert_eq!(intents().await, 0);
}

#[tokio::test]
async fn permits_are_counted_and_other_families_refused() {
    let file = File::new();
    let (one, two) = (file.lock(), file.lock());
    let mut held: Vec<_> = (0..3).map(|_| contend(&one, "k", permit(3), 30_000)).collect();
    for contender in &mut held {
        try_once(contender).await.unwrap();
    }
    let mut fourth = contend(&two, "k", permit(3), 30_000);
    assert!(try_once(&mut fourth).await.is_none());
    for other in [permit(4), Mode::Exclusive, Mode::Shared] {
        let mut contender = contend(&two, "k", other, 30_000);
        for stage in [Stage::Try, Stage::First, Stage::Wait] {
            let error = contender.attempt(stage, BUDGET).await.unwrap_err();
            assert!(matches!(error, Error::Configuration(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains("permit of 3") && text.contains(&other.to_string()), "{text}");
        }
    }
    held[0].release(BUDGET).await.unwrap();
    try_once(&mut fourth).await.unwrap();
    assert_eq!(file.rows().await.len(), 3);
}

#[tokio::test]
async fn dead_claims_of_forgotten_keys_are_swept() {
    let file = File::new();
    let lock = file.lock();
    let mut leases = Vec::new();
    for n in 0..20 {
        leases.extend(try_once(&mut contend(&lock, &format!("{n}"), Mode::Exclusive, 100)).await);
    }
    eventually(async || leases.iter().all(|(_, l)| BootInstant::now() > l.sent + l.ttl)).await;
    // The first release of a client looks for them.
    let mut other = contend(&lock, "other", Mode::Exclusive, 1000);
    try_once(&mut other).await.unwrap();
    other.release(BUDGET).await.unwrap();
    assert_eq!(file.rows().await, []);
}

#[tokio::test]
async fn deleted_rows_are_noticed_and_hinder_nobody() {
    let file = File::new();
    let lock = file.lock();
    let mut holder = contend(&lock, "k", Mode::Exclusive, 30_000);
    let (first, _) = try_once(&mut holder).await.unwrap();
    file.raw().await.execute("DELETE FROM lockkit_claims").await.unwrap();
    assert!(matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Gone));
    let (second, _) = try_once(&mut contend(&lock, "k", Mode::Exclusive, 1000)).await.unwrap();
    assert!(second > first);
}

#[tokio::test]
async fn a_dropped_table_is_made_anew() {
    let file = File::new();
    let lock = file.lock();
    let mut holder = contend(&lock, "k", Mode::Exclusive, 30_000);
    let (first, _) = try_once(&mut holder).await.unwrap();
    holder.renew(BUDGET).await.unwrap();
    file.raw().await.execute("DROP TABLE lockkit_claims").await.unwrap();
    assert!(matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Gone));
    let (second, _) = try_once(&mut contend(&lock, "k", Mode::Exclusive, 1000)).await.unwrap();
    assert!(second > first, "{second} after {first}");
}

#[tokio::test]
async fn a_deleted_file_is_no_place_to_hold_anything() {
    let file = File::new();
    let (one, two) = (file.lock(), file.lock());
    let mut holder = contend(&one, "k", Mode::Exclusive, 30_000);
    let mut waiter = contend(&two, "k", Mode::Exclusive, 30_000);
    let (first, _) = try_once(&mut holder).await.unwrap();
    assert!(matches!(waiter.attempt(Stage::First, BUDGET).await.unwrap(), Attempt::Busy { .. }));
    holder.renew(BUDGET).await.unwrap();
    file.delete();
    assert!(matches!(holder.renew(BUDGET).await.unwrap(), Renewal::Gone));
    // Both clients have connections to the old file.
    let Attempt::Granted { fence, .. } = waiter.attempt(Stage::Wait, BUDGET).await.unwrap() else {
        panic!("nobody is in the new file")
    };
    assert!(fence.unwrap() > first, "the numbers go on above those of the old file");
    assert!(try_once(&mut contend(&one, "k", Mode::Exclusive, 1000)).await.is_none());
    assert_eq!(holder.release(BUDGET).await.unwrap(), Released::NotFound);
    assert!(matches!(waiter.renew(BUDGET).await.unwrap(), Renewal::Extended(_)));
}
