//! What two processes agree on. Their first words are a packet each way over the port's socket, with the memory's
//! descriptors. Afterwards, messages have the flags and bells the places that are declared here.
//!
//! ```text
//! hello, 32 bytes                          answer, 32 bytes, with descriptors
//! offset  size  field                      offset  size  field
//!      0     4  magic, "LSPT"                   0     4  magic, "LSPT"
//!      4     2  version                         4     2  version
//!      6     2  purpose: 1 a lane, 2 pages      6     2  status: 0 yes, 1 refused, 2 senders exhausted
//!      8    16  address of the caller           8     4  buffer_count
//!     24     8  zero                           12     4  buffer_bytes
//!                                              16     4  1 if the oldest may be dropped
//!                                              20    12  zero
//! ```
//!
//! On a lane's connection the sender may later offer pages (`pages.rs`), with the descriptors of the pages and of the
//! holders' file, and is answered "yes" when they are mapped:
//!
//! ```text
//! offer, 32 bytes: 0 magic, 4 version, 6 purpose: 2, 8 id u64, 16 holder u32, 20 page_bytes u32, 24 page_count u32, zero
//! ```
//!
//! The sockets of the ring for groups answer every process that connects and may have it, without a hello.
//!
//! Else the connection says one thing only: that the other side lives. The kernel closes it when that ends.

use crate::address::Address;
use crate::error::SystemError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

const MAGIC: u32 = u32::from_le_bytes(*b"LSPT");
const VERSION: u16 = 1;
pub(crate) const PACKET_BYTES: usize = 32;
/// The most descriptors that one packet carries.
const DESCRIPTORS_MAX: usize = 4;

/// How long a port's owner may take to answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Connections that may wait to be accepted, and are accepted before others have their turn.
pub(crate) const BACKLOG: i32 = 128;

/// The bell in a lane: its sender sleeps on it for room.
pub(crate) const LANE_BELL: usize = 0;
/// The bell in a port's control file: its owner sleeps on it for messages.
pub(crate) const OWNER_BELL: usize = 0;

/// The flag of a message that is a reference to a page.
pub(crate) const FLAG_PAGE: u8 = 1;
/// The flag of a message that came from another site.
pub(crate) const FLAG_CARRIED: u8 = 2;
/// Bytes of the sender's address before such a message.
pub(crate) const CARRIED_BYTES: usize = 16;

/// Receivers that pages can have at a time.
pub(crate) const HOLDERS_MAX: usize = 64;
/// The largest page in bytes, and the most pages of one file.
pub(crate) const PAGE_BYTES_MAX: u32 = 16 << 20;
pub(crate) const PAGE_COUNT_MAX: u32 = 1 << 16;

const PURPOSE_LANE: u16 = 1;
const PURPOSE_PAGES: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) from: Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Status {
    Yes = 0,
    Refused = 1,
    SendersExhausted = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) buffer_count: u32,
    pub(crate) buffer_bytes: u32,
    pub(crate) may_drop: bool,
}

/// What a receiver is told when it is given pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) id: u64,
    pub(crate) holder: u32,
    pub(crate) page_bytes: u32,
    pub(crate) page_count: u32,
}

impl Offer {
    pub(crate) fn is_valid(self) -> bool {
        self.page_bytes > 0
            && self.page_bytes.is_multiple_of(4096)
            && self.page_bytes <= PAGE_BYTES_MAX
            && (1..=PAGE_COUNT_MAX).contains(&self.page_count)
            && (self.holder as usize) < HOLDERS_MAX
    }

    /// Bytes of all its pages.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.page_count)
    }
}

