//! Starting and ending the network of a site.

use super::carrier::Carrier;
use super::cipher::SEAL_BYTES;
use super::gateway::Gateway;
use super::keys::{SitePublic, SiteSecret};
use super::multicast::{Channel, Multicast};
use super::peer::Peer;
use super::wire::HEADER_BYTES;
use crate::address::{Address, Site};
use crate::error::{OpenError, SystemError};
use crate::host::Host;
use crate::options::Access;
use crate::typed::Kind;
use rustix::fd::OwnedFd;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Whether the sites prove who they are and hide what they say.
#[derive(Clone, Debug)]
pub enum Trust {
    /// They do. Every site of the table has a key.
    Keys(SiteSecret),
    /// The network itself is trusted: nothing is proved, nothing is hidden. Keys in the table are not looked at.
    Network,
}

/// What a site's network is.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// Where this site listens for datagrams.
    pub listen: SocketAddr,
    /// The other sites: where they listen, and their keys.
    pub sites: Vec<(Site, SocketAddr, Option<SitePublic>)>,
    /// Whether the network is trusted. It is not unless you say so.
    pub trust: Trust,
    /// The longest datagram that the path between any two sites carries whole, without its IP and UDP headers: 576 to
    /// 9,216. The default is 1,400. Longer messages go in parts.
    pub datagram_bytes: usize,
    /// How long a site may be silent before it is taken for dead: 10 ms to an hour, 3 s by default.
    pub dead_after: Duration,
    /// Bytes that may wait for one site before senders wait: 4 MiB by default.
    pub waiting_bytes_max: usize,
    /// IP multicast, if the network between the sites carries it: a message to the group of a transaction is then one
    /// datagram for all sites. Without it, which is the default, it is one for each. Either all sites should have it,
    /// or none. A site that does not hear multicasts is sent datagrams of its own.
    pub multicast: Option<Multicast>,
    /// Permissions of the gateway's socket file: which of the other processes of this site may send to other sites.
    /// 0o600 by default.
    pub mode: u32,
    /// Who of those may send.
    pub access: Access,
}

impl NetworkOptions {
    /// Options for a site that listens at `listen`.
    pub fn new(listen: SocketAddr, trust: Trust) -> NetworkOptions {
        NetworkOptions {
            listen,
            sites: Vec::new(),
            trust,
            datagram_bytes: 1400,
            dead_after: Duration::from_secs(3),
            waiting_bytes_max: 4 << 20,
            multicast: None,
            mode: 0o600,
            access: Access::OwnUser,
        }
    }

    /// With another site in the table.
    #[must_use]
    pub fn with_site(mut self, site: Site, address: SocketAddr, key: Option<SitePublic>) -> NetworkOptions {
        self.sites.push((site, address, key));
        self
    }

    fn check(&self, ours: Site) -> Result<(), NetworkError> {
        if !(576..=super::batch::DATAGRAM_BYTES_MAX).contains(&self.datagram_bytes) {
            return Err(NetworkError::DatagramBytes { bytes: self.datagram_bytes });
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&self.dead_after) {
            return Err(NetworkError::DeadAfter { dead_after: self.dead_after });
        }
        if let Some(multicast) = self.multicast.filter(|multicast| !multicast.is_possible()) {
            return Err(NetworkError::NoGroups { multicast });
        }
        for (no, (site, _, key)) in self.sites.iter().enumerate() {
            if *site == ours || self.sites[..no].iter().any(|(other, _, _)| other == site) {
                return Err(NetworkError::SiteTwice { site: *site });
            }
            if key.is_none() && matches!(self.trust, Trust::Keys(_)) {
                return Err(NetworkError::NoKey { site: *site });
            }
        }
        Ok(())
    }
}

