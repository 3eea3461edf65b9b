//! The numbers that mean something: one type each, so that they cannot be mixed up.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id! {
    /// Number of a page of the data file; its place there is the number times the page size. 48 bits are used.
    PageId(u64), ""
}
id! {
    /// Byte position in the log, of the start of a record. 0 is none: the first record lies at 4096. 48 bits are used.
    Lsn(u64), ""
}
id! {
    /// Number of a transaction, never reused in the life of an environment. 0 is none. 48 bits are used.
    Xid(u64), "T"
}
id! {
    /// Stable number of an operation. 1 to 1023 are Ledgerstone's, the others their users'.
    OpId(u16), "op"
}
id! {
    /// Number of a table, never reused. 0 is none.
    TableId(u64), "table "
}
id! {
    /// Number of a page layout. 0 to 255 are Ledgerstone's, the others their users'.
    LayoutId(u16), "layout "
}

impl PageId {
    /// No page. Page 0 is the file header, which nothing links to.
    pub const NONE: PageId = PageId(0);
}

impl Lsn {
    /// No LSN.
    pub const NONE: Lsn = Lsn(0);
}

impl Xid {
    /// No transaction.
    pub const NONE: Xid = Xid(0);
}
