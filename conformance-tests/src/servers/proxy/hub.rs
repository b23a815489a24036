//! The thread of a proxy: it alone owns the connections, so that orders and events come one
//! after another.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

use super::frames::Framing;
use super::link::{Item, Link, Way};
use super::rule::{Action, Hits, Rule};
use super::{Cut, Toward};
use crate::servers::Result;

/// What a test wants, done between two events.
pub(super) type Order = Box<dyn FnOnce(&mut Hub) + Send>;

/// How long the server's machine may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// One direction, for all connections.
#[derive(Debug)]
struct Lane {
    way: Way,
    delay: Duration,
    bytes: u64,
    frames: u64,
}

impl Lane {
    fn new() -> Self {
        Self { way: Way::Pass, delay: Duration::ZERO, bytes: 0, frames: 0 }
    }
}

/// Everything a proxy has.
#[derive(Debug)]
pub(super) struct Hub {
    address: SocketAddr,
    listener: Option<TcpListener>,
    server: SocketAddr,
    framing: Framing,
    lanes: [Lane; 2],
    rules: Vec<(Rule, Hits)>,
    links: Vec<Link>,
    total: u64,
    stopped: bool,
}

/// What can be ready.
#[derive(Debug, Clone, Copy)]
enum Event {
    Orders,
    Connection,
    /// Of a link, in a direction.
    Read(usize, usize),
    Write(usize, usize),
}

impl Hub {
    pub(super) fn listen(
        address: SocketAddr,
        server: SocketAddr,
        framing: Framing,
    ) -> Result<(SocketAddr, Self)> {
        let mut hub = Self {
            address,
            listener: None,
            server,
            framing,
            lanes: [Lane::new(), Lane::new()],
            rules: Vec::new(),
            links: Vec::new(),
            total: 0,
            stopped: false,
        };
        hub.accept()?;
        Ok((address, hub))
    }

    pub(super) fn run(mut self, woken: &UnixStream, orders: &Receiver<Order>) {
        while !self.stopped {
            for event in self.wait(woken) {
                match event {
                    Event::Orders => {
                        self.obey(woken, orders);
                        // Links may be gone: what else was ready, will be ready again.
                        break;
                    }
                    Event::Connection => self.connect(),
                    Event::Read(link, d) => self.read(link, d),
                    Event::Write(link, d) => self.links[link].write(d, Instant::now()),
                }
            }
            self.links.retain(|link| !link.is_over());
        }
    }

    /// Waits for events. Orders come first: what arrives with them is under them already.
    fn wait(&self, woken: &UnixStream) -> Vec<Event> {
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let mut asked = vec![(Event::Orders, PollFd::new(woken, PollFlags::IN))];
        if let Some(listener) = &self.listener {
            asked.push((Event::Connection, PollFd::new(listener, PollFlags::IN)));
        }
        for (i, link) in self.links.iter().enumerate() {
            for d in [0, 1] {
                if link.wants_to_read(d) {
                    asked.push((Event::Read(i, d), PollFd::new(link.source(d), PollFlags::IN)));
                }
                let due = link.due(d).filter(|_| self.lanes[d].way != Way::Hold);
                match due {
                    Some(due) if due <= now => {
                        let end = PollFd::new(link.target(d), PollFlags::OUT);
                        asked.push((Event::Write(i, d), end));
                    }
                    Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                    None => {}
                }
            }
        }
        let (events, mut ends): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let limit = next.and_then(|next| Timespec::try_from(next - now).ok());
        if poll(&mut ends, limit.as_ref()).is_err() {
            // Only an interrupting signal: look again.
            return Vec::new();
        }
        let ready = events.into_iter().zip(&ends).filter(|(_, end)| !end.revents().is_empty());
        ready.map(|(event, _)| event).collect()
    }

    fn obey(&mut self, mut woken: &UnixStream, orders: &Receiver<Order>) {
        // One read is enough: bytes that stay wake the thread once more.
        let _ = woken.read(&mut [0; 64]);
        while let Ok(order) = orders.try_recv() {
            order(self);
        }
    }

    fn connect(&mut self) {
        let Some(Ok((client, _))) = self.listener.as_ref().map(TcpListener::accept) else { return };
        self.total += 1;
        let server = TcpStream::connect_timeout(&self.server, CONNECT);
        match server {
            Ok(server) => self.links.extend(Link::new(client, server).ok()),
            // The client learns it as it would without a proxy, if a moment later.
            Err(_) => drop(set_socket_linger(&client, Some(Duration::ZERO))),
        }
    }