impl Hello {
    pub(crate) fn to_bytes(self) -> [u8; PACKET_BYTES] {
        let mut bytes = opening(PURPOSE_LANE);
        bytes[8..24].copy_from_slice(&self.from.to_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Hello> {
        let (bytes, purpose) = opened(bytes)?;
        if purpose != PURPOSE_LANE {
            return None;
        }
        Some(Hello { from: Address::from_bytes(bytes[8..24].try_into().ok()?).ok()? })
    }
}

impl Offer {
    pub(crate) fn to_bytes(self) -> [u8; PACKET_BYTES] {
        let mut bytes = opening(PURPOSE_PAGES);
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        for (at, number) in [(16, self.holder), (20, self.page_bytes), (24, self.page_count)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Offer> {
        let (bytes, purpose) = opened(bytes)?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let id = u64::from(word(8)) | u64::from(word(12)) << 32;
        (purpose == PURPOSE_PAGES).then(|| Offer { id, holder: word(16), page_bytes: word(20), page_count: word(24) })
    }
}

impl Answer {
    pub(crate) fn no(status: Status) -> Answer {
        Answer { status, buffer_count: 0, buffer_bytes: 0, may_drop: false }
    }

    pub(crate) fn to_bytes(self) -> [u8; PACKET_BYTES] {
        let mut bytes = opening(self.status as u16);
        bytes[8..12].copy_from_slice(&self.buffer_count.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.buffer_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::from(self.may_drop).to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Answer> {
        let (bytes, status) = opened(bytes)?;
        let status = match status {
            0 => Status::Yes,
            1 => Status::Refused,
            2 => Status::SendersExhausted,
            _ => return None,
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Answer { status, buffer_count: word(8), buffer_bytes: word(12), may_drop: word(16) == 1 })
    }
}

/// Whether a packet is of this protocol, but not of the version that we speak.
pub(crate) fn is_another_version(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_le_bytes()) && opened(bytes).is_none()
}

fn opening(what: u16) -> [u8; PACKET_BYTES] {
    let mut bytes = [0; PACKET_BYTES];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6..8].copy_from_slice(&what.to_le_bytes());
    bytes
}

fn opened(bytes: &[u8]) -> Option<(&[u8; PACKET_BYTES], u16)> {
    let bytes: &[u8; PACKET_BYTES] = bytes.try_into().ok()?;
    let ours = opening(0);
    (bytes[..6] == ours[..6]).then(|| (bytes, u16::from_le_bytes([bytes[6], bytes[7]])))
}

/// Sends one packet with descriptors. Never raises a signal; does not wait if the socket does not.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), SystemError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
        .map_err(|error| SystemError::new("sendmsg", error))?;
    Ok(())
}

/// Receives one packet and its descriptors; the length is 0 when the other side has closed.
pub(crate) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary
        .drain()
        .filter_map(|message| if let RecvAncillaryMessage::ScmRights(fds) = message { Some(fds) } else { None })
        .flatten()
        .collect();
    Ok((received.bytes, descriptors))
}

/// A socket over which two processes of this host exchange packets.
pub(crate) fn seqpacket() -> Result<OwnedFd, SystemError> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| SystemError::new("socket", error))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::address::{Instance, ServerInstance, ServerType, Site};

    #[test]
    fn hello_and_answer_have_the_bytes_in_the_table() {
        let from = Address::port(Instance(1), ServerType(2), ServerInstance(3), Site(4));
        let hello = Hello { from };
        let bytes = hello.to_bytes();
        assert_eq!(&bytes[..8], b"LSPT\x01\x00\x01\x00");
        assert_eq!(&bytes[8..24], &[4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 2, 1, 0]);
        assert_eq!(Hello::from_bytes(&bytes), Some(hello));
        let answer = Answer { status: Status::Yes, buffer_count: 16, buffer_bytes: 1008, may_drop: true };
        assert_eq!(&answer.to_bytes()[6..20], &[0, 0, 16, 0, 0, 0, 0xf0, 3, 0, 0, 1, 0, 0, 0]);
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
        let offer = Offer { id: 1 << 40 | 2, holder: 3, page_bytes: 4096, page_count: 5 };
        assert_eq!(&offer.to_bytes()[6..28], &[2, 0, 2, 0, 0, 0, 0, 1, 0, 0, 3, 0, 0, 0, 0, 16, 0, 0, 5, 0, 0, 0]);
        assert_eq!(Offer::from_bytes(&offer.to_bytes()), Some(offer));
        assert_eq!(Hello::from_bytes(&offer.to_bytes()), None);
    }

    #[test]
    fn packets_of_strangers_are_refused() {
        let hello = Hello { from: Address::from_bits(5).unwrap() };
        for at in 0..8 {
            let mut bytes = hello.to_bytes();
            bytes[at] ^= 0x40;
            assert_eq!(Hello::from_bytes(&bytes), None, "byte {at}");
        }
        assert_eq!(Hello::from_bytes(&hello.to_bytes()[..31]), None);
        assert_eq!(Answer::from_bytes(&[]), None);
    }
}
