//! Another site, as we send to it.
//!
//! ```text
//!   Closed --connect--> Opening --opened--> Open
//!     ^                    |                 |
//!     +---- dead_after ----+-----------------+   each such step ends a life: what was sent in it is not sent again
//! ```

use super::cipher::{self, Cipher};
use super::keys::{SitePublic, random};
use super::multicast::{self, Introduction};
use super::network::Inner;
use super::session::{Health, MESSAGE_BYTES_MAX, Outgoing};
use super::wire::{self, INTRODUCTION, MESSAGE_HEADER_BYTES, PacketHeader, PacketKind, Unit};
use crate::address::{Address, Site};
use crate::error::{ConnectError, SendError};
use crate::typed::Kind;
use crate::wait::Patience;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often to say "open" until there is an answer.
const OPEN_AGAIN_NS: u64 = 40_000_000;

pub(crate) struct Peer {
    no: usize,
    pub(crate) site: Site,
    address: SocketAddr,
    pub(crate) key: Option<SitePublic>,
    state: Mutex<State>,
    changed: Condvar,
    /// Senders to each of its ports, to be told when it is refused.
    senders: Mutex<HashMap<Address, Vec<Weak<AtomicBool>>>>,
    /// What its multicasts are known by.
    introduction: Mutex<Option<Introduction>>,
}

struct State {
    /// Counts the times that the site died.
    life: u64,
    link: Link,
    /// Threads that wait for a change.
    waiting: u32,
}

/// What is to be sent when the state is not locked any more: sending wakes the other site, whose answer wants the lock.
type Datagrams = Vec<(SocketAddr, Vec<u8>)>;

enum Link {
    Closed,
    Opening(Box<Opening>),
    Open(Box<Open>),
}

/// How far the session is that a sender belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Opening,
    Open,
    /// The site did not answer, or died.
    Over,
}

struct Opening {
    session: u64,
    opening: cipher::Opening,
    packet: Vec<u8>,
    began_ns: u64,
    sent_ns: u64,
    /// Messages that did not wait for the answer, in units.
    early: Vec<Unit>,
    early_bytes: usize,
}

struct Open {
    ours: u64,
    theirs: u64,
    cipher: Cipher,
    nonce: u64,
    outgoing: Outgoing,
}

/// A way to send to one port of another site.
pub(crate) struct RemoteSender {
    to: Address,
    from: Address,
    peer: Arc<Peer>,
    network: Weak<Inner>,
    life: u64,
    is_refused: Arc<AtomicBool>,
}

impl Peer {
    pub(crate) fn new(no: usize, site: Site, address: SocketAddr, key: Option<SitePublic>) -> Peer {
        let state = Mutex::new(State { life: 0, link: Link::Closed, waiting: 0 });
        Peer {
            no,
            site,
            address,
            key,
            state,
            changed: Condvar::new(),
            senders: Mutex::default(),
            introduction: Mutex::default(),
        }
    }

