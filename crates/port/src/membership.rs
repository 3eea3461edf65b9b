//! The groups that a port is in, and its reading end of the ring of its server type (`bus.rs`).

use crate::address::Xid;
use crate::atomic::{AtomicU32, Ordering};
use crate::bell::{self, NAP_NS_MAX, Waking};
use crate::broadcast::{self, Envelope, Look, filter_bit};
use crate::bus::Bus;
use crate::futex;
use crate::options::WhenFull;
use crate::poller;
use crate::ring::{Broken, Header, Losses};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// The groups that a port is in, and its reading end of the ring.
pub(crate) struct Membership {
    pub(crate) bus: Arc<Bus>,
    reader: broadcast::Reader,
    groups: HashSet<u64, BuildHasherDefault<XidHasher>>,
    /// How many of the groups have each bit of the filter.
    filter_counts: [u32; 64],
    filter: u64,
    /// The ring to look at first.
    next: usize,
    relay: Option<Relay>,
}

/// A hash of numbers that nobody chooses to hurt us: members join transactions of their own.
#[derive(Default)]
struct XidHasher(u64);

impl Hasher for XidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Membership {
    pub(crate) fn new(bus: Arc<Bus>, when_full: WhenFull) -> Membership {
        let is_lossy = when_full == WhenFull::DropOldest;
        let reader = broadcast::Reader::new(bus.memory.words(), bus.shape, bus.place, is_lossy);
        Membership { bus, reader, groups: HashSet::default(), filter_counts: [0; 64], filter: 0, next: 0, relay: None }
    }

    #[inline]
    pub(crate) fn join(&mut self, xid: Xid) -> bool {
        let is_new = self.groups.insert(xid.0);
        if is_new {
            let bit = filter_bit(xid.0);
            self.filter_counts[bit as usize] += 1;
            self.filter |= 1 << bit;
            self.reader.enter(self.bus.memory.words(), self.groups.len() as u64, self.filter);
        }
        is_new
    }

    #[inline]
    pub(crate) fn leave(&mut self, xid: Xid) -> bool {
        let was_in = self.groups.remove(&xid.0);
        if was_in {
            let bit = filter_bit(xid.0);
            self.filter_counts[bit as usize] -= 1;
            if self.filter_counts[bit as usize] == 0 {
                self.filter &= !(1 << bit);
            }
            self.reader.enter(self.bus.memory.words(), self.groups.len() as u64, self.filter);
        }
        was_in
    }

    #[inline]
    pub(crate) fn is_in_any(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The next message for one of our groups, its bytes in `into`.
    #[inline]
    pub(crate) fn look(&mut self, into: &mut Vec<u8>, losses: &mut Losses) -> Option<(Header, Envelope)> {
        if self.groups.is_empty() {
            return None;
        }
        let Membership { bus, reader, groups, next, .. } = self;
        let words = bus.memory.words();
        // First the rings behind the one that had the last message, then those before it.
        let first = *next;
        for writer in
            reader.writers(words).filter(|no| *no >= first).chain(reader.writers(words).filter(|no| *no < first))
        {
            // What is not for us is passed over, but not for ever if it never ends.
            for _ in 0..bus.shape.slot_count() {
                match reader.peek(words, writer, |xid| groups.contains(&xid), into) {
                    Ok(Look::Nothing) => break,
                    Ok(Look::NotOurs) => {}
                    Ok(Look::Lost(count)) => losses.dropped += count,
                    Ok(Look::Message(header, envelope)) => {
                        *next = writer + 1;
                        return Some((header, envelope));
                    }
                    Err(Broken) => {
                        losses.broken += 1;
                        reader.pass(words, writer);
                    }
                }
            }
        }
        None
    }

    /// The bell to sleep on beside the port's own.
    pub(crate) fn bell(&self) -> &AtomicU32 {
        self.bus.memory.bell(self.bus.place)
    }

    /// Before the last look and the sleep.
    pub(crate) fn prepare(&self) {
        bell::prepare(self.bell(), Waking::Futex);
        self.reader.will_sleep(self.bus.memory.words());
    }

    /// Messages that wait in the rings, whether for us or not, as far as they can be seen now.
    pub(crate) fn waiting(&self) -> usize {
        self.reader.waiting(self.bus.memory.words())
    }

    pub(crate) fn awake(&self) {
        bell::awake(self.bell());
        self.reader.is_awake(self.bus.memory.words());
    }

    /// Makes `event` readable when this ring's bell is rung: senders of multicasts do not have the descriptor.
    pub(crate) fn relay_to(&mut self, event: &OwnedFd) -> bool {
        if self.relay.is_none() {
            self.relay = Relay::start(Arc::clone(&self.bus), event);
        }
        self.relay.as_ref().is_some_and(|relay| relay.arm.send(()).is_ok())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.reader.enter(self.bus.memory.words(), 0, 0);
    }
}

/// A thread that sleeps on the ring's bell for an event loop. It ends when the membership does.
struct Relay {
    arm: std::sync::mpsc::Sender<()>,
}

impl Relay {
    fn start(bus: Arc<Bus>, event: &OwnedFd) -> Option<Relay> {
        let event = rustix::io::fcntl_dupfd_cloexec(event.as_fd(), 0).ok()?;
        let (arm, armed) = std::sync::mpsc::channel();
        let body = move || {
            while armed.recv().is_ok() {
                let bell = bus.memory.bell(bus.place);
                while bell.load(Ordering::Relaxed) == bell::ASLEEP {
                    futex::sleep(bell, Duration::from_nanos(NAP_NS_MAX));
                }
                poller::signal(&event);
            }
        };
        std::thread::Builder::new().name("port-group-relay".into()).spawn(body).ok()?;
        Some(Relay { arm })
    }
}
