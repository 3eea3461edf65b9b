//! Ports: communication made for transactions (Mafla and Bhargava 1990, paper 002).
//!
//! A process owns [`Port`]s and receives through them. Other processes send to a port by its [`Address`]. Between
//! processes of one host, a message costs one copy into the receiver's memory and no system call. See [`Port`] for an
//! example.
//!
//! The invariants that the unsafe code of this crate stands on:
//!
//! P1. A memory file never shrinks and is made of ordinary pages: it is sealed, and both are checked before it is
//!     mapped. A mapping stays while the value that made it exists. So an address inside a mapping is good however the
//!     other process behaves.
//! P2. Shared memory is reached by atomics only, or by assembly, which the compiler does not look into. Each place is
//!     reached by atomics of one size: bells as `AtomicU32`, all else as `AtomicU64`.
//! P3. A value read from shared memory is compared with what this process knows by itself before it is used as an
//!     address, an index or a bound. No value is read twice to be used once.
//! P4. A sender may hold a plain slice of a buffer before it publishes the buffer. Only the sender and the receiver
//!     map the lane. The receiver writes no buffer, and reads one only after its sequence number says that it is
//!     published (N2). So a sender that borrows a buffer trusts the owner of that port: an owner that writes there
//!     changes the bytes of the message, from which nothing is read back. `send` holds no slice and trusts nobody.
//! P5. A receiver may hold a plain slice of a published buffer only if it vouches for the sender: that door is
//!     `unsafe`.
//!
//! The crate knows transactions only by their ids. It does not know what a message means.
#![warn(missing_docs)]
// The models use the algorithms only.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
mod address;
mod atomic;
mod bell;
mod broadcast;
#[cfg(not(loom))]
mod bus;
mod bytes;
#[cfg(not(loom))]
mod credentials;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod futex;
#[cfg(not(loom))]
mod group;
#[cfg(not(loom))]
mod host;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod hostile;
#[cfg(not(loom))]
mod inbox;
#[cfg(not(loom))]
mod keeper;
#[cfg(not(loom))]
mod lane;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod listener;
#[cfg(all(loom, test))]
mod loom_ring;
#[cfg(not(loom))]
mod membership;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod message;
#[cfg(not(loom))]
mod net;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod pages;
#[cfg(not(loom))]
mod poller;
#[cfg(not(loom))]
mod port;
mod ring;
#[cfg(not(loom))]
mod sender;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod typed;
#[cfg(not(loom))]
pub mod wait;

#[cfg(not(loom))]
mod exports {
    pub use crate::address::{Address, AddressError, Instance, ServerInstance, ServerType, Site, Xid};
    pub use crate::credentials::Credentials;
    pub use crate::error::{ConnectError, MessageError, OpenError, SendError, SystemError};
    pub use crate::group::GroupSender;
    pub use crate::host::Host;
    pub use crate::message::Message;
    pub use crate::net::{
        KeyError, Multicast, Network, NetworkError, NetworkOptions, NetworkStatistics, SitePublic, SiteSecret, Trust,
    };
    pub use crate::options::{Access, PortOptions, Wait, WhenFull};
    pub use crate::pages::{Page, PageMut, PageShare, Pages};
    pub use crate::port::Port;
    pub use crate::sender::{Loan, Sender};
    pub use crate::stream::{Stream, StreamError, StreamListener};
    pub use crate::typed::{Kind, Typed};
}
#[cfg(not(loom))]
pub use exports::*;

/// The README's example, compiled with the documentation's tests.
#[cfg(all(doctest, not(loom)))]
#[doc = include_str!("../README.md")]
struct Readme;
