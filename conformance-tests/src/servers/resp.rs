//! A small client of Redis, so that tests need not trust the one that is tested.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Fault, Result};

/// How long an answer may take, by default.
const LIMIT: Duration = Duration::from_secs(10);

/// What Redis answers (RESP2).
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// A word, as `OK`.
    Status(String),
    /// An error, as `READONLY You can't write against a read only replica.`
    Error(String),
    /// A number.
    Int(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nothing.
    Nil,
    /// Several.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a word, an error, a number or bytes; empty for the others.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil | Self::Array(_) => String::new(),
        }
    }

    /// The bytes; none for what is none.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Status(text) | Self::Error(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Int(_) | Self::Nil | Self::Array(_) => &[],
        }
    }

    /// The number, also when it came as text; `None` for everything else.
    pub fn number(&self) -> Option<i64> {
        self.text().parse().ok()
    }

    /// The members of an array; none for the others.
    pub fn members(&self) -> &[Reply] {
        if let Self::Array(members) = self { members } else { &[] }
    }

    /// The texts of the members of an array.
    pub fn texts(&self) -> Vec<String> {
        self.members().iter().map(Self::text).collect()
    }

    /// Makes an error of an error.
    ///
    /// # Errors
    /// If it is one.
    pub fn checked(self) -> Result<Self> {
        if let Self::Error(text) = self { Err(Fault::new(text)) } else { Ok(self) }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(text) => f.write_str(text),
            Self::Error(text) => write!(f, "error {text:?}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Nil => f.write_str("nil"),
            Self::Array(members) => f.debug_list().entries(members).finish(),
        }
    }
}

trait Stream: Read + Write + Send {
    fn set_limit(&self, limit: Duration) -> std::io::Result<()>;
}

impl Stream for TcpStream {
    fn set_limit(&self, limit: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

impl Stream for UnixStream {
    fn set_limit(&self, limit: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

/// One connection to a Redis server; blocking, 10 s for an answer at most.
pub struct Resp {
    stream: BufReader<Box<dyn Stream>>,
}

impl Resp {
    /// Connects by TCP, without TLS.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn tcp(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_nodelay(true)?;
        Self::new(Box::new(stream))
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn unix(path: &Path) -> Result<Self> {
        Self::new(Box::new(UnixStream::connect(path)?))
    }

    fn new(stream: Box<dyn Stream>) -> Result<Self> {
        stream.set_limit(LIMIT)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sets how long an answer may take.
    ///
    /// # Errors
    /// If it is zero.
    pub fn set_limit(&mut self, limit: Duration) -> Result<()> {
        Ok(self.stream.get_ref().set_limit(limit)?)
    }

    /// Sends a command, and reads one answer. An error of the server is a [`Reply::Error`].
    ///
    /// # Errors
    /// If the connection ends, if there is no answer in time, or if it is not RESP2. The
    /// connection is then of no use.
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply> {
        self.send(command)?;
        self.read()
    }

    /// Sends a command without reading its answer.
    ///
    /// # Errors
    /// If the connection ended.
    pub fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<()> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            let word = word.as_ref();
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        Ok(self.stream.get_mut().write_all(&bytes)?)
    }

    /// Reads the next answer, or the next message of a subscription.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn read(&mut self) -> Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| Fault::new("an empty line"))?;
        let number = || rest.parse().map_err(|_| Fault::new(format!("not RESP2: {line:?}")));
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" | "*" if rest == "-1" => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()?).unwrap_or(0) + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bytes(bytes)
            }
            "*" => Reply::Array((0..number()?).map(|_| self.read()).collect::<Result<_>>()?),
            _ => return Err(Fault::new(format!("not RESP2: {line:?}"))),
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\r\n").ok_or_else(|| Fault::new("the connection ended"))?;
        Ok(String::from_utf8_lossy(line).into_owned())
    }
}

impl fmt::Debug for Resp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resp").finish_non_exhaustive()
    }
}
