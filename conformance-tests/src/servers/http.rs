//! One HTTP exchange over a Unix socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Fault, Result};

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// What stands behind `Authorization:`.
    pub(super) authorization: Option<&'a str>,
    pub(super) body: &'a str,
}

/// What came back.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Request<'_> {
    /// Sends it on a connection of its own, and waits for the answer; for no part of it longer
    /// than `limit`.
    pub(super) fn send(&self, socket: &Path, limit: Duration) -> Result<Answer> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        // With version 1.0 the answer comes in one piece, and ends with the connection.
        let mut text = format!("{} {} HTTP/1.0\r\nHost: lockkit\r\n", self.method, self.path);
        if let Some(token) = self.authorization {
            text.push_str(&format!("Authorization: {token}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{}", self.body.len(), self.body));
        stream.write_all(text.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        parse(&String::from_utf8_lossy(&answer))
    }
}

fn parse(text: &str) -> Result<Answer> {
    let parts = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, body: body.to_owned() })
    });
    parts.ok_or_else(|| Fault::new(format!("not an answer in HTTP: {text:?}")))
}
