//! What goes between sites in a datagram.
//!
//! ```text
//! offset  size  field
//!      0     2  magic, "LP"
//!      2     1  version, 1
//!      3     1  kind: 1 open, 2 opened, 3 data, 4 acknowledgement, 5 multicast
//!      4     8  session: of the receiver; in "open" of the sender
//!     12     8  nonce: counts the datagrams of this session and direction
//!     20        body; sealed for kinds 3 to 5 unless the network is trusted
//!
//! open             0 site of the opener u32, 4 site that it is for u32, 8 first message of the handshake
//! opened           0 second message of the handshake; what it carries: session of the answerer u64
//! data             0 number of the first unit u64, then units: 0 number - first u16, 2 flags u8 (1 first of a message,
//!                  2 last), 3 length u16, 5 bytes. Without units it only asks for an acknowledgement
//! acknowledgement  0 all units below this were received u64, 8 bit i: unit (that + 1 + i) was too u64
//!
//! multicast        see `multicast.rs`
//!
//! message, cut into units: 0 address u128, 16 sender's address u128, 32 type u32, 36 version u16, 38 bytes
//! ```
//!
//! On a trusted network the handshake's messages are 0 bytes long, and "opened" is the session alone.

use crate::address::Address;
use crate::typed::Kind;

const MAGIC: [u8; 2] = *b"LP";
const VERSION: u8 = 1;
/// Bytes before the body.
pub(crate) const HEADER_BYTES: usize = 20;
/// Bytes of a unit before its payload.
pub(crate) const UNIT_HEADER_BYTES: usize = 5;
/// Bytes of a data body before its units.
pub(crate) const DATA_HEADER_BYTES: usize = 8;
/// Bytes of a message before its payload.
pub(crate) const MESSAGE_HEADER_BYTES: usize = 38;
/// The first unit of a message.
pub(crate) const FIRST: u8 = 1;
/// The last unit of a message.
pub(crate) const LAST: u8 = 2;

/// The message by which a site says that a port takes nothing; its bytes are the port's address.
pub(crate) const REFUSAL: Kind = Kind { id: 1, version: 1 };
/// The message by which a site says what its multicasts are known by: its multicast session and key.
pub(crate) const INTRODUCTION: Kind = Kind { id: 2, version: 1 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PacketKind {
    Open = 1,
    Opened = 2,
    Data = 3,
    Acknowledgement = 4,
    Multicast = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketHeader {
    pub(crate) kind: PacketKind,
    pub(crate) session: u64,
    pub(crate) nonce: u64,
}

impl PacketHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..12].copy_from_slice(&self.session.to_le_bytes());
        bytes[12..].copy_from_slice(&self.nonce.to_le_bytes());
        bytes
    }

    /// The header and the body.
    pub(crate) fn from_bytes(packet: &[u8]) -> Option<(PacketHeader, &[u8])> {
        let (header, body) = packet.split_first_chunk::<HEADER_BYTES>()?;
        if header[..2] != MAGIC || header[2] != VERSION {
            return None;
        }
        let kind = match header[3] {
            1 => PacketKind::Open,
            2 => PacketKind::Opened,
            3 => PacketKind::Data,
            4 => PacketKind::Acknowledgement,
            5 => PacketKind::Multicast,
            _ => return None,
        };
        let mut rest = &header[4..];
        let session = take_u64(&mut rest)?;
        Some((PacketHeader { kind, session, nonce: take_u64(&mut rest)? }, body))
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) flags: u8,
    pub(crate) bytes: Vec<u8>,
}

/// A message as it is cut into units.
pub(crate) fn message(to: Address, from: Address, kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(MESSAGE_HEADER_BYTES + bytes.len());
    message.extend_from_slice(&to.to_bytes());
    message.extend_from_slice(&from.to_bytes());
    message.extend_from_slice(&kind.id.to_le_bytes());
    message.extend_from_slice(&kind.version.to_le_bytes());
    message.extend_from_slice(bytes);
    message
}

