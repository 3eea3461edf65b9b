//! Ports: what a process receives through (paper 002, 4.2).

use crate::address::Address;
use crate::bell::{self, NAP_NS_MAX, Waking};
use crate::error::{ConnectError, OpenError};
use crate::futex;
use crate::host::{Host, Lease};
use crate::inbox::{Found, Inbox};
use crate::link::OWNER_BELL;
use crate::listener::Shared;
use crate::membership::Membership;
use crate::message::Message;
use crate::options::PortOptions;
use crate::sender::Sender;
use crate::wait::Waiter;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// A port: a ring of receive buffers for each sender, owned by this process.
///
/// Messages of one sender arrive in the order in which they were sent, each once. To look for a message is to read
/// memory: no system call is made while messages are waiting. A port is used by one thread at a time.
///
/// Dropping a port closes it: senders are told ([`PortClosed`](crate::SendError::PortClosed)), and messages that were
/// not received are lost. The same happens when the process ends in any way.
///
/// ```
/// # use ledgerstone_port::*;
/// # let directory = tempfile::tempdir()?;
/// let host = Host::at(directory.path(), Site(1))?;
/// let ours = host.address(Instance(0), ServerType(1), ServerInstance(0));
/// let mut port = host.open_port(ours, PortOptions::default())?;
///
/// let mut sender = host.connect(ours, ours)?; // usually in another process
/// sender.send(b"prepare")?;
///
/// let message = port.receive();
/// assert_eq!((message.to_vec().as_slice(), message.from()), (&b"prepare"[..], ours));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Port {
    pub(crate) inbox: Inbox,
    waiter: Waiter,
    host: Host,
    _lease: Lease,
}

impl Host {
    /// Opens a port: this process owns it until the [`Port`] is dropped or the process ends. What a dead owner has
    /// left is removed first.
    ///
    /// # Errors
    /// See [`OpenError`]. Does not wait.
    pub fn open_port(&self, address: Address, options: PortOptions) -> Result<Port, OpenError> {
        if address.site() != Some(self.site()) {
            return Err(OpenError::NotOurs { address, site: self.site() });
        }
        Port::open(self.clone(), address, options)
    }
}

impl Port {
    pub(crate) fn open(host: Host, address: Address, options: PortOptions) -> Result<Port, OpenError> {
        options.check()?;
        let path = host.socket_path(address);
        let lease = Lease::take(&path)?
            .ok_or_else(|| OpenError::AddressInUse { address, path: path.with_extension("lock") })?;
        let (mode, wait) = (options.mode, options.wait);
        let shared = Shared::new(address, options)?;
        shared.accept_on(lease.listen(mode)?)?;
        Ok(Port { inbox: Inbox::new(shared), waiter: Waiter::new(wait), host, _lease: lease })
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.inbox.shared.address
    }

    /// The host that it is on.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A way to send to another port, with this one as the address to answer to.
    ///
    /// # Errors
    /// See [`Host::connect`].
    pub fn connect(&self, to: Address) -> Result<Sender, ConnectError> {
        self.host.connect(self.address(), to)
    }