    fn read(&mut self, link: usize, d: usize) {
        let mut buffer = [0; 16 * 1024];
        // An order or an event of this turn may have ended it.
        if !self.links[link].wants_to_read(d) {
            return;
        }
        let (read, end) = self.links[link].read(d, &mut buffer);
        self.lanes[d].bytes += read as u64;
        self.links[link].part(d).extend_from_slice(&buffer[..read]);
        while let Some(length) = self.framing.first(self.links[link].part(d)) {
            let frame = self.links[link].part(d).drain(..length).collect();
            self.frame(link, d, frame);
        }
        if let Some(end) = end {
            let part = std::mem::take(self.links[link].part(d));
            self.push(link, d, Item::Bytes(part), Duration::ZERO);
            self.push(link, d, end, Duration::ZERO);
        }
        self.flush(link, d);
    }

    /// Decides what becomes of one frame.
    fn frame(&mut self, link: usize, d: usize, frame: Vec<u8>) {
        self.lanes[d].frames += 1;
        let message = d == 1 && self.framing.is_message(&frame);
        if !message {
            let number = self.links[link].count(d);
            if d == 1
                && let Some(cut) = self.links[link].doomed(number)
            {
                return self.push(link, d, Item::Cut(cut), Duration::ZERO);
            }
        }
        match self.action(d, &frame) {
            Action::Count => self.push(link, d, Item::Bytes(frame), Duration::ZERO),
            Action::Delay(by) => self.push(link, d, Item::Bytes(frame), by),
            Action::Lose => {}
            Action::Cut(cut) => self.push(link, d, Item::Cut(cut), Duration::ZERO),
            Action::CutAtAnswer(cut) => {
                self.links[link].doom_at_answer(self.framing == Framing::Raw, cut);
                self.push(link, d, Item::Bytes(frame), Duration::ZERO);
            }
        }
    }

    fn action(&mut self, d: usize, frame: &[u8]) -> Action {
        for (rule, hits) in &mut self.rules {
            if rule.times > 0 && rule.toward.lanes().contains(&d) && rule.finds(frame) {
                rule.times -= 1;
                hits.add_one();
                if rule.action != Action::Count {
                    return rule.action;
                }
            }
        }
        Action::Count
    }

    fn push(&mut self, link: usize, d: usize, item: Item, by: Duration) {
        if self.lanes[d].way != Way::Swallow {
            let by = by + self.lanes[d].delay;
            self.links[link].push(d, item, by);
        }
    }

    /// Sends at once what may be sent at once, which spares a turn.
    fn flush(&mut self, link: usize, d: usize) {
        if self.lanes[d].way != Way::Hold {
            self.links[link].write(d, Instant::now());
        }
    }

    pub(super) fn set_server(&mut self, server: SocketAddr) {
        self.server = server;
    }

    pub(super) fn cut(&mut self, cut: Cut) -> usize {
        let links = std::mem::take(&mut self.links);
        let open = links.into_iter().filter(|link| !link.is_over());
        open.map(|mut link| link.cut(cut)).count()
    }

    pub(super) fn refuse(&mut self) {
        self.listener = None;
    }

    pub(super) fn accept(&mut self) -> Result<()> {
        if self.listener.is_none() {
            let listener = TcpListener::bind(self.address)?;
            listener.set_nonblocking(true)?;
            self.listener = Some(listener);
        }
        Ok(())
    }

    pub(super) fn set_way(&mut self, toward: Toward, way: Way) {
        for &d in toward.lanes() {
            self.lanes[d].way = way;
            for link in 0..self.links.len() {
                if way == Way::Swallow {
                    self.links[link].forget(d);
                }
                self.flush(link, d);
            }
        }
    }

    pub(super) fn set_delay(&mut self, toward: Toward, by: Duration) {
        for &d in toward.lanes() {
            self.lanes[d].delay = by;
        }
    }

    pub(super) fn add_rule(&mut self, rule: Rule) -> Hits {
        let hits = Hits::default();
        self.rules.push((rule, hits.clone()));
        hits
    }

    pub(super) fn clear_rules(&mut self) {
        self.rules.clear();
    }

    pub(super) fn open(&self) -> usize {
        self.links.iter().filter(|link| link.is_open()).count()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn bytes(&self, toward: Toward) -> u64 {
        toward.lanes().iter().map(|&d| self.lanes[d].bytes).sum()
    }

    pub(super) fn frames(&self, toward: Toward) -> u64 {
        toward.lanes().iter().map(|&d| self.lanes[d].frames).sum()
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }
}
