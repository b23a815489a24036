//! A TCP proxy that misbehaves exactly as it is told.

mod frames;
mod hub;
mod link;
mod rule;

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub use frames::Framing;
use hub::{Hub, Order};
use link::Way;
pub use rule::{Action, Hits, Rule};

use super::{Fault, Result, until};

/// A direction through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    /// From clients to the server: requests.
    Server,
    /// From the server to clients: answers and messages.
    Client,
    /// Both of them.
    Both,
}

/// The directions as indices: requests first.
impl Toward {
    fn lanes(self) -> &'static [usize] {
        match self {
            Self::Server => &[0],
            Self::Client => &[1],
            Self::Both => &[0, 1],
        }
    }
}

/// How a connection ends, to both of its sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// With a RST, as when a machine or a firewall forgets the connection.
    Reset,
    /// With a FIN, as when the other side's process ends.
    Finish,
}

/// A proxy in front of one server, on a loopback port of its own.
///
/// It runs in a thread of its own, so it works while a test's runtime is blocked. Every method
/// returns when what it asks for is in effect: what the proxy has passed on before it is passed
/// on, and nothing else. A new proxy passes everything on.
///
/// Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    orders: Sender<Order>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy for a Redis server without TLS: a frame is one command or one answer.
    ///
    /// # Errors
    /// If there is no port.
    pub fn start(server: SocketAddr) -> Result<Self> {
        Self::start_framed(server, Framing::Resp)
    }

    /// Starts a proxy that finds frames in this way.
    ///
    /// # Errors
    /// If there is no port.
    pub fn start_framed(server: SocketAddr, framing: Framing) -> Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (orders, queue) = channel();
        let (address, hub) =
            super::on_free_port(|port| Hub::listen(super::ports::at(port), server, framing))?;
        let run = move || hub.run(&woken, &queue);
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(run)?;
        Ok(Self { address, orders, wake, thread: Some(thread) })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port where clients connect.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// New connections go to this server instead.
    pub fn set_server(&self, server: SocketAddr) {
        self.ask(move |hub| hub.set_server(server));
    }

    /// Ends all connections, and gives how many they were. New ones are accepted, unless they are
    /// [refused](Self::refuse).
    pub fn cut(&self, cut: Cut) -> usize {
        self.ask(move |hub| hub.cut(cut))
    }

    /// New connections are refused, as by a machine on which no server runs. Those that are there
    /// stay.
    pub fn refuse(&self) {
        self.ask(Hub::refuse);
    }

    /// New connections are accepted again.
    ///
    /// # Errors
    /// If somebody took the port meanwhile.
    pub fn accept(&self) -> Result<()> {
        self.ask(Hub::accept)
    }

    /// Keeps in the proxy what comes, also ends of connections, until [`pass`](Self::pass): as a
    /// network that is down for a while. Connections are accepted all the same.
    pub fn hold(&self, toward: Toward) {
        self.ask(move |hub| hub.set_way(toward, Way::Hold));
    }

    /// Throws away what comes, also ends of connections, and what is still in the proxy: as a
    /// network that never comes back. Connections are accepted all the same.
    pub fn swallow(&self, toward: Toward) {
        self.ask(move |hub| hub.set_way(toward, Way::Swallow));
    }

    /// Passes on what comes, and what was [held](Self::hold).
    pub fn pass(&self, toward: Toward) {
        self.ask(move |hub| hub.set_way(toward, Way::Pass));
    }

    /// Passes on later, by this much, what comes from now on. The order stays.
    pub fn delay(&self, toward: Toward, by: Duration) {
        self.ask(move |hub| hub.set_delay(toward, by));
    }

    /// From now on looks for this in every frame. What it did is read from the [`Hits`].
    pub fn rule(&self, rule: Rule) -> Hits {
        self.ask(move |hub| hub.add_rule(rule))
    }

    /// Forgets all rules.
    pub fn clear_rules(&self) {
        self.ask(Hub::clear_rules);
    }

    /// How many connections there are that their client has not closed.
    pub fn open(&self) -> usize {
        self.ask(|hub| hub.open())
    }

    /// How many connections have been accepted so far.
    pub fn total(&self) -> u64 {
        self.ask(|hub| hub.total())
    }

    /// How many bytes have come so far, passed on or not.
    pub fn bytes(&self, toward: Toward) -> u64 {
        self.ask(move |hub| hub.bytes(toward))
    }

    /// How many frames have come so far, passed on or not.
    pub fn frames(&self, toward: Toward) -> u64 {
        self.ask(move |hub| hub.frames(toward))
    }

    /// Waits until exactly so many connections are [open](Self::open).
    ///
    /// # Errors
    /// After `limit`.
    pub fn wait_until_open(&self, connections: usize, limit: Duration) -> Result<()> {
        let waited = until("connections", limit, || Ok(self.open() == connections));
        waited.map_err(|_| {
            let open = self.open();
            Fault::new(format!("{open} connections and not {connections} after {limit:?}"))
        })
    }

    /// Has the proxy's own thread do `what` between two events.
    fn ask<R: Send + 'static>(&self, what: impl FnOnce(&mut Hub) -> R + Send + 'static) -> R {
        let (answer, answered) = channel();
        let order: Order = Box::new(move |hub| {
            // Whoever asks, waits.
            let _ = answer.send(what(hub));
        });
        self.orders.send(order).expect("the proxy's thread");
        self.wake();
        answered.recv().expect("the proxy's thread")
    }

    fn wake(&self) {
        // If the pipe is full, the thread is awake.
        let _ = std::io::Write::write(&mut &self.wake, &[1]);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let stop: Order = Box::new(Hub::stop);
        // A thread that has panicked is gone already.
        let _ = self.orders.send(stop);
        self.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
