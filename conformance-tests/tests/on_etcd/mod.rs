//! What all suites on etcd share: how a client is made, and that nothing of it stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance_tests::servers::{Fault, Program, Result};
use lockkit_core::DistributedLock;
use lockkit_core::url::ConnectUrl;
use lockkit_etcd::EtcdLock;

const CLI: Program = Program { name: "etcdctl", package: "etcd-client" };

/// How long the claims of a client that is gone may stay.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// How much later than its TTL a dead claim may go: TTLs are whole seconds, and the server looks
/// for leases at their end twice in a second.
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1500);

/// Makes one client.
pub(crate) fn connect(url: &ConnectUrl) -> lockkit_core::Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(EtcdLock::from_url(url)?))
}

/// What is left of a case: the keys under its prefix.
///
/// Leases and watches belong to no prefix, so among cases that run at the same time nobody can
/// tell whose they are. Those of a case end with its connections, which the suite counts.
pub(crate) async fn leftovers(url: &ConnectUrl) -> Vec<String> {
    let start = Instant::now();
    loop {
        let seen = look(url).unwrap_or_else(|fault| vec![format!("cannot look: {fault}")]);
        if seen.is_empty() || start.elapsed() > CLEAN_UP {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As the user of the URL sees it.
fn look(url: &ConnectUrl) -> Result<Vec<String>> {
    let mut params = url.clone().into_params();
    let prefix = params.text_or_empty("prefix");
    let prefix = prefix.ok_or_else(|| Fault::new("each case needs a `prefix` of its own"))?;
    let mut words = vec!["--command-timeout=5s".to_owned()];
    for (option, name) in [("cacert", "tls_ca"), ("cert", "tls_cert"), ("key", "tls_key")] {
        if let Ok(Some(file)) = params.text(name) {
            words.push(format!("--{option}={file}"));
        }
    }
    let rest = url.rest().trim_start_matches('/');
    let (user, hosts) = match rest.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, rest),
    };
    words.extend(user.map(|user| format!("--user={user}")));
    let scheme = if url.scheme() == "etcds" { "https" } else { "http" };
    let hosts: Vec<_> = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
    words.push(format!("--endpoints={}", hosts.join(",")));
    words.extend(["get", "--prefix", "--keys-only", &prefix].map(str::to_owned));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let keys = CLI.run(&words)?;
    Ok(keys.lines().filter(|line| !line.is_empty()).map(|line| format!("key {line}")).collect())
}
