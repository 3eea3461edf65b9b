//! The network's thread: takes datagrams, delivers what has become whole, acknowledges, and minds the time.

use super::batch::Inlet;
use super::cipher::{self, Cipher};
use super::delivery::Delivery;
use super::gateway::Gateway;
use super::keys::random;
use super::multicast;
use super::network::Inner;
use super::peer::Peer;
use super::session::Incoming;
use super::wire::{self, PacketHeader, PacketKind, RemoteMessage, Unit, take_u32};
use crate::address::Site;
use crate::host::Host;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Batches taken before messages are delivered and acknowledged.
const BATCHES_MAX: usize = 4;
/// While something is going on, the time is looked at this often, so that senders need not wake us for it.
const BUSY_NS: u64 = 4_000_000;
/// How long after the last datagram something is still going on.
const BUSY_FOR_NS: u64 = 1_000_000_000;

pub(crate) struct Carrier {
    network: Arc<Inner>,
    delivery: Delivery,
    gateway: Gateway,
    inlet: Inlet,
    sessions: HashMap<u64, Session>,
    heard_ns: u64,
}

/// A session that another site opened to send to us.
struct Session {
    peer: Arc<Peer>,
    theirs: u64,
    /// Its first message and our answer, for when it is asked again.
    first: Vec<u8>,
    answer: Vec<u8>,
    cipher: Cipher,
    nonce: u64,
    incoming: Incoming,
    source: SocketAddr,
    /// Something came that only the site itself can have sealed.
    is_confirmed: bool,
    is_to_acknowledge: bool,
    heard_ns: u64,
}

impl Carrier {
    pub(crate) fn new(network: Arc<Inner>, host: Host, gateway: Gateway) -> Carrier {
        let delivery = Delivery::new(host, Arc::clone(&network));
        Carrier { network, delivery, gateway, inlet: Inlet::new(), sessions: HashMap::new(), heard_ns: 0 }
    }

    pub(crate) fn run(mut self) {
        while !self.network.is_ended.load(Ordering::Relaxed) {
            self.gateway.turn(&self.network);
            let now_ns = self.network.now_ns();
            let mut next_ns = self.network.peers.iter().map(|peer| peer.tick(&self.network, now_ns)).min();
            if self.delivery.is_waiting() {
                self.delivery.deliver();
                next_ns = Some(now_ns + 1_000_000);
            }
            self.forget_silent(now_ns);
            self.sleep(now_ns, next_ns.unwrap_or(u64::MAX));
            self.take_from(|network| Some(&network.socket));
            self.take_from(|network| network.multicast.as_ref().map(|channel| &channel.socket));
            self.delivery.deliver();
            self.acknowledge();
        }
    }

