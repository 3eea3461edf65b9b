//! Groups of transactions: joining, leaving, multicast (paper 002, 4.1 and 4.2).
//!
//! The group of a transaction is its id. Nobody creates a group, and nobody keeps a list of its members. Servers of
//! one type on one host share a ring ([`crate::bus`]). A member notes for itself which transactions it takes part in,
//! and reads the messages for them. So joining and leaving are notes in our own memory, and a process that dies leaves
//! all its groups.

use crate::address::{Address, ServerType, Xid};
use crate::atomic::Ordering;
use crate::bell;
use crate::broadcast::{self, Envelope, bits};
use crate::bus::Bus;
use crate::error::{OpenError, SendError};
use crate::futex;
use crate::host::Host;
use crate::link::ANSWER_WITHIN;
use crate::membership::Membership;
use crate::net::{self, PassageSender};
use crate::options::Wait;
use crate::port::Port;
use crate::ring::{CPU_UNKNOWN, Header};
use crate::typed::{Kind, Typed};
use crate::wait::{self, Patience, Waiter};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

impl Port {
    /// Joins the group of a transaction: from now on, messages to the group come to this port too. Join at the first
    /// operation for the transaction. No message is sent. A port's first call connects it to the host's ring for its
    /// server type, and later calls touch this process's memory only. Returns `false` if the port was in the group
    /// already.
    ///
    /// # Errors
    /// See [`OpenError`]. Only the first call can fail. It waits for other processes that connect at the same time.
    #[inline]
    pub fn join(&mut self, xid: Xid) -> Result<bool, OpenError> {
        if self.inbox.membership.is_none() {
            self.join_bus()?;
        }
        Ok(self.inbox.membership.as_mut().is_some_and(|membership| membership.join(xid)))
    }

    /// Leaves the group of a transaction, at the transaction's end. Messages to the group that were not received yet
    /// are dropped. Returns `false` if the port was not in the group.
    #[inline]
    pub fn leave(&mut self, xid: Xid) -> bool {
        self.inbox.membership.as_mut().is_some_and(|membership| membership.leave(xid))
    }

    fn join_bus(&mut self) -> Result<(), OpenError> {
        let shared = &self.inbox.shared;
        let (address, options) = (shared.address, &shared.options);
        let bus = Bus::join(self.host(), address.instance(), address.server_type(), options.mode, &options.access)?;
        self.inbox.membership = Some(Membership::new(bus, self.inbox.shared.options.when_full));
        Ok(())
    }

    /// A way to send to the groups of any transaction among the servers of `server_type`.
    ///
    /// # Errors
    /// See [`OpenError`]. Waits for others that connect at the same time.
    pub fn group_sender(&self, server_type: ServerType) -> Result<GroupSender, OpenError> {
        let options = &self.inbox.shared.options;
        let instance = self.address().instance();
        let bus = Bus::join(self.host(), instance, server_type, options.mode, &options.access)?;
        let mut sender = GroupSender::new(bus, self.address())?;
        sender.abroad = match self.host().network() {
            Some(network) => Abroad::Network(network),
            None => Abroad::through_gateway(self.host(), self.address(), sender.address(Xid(0))),
        };
        Ok(sender)
    }
}

/// A way to send to groups of transactions: one copy, however many receive it.
pub struct GroupSender {
    bus: Arc<Bus>,
    writer: broadcast::Writer,
    from: Address,
    waiter: Waiter,
    abroad: Abroad,
}

/// The way to the other sites.
enum Abroad {
    /// The site has no network, or had none when the sender was made.
    None,
    /// This process started it.
    Network(Weak<net::Inner>),
    /// Another process did.
    Gateway { host: Host, to: Address, passage: Option<Box<PassageSender>>, asked: Instant },
}

/// How often to look whether the process that carries for others is back, and how long it may take to answer then.
const ASK_AGAIN: Duration = Duration::from_millis(100);

impl Abroad {
    fn through_gateway(host: &Host, from: Address, to: Address) -> Abroad {
        match PassageSender::connect(host, from, to, ANSWER_WITHIN) {
            Ok(passage) => {
                let (host, asked) = (host.clone(), Instant::now());
                Abroad::Gateway { host, to, passage: Some(Box::new(passage)), asked }
            }
            Err(_) => Abroad::None,
        }
    }

