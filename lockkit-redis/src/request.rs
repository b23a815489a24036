//! What is sent to a server in one go.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::Token;
use redis::Cmd;

use crate::scripts::{self, Script};
use crate::value::millis;

/// What is sent to a server in one go. Its first command decides; an error of that one is the
/// request's.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    /// Sets a plain claim if its key is free.
    Set {
        base: Arc<[u8]>,
        value: Vec<u8>,
        ttl: Duration,
        /// Asks the time as well. Behind the claim: a fence drawn before could be older than
        /// another's.
        fence: bool,
        /// Asks what is there as well.
        look: bool,
    },
    /// Frees a plain claim that left nothing but its key.
    Free { base: Arc<[u8]>, token: Token, channel: Vec<u8> },
    /// Deletes keys of no lock.
    Delete { keys: Vec<Vec<u8>> },
    /// One script.
    Script { script: &'static Script, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>> },
    /// Another request, and behind it the question how many replicas have what it wrote, on the
    /// same connection: only there the server knows which writes are meant.
    Replicated { request: Box<Request>, replicas: u32, timeout: Duration },
}

/// How it is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Form {
    /// To a server of a cluster that is only about to get the slot.
    pub(crate) asking: bool,
    /// The script with its text, for a server that does not know it yet.
    pub(crate) in_full: bool,
}

impl Form {
    /// The command that runs a script, and what it is given for it.
    fn script(self, script: &Script) -> (&'static str, &str) {
        if self.in_full { ("EVAL", script.text) } else { ("EVALSHA", script.sha.as_str()) }
    }
}

impl Request {
    /// Whether it can be sent with the text of its script.
    pub(crate) fn has_text(&self) -> bool {
        match self {
            Self::Set { .. } | Self::Delete { .. } => false,
            Self::Free { .. } | Self::Script { .. } => true,
            Self::Replicated { request, .. } => request.has_text(),
        }
    }

    /// The request as commands.
    pub(crate) fn commands(&self, form: Form) -> Vec<Cmd> {
        let mut commands = Vec::with_capacity(3);
        self.add_to(&mut commands, form);
        if form.asking {
            // It holds for one command each.
            commands = commands.into_iter().flat_map(|c| [redis::cmd("ASKING"), c]).collect();
        }
        commands
    }

    fn add_to(&self, commands: &mut Vec<Cmd>, form: Form) {
        match self {
            Self::Set { base, value, ttl, fence, look } => {
                let mut set = Cmd::with_capacity(6, base.len() + value.len() + 32);
                set.arg("SET").arg(&**base).arg(value.as_slice());
                set.arg("NX").arg("PX").arg(millis(*ttl));
                commands.push(set);
                if *fence {
                    commands.push(redis::cmd("TIME"));
                }
                if *look {
                    let mut get = redis::cmd("GET");
                    get.arg(&**base);
                    commands.push(get);
                }
            }
            Self::Free { base, token, channel } => {
                let (command, script) = form.script(&scripts::FREE);
                let size = script.len() + base.len() + channel.len() + 48;
                let mut free = Cmd::with_capacity(6, size);
                free.arg(command).arg(script).arg(1).arg(&**base);
                free.arg(token.to_string()).arg(channel.as_slice());
                commands.push(free);
            }
            Self::Delete { keys } => {
                let mut delete = redis::cmd("DEL");
                for key in keys {
                    delete.arg(key.as_slice());
                }
                commands.push(delete);
            }
            Self::Script { script, keys, args } => {
                let (command, script) = form.script(script);
                let mut evaluate = redis::cmd(command);
                evaluate.arg(script).arg(keys.len());
                for part in keys.iter().chain(args) {
                    evaluate.arg(part.as_slice());
                }
                commands.push(evaluate);
            }
            Self::Replicated { request, replicas, timeout } => {
                request.add_to(commands, form);
                let mut wait = redis::cmd("WAIT");
                // Zero would mean: for ever.
                wait.arg(*replicas).arg(millis(*timeout));
                commands.push(wait);
            }
        }
    }
}
