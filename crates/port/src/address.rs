//! Addresses: the destination of a message, in 128 bits that need no look-up (paper 002, 4.2).
//!
//! ```text
//! bits      field
//! 127..112  instance          which system, when several share a host
//! 111..104  server type       what kind of server: Raid's UI, AD, AM, AC, CC, RC, or a user's own
//! 103..96   scope             0: a port of one site; 1: the group of a transaction
//!  95..64   server instance   which of the servers of that type; zero in a group's address
//!  63..0    place             the site's number, or the transaction's id
//! ```
//!
//! A port's address names its socket file, a group's address its host-wide ring (instance and server type) and what is
//! looked for in it (the transaction's id). Nothing is asked of anybody to get from one to the other.

use std::fmt;
use thiserror::Error;

/// 128 bits that are not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{bits:#034x} is not an address")]
pub struct AddressError {
    /// The bits.
    pub bits: u128,
}

/// Which system, when several share a host (Raid's instance number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance(pub u16);

/// What kind of server. The numbers are the application's; 255 is the network's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerType(pub u8);

/// Which of the servers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerInstance(pub u32);

/// A site: one host, or one of several systems on a host that are apart from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site(pub u32);

/// A transaction's id, which is all that its group is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xid(pub u64);

impl ServerType {
    /// The server type of the processes that carry messages between sites.
    pub const NETWORK: ServerType = ServerType(255);
}

/// Where a message goes, or where it comes from: 16 bytes, compared and copied as one number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(u128);

const SCOPE_PORT: u8 = 0;
const SCOPE_GROUP: u8 = 1;

impl Address {
    /// The port of one server at one site.
    pub const fn port(instance: Instance, server_type: ServerType, server: ServerInstance, site: Site) -> Address {
        Address::new(instance, server_type, SCOPE_PORT, server.0, site.0 as u64)
    }

    /// The group that a transaction has among the servers of one type, wherever they are.
    pub const fn group(instance: Instance, server_type: ServerType, xid: Xid) -> Address {
        Address::new(instance, server_type, SCOPE_GROUP, 0, xid.0)
    }

    /// The network of a site itself: its gateway, and what networks say to each other.
    pub(crate) const fn network(site: Site) -> Address {
        Address::port(Instance(0), ServerType::NETWORK, ServerInstance(0), site)
    }

    const fn new(instance: Instance, server_type: ServerType, scope: u8, server: u32, place: u64) -> Address {
        Address(
            (instance.0 as u128) << 112
                | (server_type.0 as u128) << 104
                | (scope as u128) << 96
                | (server as u128) << 64
                | place as u128,
        )
    }

    /// Reads an address from 16 bytes, little-endian, and checks its scope.
    ///
    /// # Errors
    /// The bytes are not an address.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Address, AddressError> {
        Address::from_bits(u128::from_le_bytes(bytes))
    }

    /// Reads an address from its number.
    ///
    /// # Errors
    /// The number is not an address: its scope is unknown, it is a group with a server instance, or its site has more
    /// than 32 bits.
    pub fn from_bits(bits: u128) -> Result<Address, AddressError> {
        let address = Address(bits);
        let is_valid = match address.scope() {
            SCOPE_PORT => address.place() <= u64::from(u32::MAX),
            SCOPE_GROUP => address.server_instance().0 == 0,
            _ => false,
        };
        if is_valid { Ok(address) } else { Err(AddressError { bits }) }
    }

    /// The address as a number.
    pub const fn to_bits(self) -> u128 {
        self.0
    }

    /// The address as 16 bytes, little-endian.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Which system.
    pub const fn instance(self) -> Instance {
        Instance((self.0 >> 112) as u16)
    }

    /// What kind of server.
    pub const fn server_type(self) -> ServerType {
        ServerType((self.0 >> 104) as u8)
    }

    /// Which of them; zero for a group.
    pub const fn server_instance(self) -> ServerInstance {
        ServerInstance((self.0 >> 64) as u32)
    }

    /// The site of a port; a group has none.
    pub fn site(self) -> Option<Site> {
        (self.scope() == SCOPE_PORT).then_some(Site(self.place() as u32))
    }

    /// The transaction of a group; a port has none.
    pub fn xid(self) -> Option<Xid> {
        (self.scope() == SCOPE_GROUP).then_some(Xid(self.place()))
    }

    const fn scope(self) -> u8 {
        (self.0 >> 96) as u8
    }

    const fn place(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (instance, server_type, server) = (self.instance().0, self.server_type().0, self.server_instance().0);
        match (self.site(), self.xid()) {
            (Some(site), _) => write!(f, "{instance}.{server_type}.{server}@{}", site.0),
            (_, Some(xid)) => write!(f, "{instance}.{server_type}*{}", xid.0),
            _ => write!(f, "{:032x}", self.0),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_address_gives_back_what_it_was_made_from() {
        let port = Address::port(Instance(7), ServerType(3), ServerInstance(9), Site(5));
        assert_eq!((port.instance(), port.server_type()), (Instance(7), ServerType(3)));
        assert_eq!((port.server_instance(), port.site(), port.xid()), (ServerInstance(9), Some(Site(5)), None));
        assert_eq!(port.to_bits(), 0x0007_0300_0000_0009_0000_0000_0000_0005);
        let group = Address::group(Instance(7), ServerType(3), Xid(u64::MAX));
        assert_eq!((group.site(), group.xid()), (None, Some(Xid(u64::MAX))));
        assert_eq!(Address::from_bytes(group.to_bytes()).unwrap(), group);
        assert_eq!((port.to_string(), group.to_string().as_str()), ("7.3.9@5".to_owned(), "7.3*18446744073709551615"));
    }

    #[test]
    fn bits_that_are_no_address_are_refused() {
        assert!(Address::from_bits(0x0007_0302_0000_0009_0000_0000_0000_0005).is_err(), "scope 2");
        assert!(Address::from_bits(0x0007_0300_0000_0009_0000_0001_0000_0005).is_err(), "site of 33 bits");
        assert!(Address::from_bits(0x0007_0301_0000_0009_0000_0000_0000_0005).is_err(), "group with a server instance");
    }
}
