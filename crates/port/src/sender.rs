//! Sending: one interface for ports of this host and of other sites, made fast for this host (paper 002, 4.1).

use crate::address::Address;
use crate::error::{ConnectError, SendError};
use crate::host::Host;
use crate::lane::LaneSender;
use crate::link::ANSWER_WITHIN;
use crate::net::{PassageSender, RemoteSender};
use crate::options::Wait;
use crate::pages::PageShare;
use crate::typed::{Kind, Typed};
use crate::wait::Patience;
use std::time::{Duration, Instant};

/// A way to send to one port. Messages of one sender arrive in order, each at most once.
///
/// Several senders to one port do not disturb each other. Dropping a sender loses nothing that was sent.
pub struct Sender {
    route: Route,
}

enum Route {
    Lane(LaneSender),
    Remote(RemoteSender),
    /// To another site, through the process that started the network.
    Passage(PassageSender),
}

impl Host {
    /// A way to send to a port, with `from` as the address to answer to.
    ///
    /// For a port of this site, the name of its socket is computed, and the socket is asked once for the memory. No
    /// message goes through it.
    ///
    /// For a port of another site, the site is asked for a session, once for all its ports. Whether the site has the
    /// port shows when something is sent: one of the next messages returns [`SendError::PortClosed`]. If another
    /// process of this site started the network, messages go through that process, which costs one more copy and one
    /// more thread. When that process ends, so do these senders.
    ///
    /// # Errors
    /// See [`ConnectError`]. The call waits at most a few seconds for the owner's answer, and for another site's until
    /// that site is taken for dead.
    pub fn connect(&self, from: Address, to: Address) -> Result<Sender, ConnectError> {
        match to.site() {
            None => Err(ConnectError::IsGroup { address: to }),
            Some(site) if site == self.site() => {
                Ok(Sender { route: Route::Lane(LaneSender::connect(self, from, to, ANSWER_WITHIN)?) })
            }
            Some(_) => Ok(Sender {
                route: match self.network() {
                    Some(network) => Route::Remote(RemoteSender::connect(network, from, to)?),
                    None => Route::Passage(PassageSender::connect(self, from, to, ANSWER_WITHIN)?),
                },
            }),
        }
    }
}

impl PageShare<'_> {
    /// Sends a reference to the page. Waits for room as long as it takes. The first time a receiver gets one of these
    /// pages, it also waits until it has mapped them.
    ///
    /// # Errors
    /// [`SendError::PortClosed`]; [`SendError::NotLocal`] if the port is another site's;
    /// [`SendError::ReceiversExhausted`].
    pub fn send(&mut self, to: &mut Sender) -> Result<(), SendError> {
        self.send_on(to.lane_mut()?)
    }
}

impl Sender {
    /// The port that it sends to.
    pub fn to(&self) -> Address {
        match &self.route {
            Route::Lane(lane) => lane.to(),
            Route::Remote(remote) => remote.to(),
            Route::Passage(passage) => passage.to(),
        }
    }

    /// The longest message that the port takes.
    pub fn bytes_max(&self) -> usize {
        match &self.route {
            Route::Lane(lane) => lane.bytes_max(),
            Route::Remote(remote) => remote.bytes_max(),
            Route::Passage(passage) => passage.bytes_max(),
        }
    }

    /// How this sender waits for room, from now on. [`Wait::Adaptive`] at first. To other sites it always sleeps, or
    /// waits so for the process of this site that carries its messages.
    pub fn set_wait(&mut self, wait: Wait) {
        match &mut self.route {
            Route::Lane(lane) => lane.set_wait(wait),
            Route::Remote(_) => {}
            Route::Passage(passage) => passage.set_wait(wait),
        }
    }