    /// The number of the peer that one of our sessions is with.
    pub(crate) fn no_of(session: u64) -> usize {
        (session & 0xffff) as usize
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, for some time.
    fn wait<'p>(&'p self, mut state: MutexGuard<'p, State>, time: Duration) -> MutexGuard<'p, State> {
        state.waiting += 1;
        state = self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        state
    }

    /// Tells those that wait that something has changed.
    fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Says "open", unless that was said or there is a session.
    fn begin(&self, network: &Inner, state: &mut State) -> Option<()> {
        if matches!(state.link, Link::Closed) {
            let (opening, first) = cipher::open(network.keys(self))?;
            let session = random() & !0xffff | self.no as u64;
            let mut packet = PacketHeader { kind: PacketKind::Open, session, nonce: 0 }.to_bytes().to_vec();
            packet.extend_from_slice(&network.site.0.to_le_bytes());
            packet.extend_from_slice(&self.site.0.to_le_bytes());
            packet.extend_from_slice(&first);
            network.send(&[(self.address, packet.clone())]);
            let now_ns = network.now_ns();
            let (began_ns, sent_ns) = (now_ns, now_ns);
            let opening = Opening { session, opening, packet, began_ns, sent_ns, early: Vec::new(), early_bytes: 0 };
            state.link = Link::Opening(Box::new(opening));
            network.wake_if_idle();
        }
        Some(())
    }

    /// Opens a session, or finds one; the life that it belongs to.
    fn ask(&self, network: &Inner, to: Address) -> Result<u64, ConnectError> {
        let mut state = self.state();
        self.begin(network, &mut state).ok_or(ConnectError::Unresponsive { address: to })?;
        Ok(state.life)
    }

    /// Waits while a session is being opened.
    fn wait_until_open(&self, life: u64, to: Address) -> Result<(), ConnectError> {
        let mut state = self.state();
        // The carrier ends the wait: with an answer, or with the peer's death.
        while state.life == life && matches!(state.link, Link::Opening(_)) {
            state = self.wait(state, Duration::from_secs(1));
        }
        if state.life == life { Ok(()) } else { Err(ConnectError::Unresponsive { address: to }) }
    }

    /// "opened" came for one of our sessions.
    pub(crate) fn opened(&self, network: &Inner, header: PacketHeader, body: &[u8]) {
        let mut state = self.state();
        let mut due = Datagrams::new();
        let link = std::mem::replace(&mut state.link, Link::Closed);
        state.link = match link {
            Link::Opening(mut waiting) if waiting.session == header.session => match waiting.opening.finish(body) {
                Ok((cipher, theirs)) => {
                    let now_ns = network.now_ns();
                    let outgoing = Outgoing::new(now_ns, network.dead_after_ns, network.body_bytes_max);
                    let mut open = Open { ours: waiting.session, theirs, cipher, nonce: 0, outgoing };
                    if let Some(channel) = &network.multicast {
                        let (to, from) = (Address::network(self.site), Address::network(network.site));
                        let bytes = wire::message(to, from, INTRODUCTION, &channel.introduction());
                        open.outgoing.submit(Unit { flags: wire::FIRST | wire::LAST, bytes });
                    }
                    waiting.early.drain(..).for_each(|unit| open.outgoing.submit(unit));
                    due = self.due(&mut open, now_ns, true);
                    Link::Open(Box::new(open))
                }
                Err(opening) => Link::Opening(Box::new(Opening { opening, ..*waiting })),
            },
            other => other,
        };
        self.tell(&state);
        drop(state);
        network.send(&due);
    }

    /// An acknowledgement came. `false` if it is none of this session's.
    pub(crate) fn acknowledged(&self, network: &Inner, header: PacketHeader, body: &[u8]) -> bool {
        let mut state = self.state();
        let Link::Open(open) = &mut state.link else { return false };
        if open.ours != header.session {
            return false;
        }
        let mut space = Vec::new();
        let now_ns = network.now_ns();
        let is_good = open
            .cipher
            .open(header.nonce, body, &mut space)
            .is_some_and(|body| open.outgoing.acknowledged(now_ns, body));
        if is_good {
            let due = self.due(open, now_ns, false);
            self.tell(&state);
            drop(state);
            network.send(&due);
        }
        is_good
    }

    /// What time brings: asks again, sends again, finds the peer dead. When to look next.
    pub(crate) fn tick(&self, network: &Inner, now_ns: u64) -> u64 {
        let mut state = self.state();
        let mut due = Datagrams::new();
        let is_dead = match &mut state.link {
            Link::Closed => return u64::MAX,
            Link::Opening(opening) => {
                let Opening { packet, began_ns, sent_ns, .. } = &mut **opening;
                if now_ns.saturating_sub(*sent_ns) >= OPEN_AGAIN_NS {
                    *sent_ns = now_ns;
                    due.push((self.address, packet.clone()));
                }
                now_ns.saturating_sub(*began_ns) >= network.dead_after_ns
            }
            Link::Open(open) => {
                due = self.due(open, now_ns, false);
                open.outgoing.health(now_ns) == Health::Dead
            }
        };
        if is_dead {
            self.die(&mut state);
        }
        let next_ns = match &state.link {
            Link::Closed => u64::MAX,
            Link::Opening(opening) => (opening.sent_ns + OPEN_AGAIN_NS).min(opening.began_ns + network.dead_after_ns),
            Link::Open(open) => open.outgoing.next_ns(),
        };
        drop(state);
        network.send(&due);
        next_ns
    }

    fn die(&self, state: &mut State) {
        state.life += 1;
        state.link = Link::Closed;
        self.tell(state);
    }

    /// The network ends.
    pub(crate) fn end(&self) {
        self.die(&mut self.state());
    }

    /// What is to be sent now.
    fn due(&self, open: &mut Open, now_ns: u64, flush: bool) -> Datagrams {
        let bodies = open.outgoing.bodies(now_ns, flush);
        let mut datagrams = Vec::with_capacity(bodies.len());
        for body in bodies {
            let header = PacketHeader { kind: PacketKind::Data, session: open.theirs, nonce: open.nonce };
            open.nonce += 1;
            let mut packet = Vec::with_capacity(body.len() + 64);
            packet.extend_from_slice(&header.to_bytes());
            if open.cipher.seal(header.nonce, &body, &mut packet).is_some() {
                datagrams.push((self.address, packet));
            }
        }
        datagrams
    }

    /// Sends a message in a life; `None` for the life that is now, if there is one.
    pub(crate) fn submit(
        &self,
        network: &Inner,
        life: Option<u64>,
        message: (Address, Address, Kind, &[u8]),
        patience: Patience,
    ) -> Result<(), SendError> {
        let (to, from, kind, bytes) = message;
        let bytes_max = MESSAGE_BYTES_MAX - MESSAGE_HEADER_BYTES;
        if bytes.len() > bytes_max {
            return Err(SendError::TooLong { address: to, bytes: bytes.len(), bytes_max });
        }
        let mut state = self.state();
        loop {
            let current = state.life;
            let Link::Open(open) = &mut state.link else { return Err(SendError::PortClosed { address: to }) };
            if life.is_some_and(|life| life != current) {
                return Err(SendError::PortClosed { address: to });
            }
            if open.outgoing.waiting_bytes() < network.waiting_bytes_max {
                for unit in wire::cut(to, from, kind, bytes, Outgoing::unit_bytes_of(network.body_bytes_max)) {
                    open.outgoing.submit(unit);
                }
                let due = self.due(open, network.now_ns(), false);
                drop(state);
                network.send(&due);
                network.wake_if_idle();
                return Ok(());
            }
            let wait = match patience {
                Patience::None => {
                    let waiting = open.outgoing.waiting_bytes().try_into().unwrap_or(u32::MAX);
                    return Err(SendError::Full { address: to, waiting });
                }
                Patience::Until(deadline) => {
                    let now = Instant::now();
                    if now >= deadline {
                        return Err(SendError::TimedOut { address: to });
                    }
                    deadline - now
                }
                Patience::Endless => Duration::from_secs(1),
            };
            state = self.wait(state, wait);
        }
    }

    /// Sends a message that waits neither for a session to be open nor for room: without room it is lost.
    pub(crate) fn submit_opening(&self, network: &Inner, message: (Address, Address, Kind, &[u8])) {
        let (to, from, kind, bytes) = message;
        let unit_bytes = Outgoing::unit_bytes_of(network.body_bytes_max);
        let mut state = self.state();
        if self.begin(network, &mut state).is_none() {
            return;
        }
        match &mut state.link {
            Link::Closed => {}
            Link::Opening(opening) if opening.early_bytes < network.waiting_bytes_max => {
                opening.early_bytes += bytes.len() + MESSAGE_HEADER_BYTES;
                opening.early.extend(wire::cut(to, from, kind, bytes, unit_bytes));
            }
            Link::Opening(_) => {}
            Link::Open(open) => {
                if open.outgoing.waiting_bytes() < network.waiting_bytes_max {
                    wire::cut(to, from, kind, bytes, unit_bytes)
                        .into_iter()
                        .for_each(|unit| open.outgoing.submit(unit));
                    let due = self.due(open, network.now_ns(), false);
                    drop(state);
                    network.send(&due);
                    network.wake_if_idle();
                }
            }
        }
    }

    /// Takes a message that a multicast will bring to the site: what the datagram is to have for it. `None`: the
    /// message is to be submitted.
    pub(crate) fn entry(&self, network: &Inner, message: &[u8]) -> Option<Vec<u8>> {
        let mut state = self.state();
        let Link::Open(open) = &mut state.link else { return None };
        if message.len() > Outgoing::unit_bytes_of(network.body_bytes_max) {
            return None; // It could not be repaired as one unit.
        }
        let now_ns = network.now_ns();
        let due = self.due(open, now_ns, true); // What was gathered comes first.
        let unit = Unit { flags: wire::FIRST | wire::LAST, bytes: message.to_vec() };
        let Some(number) = open.outgoing.multicast(now_ns, unit) else {
            drop(state);
            network.send(&due);
            return None;
        };
        let mut entry = [open.theirs.to_le_bytes(), open.nonce.to_le_bytes()].concat();
        // If it cannot be sealed, it is lost and repaired, as others are.
        let _ = open.cipher.seal(open.nonce, &multicast::proof(number, message), &mut entry);
        open.nonce += 1;
        drop(state);
        network.send(&due);
        network.wake_if_idle();
        Some(entry)
    }

    /// The site has said what its multicasts are known by.
    pub(crate) fn introduced(&self, introduction: Option<Introduction>) {
        *self.introduction.lock().unwrap_or_else(PoisonError::into_inner) = introduction;
    }

    /// Opens a multicast datagram, if it is this site's.
    pub(crate) fn open_multicast(&self, header: PacketHeader, body: &[u8]) -> Option<Vec<u8>> {
        let introduction = self.introduction.lock().unwrap_or_else(PoisonError::into_inner);
        introduction.as_ref().filter(|known| known.session == header.session)?.open(header, body)
    }

    /// The site says that one of its ports takes nothing.
    pub(crate) fn refused(&self, to: Address) {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner).remove(&to);
        for sender in senders.into_iter().flatten().filter_map(|sender| sender.upgrade()) {
            sender.store(true, Ordering::Relaxed); // Nothing is read on the strength of it.
        }
    }
}

