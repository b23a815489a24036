//! The server's own counters of commands.

use conformance_tests::servers::Redis;

use crate::clients::ask;

/// What clients have sent since the last [`reset`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Scripts: attempts of those who wait, releases, and nothing else here.
    pub(crate) scripts: usize,
    /// Messages, which the scripts send.
    pub(crate) messages: usize,
    /// All commands, those of the scripts too.
    pub(crate) all: usize,
}

pub(crate) fn reset(server: &Redis) {
    ask(server, &["CONFIG", "RESETSTAT"]);
}

pub(crate) fn read(server: &Redis) -> Sent {
    let text = ask(server, &["INFO", "commandstats"]).text();
    let mut sent = Sent { scripts: 0, messages: 0, all: 0 };
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(":calls=") else { continue };
        let calls: usize = rest.split(',').next().and_then(|n| n.parse().ok()).unwrap();
        match name {
            "cmdstat_evalsha" | "cmdstat_eval" => sent.scripts += calls,
            "cmdstat_publish" => sent.messages += calls,
            // The test's own.
            "cmdstat_info" | "cmdstat_config|resetstat" | "cmdstat_auth" => continue,
            _ => {}
        }
        sent.all += calls;
    }
    sent
}