/// Cuts a message into units of at most `unit_bytes`.
pub(crate) fn cut(to: Address, from: Address, kind: Kind, bytes: &[u8], unit_bytes: usize) -> Vec<Unit> {
    let message = message(to, from, kind, bytes);
    let count = message.len().div_ceil(unit_bytes);
    if count == 1 {
        return vec![Unit { flags: FIRST | LAST, bytes: message }];
    }
    let flags = |no| {
        if no == 0 {
            FIRST
        } else if no + 1 == count {
            LAST
        } else {
            0
        }
    };
    message.chunks(unit_bytes).enumerate().map(|(no, part)| Unit { flags: flags(no), bytes: part.to_vec() }).collect()
}

/// A message that was put together again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteMessage {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

impl RemoteMessage {
    pub(crate) fn from_bytes(mut message: Vec<u8>) -> Option<RemoteMessage> {
        let header = message.first_chunk::<MESSAGE_HEADER_BYTES>()?;
        let to = Address::from_bytes(header[..16].try_into().ok()?).ok()?;
        let from = Address::from_bytes(header[16..32].try_into().ok()?).ok()?;
        let id = u32::from_le_bytes(header[32..36].try_into().ok()?);
        let version = u16::from_le_bytes(header[36..38].try_into().ok()?);
        message.drain(..MESSAGE_HEADER_BYTES);
        Some(RemoteMessage { to, from, kind: Kind { id, version }, bytes: message })
    }
}

pub(crate) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

/// One unit of a data body, with its distance from the body's first.
pub(crate) fn take_unit<'b>(bytes: &mut &'b [u8]) -> Option<(u16, u8, &'b [u8])> {
    let (header, rest) = bytes.split_first_chunk::<UNIT_HEADER_BYTES>()?;
    let (distance, len) = (u16::from_le_bytes([header[0], header[1]]), u16::from_le_bytes([header[3], header[4]]));
    let (unit, rest) = rest.split_at_checked(len.into())?;
    *bytes = rest;
    Some((distance, header[2], unit))
}

pub(crate) fn put_unit(body: &mut Vec<u8>, distance: u16, unit: &Unit) {
    body.extend_from_slice(&distance.to_le_bytes());
    body.push(unit.flags);
    body.extend_from_slice(&(unit.bytes.len() as u16).to_le_bytes());
    body.extend_from_slice(&unit.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_the_bytes_in_the_table() {
        let header = PacketHeader { kind: PacketKind::Data, session: 0x0102_0304_0506_0708, nonce: 9 };
        let mut packet = header.to_bytes().to_vec();
        assert_eq!(packet, b"LP\x01\x03\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0");
        assert_eq!(PacketHeader::from_bytes(&packet), Some((header, &[][..])));
        put_unit(&mut packet, 258, &Unit { flags: FIRST | LAST, bytes: b"abc".to_vec() });
        assert_eq!(&packet[20..], b"\x02\x01\x03\x03\x00abc");
        assert_eq!(take_unit(&mut &packet[20..]), Some((258, 3, &b"abc"[..])));
    }

    #[test]
    fn a_message_comes_together_from_its_units() {
        let (to, from) = (Address::from_bits(5).unwrap(), Address::from_bits(6).unwrap());
        let kind = Kind { id: 0x0403_0201, version: 0x0605 };
        for len in [0, 1, 61, 62, 63, 500] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let units = cut(to, from, kind, &bytes, 100);
            assert!(units.iter().all(|unit| unit.bytes.len() <= 100));
            assert_eq!((units[0].flags & FIRST, units[units.len() - 1].flags & LAST), (FIRST, LAST));
            let whole: Vec<u8> = units.iter().flat_map(|unit| unit.bytes.clone()).collect();
            assert_eq!(&whole[32..38], &[1, 2, 3, 4, 5, 6]);
            assert_eq!(RemoteMessage::from_bytes(whole), Some(RemoteMessage { to, from, kind, bytes }));
        }
    }

    #[test]
    fn bytes_that_are_no_datagram_are_none() {
        for bytes in [
            &b""[..],
            b"LP",
            b"XP\x01\x03aaaaaaaabbbbbbbb",
            b"LP\x02\x03aaaaaaaabbbbbbbb",
            b"LP\x01\x06aaaaaaaabbbbbbbb",
        ] {
            assert_eq!(PacketHeader::from_bytes(bytes), None, "{bytes:?}");
        }
        assert_eq!(take_unit(&mut &b"\0\0\x03\x05\0abc"[..]), None);
        assert_eq!(RemoteMessage::from_bytes(vec![0; 37]), None);
    }
}
