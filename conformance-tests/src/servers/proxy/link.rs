//! One connection through the proxy: two streams, and what is under way between them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::Cut;

/// How much may be under way in one direction before the sender has to wait.
const ROOM: usize = 1 << 20;

/// What becomes of what comes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Pass,
    Hold,
    Swallow,
}

/// Something that is under way.
#[derive(Debug)]
pub(super) enum Item {
    Bytes(Vec<u8>),
    /// The sender sends nothing more.
    Fin,
    /// The connection ends here.
    Cut(Cut),
}

/// One direction of one connection.
#[derive(Debug)]
struct Flow {
    /// What came of a frame that is not whole.
    part: Vec<u8>,
    under_way: VecDeque<(Instant, Item)>,
    room: usize,
    /// Of the first item under way.
    sent: usize,
    sender_open: bool,
    receiver_open: bool,
    frames: u64,
}

impl Flow {
    fn new() -> Self {
        Self {
            part: Vec::new(),
            under_way: VecDeque::new(),
            room: ROOM,
            sent: 0,
            sender_open: true,
            receiver_open: true,
            frames: 0,
        }
    }
}

/// One connection. Direction 0 is from the client to the server, 1 is back; direction `d` comes
/// from end `d`.
#[derive(Debug)]
pub(super) struct Link {
    ends: [TcpStream; 2],
    flows: [Flow; 2],
    /// The number of the answer that ends the connection.
    doom: Option<(u64, Cut)>,
    over: bool,
}

impl Link {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> std::io::Result<Self> {
        let ends = [client, server];
        for end in &ends {
            end.set_nonblocking(true)?;
            end.set_nodelay(true)?;
        }
        Ok(Self { ends, flows: [Flow::new(), Flow::new()], doom: None, over: false })
    }

    /// Where direction `d` comes from.
    pub(super) fn source(&self, d: usize) -> &TcpStream {
        &self.ends[d]
    }

    /// Where direction `d` goes.
    pub(super) fn target(&self, d: usize) -> &TcpStream {
        &self.ends[1 - d]
    }

    /// Whether anything can still happen to it.
    pub(super) fn is_over(&self) -> bool {
        self.over || self.flows.iter().all(|flow| !flow.receiver_open)
    }

    /// Whether the client has it open.
    pub(super) fn is_open(&self) -> bool {
        !self.is_over() && self.flows[0].sender_open
    }

    pub(super) fn wants_to_read(&self, d: usize) -> bool {
        !self.over && self.flows[d].sender_open && self.flows[d].room > 0
    }

    /// When the next item is due.
    pub(super) fn due(&self, d: usize) -> Option<Instant> {
        let flow = &self.flows[d];
        let open = !self.over && flow.receiver_open;
        flow.under_way.front().filter(|_| open).map(|(due, _)| *due)
    }

    /// Reads once. `None`: the sender is not done.
    pub(super) fn read(&mut self, d: usize, buffer: &mut [u8]) -> (usize, Option<Item>) {
        match self.ends[d].read(buffer) {
            Ok(0) => {
                self.flows[d].sender_open = false;
                (0, Some(Item::Fin))
            }
            Ok(read) => (read, None),
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => {
                (0, None)
            }
            Err(_) => {
                self.flows[d].sender_open = false;
                (0, Some(Item::Cut(Cut::Reset)))
            }
        }
    }

    /// What has come but is not a whole frame.
    pub(super) fn part(&mut self, d: usize) -> &mut Vec<u8> {
        &mut self.flows[d].part
    }

    /// Counts one more frame, and gives its number.
    pub(super) fn count(&mut self, d: usize) -> u64 {
        self.flows[d].frames += 1;
        self.flows[d].frames
    }

    /// The answer to the last request ends the connection.
    pub(super) fn doom_at_answer(&mut self, raw: bool, cut: Cut) {
        let number = if raw { self.flows[1].frames + 1 } else { self.flows[0].frames };
        self.doom.get_or_insert((number, cut));
    }

    /// How the answer with this number ends the connection.
    pub(super) fn doomed(&self, answer: u64) -> Option<Cut> {
        self.doom.and_then(|(number, cut)| (answer >= number).then_some(cut))
    }

    /// Puts something on its way, `delay` after now and behind what is under way.
    pub(super) fn push(&mut self, d: usize, item: Item, delay: Duration) {
        let flow = &mut self.flows[d];
        let due = Instant::now() + delay;
        let due = flow.under_way.back().map_or(due, |(last, _)| due.max(*last));
        if let Item::Bytes(bytes) = &item {
            flow.room = flow.room.saturating_sub(bytes.len());
        }
        if let Item::Cut(_) = &item {
            flow.sender_open = false;
        }
        flow.under_way.push_back((due, item));
    }

    /// Throws away what is under way; but not the rest of what has partly been sent.
    pub(super) fn forget(&mut self, d: usize) {
        let flow = &mut self.flows[d];
        flow.under_way.truncate(usize::from(flow.sent > 0));
        flow.room = ROOM;
    }

    /// Sends what is due, as far as the receiver takes it.
    pub(super) fn write(&mut self, d: usize, now: Instant) {
        while self.due(d).is_some_and(|due| due <= now) {
            let flow = &mut self.flows[d];
            let Some((due, item)) = flow.under_way.pop_front() else { return };
            match item {
                Item::Bytes(bytes) => match self.ends[1 - d].write(&bytes[flow.sent..]) {
                    Ok(written) => {
                        flow.sent += written;
                        if flow.sent < bytes.len() {
                            flow.under_way.push_front((due, Item::Bytes(bytes)));
                        } else {
                            flow.sent = 0;
                            flow.room = ROOM.min(flow.room + bytes.len());
                        }
                    }
                    Err(e)
                        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                    {
                        flow.under_way.push_front((due, Item::Bytes(bytes)));
                        return;
                    }
                    // Its own direction tells the sender.
                    Err(_) => {
                        flow.receiver_open = false;
                        flow.under_way.clear();
                        return;
                    }
                },
                Item::Fin => {
                    flow.receiver_open = false;
                    // An error means that the receiver is gone, which its own direction tells.
                    let _ = self.ends[1 - d].shutdown(Shutdown::Write);
                }
                Item::Cut(cut) => return self.cut(cut),
            }
        }
    }

    /// Ends it now, at both ends.
    pub(super) fn cut(&mut self, cut: Cut) {
        self.over = true;
        for end in &mut self.ends {
            // Errors mean that the end is gone already. The streams are closed when the link is
            // dropped, right behind this.
            let _ = match cut {
                Cut::Reset => {
                    set_socket_linger(&*end, Some(Duration::ZERO)).map_err(std::io::Error::from)
                }
                Cut::Finish => end.shutdown(Shutdown::Write).map(|()| {
                    // Closing with unread bytes would send a RST.
                    let mut unread = [0; 4096];
                    while matches!(end.read(&mut unread), Ok(1..)) {}
                }),
            };
        }
    }
}
