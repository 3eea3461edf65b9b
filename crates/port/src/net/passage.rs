//! Sending to other sites through the process of this one that started the network: the sender's end of a passage
//! (`gateway.rs`).
//!
//! ```text
//! flags of a message in a passage     payload
//! 1  first of a message               address of the receiver u128, bytes
//! 2  last of a message                more of its bytes, or both in one
//! 4  open                             address of the receiver, or of any group of the server type
//! 8  flush                            nothing
//!
//! word of the lane
//! 1  state     bits 31..0: 0 nothing yet, 1 asking the site, 2 open, 3 no such site, 4 the site does not answer, 5 not allowed
//!              bits 63..32: while asking, the milliseconds that it may take
//! 2  settled   messages of the lane up to which everything was acknowledged by the site
//! ```

use super::session::MESSAGE_BYTES_MAX;
use super::wire::MESSAGE_HEADER_BYTES;
use crate::address::Address;
use crate::error::{ConnectError, SendError};
use crate::host::Host;
use crate::lane::LaneSender;
use crate::link::CARRIED_BYTES;
use crate::options::Wait;
use crate::typed::Kind;
use crate::wait::Patience;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const FIRST: u8 = 1;
pub(crate) const LAST: u8 = 2;
pub(crate) const OPEN: u8 = 4;
pub(crate) const FLUSH: u8 = 8;

pub(crate) const STATE_ASKING: u64 = 1;
pub(crate) const STATE_OPEN: u64 = 2;
pub(crate) const STATE_NO_SITE: u64 = 3;
pub(crate) const STATE_SILENT: u64 = 4;
pub(crate) const STATE_REFUSED: u64 = 5;

/// The longest message that is carried.
pub(crate) const CARRIED_BYTES_MAX: usize = MESSAGE_BYTES_MAX - MESSAGE_HEADER_BYTES;

/// How long a network that lives takes to make room for the rest of a message that it has begun to take.
const REST_WITHIN: Duration = Duration::from_secs(1);

/// Where the gateway of a site is.
pub(crate) fn path(host: &Host) -> PathBuf {
    host.socket_path(Address::network(host.site()))
}

/// A way to a port of another site, or to the groups of a server type there, through the site's network.
pub(crate) struct PassageSender {
    lane: LaneSender,
    to: Address,
}

impl PassageSender {
    /// Waits for the network's process for `answer_within`, then until it has the site's answer or takes it for dead.
    pub(crate) fn connect(
        host: &Host,
        from: Address,
        to: Address,
        answer_within: Duration,
    ) -> Result<PassageSender, ConnectError> {
        let no_network = ConnectError::NoNetwork { address: to };
        let mut lane = match LaneSender::connect_at(from, to, &path(host), answer_within) {
            Err(ConnectError::NoSuchPort { .. }) => return Err(no_network),
            other => other?,
        };
        let mut deadline = Instant::now() + answer_within;
        if lane.send_with_address(to, Kind::default(), &[], OPEN, Patience::Until(deadline)).is_err() {
            return Err(no_network);
        }
        let mut known = 0;
        loop {
            lane.wait_for_state(known, deadline);
            // Whether it is closed is asked first: what the network said last counts.
            let is_closed = lane.is_closed();
            let state = lane.state();
            match state & u64::from(u32::MAX) {
                STATE_OPEN => return Ok(PassageSender { lane, to }),
                STATE_NO_SITE => {
                    return Err(to.site().map_or(no_network, |site| ConnectError::UnknownSite { site }));
                }
                STATE_REFUSED => return Err(ConnectError::Refused { address: to }),
                STATE_ASKING if known != state && !is_closed => {
                    known = state;
                    deadline = Instant::now() + Duration::from_millis(state >> 32) + answer_within;
                }
                0 if is_closed => return Err(no_network),
                _ => return Err(ConnectError::Unresponsive { address: to }),
            }
        }
    }

    pub(crate) fn to(&self) -> Address {
        self.to
    }

    pub(crate) fn bytes_max(&self) -> usize {
        CARRIED_BYTES_MAX
    }

    pub(crate) fn set_wait(&mut self, wait: Wait) {
        self.lane.set_wait(wait);
    }

    #[inline]
    pub(crate) fn send(&mut self, kind: Kind, bytes: &[u8], patience: Patience) -> Result<(), SendError> {
        self.send_to(self.to, kind, bytes, patience)
    }

    /// As [`send`](PassageSender::send); the receiver of a multicast changes from one to the next.
    #[inline]
    pub(crate) fn send_to(
        &mut self,
        to: Address,
        kind: Kind,
        bytes: &[u8],
        patience: Patience,
    ) -> Result<(), SendError> {
        if bytes.len() + CARRIED_BYTES <= self.lane.bytes_max() {
            self.lane.send_with_address(to, kind, bytes, FIRST | LAST, patience)
        } else {
            self.send_in_parts(to, kind, bytes, patience)
        }
    }

    #[cold]
    fn send_in_parts(&mut self, to: Address, kind: Kind, bytes: &[u8], patience: Patience) -> Result<(), SendError> {
        if bytes.len() > CARRIED_BYTES_MAX {
            return Err(SendError::TooLong { address: to, bytes: bytes.len(), bytes_max: CARRIED_BYTES_MAX });
        }
        let part_bytes = self.lane.bytes_max();
        let part_count = (bytes.len() + CARRIED_BYTES).div_ceil(part_bytes);
        let full = SendError::Full { address: to, waiting: self.lane.buffer_count() - self.lane.room() };
        // A message longer than all buffers has to wait for the network to take its beginning, which it does as long as
        // it lives. But a call that must not wait begins only if everything is free.
        let mut rest_patience = patience;
        if matches!(patience, Patience::None) {
            if (self.lane.room() as usize) < part_count.min(self.lane.buffer_count() as usize) && !self.is_closed() {
                return Err(full);
            }
            rest_patience = Patience::Until(Instant::now() + REST_WITHIN);
        }
        let (first, rest) = bytes.split_at(part_bytes - CARRIED_BYTES);
        self.lane.send_with_address(to, kind, first, FIRST, patience)?;
        for part in rest.chunks(part_bytes) {
            let is_last = part.as_ptr_range().end == rest.as_ptr_range().end;
            // What was begun and is given up, the first part of the next message replaces (G3).
            self.lane.send_part(kind, part, if is_last { LAST } else { 0 }, rest_patience).map_err(|error| {
                let was_to_wait = !matches!(patience, Patience::None);
                if was_to_wait || error != (SendError::TimedOut { address: to }) { error } else { full }
            })?;
        }
        Ok(())
    }

    /// Waits for a buffer for a short message.
    pub(crate) fn wait_for_room(&mut self, bytes: usize, patience: Patience) -> Result<(), SendError> {
        self.lane.wait_for_room(bytes + CARRIED_BYTES, patience)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lane.is_closed()
    }

    pub(crate) fn is_drained(&self) -> bool {
        let has_sent = self.lane.sent_count() > 1; // The first message opened the passage.
        (!has_sent || self.lane.is_settled()) && !self.is_closed()
    }

    /// Sends what is being gathered for a fuller datagram. If there is no room for that word, the network has enough to
    /// send to fill datagrams.
    pub(crate) fn flush(&mut self) {
        let _ = self.lane.send_part(Kind::default(), &[], FLUSH, Patience::None);
    }
}
