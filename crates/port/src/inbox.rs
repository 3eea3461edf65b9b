//! What a port's owner looks at: its lanes, one after the other, with positions that only it knows.
//!
//! I1. A message is in its sender's order. Lanes are looked at in turn, beginning after the last one that had a
//!     message, so that no sender starves. Messages of different senders have no order.
//! I2. A lane in which something impossible is found is cut, and nothing more is read from it.
//! I3. A lane whose sender is gone is read to its end, then let go.

use crate::address::{Address, Xid};
use crate::bytes::load_bytes;
use crate::credentials::Credentials;
use crate::link::CARRIED_BYTES;
use crate::listener::{Lane, Shared};
use crate::membership::Membership;
use crate::options::WhenFull;
use crate::ring::{Broken, CPU_UNKNOWN, Header, Losses, Reader, Shape, Take};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A message is there; [`Inbox::current`] says which. It is not handed about in pieces: what is stored in small parts
/// and loaded again in large ones, as a copy does it, makes the processor wait each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found;

/// The message that was found last.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) header: Header,
    /// The lane that it is in, to be read in place; `None` when it was copied to the scratch buffer.
    pub(crate) lane: Option<usize>,
    /// Words of the payload before the message's bytes: the address of a sender at another site.
    pub(crate) skipped_words: usize,
    /// What the lane does not say, because the message is none of a local sender's.
    pub(crate) elsewhere: Option<Elsewhere>,
}

/// What belongs to a message that does not come from the sender of a lane, or is not there any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) from: Address,
    pub(crate) peer: Option<Credentials>,
    pub(crate) group: Option<Xid>,
}

/// One lane and where its owner is in it.
pub(crate) struct Incoming {
    pub(crate) lane: Arc<Lane>,
    pub(crate) reader: Reader,
    /// Messages since the sender was last told of room.
    untold: u32,
}

impl Incoming {
    pub(crate) fn new(lane: Arc<Lane>, shape: Shape) -> Incoming {
        Incoming { lane, reader: Reader::new(shape), untold: 0 }
    }

    /// Done with the message: its buffer is the sender's again.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.reader.advance(self.lane.memory.words());
        self.untold += 1;
        // A sender that saw a full ring after it set its bell leaves at least three quarters of the ring to be taken
        // after that. So telling it at each quarter never leaves it asleep, and it wakes to more than one buffer.
        if self.untold >= (self.reader.shape().slot_count() / 4).max(1) {
            self.untold = 0;
            self.lane.ring_for_room();
        }
    }
}

pub(crate) struct Inbox {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lanes: Vec<Incoming>,
    arrivals_seen: u32,
    /// The lane to look at first.
    next: usize,
    pub(crate) current: Current,
    pub(crate) scratch: Vec<u8>,
    pub(crate) last_cpu: u16,
    pub(crate) losses: Losses,
    /// The groups that we are in; made when the first is joined.
    pub(crate) membership: Option<Membership>,
}

impl Inbox {
    pub(crate) fn new(shared: Arc<Shared>) -> Inbox {
        Inbox {
            shared,
            lanes: Vec::new(),
            arrivals_seen: 0,
            next: 0,
            current: Current { header: Header::from_words(0, 0), lane: None, skipped_words: 0, elsewhere: None },
            scratch: Vec::new(),
            last_cpu: CPU_UNKNOWN,
            losses: Losses::default(),
            membership: None,
        }
    }

    /// The next message, if there is one. No system call, no wait.
    #[inline]
    pub(crate) fn look(&mut self) -> Option<Found> {
        self.fetch_arrived();
        if let Some(found) = self.look_for_groups() {
            return Some(found);
        }
        for _ in 0..self.lanes.len() {
            let no = self.next;
            self.next = if no + 1 >= self.lanes.len() { 0 } else { no + 1 };
            if let Some(found) = self.look_at(no) {
                return Some(found);
            }
            if no >= self.lanes.len() {
                break; // A lane was let go.
            }
        }
        None
    }

    #[inline]
    fn found_in_place(&mut self, no: usize, header: Header) -> Found {
        self.last_cpu = header.cpu;
        (self.current.header, self.current.lane, self.current.skipped_words) = (header, Some(no), 0);
        self.current.elsewhere = None;
        Found
    }

    fn found_copied(&mut self, header: Header, elsewhere: Elsewhere) -> Found {
        self.last_cpu = header.cpu;
        self.current = Current { header, lane: None, skipped_words: 0, elsewhere: Some(elsewhere) };
        Found
    }

    #[inline]
    fn look_for_groups(&mut self) -> Option<Found> {
        let (header, envelope) = self.membership.as_mut()?.look(&mut self.scratch, &mut self.losses)?;
        let Ok(from) = Address::from_bits(envelope.from) else {
            self.losses.broken += 1;
            return None;
        };
        Some(self.found_copied(header, Elsewhere { from, peer: None, group: Some(Xid(envelope.xid)) }))
    }