/// The network was not started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A datagram cannot have this length.
    #[error("datagrams of {bytes} bytes are not possible, allowed is 576 to 9216")]
    DatagramBytes {
        /// What was asked for.
        bytes: usize,
    },
    /// A time that is too short or too long.
    #[error("a site cannot be taken for dead after {dead_after:?}, allowed is 10 ms to an hour")]
    DeadAfter {
        /// What was asked for.
        dead_after: Duration,
    },
    /// The same site twice, or this one.
    #[error("site {} is in the table twice, or is this one", site.0)]
    SiteTwice {
        /// The site.
        site: Site,
    },
    /// A site without a key, on a network that is not trusted.
    #[error("site {} has no key in the table: give it one, or say that the network is trusted", site.0)]
    NoKey {
        /// The site.
        site: Site,
    },
    /// IP groups that cannot be.
    #[error("{} IP groups from {} on are not possible: 1 to 20, all of them multicast addresses", multicast.group_count, multicast.first.ip())]
    NoGroups {
        /// What was asked for.
        multicast: Multicast,
    },
    /// The IP groups cannot be joined.
    #[error("cannot join the IP groups from {} on at the interface {}: {source}", multicast.first, multicast.interface)]
    Join {
        /// What was asked for.
        multicast: Multicast,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A network is started for this site already, by this process or another one of this host.
    #[error("this site has a network on this host already")]
    StartedTwice,
    /// The gateway for the other processes of the site cannot be opened.
    #[error("the gateway for the other processes of this site cannot be opened: {0}")]
    Gateway(#[from] OpenError),
    /// The socket cannot be had.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The system refused something.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// A site's network, while it lives. Dropping it ends all sessions. The other sites find this one dead after the time
/// that they are set to.
pub struct Network {
    inner: Arc<Inner>,
    host: Host,
    thread: Option<JoinHandle<()>>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkStatistics {
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Datagrams that were not for us, not sealed by whom they should be, damaged, or came before.
    pub datagrams_refused: u64,
    /// Messages delivered to ports of this site.
    pub messages_delivered: u64,
    /// Messages for ports that are closed, or shorter than the message.
    pub messages_refused: u64,
    /// Datagrams sent to IP groups, each to many sites.
    pub multicasts_sent: u64,
    /// Messages that came in such datagrams and not by way of repair.
    pub multicasts_received: u64,
    /// Messages taken over from other processes of this site, in parts of 4 KiB.
    pub messages_carried: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) undelivered: AtomicU64,
    pub(crate) carried: AtomicU64,
    pub(crate) multicasts_sent: AtomicU64,
    pub(crate) multicasts_received: AtomicU64,
}

/// What senders and the carrier's thread share.
pub(crate) struct Inner {
    pub(crate) site: Site,
    pub(crate) socket: UdpSocket,
    pub(crate) peers: Vec<Arc<Peer>>,
    secret: Option<SiteSecret>,
    pub(crate) multicast: Option<Channel>,
    datagram_bytes: usize,
    pub(crate) body_bytes_max: usize,
    pub(crate) dead_after_ns: u64,
    pub(crate) waiting_bytes_max: usize,
    pub(crate) counters: Counters,
    epoch: Instant,
    /// Wakes the carrier's thread.
    pub(crate) event: OwnedFd,
    /// The carrier sleeps for long, and wants to be woken when something is sent.
    pub(crate) is_idle: AtomicBool,
    pub(crate) is_ended: AtomicBool,
}

impl Network {
    /// Starts the network of a host's site. From now on [`Host::connect`] reaches the ports of the other sites, in this
    /// process and in all others of the site that the options let send.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub fn start(host: &Host, options: NetworkOptions) -> Result<Network, NetworkError> {
        options.check(host.site())?;
        let gateway = Gateway::open(host, options.mode, options.access.clone())?.ok_or(NetworkError::StartedTwice)?;
        let listen = |source| NetworkError::Listen { address: options.listen, source };
        let socket = UdpSocket::bind(options.listen).map_err(listen)?;
        // As large as the system lets us; less is slower, not wrong.
        let sized = socket2::SockRef::from(&socket);
        let _ = sized.set_recv_buffer_size(4 << 20);
        let _ = sized.set_send_buffer_size(4 << 20);
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags).map_err(|error| SystemError::new("eventfd", error))?;
        let secret = if let Trust::Keys(secret) = &options.trust { Some(secret.clone()) } else { None };
        let multicast = match options.multicast {
            Some(multicast) => Some(
                Channel::open(&multicast, secret.is_none())
                    .map_err(|source| NetworkError::Join { multicast, source })?,
            ),
            None => None,
        };
        let peers = options.sites.iter().enumerate();
        let inner = Arc::new(Inner {
            site: host.site(),
            socket,
            peers: peers.map(|(no, (site, address, key))| Arc::new(Peer::new(no, *site, *address, *key))).collect(),
            body_bytes_max: options.datagram_bytes - HEADER_BYTES - if secret.is_some() { SEAL_BYTES } else { 0 },
            datagram_bytes: options.datagram_bytes,
            multicast,
            secret,
            dead_after_ns: options.dead_after.as_nanos() as u64,
            waiting_bytes_max: options.waiting_bytes_max,
            counters: Counters::default(),
            epoch: Instant::now(),
            event,
            is_idle: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        });
        if !host.set_network(Some(Arc::downgrade(&inner))) {
            return Err(NetworkError::StartedTwice);
        }
        let mut network = Network { inner: Arc::clone(&inner), host: host.clone(), thread: None };
        let carrier = Carrier::new(inner, host.clone(), gateway);
        let thread = std::thread::Builder::new().name("port-network".into()).spawn(move || carrier.run());
        network.thread = Some(thread.map_err(|error| SystemError::new("clone", error))?);
        Ok(network)
    }

    /// The address where it listens. If the options said port 0, this is the port that the system chose.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.inner.socket.local_addr().ok()
    }

    /// Counts since the start.
    pub fn statistics(&self) -> NetworkStatistics {
        let counters = &self.inner.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed); // Each for itself.
        NetworkStatistics {
            datagrams_sent: read(&counters.sent),
            datagrams_received: read(&counters.received),
            datagrams_refused: read(&counters.refused),
            messages_delivered: read(&counters.delivered),
            messages_refused: read(&counters.undelivered),
            messages_carried: read(&counters.carried),
            multicasts_sent: read(&counters.multicasts_sent),
            multicasts_received: read(&counters.multicasts_received),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.inner.is_ended.store(true, Ordering::Relaxed); // The wake-up that follows orders it.
        self.inner.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic there has been printed there.
        }
        self.host.set_network(None);
        self.inner.peers.iter().for_each(|peer| peer.end());
    }
}

