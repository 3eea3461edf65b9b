//! The catalog: which tables there are, by name.
//!
//! A tree with a fixed root, like any table but without a name. Its keys are the names' bytes, its values:
//!
//! ```text
//! offset size field
//!   0     1   format    3
//!   1     1   kind      1 B-link tree, 2 a user's structure
//!   2     2   structure which one, for kind 2 (`structure.rs`); else zero
//!   4     2   how many indexes
//!   6     1   length of the name of the keys' type; 0: none is known
//!   7     1   length of the name of the values' type; 0: none is known
//!   8     8   table id  never reused: LSN of a record of its creation
//!  16     8   root      page id; roots never move
//!  24         the names of the types, UTF-8
//!             the indexes, each:
//!   0     8   table id
//!   8     8   root
//!  16     1   flags     bit 0: unique
//!  17     1   length of the name
//!  18     2   length of the text that says where the keys come from
//!  20     1   length of the name of the index keys' type; 0: none is known
//!  21         name, then where the keys come from, then the type, all UTF-8
//! ```
//! G1. A name is locked like any key: X to create or drop, S to look up. A drop also locks the table itself X, so that
//!     it waits for everyone who uses the table.

mod definition;
pub mod index;
mod structure;
mod structures;

use ledgerstone_page::{PageId, TableId};

pub use definition::{Definition, Entry, IndexEntry, check_format, check_name, check_type_name};
pub use index::{IndexDef, IndexKeys};
#[cfg(feature = "json")]
pub use index::{JsonKey, JsonNumber};
pub use structure::{Structure, StructureId};
pub use structures::{Extensions, unknown};

/// The root of the catalog's tree.
pub const CATALOG_ROOT: PageId = PageId(2);
/// The root of the tree of deferred frees.
pub const TO_FREE_ROOT: PageId = PageId(3);
/// The catalog's tree, as locks name it.
pub const CATALOG_TABLE: TableId = TableId(1);
/// The tree of deferred frees, as locks name it.
pub const TO_FREE_TABLE: TableId = TableId(2);
