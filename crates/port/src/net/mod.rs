//! The network between sites: the same calls as on one host, over datagrams (paper 002, 4.1).
//!
//! One process of a site starts the [`Network`]. It sends for itself and for the other processes of the site. They
//! reach it through a port whose address they compute, as for any port ([`gateway`]). Sites are in a table, so nothing
//! is resolved.

mod batch;
mod carrier;
mod cipher;
mod delivery;
mod gateway;
mod keys;
mod multicast;
mod network;
mod passage;
mod peer;
mod seen;
mod session;
mod wire;

pub use keys::{KeyError, SitePublic, SiteSecret};
pub use multicast::Multicast;
pub(crate) use network::Inner;
pub use network::{Network, NetworkError, NetworkOptions, NetworkStatistics, Trust};
pub(crate) use passage::PassageSender;
pub(crate) use peer::RemoteSender;

/// What comes from the network before anybody is believed, and from a peer that is: any bytes.
pub(crate) fn exercise(bytes: &[u8]) {
    let _ = wire::PacketHeader::from_bytes(bytes);
    if let Some((entries, message)) = multicast::parse(bytes, bytes.len().is_multiple_of(2)) {
        for entry in entries {
            let _ = multicast::proven(entry.sealed, message);
        }
    }
    let mut incoming = session::Incoming::default();
    for body in bytes.chunks(64) {
        if let Ok(messages) = incoming.receive(body) {
            messages.into_iter().for_each(|message| drop(wire::RemoteMessage::from_bytes(message)));
        }
        let _ = incoming.acknowledgement();
    }
    let mut outgoing = session::Outgoing::new(0, 1_000_000_000, 600);
    for (now_ns, body) in bytes.chunks(16).enumerate() {
        outgoing.submit(wire::Unit { flags: wire::FIRST | wire::LAST, bytes: body.to_vec() });
        let _ = outgoing.bodies(now_ns as u64, now_ns % 2 == 0);
        let _ = outgoing.acknowledged(now_ns as u64, body);
    }
}