impl Inner {
    pub(crate) fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub(crate) fn peer(&self, site: Site) -> Option<&Arc<Peer>> {
        self.peers.iter().find(|peer| peer.site == site)
    }

    /// Our secret and the peer's key; `None` on a trusted network.
    pub(crate) fn keys<'k>(&'k self, peer: &'k Peer) -> super::cipher::Keys<'k> {
        self.secret.as_ref().zip(peer.key.as_ref())
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.secret.is_none()
    }

    /// Sends a message to all sites, waiting for none.
    pub(crate) fn send_to_all(&self, message: (Address, Address, Kind, &[u8])) {
        let Some(channel) = &self.multicast else {
            return self.peers.iter().for_each(|peer| peer.submit_opening(self, message));
        };
        let (to, from, kind, bytes) = message;
        let whole = super::wire::message(to, from, kind, bytes);
        let entries_max = channel.entries_max(self.datagram_bytes, whole.len());
        let mut entries = Vec::new();
        let send = |entries: &mut Vec<Vec<u8>>| {
            self.counters.multicasts_sent.fetch_add(1, Ordering::Relaxed);
            channel.send(to, entries, &whole);
            entries.clear();
        };
        for peer in &self.peers {
            match (entries_max > 0).then(|| peer.entry(self, &whole)).flatten() {
                Some(entry) => entries.push(entry),
                None => peer.submit_opening(self, message),
            }
            if !entries.is_empty() && entries.len() >= entries_max {
                send(&mut entries);
            }
        }
        if !entries.is_empty() {
            send(&mut entries);
        }
    }

    pub(crate) fn send(&self, datagrams: &[(SocketAddr, Vec<u8>)]) {
        if datagrams.is_empty() {
            return;
        }
        self.counters.sent.fetch_add(datagrams.len() as u64, Ordering::Relaxed);
        super::batch::send(&self.socket, datagrams);
    }

    /// The carrier is to look again, if it sleeps for long.
    pub(crate) fn wake_if_idle(&self) {
        if self.is_idle.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes()); // Full wakes too.
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("site", &self.inner.site).finish_non_exhaustive()
    }
}
