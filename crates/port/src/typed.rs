//! Typed messages without encoding (paper 002, section 5): both sides have the same fixed layout, so that sending a
//! value is copying it, and receiving it is checking it.
//!
//! The layout is a promise of the `zerocopy` crate's derives: no padding, no pointer, every bit pattern a value. What
//! bits cannot say (a number that must be in a range) is said by [`Typed::is_valid`].

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The type of a message: a number of the application's choice, and the version of its layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Which type. 0 is a message of bytes.
    pub id: u32,
    /// Which version of its layout.
    pub version: u16,
}

/// A type whose values are messages as they stand in memory.
///
/// ```
/// use ledgerstone_port::{Kind, Typed};
/// use zerocopy::{FromBytes, Immutable, IntoBytes, little_endian::{U32, U64}};
///
/// /// The coordinator's question of two-phase commit.
/// #[derive(FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Prepare {
///     xid: U64,
///     coordinator: U32,
///     participant_count: U32,
/// }
///
/// impl Typed for Prepare {
///     const KIND: Kind = Kind { id: 1, version: 1 };
///
///     fn is_valid(&self) -> bool {
///         self.participant_count.get() > 0
///     }
/// }
/// ```
///
/// Between sites that differ in byte order, use the little-endian integers of `zerocopy`. On one host, any integers
/// will do.
pub trait Typed: FromBytes + IntoBytes + Immutable {
    /// Type and version. A changed layout is another version.
    const KIND: Kind;

    /// Whether the value means something. Asked on receipt, of the receiver's own copy.
    fn is_valid(&self) -> bool {
        true
    }
}
