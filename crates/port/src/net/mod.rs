//! The network between sites: the same calls as on one host, over datagrams (paper 002, 4.1).
//!
//! One process of a site starts the [`Network`]; it sends for itself and, since its socket is found by arithmetic like
//! any other, for the other processes of the site. Sites are in a table, so nothing is resolved.

mod batch;
mod carrier;
mod cipher;
mod delivery;
mod keys;
mod network;
mod peer;
mod session;
mod wire;

pub use keys::{KeyError, SitePublic, SiteSecret};
pub(crate) use network::Inner;
pub use network::{Network, NetworkError, NetworkOptions, NetworkStatistics, Trust};
pub(crate) use peer::RemoteSender;
