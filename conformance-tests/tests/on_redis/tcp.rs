//! Looks into servers without TLS.

use std::net::SocketAddr;

use conformance_tests::servers::{Fault, Resp, Result};
use lockkit_core::url::ConnectUrl;

use crate::on_redis::{prefix, what_stays};

/// The servers that a URL names.
pub(crate) fn hosts(url: &ConnectUrl) -> Result<Vec<SocketAddr>> {
    let hosts = url.rest().trim_start_matches('/').split('/').next().unwrap_or_default();
    let hosts = hosts.split(',').map(|host| host.parse::<SocketAddr>().ok());
    hosts.collect::<Option<_>>().ok_or_else(|| Fault::new("not addresses with ports"))
}

/// What is left of a case on `hosts`.
pub(crate) async fn leftovers(
    url: &ConnectUrl,
    hosts: impl Fn() -> Result<Vec<SocketAddr>>,
) -> Vec<String> {
    what_stays(|| look(&hosts()?, &prefix(url)?)).await
}

/// All keys, and all channels to which somebody listens, on all of these servers.
fn look(hosts: &[SocketAddr], prefix: &str) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    for &host in hosts {
        let mut server = Resp::tcp(host)?;
        let mut cursor = "0".to_owned();
        loop {
            let pattern = format!("{prefix}*");
            let page = server.call(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"])?;
            let page = page.checked()?;
            let [next, keys] = page.members() else { return Err(Fault::new("not a page")) };
            for key in keys.members() {
                let kind = server.call(&[b"TYPE", key.bytes()])?.text();
                // It may be gone since.
                if kind != "none" {
                    seen.push(format!("{kind} {key:?} on {host}"));
                }
            }
            cursor = next.text();
            if cursor == "0" {
                break;
            }
        }
        // Those of Redisson have a prefix of their own.
        for pattern in [format!("{prefix}*"), format!("redisson_lock__channel:{{{prefix}*")] {
            let channels = server.call(&["PUBSUB", "CHANNELS", &pattern])?.checked()?;
            let line = |channel| format!("a subscriber of {channel:?} on {host}");
            seen.extend(channels.members().iter().map(line));
        }
    }
    Ok(seen)
}
