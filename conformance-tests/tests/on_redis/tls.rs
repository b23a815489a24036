//! Looks into a server with TLS and users, as the user of the URL.

use conformance_tests::servers::{Fault, Program, Result};
use lockkit_core::url::ConnectUrl;

use crate::on_redis::{prefix, what_stays};

const CLI: Program = Program { name: "redis-cli", package: "redis-tools" };

/// What is left of a case.
pub(crate) async fn leftovers(url: &ConnectUrl) -> Vec<String> {
    let look = || {
        let (way, pattern) = (way(url)?, format!("{}*", prefix(url)?));
        let mut seen = ask(&way, &["--scan", "--pattern", &pattern])?;
        let channels = ask(&way, &["PUBSUB", "CHANNELS", &pattern])?;
        seen.extend(channels.iter().map(|channel| format!("a subscriber of {channel}")));
        Ok(seen)
    };
    what_stays(look).await
}

/// How the server is reached.
fn way(url: &ConnectUrl) -> Result<Vec<String>> {
    let mut params = url.clone().into_params();
    let mut file = |name| params.text(name).ok().flatten();
    let files = (file("tls_ca"), file("tls_cert"), file("tls_key"));
    let (Some(authority), Some(certificate), Some(key)) = files else {
        return Err(Fault::new("the URL names no files for TLS"));
    };
    let rest = url.rest().trim_start_matches('/').split('/').next().unwrap_or_default();
    let parts = rest.split_once('@').and_then(|(user, host)| {
        let (user, password) = user.split_once(':')?;
        let (host, port) = host.split_once(':')?;
        Some((user, password, host, port))
    });
    let (user, password, host, port) =
        parts.ok_or_else(|| Fault::new("not user:password@host:port"))?;
    let words = [
        ["--no-auth-warning", "--tls"],
        ["-h", host],
        ["-p", port],
        ["--user", user],
        ["--pass", password],
        ["--cacert", &authority],
        ["--cert", &certificate],
        ["--key", &key],
    ];
    Ok(words.concat().into_iter().map(str::to_owned).collect())
}

/// The lines of an answer.
fn ask(way: &[String], command: &[&str]) -> Result<Vec<String>> {
    let way = way.iter().map(String::as_str);
    let said = CLI.run(&way.chain(command.iter().copied()).collect::<Vec<_>>())?;
    Ok(said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