impl RemoteSender {
    /// Waits until the site has answered, or is taken for dead.
    pub(crate) fn connect(network: Weak<Inner>, from: Address, to: Address) -> Result<RemoteSender, ConnectError> {
        let inner = network.upgrade().ok_or(ConnectError::NoNetwork { address: to })?;
        let sender = RemoteSender::begin(&inner, from, to)?;
        sender.peer.wait_until_open(sender.life, to)?;
        Ok(sender)
    }

    /// Asks the site, unless there is a session, and waits for nothing: [`phase`](RemoteSender::phase) tells.
    pub(crate) fn begin(network: &Arc<Inner>, from: Address, to: Address) -> Result<RemoteSender, ConnectError> {
        let site = to.site().ok_or(ConnectError::IsGroup { address: to })?;
        let peer = Arc::clone(network.peer(site).ok_or(ConnectError::UnknownSite { site })?);
        let is_refused = Arc::new(AtomicBool::new(false));
        {
            let mut senders = peer.senders.lock().unwrap_or_else(PoisonError::into_inner);
            let known = senders.entry(to).or_default();
            known.retain(|sender| sender.strong_count() > 0);
            known.push(Arc::downgrade(&is_refused));
        }
        let life = peer.ask(network, to)?;
        Ok(RemoteSender { to, from, peer, network: Arc::downgrade(network), life, is_refused })
    }