    /// Sends bytes. Waits for room as long as it takes.
    ///
    /// # Errors
    /// [`SendError::PortClosed`], [`SendError::TooLong`].
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        self.send_kind(Kind::default(), bytes, Patience::Endless)
    }

    /// Sends bytes if there is room now.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::PortClosed`], [`SendError::TooLong`].
    #[inline]
    pub fn try_send(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        self.send_kind(Kind::default(), bytes, Patience::None)
    }

    /// Sends bytes. Waits for room until `deadline`.
    ///
    /// # Errors
    /// [`SendError::TimedOut`], [`SendError::PortClosed`], [`SendError::TooLong`].
    #[inline]
    pub fn send_before(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), SendError> {
        self.send_kind(Kind::default(), bytes, Patience::Until(deadline))
    }

    /// As [`send_before`](Sender::send_before), with the time to wait.
    ///
    /// # Errors
    /// As there.
    pub fn send_within(&mut self, bytes: &[u8], patience: Duration) -> Result<(), SendError> {
        self.send_before(bytes, Instant::now() + patience)
    }

    /// Sends a value of a type with a fixed layout, with the bytes that it has in memory. Waits for room as long as it
    /// takes.
    ///
    /// # Errors
    /// As [`send`](Sender::send).
    #[inline]
    pub fn send_typed<T: Typed>(&mut self, value: &T) -> Result<(), SendError> {
        self.send_kind(T::KIND, value.as_bytes(), Patience::Endless)
    }

    /// Sends a typed value if there is room now.
    ///
    /// # Errors
    /// As [`try_send`](Sender::try_send).
    #[inline]
    pub fn try_send_typed<T: Typed>(&mut self, value: &T) -> Result<(), SendError> {
        self.send_kind(T::KIND, value.as_bytes(), Patience::None)
    }

    #[inline]
    fn send_kind(&mut self, kind: Kind, bytes: &[u8], patience: Patience) -> Result<(), SendError> {
        match &mut self.route {
            Route::Lane(lane) => lane.send(kind, bytes, patience),
            Route::Remote(remote) => remote.send(kind, bytes, patience),
            Route::Passage(passage) => passage.send(kind, bytes, patience),
        }
    }

    /// Lends a buffer of the port to write a message of `len` bytes into, so that sending copies nothing. Waits for a
    /// buffer as long as it takes. Its bytes are whatever was there before.
    ///
    /// Nobody sees the message until it is published. A buffer that is dropped without publishing, or lost with the
    /// process, was never sent.
    ///
    /// # Errors
    /// [`SendError::PortClosed`], [`SendError::TooLong`].
    pub fn loan(&mut self, len: usize) -> Result<Loan<'_>, SendError> {
        self.loan_with(len, Patience::Endless)
    }

    /// A buffer if there is one now.
    ///
    /// # Errors
    /// [`SendError::Full`], [`SendError::PortClosed`], [`SendError::TooLong`].
    pub fn try_loan(&mut self, len: usize) -> Result<Loan<'_>, SendError> {
        self.loan_with(len, Patience::None)
    }

    fn loan_with(&mut self, len: usize, patience: Patience) -> Result<Loan<'_>, SendError> {
        let buffer = match &mut self.route {
            Route::Lane(lane) => {
                lane.wait_for_room(len, patience)?;
                Buffer::Lane(lane)
            }
            Route::Remote(remote) => Buffer::Remote(remote, vec![0; len]),
            Route::Passage(passage) => Buffer::Passage(passage, vec![0; len]),
        };
        Ok(Loan { buffer, len })
    }

    /// Sends what is being gathered for a fuller datagram. To other sites small messages share datagrams: one goes at
    /// once if none is under way, else with the others when a datagram is full or something was acknowledged. On this
    /// host nothing is ever gathered.
    pub fn flush(&mut self) {
        match &mut self.route {
            Route::Lane(_) => {}
            Route::Remote(remote) => remote.flush(),
            Route::Passage(passage) => passage.flush(),
        }
    }

    /// The lane, if the port is on this host.
    pub(crate) fn lane_mut(&mut self) -> Result<&mut LaneSender, SendError> {
        match &mut self.route {
            Route::Lane(lane) => Ok(lane),
            Route::Remote(remote) => Err(SendError::NotLocal { address: remote.to() }),
            Route::Passage(passage) => Err(SendError::NotLocal { address: passage.to() }),
        }
    }

    /// Whether the port is known to be closed. A death is known some microseconds after it.
    pub fn is_closed(&self) -> bool {
        match &self.route {
            Route::Lane(lane) => lane.is_closed(),
            Route::Remote(remote) => remote.is_closed(),
            Route::Passage(passage) => passage.is_closed(),
        }
    }

    /// Whether the receiver has taken everything that was sent.
    pub fn is_drained(&self) -> bool {
        match &self.route {
            Route::Lane(lane) => lane.is_drained(),
            Route::Remote(remote) => remote.is_drained(),
            Route::Passage(passage) => passage.is_drained(),
        }
    }
}

/// A buffer to be written in place: the receiver's own, or one to be sent to another site. Dereferences to its bytes.
pub struct Loan<'s> {
    buffer: Buffer<'s>,
    len: usize,
}

enum Buffer<'s> {
    Lane(&'s mut LaneSender),
    Remote(&'s mut RemoteSender, Vec<u8>),
    Passage(&'s mut PassageSender, Vec<u8>),
}

impl Loan<'_> {
    /// Sends the message.
    ///
    /// # Errors
    /// None for a port of this host. For another site's, as [`Sender::send`].
    pub fn publish(self) -> Result<(), SendError> {
        self.publish_as(Kind::default())
    }

    /// Sends the message as one of that type.
    ///
    /// # Errors
    /// As [`publish`](Loan::publish).
    pub fn publish_as(self, kind: Kind) -> Result<(), SendError> {
        match self.buffer {
            Buffer::Lane(lane) => {
                lane.publish(kind, self.len);
                Ok(())
            }
            Buffer::Remote(remote, bytes) => remote.send(kind, &bytes, Patience::Endless),
            Buffer::Passage(passage, bytes) => passage.send(kind, &bytes, Patience::Endless),
        }
    }
}

impl std::ops::Deref for Loan<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.buffer {
            Buffer::Lane(lane) => lane.buffer(self.len),
            Buffer::Remote(_, bytes) | Buffer::Passage(_, bytes) => bytes,
        }
    }
}

impl std::ops::DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Buffer::Lane(lane) => lane.buffer_mut(self.len),
            Buffer::Remote(_, bytes) | Buffer::Passage(_, bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("to", &self.to()).finish_non_exhaustive()
    }
}
