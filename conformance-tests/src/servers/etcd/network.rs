//! The network between the members of a cluster, of which every direction can be cut.
//!
//! All members know one another by the same URLs, so a proxy at such a URL could not tell who
//! comes. Instead every member reaches its peers through a door of its own (SOCKS, which etcd
//! takes from its environment), and each door has a proxy of its own for every peer.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::servers::{Cut, Fault, Framing, Proxy, Result, Toward, on_free_port, ports};

/// The members' addresses for one another, which lead nowhere but through the doors: a network
/// that is set aside for examples. For addresses of the loopback, etcd would ask no door.
const PEERS: [u8; 3] = [192, 0, 2];

/// Any port.
const PORT: u16 = 2380;

/// One member's ways to the others.
#[derive(Debug)]
struct Door {
    address: SocketAddr,
    ways: Arc<[Proxy]>,
    closed: Arc<AtomicBool>,
}

/// All doors: one for each member.
#[derive(Debug)]
pub(super) struct Network {
    doors: Vec<Door>,
}

impl Network {
    /// For members that listen for their peers at these addresses.
    pub(super) fn start(members: &[SocketAddr]) -> Result<Self> {
        let doors = members.iter().map(|_| Door::open(members)).collect::<Result<_>>()?;
        Ok(Self { doors })
    }

    /// By which URL all members know this one.
    pub(super) fn url(member: usize) -> String {
        let [a, b, c] = PEERS;
        format!("http://{}:{PORT}", Ipv4Addr::new(a, b, c, number(member)))
    }

    /// What the environment of this member must say.
    pub(super) fn variables(&self, member: usize) -> Vec<(&'static str, String)> {
        let door = format!("socks5://{}", self.doors[member].address);
        let mut variables = vec![("HTTP_PROXY", door.clone()), ("http_proxy", door)];
        variables.extend(["NO_PROXY", "no_proxy"].map(|name| (name, String::new())));
        variables
    }

    /// Nothing passes any more between this member and the others; nobody is told.
    pub(super) fn cut_off(&self, member: usize) {
        for way in self.ways(member) {
            way.swallow(Toward::Both);
        }
    }

    /// Everything passes again. What was lost is lost, so the old connections end.
    pub(super) fn heal(&self, member: usize) {
        for way in self.ways(member) {
            // In this order: a connection that is made between the two has lost nothing.
            way.pass(Toward::Both);
            way.cut(Cut::Reset);
        }
    }

    /// Both directions between this member and each other one.
    fn ways(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        let pairs = move |(from, door): (usize, &'_ Door)| {
            let to = if from == member { 0..door.ways.len() } else { member..member + 1 };
            to.filter(move |to| *to != from).map(move |to| (from, to))
        };
        let pairs: Vec<_> = self.doors.iter().enumerate().flat_map(pairs).collect();
        pairs.into_iter().map(|(from, to)| &self.doors[from].ways[to])
    }
}

/// The last byte of a member's address.
fn number(member: usize) -> u8 {
    u8::try_from(member + 1).unwrap_or(u8::MAX)
}

impl Door {
    fn open(members: &[SocketAddr]) -> Result<Self> {
        let ways = members.iter().map(|&member| Proxy::start_framed(member, Framing::Raw));
        let ways: Arc<[Proxy]> = ways.collect::<Result<Vec<_>>>()?.into();
        let closed = Arc::new(AtomicBool::new(false));
        let addresses: Vec<_> = ways.iter().map(Proxy::address).collect();
        let listener = on_free_port(|port| Ok(TcpListener::bind(ports::at(port))?))?;
        let (address, ends) = (listener.local_addr()?, Arc::clone(&closed));
        std::thread::Builder::new().name("door".to_owned()).spawn(move || {
            for guest in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let addresses = addresses.clone();
                // Whoever is gone already, or is not understood, is not let through.
                let let_through =
                    move || guest.map_err(Fault::from).and_then(|g| lead(g, &addresses));
                let _ = std::thread::Builder::new().name("guest".to_owned()).spawn(let_through);
            }
        })?;
        Ok(Self { address, ways, closed })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        // So that its thread looks.
        let _ = TcpStream::connect(self.address);
    }
}

/// Learns in SOCKS 5 where a connection is to go, and carries it there.
fn lead(mut guest: TcpStream, addresses: &[SocketAddr]) -> Result<()> {
    let mut greeting = [0; 2];
    guest.read_exact(&mut greeting)?;
    guest.read_exact(&mut vec![0; usize::from(greeting[1])])?;
    // Nobody has to say who they are.
    guest.write_all(&[5, 0])?;
    // Version, command, a zero, kind of address (4 bytes), address, port.
    let mut asked = [0; 10];
    guest.read_exact(&mut asked)?;
    let member = match asked {
        [5, 1, _, 1, a, b, c, last, _, _] if [a, b, c] == PEERS => usize::from(last).checked_sub(1),
        _ => None,
    };
    let address = member.and_then(|member| addresses.get(member));
    let address = address.ok_or_else(|| Fault::new(format!("no way for {asked:?}")))?;
    let way = TcpStream::connect(address)?;
    guest.set_nodelay(true)?;
    way.set_nodelay(true)?;
    guest.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let (from, to) = (guest.try_clone()?, way.try_clone()?);
    std::thread::Builder::new().name("guest".to_owned()).spawn(move || carry(from, to))?;
    carry(way, guest);
    Ok(())
}

/// Until one of them ends; then both do.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}