    pub(crate) fn phase(&self) -> Phase {
        let state = self.peer.state();
        match state.link {
            _ if state.life != self.life => Phase::Over,
            Link::Closed => Phase::Over,
            Link::Opening(_) => Phase::Opening,
            Link::Open(_) => Phase::Open,
        }
    }

    pub(crate) fn to(&self) -> Address {
        self.to
    }

    pub(crate) fn bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX - MESSAGE_HEADER_BYTES
    }

    pub(crate) fn send(&mut self, kind: Kind, bytes: &[u8], patience: Patience) -> Result<(), SendError> {
        let closed = SendError::PortClosed { address: self.to };
        let network = self.network.upgrade().ok_or(closed)?;
        if self.is_refused.load(Ordering::Relaxed) {
            return Err(closed);
        }
        self.peer.submit(&network, Some(self.life), (self.to, self.from, kind, bytes), patience)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed) || self.peer.state().life != self.life
    }

    pub(crate) fn is_drained(&self) -> bool {
        let state = self.peer.state();
        state.life == self.life && matches!(&state.link, Link::Open(open) if open.outgoing.is_drained())
    }

    /// Sends what is being gathered for a fuller datagram.
    pub(crate) fn flush(&mut self) {
        let Some(network) = self.network.upgrade() else { return };
        let mut state = self.peer.state();
        if let Link::Open(open) = &mut state.link {
            let due = self.peer.due(open, network.now_ns(), true);
            drop(state);
            network.send(&due);
        }
    }
}
