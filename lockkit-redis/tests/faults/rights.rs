//! Users with just enough rights, and with one too few.

use std::num::NonZeroU32;

use conformance_tests::servers::Redis;
use lockkit_core::Which;

use crate::*;

/// RED-41: every key and channel has the prefix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_the_prefix_alone_can_do_all() {
    let server = Redis::builder()
        .user("app on >pw ~lockkit:* &lockkit:* +@all -@dangerous -@admin")
        .start()
        .unwrap();
    let url = |params: &str| format!("redis://app:pw@{}/0?{RARE_POLLS}&{params}", server.address());
    for params in ["", "fair=true"] {
        let (lock, other) = (client_at(&url(params)), client_at(&url(params)));
        lock.ping().await.unwrap();
        let two = NonZeroU32::new(2).unwrap();
        let kinds: [(&str, &dyn Fn(Request) -> Request); 5] = [
            ("exclusive", &|request| request),
            ("owned", &|request: Request| request.owner("me")),
            ("shared", &Request::shared),
            ("permit", &move |request: Request| request.permit(two)),
            ("lingering", &|request: Request| request.min_hold(ms(50))),
        ];
        for (kind, with) in kinds {
            let kind = &*format!("{kind}:{}", params.len());
            let mut events = lock.core().events();
            let guard = grant(&lock, with(long(kind).ttl(ms(300)))).await;
            let _second = match kind {
                kind if kind.starts_with("permit") => Some(grant(&other, with(long(kind))).await),
                _ => None,
            };
            event(&mut events, "renewed", renewed).await;
            // One of the same family that has to wait.
            let next = if kind.starts_with("permit") { with(long(kind)) } else { long(kind) };
            refused(&other, next.clone(), kind).await;
            let waiting = waiter(&other, next);
            listened_to(&server, kind).await;
            assert!(lock.inspect(guard.key()).await.unwrap().is_some());
            guard.release().await.unwrap();
            let guard = within(AT_ONCE, kind, waiting).await.unwrap();
            assert!(lock.force_release(guard.key(), Which::Token(guard.token())).await.unwrap());
            let _ = guard.release().await;
        }
        assert!(lock.core().warnings().is_empty(), "{:?}", lock.core().warnings());
    }
    empty(&server).await;
    // What is not told to anybody would be here. (Who may not ask about the server, does not.)
    let denied = ask(&server, &["ACL", "LOG"]);
    let denied = denied.members().iter().map(|entry| entry.texts()[7].clone());
    assert_eq!(denied.filter(|what| what != "info").collect::<Vec<_>>(), Vec::<String>::new());
}

/// A right that is missing is told when a client connects, not at the first release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_found_when_connecting() {
    let server = Redis::builder()
        .user("publish on >pw ~lockkit:* &lockkit:* +@all -publish")
        .user("evalsha on >pw ~lockkit:* &lockkit:* +@all -evalsha")
        .user("eval on >pw ~lockkit:* &lockkit:* +@all -eval")
        .user("set on >pw ~lockkit:* &lockkit:* +@all -set")
        .user("get on >pw ~lockkit:* &lockkit:* +@all -get")
        .user("del on >pw ~lockkit:* &lockkit:* +@all -del")
        .user("time on >pw ~lockkit:* &lockkit:* +@all -time")
        .user("keys on >pw ~other:* &lockkit:* +@all")
        .user("channels on >pw ~lockkit:* &other:* +@all")
        .user("select on >pw ~lockkit:* &lockkit:* +@all -select")
        .user("hashes on >pw ~lockkit:* &lockkit:* +@all")
        .start()
        .unwrap();
    let users = ["publish", "evalsha", "eval", "set", "get", "del", "time", "keys", "channels"];
    let users = users.into_iter().map(|user| (user, "0"));
    for (user, rest) in users.chain([("select", "1"), ("hashes", "0?layout=hash")]) {
        ask(&server, &["SCRIPT", "FLUSH"]);
        let lock = client_at(&format!("redis://{user}:pw@{}/{rest}", server.address()));
        match within(AT_ONCE, user, lock.ping()).await {
            Err(Error::Permission(failure)) => {
                let text = failure.to_string();
                assert!(text.contains("denies the user what locks need"), "{user}: {text}");
            }
            other => panic!("{user}: should be a matter of permission: {other:?}"),
        }
    }
    empty(&server).await;
}