    #[inline]
    fn look_at(&mut self, no: usize) -> Option<Found> {
        let Incoming { lane, reader, .. } = self.lanes.get(no)?;
        match reader.peek(lane.memory.words()) {
            Ok(Some(header)) if self.shared.options.when_full == WhenFull::Refuse => {
                Some(self.found_in_place(no, header))
            }
            Ok(None)
                if !lane.is_closed.load(Ordering::Relaxed) && self.shared.options.when_full == WhenFull::Refuse =>
            {
                None // What a Relaxed load says "closed" to is looked at again with Acquire.
            }
            _ => self.look_closer(no),
        }
    }

    /// The seldom ways: lanes that drop the oldest, that broke, or whose sender is gone.
    #[cold]
    fn look_closer(&mut self, no: usize) -> Option<Found> {
        let result = if self.shared.options.when_full == WhenFull::DropOldest {
            self.look_dropping(no)
        } else {
            self.look_at_the_end(no)
        };
        match result {
            Ok(found) => found,
            Err(Broken) => {
                self.losses.broken += 1;
                let incoming = self.lanes.swap_remove(no);
                self.shared.cut(&incoming.lane);
                self.next = 0;
                None
            }
        }
    }

    /// A lane without a message, whose sender may be gone (I3).
    fn look_at_the_end(&mut self, no: usize) -> Result<Option<Found>, Broken> {
        let Incoming { lane, reader, .. } = &self.lanes[no];
        let is_closed = lane.is_closed.load(Ordering::Acquire); // Pairs with the Release in `Connection::ready`.
        match reader.peek(lane.memory.words())? {
            Some(header) => Ok(Some(self.found_in_place(no, header))),
            None => {
                if is_closed {
                    self.lanes.swap_remove(no);
                    self.next = 0;
                }
                Ok(None)
            }
        }
    }

    /// A lane whose sender may take the oldest message back while we read it: copy, then see who was faster.
    fn look_dropping(&mut self, no: usize) -> Result<Option<Found>, Broken> {
        let Incoming { lane, reader, .. } = &mut self.lanes[no];
        let words = lane.memory.words();
        let is_closed = lane.is_closed.load(Ordering::Acquire); // As in `look_at_the_end`.
        // The sender can be faster at most once for each buffer before it has to write all of them again.
        for _ in 0..=reader.shape().slot_count() {
            self.losses.dropped += reader.skip_dropped(words)?;
            let mut header = match reader.peek(words) {
                Ok(Some(header)) => header,
                Ok(None) => break,
                // What looks impossible may be a message being overwritten; it is not if the step succeeds.
                Err(Broken) => match reader.take_copied(words)? {
                    Take::Taken => return Err(Broken),
                    Take::Lost(count) => {
                        self.losses.dropped += count;
                        continue;
                    }
                },
            };
            self.scratch.resize(header.len as usize, 0);
            load_bytes(&words[reader.payload()..], &mut self.scratch);
            if let Take::Lost(count) = reader.take_copied(words)? {
                self.losses.dropped += count;
                continue;
            }
            let mut elsewhere = Elsewhere { from: lane.from, peer: Some(lane.peer), group: None };
            if let Some(from) = lane.carried_from(&header, &self.scratch) {
                elsewhere.from = from;
                header.len -= CARRIED_BYTES as u32;
                self.scratch.drain(..CARRIED_BYTES);
            }
            return Ok(Some(self.found_copied(header, elsewhere)));
        }
        if is_closed && reader.peek(words) == Ok(None) {
            self.lanes.swap_remove(no);
            self.next = 0;
        }
        Ok(None)
    }

    /// Done with the message in place: its buffer is the sender's again.
    #[inline]
    pub(crate) fn advance(&mut self, no: usize) {
        if let Some(incoming) = self.lanes.get_mut(no) {
            incoming.advance();
        }
    }

    #[inline]
    fn fetch_arrived(&mut self) {
        let arrivals = self.shared.arrivals.load(Ordering::Acquire); // Pairs with the Release in `Connection::greet`.
        if arrivals != self.arrivals_seen {
            self.arrivals_seen = arrivals;
            let shape = self.shared.shape;
            let arrived = self.shared.take_arrived().into_iter();
            self.lanes.extend(arrived.map(|lane| Incoming::new(lane, shape)));
        }
    }

    /// Messages that wait to be taken, as far as they can be seen now.
    pub(crate) fn waiting(&mut self) -> usize {
        self.fetch_arrived();
        self.lanes.iter().map(|incoming| incoming.reader.waiting(incoming.lane.memory.words())).sum()
    }
}
