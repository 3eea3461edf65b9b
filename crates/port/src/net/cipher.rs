//! Sealing of datagrams: Noise (KK: both sites know each other's key), or nothing on a trusted network.
//!
//! The handshake gives each session keys of its own. A datagram's nonce is in its header, since datagrams are lost and
//! reordered. A repeated datagram does not open again.

use super::keys::{SitePublic, SiteSecret, builder};
use super::seen::Seen;
use snow::{HandshakeState, StatelessTransportState};

/// Bytes that sealing adds.
pub(crate) const SEAL_BYTES: usize = 16;

/// Who the two sides of a session are; `None` on a trusted network.
pub(crate) type Keys<'k> = Option<(&'k SiteSecret, &'k SitePublic)>;

/// A handshake that waits for the other side's message.
pub(crate) struct Opening(Option<Box<HandshakeState>>);

/// A session's keys.
pub(crate) enum Cipher {
    Plain,
    Noise(Box<StatelessTransportState>, Box<Seen>),
}

/// The first message, for the side that opens.
pub(crate) fn open(keys: Keys<'_>) -> Option<(Opening, Vec<u8>)> {
    let Some((ours, theirs)) = keys else { return Some((Opening(None), Vec::new())) };
    let builder = builder().ok()?.local_private_key(&ours.datagram_private).ok()?;
    let mut state = builder.remote_public_key(&theirs.datagram).ok()?.build_initiator().ok()?;
    let mut message = vec![0; 128];
    let len = state.write_message(&[], &mut message).ok()?;
    message.truncate(len);
    Some((Opening(Some(Box::new(state))), message))
}

/// The second message, carrying our session, for the side that answers.
pub(crate) fn answer(keys: Keys<'_>, first: &[u8], session: u64) -> Option<(Cipher, Vec<u8>)> {
    let Some((ours, theirs)) = keys else {
        return first.is_empty().then(|| (Cipher::Plain, session.to_le_bytes().to_vec()));
    };
    let builder = builder().ok()?.local_private_key(&ours.datagram_private).ok()?;
    let mut state = builder.remote_public_key(&theirs.datagram).ok()?.build_responder().ok()?;
    let mut space = vec![0; 128];
    state.read_message(first, &mut space).ok()?;
    let len = state.write_message(&session.to_le_bytes(), &mut space).ok()?;
    space.truncate(len);
    Some((Cipher::noise(state.into_stateless_transport_mode().ok()?), space))
}

impl Opening {
    /// Ends the handshake with the other side's message: the keys, and the other side's session. On failure the
    /// handshake goes on waiting: anybody can send a bad message.
    pub(crate) fn finish(mut self, second: &[u8]) -> Result<(Cipher, u64), Opening> {
        let Some(state) = self.0.as_mut() else {
            return second.try_into().map(|bytes| (Cipher::Plain, u64::from_le_bytes(bytes))).map_err(|_| self);
        };
        let mut payload = [0; 128];
        let Ok(len) = state.read_message(second, &mut payload) else { return Err(self) };
        let Ok(session) = <[u8; 8]>::try_from(&payload[..len]) else { return Err(self) };
        match self.0.take().map(|state| state.into_stateless_transport_mode()) {
            Some(Ok(state)) => Ok((Cipher::noise(state), u64::from_le_bytes(session))),
            _ => Err(Opening(None)),
        }
    }
}

impl Cipher {
    fn noise(state: StatelessTransportState) -> Cipher {
        Cipher::Noise(Box::new(state), Box::new(Seen::new()))
    }

    /// Appends the sealed body to a packet.
    pub(crate) fn seal(&self, nonce: u64, body: &[u8], packet: &mut Vec<u8>) -> Option<()> {
        match self {
            Cipher::Plain => packet.extend_from_slice(body),
            Cipher::Noise(state, _) => {
                let start = packet.len();
                packet.resize(start + body.len() + SEAL_BYTES, 0);
                state.write_message(nonce, body, &mut packet[start..]).ok()?;
            }
        }
        Some(())
    }

    /// The body, if it is from the other side, unchanged, and comes for the first time.
    pub(crate) fn open<'s>(&mut self, nonce: u64, sealed: &'s [u8], space: &'s mut Vec<u8>) -> Option<&'s [u8]> {
        match self {
            Cipher::Plain => Some(sealed),
            Cipher::Noise(state, seen) => {
                space.resize(sealed.len(), 0);
                let len = state.read_message(nonce, sealed, space).ok()?;
                seen.take(nonce).then_some(&space[..len])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_site_with_the_key_can_answer_and_nobody_can_change_a_byte() {
        let [a, b, stranger] = std::array::from_fn(|_| SiteSecret::generate().unwrap());
        let (opening, first) = open(Some((&a, &b.public()))).unwrap();
        assert!(answer(Some((&stranger, &a.public())), &first, 7).is_none(), "the first message is for b");
        assert!(answer(Some((&b, &stranger.public())), &first, 7).is_none(), "the first message is from a");
        let (mut theirs, second) = answer(Some((&b, &a.public())), &first, 7).unwrap();
        let (_, forged) = answer(Some((&b, &a.public())), &first, 8).unwrap();
        drop(forged);
        let Ok((ours, session)) = opening.finish(&second) else { panic!("the handshake failed") };
        assert_eq!(session, 7);
        let mut packet = Vec::new();
        ours.seal(5, b"body", &mut packet).unwrap();
        let mut space = Vec::new();
        packet[2] ^= 1;
        assert_eq!(theirs.open(5, &packet, &mut space), None, "a byte was changed");
        packet[2] ^= 1;
        assert_eq!(theirs.open(6, &packet, &mut space), None, "another nonce");
        assert_eq!(theirs.open(5, &packet, &mut space), Some(&b"body"[..]));
        assert_eq!(theirs.open(5, &packet, &mut space), None, "it has come before");
    }

    #[test]
    fn a_handshake_outlives_messages_of_strangers() {
        let [a, b] = std::array::from_fn(|_| SiteSecret::generate().unwrap());
        let (opening, first) = open(Some((&a, &b.public()))).unwrap();
        let (_, second) = answer(Some((&b, &a.public())), &first, 7).unwrap();
        let Err(opening) = opening.finish(&[0; 60]) else { panic!("nonsense was accepted") };
        assert!(opening.finish(&second).is_ok());
    }
}
