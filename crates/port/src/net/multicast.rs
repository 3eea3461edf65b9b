//! Multicasts between sites by one datagram (paper 002, 4.1 and 4.2), where the network carries IP multicast.
//!
//! The message still belongs to the session with each site, as one unit of it with a number of its own. The datagram
//! only brings that unit to all of them at once: it has, for each site, the unit's number and a proof, and the message
//! once for all. If a site misses a unit, or gets it late, its session repairs that as for any other unit. The session
//! also keeps order, delivers at most once, waits for room and notices death. A site that several of these in a row did
//! not reach is sent datagrams of its own for a while.
//!
//! ```text
//! body of a multicast datagram; sealed with the sender's multicast key unless the network is trusted
//! 0   count of sites u16
//! 2   for each of them: 0 session of the receiver u64, 8 nonce of that session u64,
//!       16 sealed as the session's data are: 0 2^64 - 1 u64, 8 number of the unit u64, 16 digest of the message
//!     the message, as `wire.rs` has it, one whole unit
//! ```
//!
//! The header's session is the sender's multicast session, its nonce counts the datagrams. The digest is the first half
//! of the message's SHA-256.
//!
//! X1. Each site makes a multicast key of its own and gives it to the others in their sessions, which are sealed: it
//!     hides the messages. A site that has the multicast key of another can read its multicasts, which is what the key
//!     is for. It cannot forge any: only a site with the keys of the session can say which unit of which message a
//!     multicast is.
//! X2. No number of a unit is 2^64 - 1, so that a proof can never pass for data, nor data for a proof.
//! X3. Transactions are mapped onto few IP groups, which all sites are in from the start: joining one for each
//!     transaction would cost system calls, and a socket refuses its 21st.

use super::keys::random;
use super::wire::{HEADER_BYTES, PacketHeader, PacketKind, take_u64};
use crate::address::Address;
use crate::broadcast::filter_bit;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

/// IP groups that one socket can be in unless the system was told otherwise.
const GROUPS_MAX: u8 = 20;
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const DIGEST_BYTES: usize = 16;
/// What a proof is before it is sealed.
pub(crate) const PROOF_BYTES: usize = 16 + DIGEST_BYTES;
const COUNT_BYTES: usize = 2;
/// What a site adds to the datagram, before sealing.
const ENTRY_BYTES: usize = 16 + PROOF_BYTES;

/// IP multicast between the sites: where the datagrams go that are for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// The first of the IP groups, such as 239.255.77.0, and their UDP port. It is the same at all sites, and differs
    /// from the port of [`NetworkOptions::listen`](super::NetworkOptions::listen).
    pub first: SocketAddrV4,
    /// How many groups the transactions are mapped onto: 1 to 20, 4 by default. Switches can tell them apart.
    pub group_count: u8,
    /// The address of the interface to the other sites.
    pub interface: Ipv4Addr,
}

impl Multicast {
    /// Four groups from `first` on, at an interface.
    pub fn new(first: SocketAddrV4, interface: Ipv4Addr) -> Multicast {
        Multicast { first, group_count: 4, interface }
    }

    fn groups(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let first = u32::from(*self.first.ip());
        (0..u32::from(self.group_count)).map(move |no| Ipv4Addr::from(first.wrapping_add(no)))
    }

    /// Whether these are groups, and as many as there can be.
    pub(crate) fn is_possible(&self) -> bool {
        (1..=GROUPS_MAX).contains(&self.group_count) && self.groups().all(|group| group.is_multicast())
    }

    /// A socket that hears all groups and sends to them.
    fn open(&self) -> std::io::Result<UdpSocket> {
        use socket2::{Domain, Protocol, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?; // Sites that share a host share the port.
        let _ = socket.set_recv_buffer_size(4 << 20); // Less is slower, not wrong.
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.first.port())).into())?;
        socket.set_multicast_all_v4(false)?;
        socket.set_multicast_if_v4(&self.interface)?;
        socket.set_multicast_loop_v4(true)?;
        for group in self.groups() {
            socket.join_multicast_v4(&group, &self.interface)?;
        }
        Ok(socket.into())
    }
}

/// This site's end of the IP groups.
pub(crate) struct Channel {
    pub(crate) socket: UdpSocket,
    groups: Vec<SocketAddr>,
    pub(crate) session: u64,
    pub(crate) key: Key,
    nonce: AtomicU64,
}

/// A site's multicast key: nothing on a trusted network.
pub(crate) struct Key {
    bytes: [u8; KEY_BYTES],
    sealing: Option<LessSafeKey>,
}

