//! The capability table in `docs/capabilities.md` and in the README is what the code says.
//! `UPDATE_TABLES=1 cargo test --all-features --test capabilities` writes it anew.

#![cfg(all(feature = "sqlite", feature = "redis", feature = "etcd"))]
#![cfg(test)] // for clippy: the helpers here may panic as the tests may

use std::fmt::Write as _;
use std::path::Path;

use lockkit::backend::url::ConnectUrl;
use lockkit::{
    Capabilities, Consistency, DistributedLock, EtcdLock, Fencing, LeaseKind, RedisLock, connect,
};

const MARKS: [&str; 2] = ["<!-- capabilities -->\n", "<!-- /capabilities -->\n"];

async fn backends() -> Vec<(&'static str, Capabilities)> {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("locks.db").display());
    let mut all = Vec::new();
    for (shown, url) in [
        ("memory:", "memory:"),
        ("memory:?fair=true", "memory:?fair=true"),
        ("sqlite:", sqlite.as_str()),
    ] {
        let lock = connect(url).await.unwrap();
        all.push((shown, lock.core().capabilities().clone()));
    }
    // Making them sends nothing.
    for (shown, url) in [
        ("redis:", "redis://h"),
        ("redis:?fair=true", "redis://h?fair=true"),
        ("redis+sentinel:", "redis+sentinel://h/name"),
        ("redis+cluster:", "redis+cluster://h"),
        ("redlock:", "redlock://a,b,c"),
    ] {
        let lock = RedisLock::from_url(&ConnectUrl::parse(url).unwrap()).unwrap();
        all.push((shown, lock.core().capabilities().clone()));
    }
    let etcd = EtcdLock::from_url(&ConnectUrl::parse("etcd://h").unwrap()).unwrap();
    all.push(("etcd:", etcd.core().capabilities().clone()));
    all
}

fn table(backends: &[(&str, Capabilities)]) -> String {
    let mut out = String::from(
        "| URL | consistency | lease | least TTL | fence | fair | shared | permits | \
         re-entry across processes | inspection | forced release | push |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let yes = |b: bool| if b { "yes" } else { "no" };
    for (url, c) in backends {
        let consistency = match c.consistency {
            Consistency::Ap(_) => "AP",
            _ => "CP",
        };
        let lease = match c.lease {
            LeaseKind::Session => "session",
            LeaseKind::Connection => "connection",
            _ => "TTL",
        };
        let fence = match c.fencing {
            Fencing::Strict => "strict",
            Fencing::UnlessClockStepsBack => "unless a clock steps back",
            _ => "none",
        };
        writeln!(
            out,
            "| `{url}` | {consistency} | {lease} | {} ms | {fence} | {} | {} | {} | {} | {} | {} | {} |",
            c.smallest_ttl.as_millis(),
            yes(c.fair),
            yes(c.shared),
            yes(c.permits),
            yes(c.stored_reentrancy),
            yes(c.inspection),
            yes(c.forced_release),
            yes(c.push),
        )
        .unwrap();
    }
    out
}

fn page(backends: &[(&str, Capabilities)]) -> String {
    let mut out = format!(
        "# Capabilities\n\nWritten from the code by `tests/capabilities.rs`, which also compares \
         it.\n\n{}\n## When two holders are possible\n\n",
        table(backends)
    );
    for (url, c) in backends {
        let (kind, sentence) = match c.consistency {
            Consistency::Ap(sentence) => ("AP", sentence),
            Consistency::Cp(sentence) => ("CP", sentence),
            _ => panic!("a kind of consistency that this test does not know"),
        };
        writeln!(out, "- `{url}` ({kind}): {sentence}").unwrap();
        if let Some(version) = c.least_version {
            writeln!(out, "  Least version of the server: {version}.").unwrap();
        }
    }
    out
}

fn readme_with(table: &str, readme: &str) -> String {
    let start = readme.find(MARKS[0]).expect("the README has the first mark") + MARKS[0].len();
    let end = readme.find(MARKS[1]).expect("the README has the second mark");
    format!("{}{table}{}", &readme[..start], &readme[end..])
}

#[tokio::test]
async fn the_tables_are_what_the_code_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (page_path, readme_path) = (root.join("docs/capabilities.md"), root.join("README.md"));
    let backends = backends().await;
    let page = page(&backends);
    let readme = std::fs::read_to_string(&readme_path).unwrap();
    let new_readme = readme_with(&table(&backends), &readme);
    if std::env::var_os("UPDATE_TABLES").is_some() {
        std::fs::write(&page_path, &page).unwrap();
        std::fs::write(&readme_path, &new_readme).unwrap();
        return;
    }
    let hint = "run it with UPDATE_TABLES=1 and look at the difference";
    assert_eq!(std::fs::read_to_string(&page_path).unwrap_or_default(), page, "{hint}");
    assert_eq!(readme, new_readme, "{hint}");
}