    /// Waits for room in a passage; a network that is gone is asked for again.
    fn wait_for_room(&mut self, from: Address, bytes: usize, patience: Patience) -> Result<(), SendError> {
        let Abroad::Gateway { host, to, passage, asked } = self else { return Ok(()) };
        if passage.is_none() && asked.elapsed() >= ASK_AGAIN {
            *passage = PassageSender::connect(host, from, *to, ASK_AGAIN).ok().map(Box::new);
            *asked = Instant::now();
        }
        match passage.as_mut().map(|passage| passage.wait_for_room(bytes, patience)) {
            Some(Err(SendError::PortClosed { .. })) => *passage = None,
            Some(result) => return result,
            None => {}
        }
        Ok(())
    }

    fn send(&mut self, message: (Address, Address, Kind, &[u8])) {
        match self {
            Abroad::None => {}
            Abroad::Network(network) => {
                if let Some(network) = network.upgrade() {
                    network.send_to_all(message);
                }
            }
            Abroad::Gateway { passage, .. } => {
                let (to, _, kind, bytes) = message;
                // There was room; a network that has died since loses it, as one does that dies just after.
                let sent = passage.as_mut().map(|passage| passage.send_to(to, kind, bytes, Patience::None));
                if matches!(sent, Some(Err(_))) {
                    *passage = None;
                }
            }
        }
    }
}

impl GroupSender {
    pub(crate) fn new(bus: Arc<Bus>, from: Address) -> Result<GroupSender, OpenError> {
        bus.allocate_ring()?;
        let writer = broadcast::Writer::new(bus.memory.words(), bus.shape, bus.place);
        Ok(GroupSender { bus, writer, from, waiter: Waiter::new(Wait::Adaptive), abroad: Abroad::None })
    }

    /// The longest multicast.
    pub fn bytes_max(&self) -> usize {
        broadcast::payload_bytes_max(self.bus.shape)
    }

    /// The address of a transaction's group.
    pub fn address(&self, xid: Xid) -> Address {
        Address::group(self.bus.instance, self.bus.server_type, xid)
    }

    /// Sends bytes to all members of the transaction's group. Members on this host share one copy. If the host has a
    /// network, each other site is sent a message. The call waits for room as long as a member is too slow. A message
    /// to a group without members goes nowhere. That is not an error, because nobody knows how many members there are.
    /// The network is the one that the site had when the sender was made. If another process started it and ends, the
    /// sender looks for the network again.
    ///
    /// # Errors
    /// [`SendError::TooLong`].
    #[inline]
    pub fn send(&mut self, xid: Xid, bytes: &[u8]) -> Result<(), SendError> {
        self.send_kind(xid, Kind::default(), bytes, Patience::Endless)
    }

    /// Sends bytes to the group if there is room now.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::TooLong`].
    #[inline]
    pub fn try_send(&mut self, xid: Xid, bytes: &[u8]) -> Result<(), SendError> {
        self.send_kind(xid, Kind::default(), bytes, Patience::None)
    }

    /// Sends bytes to the group. Waits for room until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`], [`SendError::TooLong`].
    #[inline]
    pub fn send_before(&mut self, xid: Xid, bytes: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_kind(xid, Kind::default(), bytes, Patience::Until(deadline))
    }

    /// Sends a typed value to the group. Waits for room as long as a member is too slow.
    ///
    /// # Errors
    /// As [`send`](GroupSender::send).
    #[inline]
    pub fn send_typed<T: Typed>(&mut self, xid: Xid, value: &T) -> Result<(), SendError> {
        self.send_kind(xid, T::KIND, value.as_bytes(), Patience::Endless)
    }

    #[inline]
    fn send_kind(&mut self, xid: Xid, kind: Kind, bytes: &[u8], patience: Patience) -> Result<(), SendError> {
        if bytes.len() > self.bytes_max() {
            let (address, bytes_max) = (self.address(xid), self.bytes_max());
            return Err(SendError::TooLong { address, bytes: bytes.len(), bytes_max });
        }
        if matches!(self.abroad, Abroad::None) {
            return self.send_here(self.from, xid, kind, bytes, patience);
        }
        self.abroad.wait_for_room(self.from, bytes.len(), patience)?;
        self.send_here(self.from, xid, kind, bytes, patience)?;
        self.abroad.send((self.address(xid), self.from, kind, bytes));
        Ok(())
    }