impl Key {
    pub(crate) fn generate(is_trusted: bool) -> Option<Key> {
        use ring::rand::SecureRandom;
        let mut bytes = [0; KEY_BYTES];
        if !is_trusted {
            ring::rand::SystemRandom::new().fill(&mut bytes).ok()?;
        }
        Key::new(bytes, is_trusted)
    }

    fn new(bytes: [u8; KEY_BYTES], is_trusted: bool) -> Option<Key> {
        let key = if is_trusted { None } else { Some(UnboundKey::new(&CHACHA20_POLY1305, &bytes).ok()?) };
        Some(Key { bytes, sealing: key.map(LessSafeKey::new) })
    }

    fn nonce(header: PacketHeader) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&header.nonce.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&self, header: PacketHeader, mut body: Vec<u8>) -> Option<Vec<u8>> {
        let mut packet = header.to_bytes().to_vec();
        if let Some(key) = &self.sealing {
            key.seal_in_place_append_tag(Key::nonce(header), Aad::from(header.to_bytes()), &mut body).ok()?;
        }
        packet.append(&mut body);
        Some(packet)
    }

    fn open(&self, header: PacketHeader, body: &[u8]) -> Option<Vec<u8>> {
        let mut body = body.to_vec();
        if let Some(key) = &self.sealing {
            let len = key.open_in_place(Key::nonce(header), Aad::from(header.to_bytes()), &mut body).ok()?.len();
            body.truncate(len);
        }
        Some(body)
    }
}

/// What a site tells the others in their sessions: its multicast session and key.
pub(crate) struct Introduction {
    pub(crate) session: u64,
    key: Key,
}

impl Introduction {
    pub(crate) fn from_bytes(mut bytes: &[u8], is_trusted: bool) -> Option<Introduction> {
        let session = take_u64(&mut bytes)?;
        Some(Introduction { session, key: Key::new(bytes.try_into().ok()?, is_trusted)? })
    }

    /// Opens a datagram of that site.
    pub(crate) fn open(&self, header: PacketHeader, body: &[u8]) -> Option<Vec<u8>> {
        self.key.open(header, body)
    }
}

impl Channel {
    pub(crate) fn open(options: &Multicast, is_trusted: bool) -> std::io::Result<Channel> {
        let socket = options.open()?;
        let key = Key::generate(is_trusted).ok_or_else(|| std::io::Error::other("the system has no randomness"))?;
        let groups = options.groups().map(|group| (group, options.first.port()).into()).collect();
        Ok(Channel { socket, groups, session: random(), key, nonce: AtomicU64::new(0) })
    }

    pub(crate) fn introduction(&self) -> Vec<u8> {
        [&self.session.to_le_bytes()[..], &self.key.bytes].concat()
    }

    /// How many sites fit into one datagram with a message.
    pub(crate) fn entries_max(&self, datagram_bytes: usize, message_bytes: usize) -> usize {
        let tag_bytes = if self.key.sealing.is_some() { TAG_BYTES } else { 0 };
        let fixed = HEADER_BYTES + COUNT_BYTES + tag_bytes + message_bytes;
        datagram_bytes.saturating_sub(fixed) / (ENTRY_BYTES + tag_bytes)
    }

    /// The IP group that a group's messages go to.
    fn group(&self, to: Address) -> Option<SocketAddr> {
        let hash = to.xid().map_or(0, |xid| filter_bit(xid.0)) as usize;
        self.groups.get(hash % self.groups.len().max(1)).copied()
    }

    /// Sends a message to the sites with these entries.
    pub(crate) fn send(&self, to: Address, entries: &[Vec<u8>], message: &[u8]) {
        // Only to be unique.
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
        let header = PacketHeader { kind: PacketKind::Multicast, session: self.session, nonce };
        let packet = self.key.seal(header, body(entries, message));
        if let (Some(group), Some(packet)) = (self.group(to), packet) {
            super::batch::send(&self.socket, &[(group, packet)]);
        }
    }
}

fn body(entries: &[Vec<u8>], message: &[u8]) -> Vec<u8> {
    let count = (entries.len() as u16).to_le_bytes();
    [&count[..], &entries.concat(), message].concat()
}

