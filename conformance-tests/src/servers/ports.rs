//! Loopback ports that nobody uses.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::{Fault, Result};

/// Below the ports that systems give to outgoing connections. From among those, somebody's
/// connection could take the port of a server that a test has stopped and will start again.
const RANGE: Range<u16> = 10_000..20_000;

/// How many ports are looked at, and how many of them a server may find taken after all.
const ATTEMPTS: usize = 200;
const STARTS: usize = 5;

/// What this process has given out: the servers on it may be stopped at the moment.
static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// This port of the loopback address.
pub(super) fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A TCP port of 127.0.0.1 that nobody listens at, and that this process gets only once. The port
/// that is 10,000 higher is free as well, for servers that need a second one.
///
/// Another process may take it all the same before it is used; see [`on_free_port`].
///
/// # Errors
/// If no port is free.
pub fn free_port() -> Result<u16> {
    for _ in 0..ATTEMPTS {
        let port = fastrand::u16(RANGE);
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        let given = given.get_or_insert_default();
        let free = |port| TcpListener::bind(at(port)).is_ok();
        if !given.contains(&port) && free(port) && free(port + 10_000) {
            given.insert(port);
            return Ok(port);
        }
    }
    Err(Fault::new("no free loopback port"))
}

/// Starts something on a free port; on another one if somebody was faster.
///
/// # Errors
/// What `start` says, except that the address is in use.
pub fn on_free_port<T>(mut start: impl FnMut(u16) -> Result<T>) -> Result<T> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match start(free_port()?) {
            Err(fault) if fault.is_address_in_use() && attempts < STARTS => {}
            outcome => return outcome,
        }
    }
}