    /// The next message if there is one. Never waits, and makes no system call.
    #[inline]
    pub fn try_receive(&mut self) -> Option<Message<'_>> {
        let found = self.inbox.look()?;
        Some(Message::new(&mut self.inbox, found))
    }

    /// The next message. Waits for it as the options say.
    #[inline]
    pub fn receive(&mut self) -> Message<'_> {
        loop {
            if let Some(found) = self.wait_for_one(None) {
                return Message::new(&mut self.inbox, found);
            }
        }
    }

    /// The next message, or `None` when there was none until `deadline`.
    #[inline]
    pub fn receive_before(&mut self, deadline: Instant) -> Option<Message<'_>> {
        let found = self.wait_for_one(Some(deadline))?;
        Some(Message::new(&mut self.inbox, found))
    }

    /// The next message, or `None` when there was none for as long as `patience`.
    pub fn receive_within(&mut self, patience: Duration) -> Option<Message<'_>> {
        self.receive_before(Instant::now() + patience)
    }

    #[inline]
    fn wait_for_one(&mut self, deadline: Option<Instant>) -> Option<Found> {
        loop {
            if let Some(found) = self.inbox.look() {
                return Some(found);
            }
            let peer_cpu = self.inbox.last_cpu;
            if let Some(found) = self.waiter.look(peer_cpu, deadline, || self.inbox.look()) {
                return Some(found);
            }
            if let Some(found) = self.sleep(deadline) {
                return Some(found);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
        }
    }

    /// One sleep; `None` may mean anything.
    fn sleep(&mut self, deadline: Option<Instant>) -> Option<Found> {
        let nap = Duration::from_nanos(NAP_NS_MAX);
        let nap = deadline.map_or(nap, |deadline| deadline.saturating_duration_since(Instant::now()).min(nap));
        bell::prepare(self.inbox.shared.control.bell(OWNER_BELL), Waking::Futex);
        let has_groups = self.inbox.membership.as_ref().is_some_and(Membership::is_in_any);
        if has_groups && let Some(membership) = &self.inbox.membership {
            membership.prepare();
        }
        let found = self.inbox.look();
        let bell = self.inbox.shared.control.bell(OWNER_BELL);
        match &self.inbox.membership {
            _ if found.is_some() => {}
            Some(membership) if has_groups => futex::sleep_on_both(bell, membership.bell(), nap),
            _ => futex::sleep(bell, nap),
        }
        bell::awake(bell);
        if has_groups && let Some(membership) = &self.inbox.membership {
            membership.awake();
        }
        found.or_else(|| self.inbox.look())
    }

    /// For event loops: says that the next message is to make [`as_fd`](AsFd::as_fd) readable. `false` if messages are
    /// waiting already: take them with [`try_receive`](Port::try_receive) first, or you may poll in vain.
    ///
    /// ```text
    /// loop {
    ///     while let Some(message) = port.try_receive() { ... }
    ///     if port.prepare_poll() { wait until the descriptor is readable }
    /// }
    /// ```
    ///
    /// It becomes readable after a tenth of a second too, as a sleeping [`receive`](Port::receive) looks up then:
    /// senders share what wakes the owner, and a hostile one could silence it. Nothing is to be read from it.
    pub fn prepare_poll(&mut self) -> bool {
        self.inbox.shared.poller.clear();
        let bell = self.inbox.shared.control.bell(OWNER_BELL);
        bell::prepare(bell, Waking::Descriptor);
        let mut is_empty = self.inbox.waiting() == 0;
        if let Some(membership) = self.inbox.membership.as_mut().filter(|membership| membership.is_in_any()) {
            membership.prepare();
            is_empty &= membership.waiting() == 0 && membership.relay_to(self.inbox.shared.poller.own());
        }
        if is_empty {
            self.inbox.shared.poller.set_timer();
        } else {
            bell::awake(self.inbox.shared.control.bell(OWNER_BELL));
            self.inbox.membership.iter().for_each(Membership::awake);
        }
        is_empty
    }

    /// Messages that wait in the ring now (paper 002, 4.2: the count of active messages).
    pub fn waiting(&mut self) -> usize {
        self.inbox.waiting()
    }

    /// Senders that are connected, or have left messages that were not taken yet.
    pub fn sender_count(&mut self) -> usize {
        self.inbox.waiting();
        self.inbox.lanes.len()
    }

    /// Messages lost so far because the oldest made room
    /// ([`WhenFull::DropOldest`](crate::WhenFull::DropOldest)).
    pub fn dropped(&self) -> u64 {
        self.inbox.losses.dropped
    }

    /// Senders that were cut off because they wrote what no sender writes.
    pub fn violations(&self) -> u64 {
        self.inbox.losses.broken
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.shared.poller.descriptor()
    }
}

impl AsRawFd for Port {
    fn as_raw_fd(&self) -> RawFd {
        self.inbox.shared.poller.descriptor().as_raw_fd()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.inbox.shared.close();
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("address", &self.address()).finish_non_exhaustive()
    }
}