/// Each command that the docs ask for, missing alone, is missed when connecting. (`select` where
/// another database is named, `subscribe` by a warning.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_missing_command_is_found_when_connecting() {
    let docs = include_str!("../../../docs/redis.md").split("commands `select ").nth(1).unwrap();
    let listed: Vec<_> = docs.split('`').next().unwrap().split_whitespace().collect();
    let unused = ["subscribe", "unsubscribe", "ping"];
    let needed = || listed.iter().filter(|command| !unused.contains(command));
    assert!(needed().count() > 20, "{listed:?}");
    let lacking = |lack: &str| {
        let rest: String =
            listed.iter().filter(|c| **c != lack).map(|c| format!(" +{c}")).collect();
        format!("no{lack} on >pw ~lockkit:* &lockkit:*{rest}")
    };
    let builder = needed().fold(Redis::builder().user(&lacking("thing")), |builder, command| {
        builder.user(&lacking(command))
    });
    let server = builder.start().unwrap();
    let url = |lack: &str| format!("redis://no{lack}:pw@{}/0?fair=true", server.address());
    client_at(&url("thing")).ping().await.unwrap();
    let mut missed = Vec::new();
    for command in needed() {
        ask(&server, &["SCRIPT", "FLUSH"]);
        match client_at(&url(command)).ping().await {
            Err(Error::Permission(_)) => {}
            Err(other) => panic!("{command}: {other}"),
            Ok(()) => missed.push(*command),
        }
    }
    assert_eq!(missed, Vec::<&str>::new());
    eventually(Duration::from_secs(3), &format!("{:?}", keys(&server)), || {
        keys(&server).is_empty()
    })
    .await;
}

/// Without the right to listen there is the poll, and a warning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_listen_asks_and_is_warned() {
    let server =
        Redis::builder().user("app on >pw ~lockkit:* &lockkit:* +@all -subscribe").start().unwrap();
    let lock = client_at(&format!("redis://app:pw@{}/0", server.address()));
    let holder = client_at(&format!("redis://app:pw@{}/0", server.address()));
    let guard = grant(&holder, long("key")).await;
    let waiting = waiter(&lock, long("key"));
    eventually(PATIENCE, "warned", || !lock.core().warnings().is_empty()).await;
    let warning = &lock.core().warnings()[0];
    assert!(warning.contains("subscribing to them is refused"), "{warning}");
    guard.release().await.unwrap();
    drop(within(POLL + AT_ONCE, "asked", waiting).await.unwrap());
}

/// GEN-35.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_passwords_work_and_are_never_shown() {
    const PASSWORD: &str = "p@ss/w#r=d%3D?";
    const ENCODED: &str = "p%40ss%2Fw%23r%3Dd%253D%3F";
    let server = Redis::builder()
        .user(&format!("me:too on >{PASSWORD} ~lockkit:* &lockkit:* +@all"))
        .start()
        .unwrap();
    let address = server.address();
    for (right, url) in [
        (true, format!("redis://me%3Atoo:{ENCODED}@{address}/0")),
        (true, format!("redis://{address}/0?username=me%3Atoo&password={ENCODED}")),
        // Once too often, and a letter too many.
        (false, format!("redis://me%3Atoo:p%2540ss%2Fw%23r%3Dd%253D%3F@{address}/0")),
        (false, format!("redis://{address}/0?username=me%3Atoo&password={ENCODED}x")),
    ] {
        let lock = client_at(&url);
        let shown = match lock.acquire(long("key").timeout(AT_ONCE)).await {
            Ok(guard) => {
                assert!(right, "let in");
                let shown = format!("{guard:?} {lock:?} {:?}", lock.core());
                guard.release().await.unwrap();
                shown
            }
            Err(error) => {
                assert!(!right, "{error}");
                assert!(matches!(error, Error::Permission(_)), "{error}");
                let sources =
                    std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
                        error.source()
                    });
                let sources: Vec<_> = sources.map(|e| format!("{e} {e:?}")).collect();
                format!("{sources:?} {lock:?}")
            }
        };
        for secret in ["p@ss", "d%3D", "p%40ss", "p%2540ss", "w#r"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
    // Raw, it cannot be told from what stands around it.
    for url in [
        format!("redis://me:too:{PASSWORD}@{address}/0"),
        format!("redis://me:{PASSWORD}@{address}/0"),
        format!("redis://{address}/0?username=me&password=p%zz"),
    ] {
        let error = lockkit_core::url::ConnectUrl::parse(&url)
            .and_then(|url| RedisLock::from_url(&url))
            .expect_err("raw");
        let shown = format!("{error} {error:?}");
        assert!(matches!(error, Error::Configuration(_)) && shown.contains('%'), "{shown}");
        assert!(!shown.contains("p@ss") && !shown.contains("w#r"), "{shown}");
    }
}
