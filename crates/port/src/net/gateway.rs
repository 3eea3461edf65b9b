//! The gateway: how the other processes of a site send to other sites through the one that started the network.
//!
//! It is a port of that process, with an address that every process can compute. A process that wants to send to a
//! port of another site takes a lane to the gateway for that port alone: a *passage*. Each sender of multicasts takes
//! one too. The network's thread sends on what a passage carries, with the same calls that its own process uses. So all
//! promises are the same. Messages come in order and at most once. A passage whose site has no room is not read, and
//! becomes full. A passage whose port is refused, or whose site is dead, is cut. Its sender sees that as the death of a
//! port.
//!
//! What is said in a passage is in `passage.rs`.
//!
//! G1. A passage is opened once, and its messages go to that port and nowhere else. Messages of a local process are
//!     checked like those of any sender. A process that breaks the rules loses its passage and harms no other.
//! G2. Messages to and from the network's own address are not carried: only networks say what networks say.
//! G3. A first part replaces what was not finished: a sender may give a message up in its middle.

use super::network::Inner;
use super::passage::{
    CARRIED_BYTES_MAX, FIRST, FLUSH, LAST, OPEN, STATE_ASKING, STATE_NO_SITE, STATE_OPEN, STATE_REFUSED, STATE_SILENT,
    path,
};
use super::peer::{Phase, RemoteSender};
use crate::address::{Address, Instance, ServerType};
use crate::bell::{self, Waking};
use crate::bytes::load_bytes;
use crate::error::{ConnectError, OpenError, SendError};
use crate::host::{Host, Lease};
use crate::inbox::Incoming;
use crate::link::{CARRIED_BYTES, OWNER_BELL};
use crate::listener::Shared;
use crate::options::{Access, PortOptions};
use crate::ring::{Header, SETTLED, STATE};
use crate::typed::Kind;
use crate::wait::Patience;
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Buffers of a passage: 256 KiB. Longer messages go in parts.
const BUFFER_COUNT: u32 = 64;
const BUFFER_BYTES: u32 = 4080;
/// Passages at one time.
const PASSAGES_MAX: u32 = 1024;

pub(crate) struct Gateway {
    shared: Arc<Shared>,
    arrivals_seen: u32,
    passages: Vec<Passage>,
    _lease: Lease,
}

/// One sender's way to one port of another site, or to groups.
struct Passage {
    incoming: Incoming,
    way: Way,
    /// Parts of a message whose end has not come.
    partial: Option<Whole>,
    /// A whole message that the site had no room for.
    pending: Option<Whole>,
}

enum Way {
    Closed,
    Asking(RemoteSender),
    Open(RemoteSender),
    /// To the groups of one instance and server type.
    Groups(Instance, ServerType),
}

struct Whole {
    to: Address,
    kind: Kind,
    bytes: Vec<u8>,
}

/// The passage ends: it is closed, its port or site is gone, or its sender broke the rules.
struct Ended;

impl Gateway {
    /// Opens the gateway of a host's site; `None` if another process has it, and so the network.
    pub(crate) fn open(host: &Host, mode: u32, access: Access) -> Result<Option<Gateway>, OpenError> {
        let options = PortOptions {
            buffer_count: BUFFER_COUNT,
            buffer_bytes: BUFFER_BYTES,
            senders_max: PASSAGES_MAX,
            mode,
            access,
            ..PortOptions::default()
        };
        options.check()?;
        let Some(lease) = Lease::take(&path(host))? else { return Ok(None) };
        let shared = Shared::new(Address::network(host.site()), options)?;
        shared.accept_on(lease.listen(mode)?)?;
        Ok(Some(Gateway { shared, arrivals_seen: 0, passages: Vec::new(), _lease: lease }))
    }

