//! Two names are never one lock, and one name is never two.

use std::sync::Arc;

use lockkit_core::{DistributedLock, Error, LockExt};

use crate::bed::Test;
use crate::case::clause;
use crate::check::{error, free_now, grant, grant_free, refused, release};

clause! { "names";
    different_names_are_different_locks heavy;
    same_name_is_the_same_lock heavy;
    longest_name;
    names_that_differ_in_the_last_byte;
    too_long_or_empty_is_refused_before_any_io;
    helper_keys_are_no_locks heavy;
}

/// Names that a careless encoding, a collation, a path or a pattern takes for one another.
const NAMES: &[&str] = &[
    "a",
    "A",
    "á",
    "a\u{301}",
    "ａ",
    "а",
    "job",
    "Job",
    "JOB",
    "job ",
    "job  ",
    " job",
    "job\t",
    "job\n",
    "job\r\n",
    "job\0",
    "job\0x",
    "straße",
    "strasse",
    "STRASSE",
    "é",
    "e\u{301}",
    "ı",
    "i",
    "İ",
    "ǆ",
    "ﬁ",
    "fi",
    "a/b",
    "a%2Fb",
    "a%2fb",
    "a%252Fb",
    "a_b",
    "a-b",
    "a.b",
    "a:b",
    "a\\b",
    "a b",
    "a+b",
    "a%20b",
    "/",
    "//",
    "%2F",
    "/a",
    "a/",
    "a//b",
    "a/./b",
    "a/../b",
    "b",
    "file:///var/x",
    ".",
    "..",
    "...",
    "%2E",
    "%2E%2E",
    ".a",
    "a.",
    "./a",
    "~",
    "zookeeper",
    "{a}",
    "{a}b",
    "{}",
    "{",
    "}",
    "{a",
    "a}",
    "[a]",
    "a*",
    "a?",
    "*",
    "?",
    "%",
    "_",
    "%%",
    "%_",
    "100%",
    "100%25",
    "'",
    "''",
    "\"",
    "`",
    "; DROP TABLE x; --",
    "\\",
    "\\0",
    "\\x00",
    "$1",
    "?1",
    "\0",
    "\0\0",
    "\u{1}",
    "\u{7f}",
    "\u{99}",
    "\u{200b}",
    "a\u{200b}",
    "\u{feff}a",
    "\u{fffd}",
    "🔒",
    "🔓",
    "👨‍👩‍👧",
    "👨",
    "日本",
    "0",
    "00",
    "1",
    "01",
    "1.0",
    "null",
    "NULL",
    "true",
    " ",
    "  ",
    "order:lock:1001",
    "order:lock:100",
    "order:lock:10011",
    "order:lock",
    "order",
];

async fn different_names_are_different_locks(t: Test) {
    let client = t.client().await;
    let mut guards = Vec::new();
    for name in NAMES {
        t.watch_key(name);
        let why = format!("{name:?} must be another lock than all before");
        let guard = grant_free(&*client, t.request(name).ttl(t.long_ttl()), &why).await;
        assert_eq!(guard.key().as_str(), *name);
        guards.push(guard);
    }
    for guard in guards {
        release(&guard).await;
    }
}

async fn same_name_is_the_same_lock(t: Test) {
    let (a, b) = (t.client().await, t.client().await);
    for name in NAMES {
        let guard = grant(&*a, t.request(name).ttl(t.long_ttl())).await;
        refused(&*b, t.request(name), &format!("{name:?} is held by another client")).await;
        release(&guard).await;
        free_now(&*b, t.request(name), &format!("{name:?} was released")).await;
    }
}

async fn longest_name(t: Test) {
    let (a, b) = (t.client().await, t.client().await);
    for name in
        ["x".repeat(512), "é".repeat(256), "/".repeat(512), "🔒".repeat(128), "\0".repeat(512)]
    {
        t.watch_key(&name);
        let guard = grant(&*a, t.request(&name)).await;
        refused(&*b, t.request(&name), "512 bytes, held").await;
        release(&guard).await;
    }
}

async fn names_that_differ_in_the_last_byte(t: Test) {
    let client = t.client().await;
    for length in [63, 127, 191, 254, 255, 511] {
        let stem = "k".repeat(length);
        let [one, two] = ["1", "2"].map(|end| format!("{stem}{end}"));
        let first = grant(&*client, t.request(&one)).await;
        let why = format!("names of {} bytes that differ in the last one", length + 1);
        let second = grant_free(&*client, t.request(&two), &why).await;
        let stem = grant_free(&*client, t.request(&stem), "the prefix of two held names").await;
        for guard in [first, second, stem] {
            release(&guard).await;
        }
    }
}

async fn too_long_or_empty_is_refused_before_any_io(t: Test) {
    let client = t.faulty().await;
    for name in [String::new(), "x".repeat(513), "é".repeat(257), "x".repeat(100_000)] {
        let length = name.len();
        for result in [
            client.acquire(name.as_str()).await.map(Some),
            client.try_acquire(name.as_str()).await,
            client.shared(name.as_str()).await.map(Some),
        ] {
            let refusal = error(result, &format!("a key of {length} bytes"));
            assert!(matches!(refusal, Error::Configuration(_)), "{length} bytes: {refusal:?}");
        }
    }
    assert!(client.log().is_empty(), "the store was asked about a key that cannot be");
}

/// Whatever a backend derives from a name to keep beside the claim must not be a name itself.
async fn helper_keys_are_no_locks(t: Test) {
    let (client, key) = (t.client().await, "job:1".to_owned());
    t.watch_key(&key);
    let guard = grant(&*client, t.request(&key)).await;
    let around =
        ["", "lockkit:", "lock:", "fence", ":fence", "/fence", ".fence", "-fence", "\u{ff}"];
    for before in around {
        for after in around {
            let name = format!("{before}{key}{after}");
            if name != key {
                let why = format!("{name:?} is another name than {key:?}");
                free_now(&*client, t.request(&name), &why).await;
            }
        }
    }
    assert!(guard.is_held());
    let other: Arc<dyn DistributedLock> = t.client().await;
    refused(&*other, t.request(&key), "still held").await;
    release(&guard).await;
}
