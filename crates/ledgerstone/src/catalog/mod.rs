//! Tables as the catalog of the core has them, ready to be used. Also what is known of each, and what a transaction has
//! itself made of them.
//!
//! G2. `known` holds committed tables only. A transaction that reads an entry puts it in while it has the name locked
//!     S. The entry comes out when the table is dropped or changed, with name and table locked X. It comes back if that
//!     is taken back and somebody may still have it. A transaction that relies on it has locked the table first, and
//!     then asks whether it was dropped. What threads keep near of `known` counts no longer than the entry is there
//!     (K1 in `known.rs`). Other processes are told, and ask again (N1 and N2 in `news.rs`).

pub(crate) mod index;
mod info;
mod known;
mod news;
mod own;

pub(crate) use info::TableInfo;
pub(crate) use known::Known;
pub(crate) use ledgerstone_core::catalog::{
    CATALOG_ROOT, CATALOG_TABLE, Definition, Entry, Extensions, IndexEntry, Structure, StructureId, TO_FREE_ROOT,
    TO_FREE_TABLE, check_format, check_name, check_type_name, unknown,
};
pub(crate) use news::{Learnt, News};
pub(crate) use own::{Made, OwnTables};