    /// Readable when there is something to carry, after [`prepare`](Gateway::prepare).
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.poller.descriptor()
    }

    /// Before the last turn and the sleep.
    pub(crate) fn prepare(&self) {
        self.shared.poller.clear();
        bell::prepare(self.shared.control.bell(OWNER_BELL), Waking::Descriptor);
    }

    /// After the sleep.
    pub(crate) fn awake(&self) {
        bell::awake(self.shared.control.bell(OWNER_BELL));
    }

    /// Carries what there is and what there is room for, and returns how many messages. Waits for nobody.
    pub(crate) fn turn(&mut self, network: &Arc<Inner>) -> usize {
        let arrivals = self.shared.arrivals.load(Ordering::Acquire); // Pairs with the Release in `Connection::greet`.
        if arrivals != self.arrivals_seen {
            self.arrivals_seen = arrivals;
            let shape = self.shared.shape;
            self.passages.extend(self.shared.take_arrived().into_iter().map(|lane| Passage::new(lane, shape)));
        }
        let mut count = 0;
        self.passages.retain_mut(|passage| {
            let goes_on = passage.turn(network, &mut count).is_ok();
            if !goes_on {
                self.shared.cut(&passage.incoming.lane);
            }
            goes_on
        });
        network.counters.carried.fetch_add(count as u64, Ordering::Relaxed);
        count
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Passage {
    fn new(lane: Arc<crate::listener::Lane>, shape: crate::ring::Shape) -> Passage {
        Passage { incoming: Incoming::new(lane, shape), way: Way::Closed, partial: None, pending: None }
    }

    fn turn(&mut self, network: &Arc<Inner>, count: &mut usize) -> Result<(), Ended> {
        self.look_at_site()?;
        if matches!(self.way, Way::Asking(_)) {
            return if self.is_abandoned() { Err(Ended) } else { Ok(()) };
        }
        for _ in 0..BUFFER_COUNT {
            if let Some(whole) = self.pending.take() {
                self.pass_on(network, whole)?;
                if self.pending.is_some() {
                    return Ok(());
                }
            }
            let is_abandoned = self.is_abandoned();
            let Incoming { lane, reader, .. } = &self.incoming;
            let words = lane.memory.words();
            let Some(header) = reader.peek(words).map_err(|_| Ended)? else {
                if is_abandoned {
                    return Err(Ended);
                }
                break;
            };
            let mut payload = vec![0; header.len as usize];
            load_bytes(&words[reader.payload()..], &mut payload);
            self.incoming.advance();
            self.take(network, header, payload)?;
            *count += 1;
        }
        self.settle();
        Ok(())
    }

    /// The sender is gone; what it sent before is still there.
    fn is_abandoned(&self) -> bool {
        self.incoming.lane.is_closed.load(Ordering::Acquire) // Pairs with the Release in `Connection::ready`.
    }

    /// Whether the site has answered, or died.
    fn look_at_site(&mut self) -> Result<(), Ended> {
        match std::mem::replace(&mut self.way, Way::Closed) {
            Way::Asking(remote) => match remote.phase() {
                Phase::Opening => self.way = Way::Asking(remote),
                Phase::Open => {
                    self.way = Way::Open(remote);
                    self.say(STATE_OPEN);
                }
                Phase::Over => return Err(self.refuse(STATE_SILENT)),
            },
            Way::Open(remote) if remote.is_closed() => return Err(Ended),
            other => self.way = other,
        }
        Ok(())
    }

    fn take(&mut self, network: &Arc<Inner>, header: Header, payload: Vec<u8>) -> Result<(), Ended> {
        let kind = Kind { id: header.kind, version: header.version };
        match header.flags {
            OPEN => self.open(network, &payload),
            FLUSH => {
                if let Way::Open(remote) = &mut self.way {
                    remote.flush();
                }
                Ok(())
            }
            flags => {
                let mut whole = if flags & FIRST != 0 {
                    let (to, bytes) = split_address(&payload).ok_or(Ended)?;
                    Whole { to, kind, bytes: bytes.to_vec() }
                } else {
                    let mut partial = self.partial.take().ok_or(Ended)?;
                    partial.bytes.extend_from_slice(&payload);
                    partial
                };
                if whole.bytes.len() > CARRIED_BYTES_MAX {
                    return Err(Ended);
                }
                if flags & LAST == 0 {
                    self.partial = Some(whole);
                    return Ok(());
                }
                whole.kind = kind;
                self.partial = None;
                self.pass_on(network, whole)
            }
        }
    }

    /// Gives a whole message to the site it is for; keeps it if there is no room.
    fn pass_on(&mut self, network: &Arc<Inner>, whole: Whole) -> Result<(), Ended> {
        match &mut self.way {
            Way::Open(remote) if remote.to() == whole.to => {
                match remote.send(whole.kind, &whole.bytes, Patience::None) {
                    Ok(()) => Ok(()),
                    Err(SendError::Full { .. }) => {
                        self.pending = Some(whole);
                        Ok(())
                    }
                    Err(_) => Err(Ended),
                }
            }
            Way::Groups(instance, server_type)
                if (*instance, *server_type) == (whole.to.instance(), whole.to.server_type())
                    && whole.to.xid().is_some() =>
            {
                network.send_to_all((whole.to, self.incoming.lane.from, whole.kind, &whole.bytes));
                Ok(())
            }
            _ => Err(Ended),
        }
    }

    fn open(&mut self, network: &Arc<Inner>, payload: &[u8]) -> Result<(), Ended> {
        let (to, rest) = split_address(payload).ok_or(Ended)?;
        let from = self.incoming.lane.from;
        if !matches!(self.way, Way::Closed) || !rest.is_empty() {
            return Err(Ended);
        }
        if [to, from].iter().any(|address| address.server_type() == ServerType::NETWORK) {
            return Err(self.refuse(STATE_REFUSED));
        }
        if to.xid().is_some() {
            self.way = Way::Groups(to.instance(), to.server_type());
            self.say(STATE_OPEN);
            return Ok(());
        }
        match RemoteSender::begin(network, from, to) {
            Ok(remote) => {
                self.way = Way::Asking(remote);
                let within_ms = (network.dead_after_ns / 1_000_000).min(u64::from(u32::MAX));
                self.say(within_ms << 32 | STATE_ASKING);
                self.look_at_site()
            }
            Err(ConnectError::UnknownSite { .. }) => Err(self.refuse(STATE_NO_SITE)),
            Err(_) => Err(self.refuse(STATE_SILENT)),
        }
    }

    fn refuse(&self, state: u64) -> Ended {
        self.say(state);
        Ended
    }

    /// Tells the sender, which may sleep for it.
    fn say(&self, state: u64) {
        let lane = &self.incoming.lane;
        lane.memory.words()[STATE].store(state, Ordering::Release); // Pairs with the Acquire in `LaneSender::state`.
        lane.ring_for_room();
    }

    /// Tells how much was acknowledged, when all of it was.
    fn settle(&mut self) {
        let is_settled = match &self.way {
            Way::Open(remote) => self.pending.is_none() && remote.is_drained(),
            Way::Groups(..) => true,
            Way::Closed | Way::Asking(_) => false,
        };
        if is_settled {
            let Incoming { lane, reader, .. } = &self.incoming;
            // Nothing is read on the strength of it.
            lane.memory.words()[SETTLED].store(reader.head(), Ordering::Relaxed);
        }
    }
}

fn split_address(payload: &[u8]) -> Option<(Address, &[u8])> {
    let (address, rest) = payload.split_first_chunk::<CARRIED_BYTES>()?;
    Some((Address::from_bytes(*address).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{ServerInstance, Site, Xid};
    use crate::lane::LaneSender;
    use crate::net::{Network, NetworkOptions, Trust};
    use ledgerstone_region::Random;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    const WITHIN: Duration = Duration::from_secs(60);

    #[test]
    fn the_first_message_of_a_passage_has_the_bytes_in_the_table() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::at(directory.path(), Site(1)).unwrap();
        // A port in the gateway's place, which says nothing.
        let mut port = host.open_port(Address::network(Site(1)), PortOptions::default()).unwrap();
        assert_eq!(path(&host), directory.path().join("0000ff00000000000000000000000001"));
        let to = Address::port(Instance(1), ServerType(2), ServerInstance(3), Site(4));
        let silent = crate::net::PassageSender::connect(&host, to, to, Duration::from_millis(20));
        assert!(matches!(silent, Err(ConnectError::Unresponsive { .. })));
        let message = port.try_receive().expect("the opening");
        assert_eq!(message.to_vec(), [4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 2, 1, 0]);
        assert_eq!((message.flags(), FIRST, LAST, OPEN, FLUSH), (OPEN, 1, 2, 4, 8));
        assert_eq!([STATE_ASKING, STATE_OPEN, STATE_NO_SITE, STATE_SILENT, STATE_REFUSED], [1, 2, 3, 4, 5]);
        assert_eq!([STATE, SETTLED], [1, 2]);
    }

    #[test]
    fn a_hostile_passage_is_cut_and_harms_no_other() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let addresses = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap());
        let site = |no: usize| {
            let host = Host::at(directories[no].path(), Site(no as u32 + 1)).unwrap();
            let options = NetworkOptions::new(addresses[no], Trust::Network);
            let network =
                Network::start(&host, options.with_site(Site(2 - no as u32), addresses[1 - no], None)).unwrap();
            (host, network)
        };
        let [(here, _one), (there, _two)] = [site(0), site(1)];
        let name = |site| Address::port(Instance(0), ServerType(1), ServerInstance(0), Site(site));
        let mut port = there.open_port(name(2), PortOptions::default()).unwrap();
        let elsewhere = Host::at(here.directory(), Site(1)).unwrap();
        let mut honest = elsewhere.connect(name(1), name(2)).unwrap();
        let connect = || LaneSender::connect_at(name(1), name(2), &path(&here), WITHIN).unwrap();
        let mut random = Random::new(1);
        let mut below = |bound| random.below(bound);
        for round in 0..200u64 {
            let mut hostile = connect();
            for _ in 0..below(20) {
                let (flags, len) = (below(16) as u8, below(40) as usize);
                let to = if below(2) == 0 { name(2) } else { Address::group(Instance(0), ServerType(1), Xid(1)) };
                let within = Patience::None; // Its own fault if there is no room.
                let _ = match below(4) {
                    0 => hostile.send_part(Kind::default(), &vec![round as u8; len], flags, within),
                    1 => hostile.send_with_address(to, Kind::default(), &[], OPEN, within),
                    2 => hostile.send_with_address(to, Kind::default(), &vec![round as u8; len], flags, within),
                    _ => {
                        hostile.scribble_next(below(8) as usize, below(1 << 16));
                        hostile.scribble(below(600) as usize, below(u64::MAX));
                        Ok(())
                    }
                };
            }
            let mut loan = honest.loan(8).unwrap();
            loan.copy_from_slice(&round.to_le_bytes());
            loan.publish_as(Kind { id: 9, version: 9 }).unwrap();
            loop {
                let message = port.receive_within(WITHIN).expect("what the honest one sent");
                if message.kind() == (Kind { id: 9, version: 9 }) {
                    assert_eq!(message.to_vec(), round.to_le_bytes());
                    break;
                }
            }
        }
    }
}