/// What a session vouches for: that this is its unit of that number.
pub(crate) fn proof(number: u64, message: &[u8]) -> [u8; PROOF_BYTES] {
    let mut proof = [0xff; PROOF_BYTES];
    proof[8..16].copy_from_slice(&number.to_le_bytes());
    let digest = ring::digest::digest(&ring::digest::SHA256, message);
    proof[16..].copy_from_slice(&digest.as_ref()[..DIGEST_BYTES]);
    proof
}

/// The unit's number, if the proof is one and is of that message.
pub(crate) fn proven(opened: &[u8], message: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(opened.get(8..16)?.try_into().ok()?);
    (opened == proof(number, message)).then_some(number)
}

/// What a datagram has for one of our sessions.
pub(crate) struct Entry<'b> {
    pub(crate) session: u64,
    pub(crate) nonce: u64,
    pub(crate) sealed: &'b [u8],
}

/// The entries and the message of an opened body.
pub(crate) fn parse(body: &[u8], is_trusted: bool) -> Option<(Vec<Entry<'_>>, &[u8])> {
    let (count, mut rest) = body.split_first_chunk::<COUNT_BYTES>()?;
    let sealed_bytes = PROOF_BYTES + if is_trusted { 0 } else { TAG_BYTES };
    let entries = (0..u16::from_le_bytes(*count)).map(|_| {
        let (session, nonce) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
        let (sealed, behind) = rest.split_at_checked(sealed_bytes)?;
        rest = behind;
        Some(Entry { session, nonce, sealed })
    });
    Some((entries.collect::<Option<Vec<_>>>()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multicast_has_the_bytes_in_the_table() {
        let key = Key::generate(true).unwrap();
        let header = PacketHeader { kind: PacketKind::Multicast, session: 0x0807_0605_0403_0201, nonce: 9 };
        let entry = [&7u64.to_le_bytes()[..], &8u64.to_le_bytes(), &proof(0x0102, b"abc")].concat();
        let packet = key.seal(header, body(&[entry], b"abc")).unwrap();
        // The digest is the published one of SHA-256 of "abc".
        let expected = [
            &b"LP\x01\x05\x01\x02\x03\x04\x05\x06\x07\x08\x09\0\0\0\0\0\0\0"[..],
            b"\x01\0\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\x02\x01\0\0\0\0\0\0",
            b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23abc",
        ]
        .concat();
        assert_eq!(packet, expected);
        let (found, rest) = PacketHeader::from_bytes(&packet).unwrap();
        let body = key.open(found, rest).unwrap();
        let (entries, message) = parse(&body, true).unwrap();
        assert_eq!((entries.len(), entries[0].session, entries[0].nonce, message), (1, 7, 8, &b"abc"[..]));
        assert_eq!(proven(entries[0].sealed, message), Some(0x0102));
        assert_eq!(proven(entries[0].sealed, b"abd"), None);
    }

    #[test]
    fn nobody_without_the_key_reads_or_changes_a_multicast() {
        let key = Key::generate(false).unwrap();
        let header = PacketHeader { kind: PacketKind::Multicast, session: 1, nonce: 2 };
        let packet = key.seal(header, body(&[], b"the secret message")).unwrap();
        assert!(!packet.windows(6).any(|bytes| bytes == b"secret"));
        let ours = Introduction::from_bytes(&[&1u64.to_le_bytes()[..], &key.bytes].concat(), false).unwrap();
        assert!(ours.open(header, &packet[HEADER_BYTES..]).is_some());
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            let opened = PacketHeader::from_bytes(&changed).and_then(|(header, body)| ours.open(header, body));
            assert_eq!(opened, None, "byte {at}");
        }
        let other = Key::generate(false).unwrap();
        assert!(other.open(header, &packet[HEADER_BYTES..]).is_none());
    }

    #[test]
    fn bodies_that_end_early_and_groups_that_are_none_are_refused() {
        for bytes in [&b""[..], b"\x01", b"\x01\0", &[&b"\x02\0"[..], &[0; 48]].concat()] {
            assert!(parse(bytes, true).is_none(), "{bytes:?}");
        }
        let good = Multicast::new(SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 0), 7000), Ipv4Addr::LOCALHOST);
        assert!(good.is_possible());
        assert!(!Multicast { group_count: 0, ..good }.is_possible());
        assert!(!Multicast { group_count: 21, ..good }.is_possible());
        assert!(!Multicast::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7000), Ipv4Addr::LOCALHOST).is_possible());
        let last = SocketAddrV4::new(Ipv4Addr::new(239, 255, 255, 254), 7000);
        assert!(!Multicast::new(last, Ipv4Addr::LOCALHOST).is_possible(), "its third group is none");
    }
}
