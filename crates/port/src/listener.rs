//! The receiving side of connections: each process that may send gets a lane of its own.
//!
//! A lane is a memory file with one bell (the sender sleeps on it for room) and a ring. It belongs to one sender: what
//! a hostile sender writes can only be in its own lane. All senders of a port share its control file, which holds
//! nothing but the owner's bell.

use crate::address::{Address, ServerType};
use crate::credentials::Credentials;
use crate::error::SystemError;
use crate::futex;
use crate::keeper::{self, Watch, Watched};
use crate::link::{self, Answer, BACKLOG, CARRIED_BYTES, FLAG_CARRIED, Hello, LANE_BELL, Offer, PACKET_BYTES, Status};
use crate::memory::Mapping;
use crate::options::{Access, PortOptions, WhenFull};
use crate::pages::Incoming;
use crate::poller::Poller;
use crate::ring::{Header, Shape};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::RecvFlags;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many different pages one sender may offer, and their bytes together: addresses of ours are a thing to run out
/// of.
const PAGES_MAX: usize = 64;
const PAGES_BYTES_MAX: u64 = 1 << 40;

/// What a port's owner and the keeper share.
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) options: PortOptions,
    pub(crate) shape: Shape,
    pub(crate) control: Mapping,
    control_file: OwnedFd,
    /// Readable when the owner, having said that it polls, has something to look at.
    pub(crate) poller: Arc<Poller>,
    /// Lanes that the owner has not fetched yet, and how many there ever were.
    arrived: Mutex<Vec<Arc<Lane>>>,
    pub(crate) arrivals: AtomicU32,
    /// Lanes that are still there, of senders that are too and of those that left messages.
    lane_count: Arc<AtomicUsize>,
    /// Everything the keeper watches for this port.
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    watches: HashMap<u64, Watch>,
    /// The port was closed; newcomers are turned away.
    is_closed: bool,
}

/// One sender's buffers, as the receiver sees them.
pub(crate) struct Lane {
    pub(crate) memory: Mapping,
    /// What the sender makes readable for an owner that polls.
    event: OwnedFd,
    poller: Arc<Poller>,
    lane_count: Arc<AtomicUsize>,
    pub(crate) from: Address,
    pub(crate) peer: Credentials,
    /// It may say that a message comes from another site: the network's process, of our own user or root.
    pub(crate) is_carrier: bool,
    /// The sender is gone; what it published before is still there.
    pub(crate) is_closed: AtomicBool,
    /// Pages that the sender offered.
    pub(crate) pages: Mutex<Vec<Arc<Incoming>>>,
    /// Its connection, for the owner to cut.
    token: AtomicU64,
}

impl Shared {
    pub(crate) fn new(address: Address, options: PortOptions) -> Result<Arc<Shared>, SystemError> {
        let (control_file, control) = Mapping::create("ledgerstone-port", 1, 0)?;
        let shape = Shape::new(options.buffer_count, options.buffer_bytes);
        Ok(Arc::new(Shared {
            address,
            options,
            shape,
            control,
            control_file,
            poller: Arc::new(Poller::new()?),
            arrived: Mutex::default(),
            arrivals: AtomicU32::new(0),
            lane_count: Arc::default(),
            connections: Mutex::default(),
        }))
    }

    /// Begins to accept senders on a socket that listens and does not wait.
    pub(crate) fn accept_on(self: &Arc<Self>, socket: OwnedFd) -> Result<(), SystemError> {
        let watch = keeper::watch(Arc::new(Listener { socket, port: Arc::clone(self) }))?;
        self.keep(watch);
        Ok(())
    }

    /// The lanes that came since the last call.
    pub(crate) fn take_arrived(&self) -> Vec<Arc<Lane>> {
        std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends a sender's connection.
    pub(crate) fn cut(&self, lane: &Lane) {
        self.end(lane.token.load(Ordering::Relaxed));
    }

    /// Ends everything: all senders learn that the port is closed.
    pub(crate) fn close(&self) {
        let all = {
            let mut connections = self.connections();
            connections.is_closed = true;
            std::mem::take(&mut connections.watches)
        };
        drop(all); // Outside of the lock: a connection that ends here may take it.
    }

    /// Watches until the connection or the port ends.
    fn keep(&self, watch: Watch) {
        let mut connections = self.connections();
        if !connections.is_closed {
            connections.watches.insert(watch.token(), watch);
        }
    }

    fn end(&self, token: u64) {
        let watch = self.connections().watches.remove(&token);
        drop(watch); // Outside of the lock, as in `close`.
    }

    fn connection_count(&self) -> usize {
        self.connections().watches.len()
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner) // A map is whole between two calls.
    }
}

struct Listener {
    socket: OwnedFd,
    port: Arc<Shared>,
}

impl Watched for Listener {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ready(&self) -> bool {
        use rustix::net::SocketFlags;
        for _ in 0..BACKLOG {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = rustix::net::accept_with(&self.socket, flags) else { break };
            // A peer that connects and says nothing takes a place too, so that there is a bound on all of them.
            if self.port.connection_count() > 2 * self.port.options.senders_max as usize {
                continue;
            }
            let connection = Arc::new(Connection {
                socket,
                port: Arc::clone(&self.port),
                lane: Mutex::new(None),
                token: AtomicU64::new(0),
            });
            let Ok(watch) = keeper::watch(Arc::clone(&connection) as Arc<dyn Watched>) else { continue };
            connection.token.store(watch.token(), Ordering::Relaxed); // Read by this thread only.
            self.port.keep(watch);
        }
        true
    }
}

