//! What can go wrong, an enum for each verb.

use crate::address::{Address, Site};
use std::path::PathBuf;
use thiserror::Error;

/// A system call failed.
#[derive(Debug, Error)]
#[error("{call} failed: {source}")]
pub struct SystemError {
    /// The call.
    pub call: &'static str,
    /// What the kernel said.
    pub source: std::io::Error,
}

impl SystemError {
    pub(crate) fn new(call: &'static str, error: impl Into<std::io::Error>) -> SystemError {
        SystemError { call, source: error.into() }
    }
}

/// A port, or the place where ports meet, was not opened. Nothing was left behind.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A living process has the port.
    #[error("port {address} is open in another place ({path}): close that one or take another server instance")]
    AddressInUse {
        /// The port.
        address: Address,
        /// Its lock file, held by the owner.
        path: PathBuf,
    },
    /// Options that no port can have.
    #[error("{what} is {value}, allowed is {allowed}")]
    Options {
        /// The option.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// What is possible.
        allowed: &'static str,
    },
    /// The directory of the sockets cannot be used.
    #[error("the ports' directory {path} cannot be used ({what}): {source}")]
    Directory {
        /// The directory or a file in it.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A group's address, or another site's, where one of this site's ports is wanted.
    #[error("{address} is not a port of site {}", site.0)]
    NotOurs {
        /// The address.
        address: Address,
        /// This site.
        site: Site,
    },
    /// All places on the host's ring for groups are taken.
    #[error(
        "all {places_max} places on the ring for groups of instance {instance}, server type {server_type} are taken by living processes"
    )]
    PlacesTaken {
        /// How many there are.
        places_max: usize,
        /// Instance of the groups.
        instance: u16,
        /// Server type of the groups.
        server_type: u8,
    },
    /// The processes that have the group's ring do not answer; they may be stopped.
    #[error("no process that has the ring for groups at {path} answers: continue or end the stopped ones")]
    Unresponsive {
        /// The socket of the last one that was asked.
        path: PathBuf,
    },
    /// The system refused something.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// No connection to a port came about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody has the port open.
    #[error("no port {address}: nobody has it open ({path})")]
    NoSuchPort {
        /// The port.
        address: Address,
        /// Where it would be.
        path: PathBuf,
    },
    /// The file's permissions or the port's owner do not let us send.
    #[error("port {address} does not accept messages from this process: ask its owner for access")]
    Refused {
        /// The port.
        address: Address,
    },
    /// The port has as many senders as its owner allows.
    #[error("port {address} has all the senders it takes: raise `senders_max` where it is opened")]
    SendersExhausted {
        /// The port.
        address: Address,
    },
    /// The port's owner did not answer in time; it may be stopped.
    #[error("the owner of port {address} does not answer: it may be stopped")]
    Unresponsive {
        /// The port.
        address: Address,
    },
    /// The other side speaks another version, or is not a port.
    #[error("what answers at port {address} speaks no version that this library knows")]
    Version {
        /// The port.
        address: Address,
    },
    /// The address is another site's, and no network was started for this host.
    #[error("{address} is not at this site, and no network is started here")]
    NoNetwork {
        /// The address.
        address: Address,
    },
    /// The site is not in the network's table.
    #[error("site {} is not in the table of sites", site.0)]
    UnknownSite {
        /// The site.
        site: Site,
    },
    /// A group is not a port: messages for it go through a group sender.
    #[error("{address} is a group: use a group sender")]
    IsGroup {
        /// The address.
        address: Address,
    },
    /// The system refused something.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// A message was not sent. Nothing of it will arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The port was closed, its owner died, or the peer site is gone.
    #[error("port {address} is closed: its owner ended or closed it; connect again when it is back")]
    PortClosed {
        /// The port.
        address: Address,
    },
    /// There is no room now, and the call was not to wait.
    #[error("port {address} is full: its owner has not taken the last {waiting} messages")]
    Full {
        /// The port.
        address: Address,
        /// Messages waiting there from this sender.
        waiting: u32,
    },
    /// There was no room until the deadline.
    #[error("port {address} had no room until the deadline")]
    TimedOut {
        /// The port.
        address: Address,
    },
    /// Longer than what the port takes.
    #[error("{bytes} bytes are more than the {bytes_max} that port {address} takes: send it in parts or as pages")]
    TooLong {
        /// The port.
        address: Address,
        /// Bytes of the message.
        bytes: usize,
        /// Bytes the port takes.
        bytes_max: usize,
    },
    /// What only works between processes of one host was asked for a port of another.
    #[error("port {address} is at another site: send the bytes")]
    NotLocal {
        /// The port.
        address: Address,
    },
    /// As many receivers have these pages as can have them.
    #[error("{receivers_max} receivers have these pages already: make others")]
    ReceiversExhausted {
        /// How many can.
        receivers_max: usize,
    },
}

/// A message's bytes are not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Another type of message.
    #[error("message is of type {found:#x}, not {expected:#x}")]
    Kind {
        /// Type in the message.
        found: u32,
        /// Type asked for.
        expected: u32,
    },
    /// Another version of the type.
    #[error("message of type {kind:#x} has version {found}, not {expected}")]
    Version {
        /// Type of the message.
        kind: u32,
        /// Version in the message.
        found: u16,
        /// Version asked for.
        expected: u16,
    },
    /// A message of this type cannot have this length.
    #[error("message of type {kind:#x} has {found} bytes, not {expected}")]
    Length {
        /// Type of the message.
        kind: u32,
        /// Bytes of the message.
        found: usize,
        /// Bytes of the type.
        expected: usize,
    },
    /// Not a reference to a page, or to one that was not lent to us.
    #[error("message is not a reference to a page that was lent to this port")]
    NoPage,
    /// Bytes that mean nothing in this type.
    #[error("message of type {kind:#x} has bytes that are not a value of it")]
    Invalid {
        /// Type of the message.
        kind: u32,
    },
}