    fn sleep(&mut self, now_ns: u64, next_ns: u64) {
        let is_idle = now_ns.saturating_sub(self.heard_ns) > BUSY_FOR_NS;
        let limit_ns = if is_idle { 1_000_000_000 } else { BUSY_NS };
        self.network.is_idle.store(is_idle, Ordering::Relaxed);
        // B1: what other processes sent meanwhile is seen here, or rings.
        self.gateway.prepare();
        let has_carried = self.gateway.turn(&self.network) > 0;
        let sleep_ns = if has_carried { 0 } else { next_ns.saturating_sub(now_ns).min(limit_ns) };
        let timeout =
            Timespec { tv_sec: (sleep_ns / 1_000_000_000) as i64, tv_nsec: (sleep_ns % 1_000_000_000) as i64 };
        let gateway = self.gateway.descriptor();
        let multicast = self.network.multicast.as_ref().map_or(&self.network.socket, |channel| &channel.socket);
        let mut polled = [
            PollFd::new(&self.network.socket, PollFlags::IN),
            PollFd::new(&self.network.event, PollFlags::IN),
            PollFd::new(&gateway, PollFlags::IN),
            PollFd::new(multicast, PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut polled, Some(&timeout)); // Whatever ends it, we look.
        if !polled[1].revents().is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.network.event, &mut count);
            self.heard_ns = self.network.now_ns();
        }
        self.gateway.awake();
        self.network.is_idle.store(false, Ordering::Relaxed);
    }

    /// Takes what has come to a socket, up to some batches.
    fn take_from(&mut self, socket: impl Fn(&Inner) -> Option<&UdpSocket>) {
        for _ in 0..BATCHES_MAX {
            let Some(socket) = socket(&self.network) else { return };
            let count = self.inlet.receive(socket);
            self.network.counters.received.fetch_add(count as u64, Ordering::Relaxed);
            for no in 0..count {
                self.take(no);
            }
            if count < super::batch::BATCH {
                return;
            }
        }
    }

    fn take(&mut self, no: usize) {
        let Some((source, packet)) = self.inlet.datagram(no) else { return };
        let taken = PacketHeader::from_bytes(packet).and_then(|(header, body)| {
            let network = &self.network;
            match header.kind {
                PacketKind::Open => open(network, &mut self.sessions, source, header, body),
                PacketKind::Data => {
                    let session = self.sessions.get_mut(&header.session)?;
                    let confirmed = session.data(network, &mut self.delivery, source, header, body)?;
                    if confirmed {
                        let (site, keep) = (session.peer.site, header.session);
                        self.sessions.retain(|id, other| *id == keep || other.peer.site != site);
                    }
                    Some(())
                }
                PacketKind::Opened => {
                    network.peers.get(Peer::no_of(header.session))?.opened(network, header, body);
                    Some(())
                }
                PacketKind::Multicast => multicast(network, &mut self.sessions, &mut self.delivery, header, body),
                PacketKind::Acknowledgement => {
                    network.peers.get(Peer::no_of(header.session))?.acknowledged(network, header, body).then_some(())
                }
            }
        });
        match taken {
            Some(()) => self.heard_ns = self.network.now_ns(),
            None => {
                self.network.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Acknowledges all sessions that something came for.
    fn acknowledge(&mut self) {
        let is_due = |session: &mut Session| std::mem::take(&mut session.is_to_acknowledge);
        let acknowledge = |session: &mut Session| if is_due(session) { session.acknowledgement() } else { None };
        let packets: Vec<_> = self.sessions.values_mut().filter_map(acknowledge).collect();
        if !packets.is_empty() {
            self.network.send(&packets);
        }
    }

    /// Lets sessions go whose other side has been silent for long.
    fn forget_silent(&mut self, now_ns: u64) {
        let limit_ns = 2 * self.network.dead_after_ns;
        self.sessions.retain(|_, session| now_ns.saturating_sub(session.heard_ns) < limit_ns);
    }
}

/// A datagram for many sites came: takes what is in it for us.
fn multicast(
    network: &Inner,
    sessions: &mut HashMap<u64, Session>,
    delivery: &mut Delivery,
    header: PacketHeader,
    body: &[u8],
) -> Option<()> {
    if network.multicast.as_ref().is_some_and(|channel| channel.session == header.session) {
        return Some(()); // Our own, heard by ourselves.
    }
    // Of a site that has not introduced itself yet: its session repairs it.
    let body = network.peers.iter().find_map(|peer| peer.open_multicast(header, body))?;
    let (entries, message) = multicast::parse(&body, network.is_trusted())?;
    let Some(entry) = entries.iter().find(|entry| sessions.contains_key(&entry.session)) else {
        return Some(()); // For other sites.
    };
    let session = sessions.get_mut(&entry.session)?;
    let mut space = Vec::new();
    let number = multicast::proven(session.cipher.open(entry.nonce, entry.sealed, &mut space)?, message)?;
    (session.heard_ns, session.is_to_acknowledge) = (network.now_ns(), true);
    let mut body = number.to_le_bytes().to_vec();
    wire::put_unit(&mut body, 0, &Unit { flags: wire::FIRST | wire::LAST, bytes: message.to_vec() });
    let count = session.take_units(delivery, &body)?;
    network.counters.multicasts_received.fetch_add(u64::from(count > 0), Ordering::Relaxed);
    Some(())
}

/// A site opens a session.
fn open(
    network: &Inner,
    sessions: &mut HashMap<u64, Session>,
    source: SocketAddr,
    header: PacketHeader,
    mut body: &[u8],
) -> Option<()> {
    let (from, to) = (take_u32(&mut body)?, take_u32(&mut body)?);
    if to != network.site.0 {
        return None;
    }
    let peer = network.peer(Site(from))?;
    let is_same = |session: &&Session| session.theirs == header.session && session.first == body;
    if let Some(session) = sessions.values().find(is_same) {
        network.send(&[(source, session.answer.clone())]);
        return Some(());
    }
    let ours = random();
    let (cipher, second) = cipher::answer(network.keys(peer), body, ours)?;
    let mut answer = PacketHeader { kind: PacketKind::Opened, session: header.session, nonce: 0 }.to_bytes().to_vec();
    answer.extend_from_slice(&second);
    network.send(&[(source, answer.clone())]);
    // An old "open" can be repeated by anybody; it replaces only what was not confirmed either.
    sessions.retain(|_, session| session.peer.site != peer.site || session.is_confirmed);
    let session = Session {
        peer: Arc::clone(peer),
        theirs: header.session,
        first: body.to_vec(),
        answer,
        cipher,
        nonce: 0,
        incoming: Incoming::default(),
        source,
        is_confirmed: false,
        is_to_acknowledge: false,
        heard_ns: network.now_ns(),
    };
    sessions.insert(ours, session);
    Some(())
}

impl Session {
    /// A data datagram came; `Some(true)` if it is the first, which ends the site's older sessions.
    fn data(
        &mut self,
        network: &Inner,
        delivery: &mut Delivery,
        source: SocketAddr,
        header: PacketHeader,
        body: &[u8],
    ) -> Option<bool> {
        let mut space = Vec::new();
        let body = self.cipher.open(header.nonce, body, &mut space)?;
        (self.source, self.heard_ns, self.is_to_acknowledge) = (source, network.now_ns(), true);
        let is_first = !std::mem::replace(&mut self.is_confirmed, true);
        self.take_units(delivery, body)?;
        Some(is_first)
    }

    /// Takes the units of a data body; how many messages have become whole.
    fn take_units(&mut self, delivery: &mut Delivery, body: &[u8]) -> Option<usize> {
        // While ports here are full, what comes is as good as lost: it will be sent again.
        if delivery.is_full() {
            return Some(0);
        }
        let messages = self.incoming.receive(body).ok()?;
        let count = messages.len();
        for message in messages {
            delivery.push(&self.peer, RemoteMessage::from_bytes(message)?);
        }
        Some(count)
    }

    fn acknowledgement(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let header = PacketHeader { kind: PacketKind::Acknowledgement, session: self.theirs, nonce: self.nonce };
        self.nonce += 1;
        let mut packet = header.to_bytes().to_vec();
        self.cipher.seal(header.nonce, &self.incoming.acknowledgement(), &mut packet)?;
        Some((self.source, packet))
    }
}