/// One connection of a sender: first its hello, then nothing until it ends.
struct Connection {
    socket: OwnedFd,
    port: Arc<Shared>,
    lane: Mutex<Option<Arc<Lane>>>,
    token: AtomicU64,
}

impl Watched for Connection {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ready(&self) -> bool {
        let mut bytes = [0; PACKET_BYTES];
        let (received, descriptors) = match link::receive(&self.socket, &mut bytes, RecvFlags::empty()) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
            Err(_) => (0, Vec::new()),
        };
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = match &mut *lane {
            _ if received == 0 => false,
            Some(lane) => self.accept_pages(lane, &bytes[..received], &descriptors).is_some(),
            none => {
                *none = self.greet(&bytes[..received]);
                none.is_some()
            }
        };
        if is_good {
            return true;
        }
        // It ended, broke the rules or was refused.
        if let Some(lane) = lane.take() {
            lane.is_closed.store(true, Ordering::Release); // Pairs with the Acquire of the owner, which then looks again.
        }
        self.port.end(self.token.load(Ordering::Relaxed)); // As in `Listener::ready`.
        false
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.get_mut().unwrap_or_else(PoisonError::into_inner) {
            lane.is_closed.store(true, Ordering::Release); // As in `ready`.
        }
    }
}

impl Connection {
    /// Maps pages that the sender offers, and says so.
    fn accept_pages(&self, lane: &Lane, bytes: &[u8], files: &[OwnedFd]) -> Option<()> {
        let offer = Offer::from_bytes(bytes)?;
        let [pages, holders] = files else { return None };
        let mut known = lane.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: u64 = known.iter().map(|pages| pages.bytes()).sum();
        if known.len() >= PAGES_MAX || bytes + offer.bytes() > PAGES_BYTES_MAX {
            return None;
        }
        known.push(Arc::new(Incoming::map(offer, pages, holders).ok()?));
        link::send(&self.socket, &Answer::no(Status::Yes).to_bytes(), &[]).ok()
    }

    /// Answers a hello; the lane that came about, if one did.
    fn greet(&self, bytes: &[u8]) -> Option<Arc<Lane>> {
        if link::is_another_version(bytes) {
            // Our version is in the answer, which says what is wrong.
            let _ = link::send(&self.socket, &Answer::no(Status::Refused).to_bytes(), &[]);
        }
        let hello = Hello::from_bytes(bytes)?;
        let peer = Credentials::of_peer(&self.socket).ok()?;
        let port = &self.port;
        let senders_max = port.options.senders_max as usize;
        // Senders that are gone and have left messages do not count, but there is a bound on them too. A hostile sender
        // could hang up and go on writing, again and again.
        let has_many_lanes = port.lane_count.load(Ordering::Relaxed) >= 2 * senders_max;
        // This connection and the listener are in the map too.
        let status = if !port.options.access.allows(peer) {
            Status::Refused
        } else if port.connection_count() > senders_max + 1 || has_many_lanes {
            Status::SendersExhausted
        } else {
            Status::Yes
        };
        if status != Status::Yes {
            let _ = link::send(&self.socket, &Answer::no(status).to_bytes(), &[]);
            return None;
        }
        let (file, memory) = Mapping::create("ledgerstone-lane", 1, port.shape.words()).ok()?;
        let event = port.poller.add_sender().ok()?;
        port.lane_count.fetch_add(1, Ordering::Relaxed); // Changed by this thread; the owner only takes away.
        let lane = Arc::new(Lane {
            memory,
            event,
            poller: Arc::clone(&port.poller),
            lane_count: Arc::clone(&port.lane_count),
            from: hello.from,
            peer,
            is_carrier: hello.from.server_type() == ServerType::NETWORK && Access::OwnUser.allows(peer),
            is_closed: AtomicBool::new(false),
            pages: Mutex::default(),
            token: AtomicU64::new(self.token.load(Ordering::Relaxed)),
        });
        // The lane is with its owner before the sender can publish into it, so that no message is overlooked.
        port.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&lane));
        port.arrivals.fetch_add(1, Ordering::Release); // Pairs with the Acquire in `Inbox::fetch_arrived`.
        let answer = Answer {
            status,
            buffer_count: port.options.buffer_count,
            buffer_bytes: port.options.buffer_bytes,
            may_drop: port.options.when_full == WhenFull::DropOldest,
        };
        let descriptors = [file.as_fd(), port.control_file.as_fd(), lane.event.as_fd()];
        if link::send(&self.socket, &answer.to_bytes(), &descriptors).is_err() {
            lane.is_closed.store(true, Ordering::Release); // As in `ready`.
            return None;
        }
        Some(lane)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.poller.forget(&self.event);
        self.lane_count.fetch_sub(1, Ordering::Relaxed); // As in `Connection::greet`.
    }
}

impl Lane {
    /// The address that a message of another site comes from, if it is one and the sender may say so.
    pub(crate) fn carried_from(&self, header: &Header, payload: &[u8]) -> Option<Address> {
        let is_carried = header.flags & FLAG_CARRIED != 0 && self.is_carrier;
        Address::from_bytes(*payload.first_chunk::<CARRIED_BYTES>().filter(|_| is_carried)?).ok()
    }

    /// Tells the sender that there is room, if it sleeps for it.
    pub(crate) fn ring_for_room(&self) {
        if crate::bell::ring(self.memory.bell(LANE_BELL)).is_some() {
            futex::wake(self.memory.bell(LANE_BELL));
        }
    }
}