    /// Sends what came from another site to the members here, if there is room.
    pub(crate) fn send_carried(&mut self, from: Address, xid: Xid, kind: Kind, bytes: &[u8]) -> Result<(), SendError> {
        if bytes.len() > self.bytes_max() {
            let (address, bytes_max) = (self.address(xid), self.bytes_max());
            return Err(SendError::TooLong { address, bytes: bytes.len(), bytes_max });
        }
        self.send_here(from, xid, kind, bytes, Patience::None)
    }

    #[inline]
    fn send_here(
        &mut self,
        from: Address,
        xid: Xid,
        kind: Kind,
        bytes: &[u8],
        patience: Patience,
    ) -> Result<(), SendError> {
        let words = self.bus.memory.words();
        if !self.writer.has_room(words) {
            self.wait_for_room(xid, patience)?;
        }
        let words = self.bus.memory.words();
        let header =
            Header { len: bytes.len() as u32, kind: kind.id, version: kind.version, cpu: wait::cpu(), flags: 0 };
        self.writer.publish(words, header, Envelope { xid: xid.0, from: from.to_bits() }, bytes);
        let sleepers = self.writer.sleepers(words, xid.0);
        if sleepers != 0 {
            self.wake(sleepers);
        }
        Ok(())
    }

    /// Writes a word of the ring as no member does.
    pub(crate) fn scribble(&self, at: usize, value: u64) {
        let words = self.bus.memory.words();
        // Spread over the head of the file, and the beginning of our own ring.
        let own = broadcast::ring_words(self.bus.shape, self.bus.place).start;
        let at = if at.is_multiple_of(2) { at / 2 % own } else { own + at / 2 % 512 };
        words[at % words.len()].store(value, Ordering::Relaxed);
    }

    /// Writes a word of the slot that is next, its first with the right sequence.
    pub(crate) fn scribble_next(&self, at: usize, value: u64) {
        let (slot, sequence) = self.writer.next_slot();
        let sequence = if at == 0 { sequence << 32 } else { 0 };
        self.bus.memory.words()[slot + at].store(sequence | value, Ordering::Release);
    }

    #[cold]
    fn wake(&self, readers: u64) {
        for reader in bits(readers) {
            let bell = self.bus.memory.bell(reader);
            if bell::ring(bell).is_some() {
                futex::wake(bell);
            }
        }
    }

    #[cold]
    fn wait_for_room(&mut self, xid: Xid, patience: Patience) -> Result<(), SendError> {
        let deadline = if let Patience::Until(deadline) = patience { Some(deadline) } else { None };
        let GroupSender { bus, writer, waiter, .. } = self;
        let address = Address::group(bus.instance, bus.server_type, xid);
        let words = bus.memory.words();
        let mut nap = Duration::from_micros(20);
        loop {
            let blockers = writer.blockers(words);
            if blockers == 0 {
                return Ok(());
            }
            // A member of other groups sleeps through what is not for it, until it is in the way.
            for reader in bits(blockers) {
                if bell::ring(bus.memory.bell(reader)).is_some() {
                    futex::wake(bus.memory.bell(reader));
                }
            }
            match patience {
                Patience::None => return Err(SendError::Full { address, waiting: bus.shape.slot_count() }),
                Patience::Until(deadline) if Instant::now() >= deadline => {
                    return Err(SendError::TimedOut { address });
                }
                Patience::Until(_) | Patience::Endless => {}
            }
            let is_free = waiter.look(CPU_UNKNOWN, deadline, || (writer.blockers(words) == 0).then_some(()));
            if is_free.is_none() {
                // Members do not tell when they made room, since any number may wait for any; so nap, ever longer.
                bits(blockers).filter(|place| bus.is_dead(*place)).for_each(|place| broadcast::bury(words, place));
                std::thread::sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(1));
            }
        }
    }
}

impl std::fmt::Debug for GroupSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupSender").field("from", &self.from).finish_non_exhaustive()
    }
}
