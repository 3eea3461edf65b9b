//! Numbers that mean something, each a type of its own.
//!
//! On disk they are little-endian. Page ids, LSNs and transaction ids use 48 bits at most, so that a log record can
//! keep two bytes for something else beside each ([`PageId::to_le6`]).

use std::fmt;

use ledgerstone_region::Number;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl Number for $name {
            fn to_number(self) -> u128 {
                self.0.into()
            }

            fn from_number(number: u128) -> Self {
                $name(number as $inner) // It was made from one.
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

macro_rules! six_bytes {
    ($name:ident) => {
        impl $name {
            /// The number 0, which means that there is none.
            pub const NONE: $name = $name(0);
            /// The largest that fits into 48 bits.
            pub const MAX: $name = $name((1 << 48) - 1);

            /// Whether this is [`Self::NONE`].
            #[inline]
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }

            /// The low six bytes, little-endian.
            ///
            /// # Panics
            /// The number needs more than 48 bits. Such numbers are never given out.
            #[inline]
            pub const fn to_le6(self) -> [u8; 6] {
                assert!(self.0 <= Self::MAX.0, "a number of more than 48 bits");
                let b = self.0.to_le_bytes();
                [b[0], b[1], b[2], b[3], b[4], b[5]]
            }

            /// The number that [`Self::to_le6`] wrote.
            #[inline]
            pub const fn from_le6(b: [u8; 6]) -> Self {
                $name(u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], 0, 0]))
            }
        }
    };
}

id!(
    /// Number of a page in the data file. Page 0 is the file header and is never linked, so 0 also says "no page".
    PageId(u64),
    "{}"
);
id!(
    /// Position of a record in the endless log, in bytes. 0: none.
    Lsn(u64),
    "{}"
);
id!(
    /// Number of a transaction. 0: none.
    Xid(u64),
    "T{}"
);
id!(
    /// Stable number of an operation. 1-15 engine, 16-31 space, 32-63 b-tree, 64-79 blob, up to 1023 other structures
    /// of ours, from 1024 on users'.
    OpId(u16),
    "op{}"
);
id!(
    /// Number of a table, never used again. 0: none.
    TableId(u64),
    "{}"
);
id!(
    /// Stable number of a page layout. Below 256 ours, from 256 on users'.
    LayoutId(u16),
    "layout {}"
);

six_bytes!(PageId);
six_bytes!(Lsn);
six_bytes!(Xid);
six_bytes!(TableId);

impl OpId {
    /// The first number that users may give their operations.
    pub const USERS_FIRST: OpId = OpId(1024);
}

impl LayoutId {
    /// Nothing was ever formatted here.
    pub const ZERO: LayoutId = LayoutId(0);
    /// Bytes without structure, see `raw.rs`.
    pub const RAW: LayoutId = LayoutId(1);
    /// Records under slot numbers, see `slotted.rs`.
    pub const SLOTTED: LayoutId = LayoutId(2);
    /// A space map, see the crate `space`.
    pub const SPACE_MAP: LayoutId = LayoutId(3);
    /// Page 0 of the data file, see the crate `space`.
    pub const FILE_HEADER: LayoutId = LayoutId(4);
    /// A node of a b-tree, see the crate `structures`.
    pub const BTREE: LayoutId = LayoutId(5);
    /// The index of a large value, see the crate `structures`.
    pub const BLOB_INDEX: LayoutId = LayoutId(6);
    /// A piece of a large value, see the crate `structures`.
    pub const BLOB_DATA: LayoutId = LayoutId(7);
    /// Records of one length, see [`fixed`](crate::fixed).
    pub const FIXED: LayoutId = LayoutId(16);
    /// Records of any length, each with a version, see [`versioned`](crate::versioned).
    pub const VERSIONED: LayoutId = LayoutId(17);
    /// The first number that users may give their layouts.
    pub const USERS_FIRST: LayoutId = LayoutId(256);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_bytes_hold_every_number_of_48_bits() {
        for n in [0, 1, 0x1234_5678_9abc, PageId::MAX.0] {
            assert_eq!(PageId::from_le6(PageId(n).to_le6()), PageId(n));
        }
        assert_eq!(Lsn(0x0102_0304_0506).to_le6(), [6, 5, 4, 3, 2, 1]);
    }

    #[test]
    #[should_panic(expected = "more than 48 bits")]
    fn a_number_of_49_bits_is_our_bug() {
        let _ = PageId(1 << 48).to_le6();
    }
}
