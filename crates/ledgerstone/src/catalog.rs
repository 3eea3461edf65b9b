//! The catalog: which tables there are, by name.
//!
//! A tree with a fixed root, like any table but without a name. Its keys are the names' bytes, its values:
//!
//! ```text
//! offset size field
//!   0     1   format    1
//!   1     1   kind      1 B-link tree, 2 a user's structure
//!   2     2   structure which one, for kind 2 (`extend/structure.rs`); else zero
//!   4     4   zero
//!   8     8   table id  never reused: LSN of a record of its creation
//!  16     8   root      page id; roots never move
//! ```
//! G1. A name is locked like any key: X to create or drop, S to look up. A drop also locks the table itself X, so that
//!     it waits for everyone who uses the table.
//! G2. `known` holds committed tables only. An entry goes in while its name is locked S by who read it, and comes out
//!     before the X lock of a drop is released; whoever relies on it has locked the table first and then asks whether it
//!     was dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use ledgerstone_page::{PageId, TableId};
use ledgerstone_structures::Tree;
use parking_lot::RwLock;

use crate::Error;

/// Bytes of a catalog value.
const VALUE_BYTES: usize = 24;
const FORMAT: u8 = 1;
const KIND_BTREE: u8 = 1;
const KIND_STRUCTURE: u8 = 2;

/// Where a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub table: TableId,
    pub root: PageId,
}

impl Entry {
    pub(crate) fn encode(self) -> [u8; VALUE_BYTES] {
        let mut bytes = [0; VALUE_BYTES];
        bytes[0] = FORMAT;
        bytes[1] = KIND_BTREE;
        bytes[8..16].copy_from_slice(&self.table.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.root.0.to_le_bytes());
        bytes
    }

    /// The value for an instance of a user's structure.
    pub(crate) fn encode_structure(self, structure: u16) -> [u8; VALUE_BYTES] {
        let mut bytes = self.encode();
        bytes[1] = KIND_STRUCTURE;
        bytes[2..4].copy_from_slice(&structure.to_le_bytes());
        bytes
    }

    /// The number of the user's structure that a value is about, if it is about one.
    pub(crate) fn structure_of(bytes: &[u8]) -> Option<u16> {
        let is_structure = bytes.len() == VALUE_BYTES && bytes[0] == FORMAT && bytes[1] == KIND_STRUCTURE;
        is_structure.then(|| u16::from_le_bytes([bytes[2], bytes[3]]))
    }

    /// An instance of a user's structure.
    pub(crate) fn decode_structure(name: &str, bytes: &[u8]) -> Result<(u16, Entry), Error> {
        let structure = Entry::structure_of(bytes).ok_or_else(|| Error::NotAStructure { name: name.to_string() })?;
        let mut tree = bytes.to_vec();
        tree[1] = KIND_BTREE;
        Ok((structure, Entry::decode(name, &tree)?))
    }

    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Entry, Error> {
        if Entry::structure_of(bytes).is_some() {
            return Err(Error::NotATable { name: name.to_string() });
        }
        let damaged = |what| Error::Corrupt { what: format!("catalog entry of table {name:?}: {what}") };
        let bytes: &[u8; VALUE_BYTES] = bytes.try_into().map_err(|_| damaged("wrong length"))?;
        if bytes[0] != FORMAT || bytes[1] != KIND_BTREE {
            return Err(damaged("unknown format or kind"));
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Ok(Entry { table: TableId(word(8)), root: PageId(word(16)) })
    }
}

/// The root page that a value of the catalog names, if it is one.
pub(crate) fn root_of(value: &[u8]) -> Option<PageId> {
    let root = value.get(16..VALUE_BYTES)?.try_into().ok()?;
    (value[0] == FORMAT).then(|| PageId(u64::from_le_bytes(root)))
}

/// A table that was found: all that a handle needs, made once and shared.
pub(crate) struct TableInfo {
    pub name: String,
    pub entry: Entry,
    pub tree: Tree,
    /// Set by the transaction that drops the table, while it has the table locked X; taken back if it aborts. So whoever
    /// has any lock on the table sees the truth (the lock orders the two).
    is_dropped: AtomicBool,
}

impl TableInfo {
    pub(crate) fn new(name: &str, entry: Entry, tree: Tree) -> Arc<TableInfo> {
        Arc::new(TableInfo { name: name.to_string(), entry, tree, is_dropped: AtomicBool::new(false) })
    }

    pub(crate) fn set_dropped(&self, is_dropped: bool) {
        self.is_dropped.store(is_dropped, Release);
    }

    /// To be asked with the table locked.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Acquire)
    }
}

/// Tables seen before, so that a transaction that names one need not search the tree (G2).
#[derive(Default)]
pub(crate) struct Known {
    tables: RwLock<BTreeMap<String, Arc<TableInfo>>>,
}

impl Known {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<TableInfo>> {
        self.tables.read().get(name).cloned()
    }

    /// Remembers a table; gives back the one that is remembered, so that there is one for everybody.
    pub(crate) fn insert(&self, info: Arc<TableInfo>) -> Arc<TableInfo> {
        let mut tables = self.tables.write();
        match tables.get(&info.name) {
            Some(known) if known.entry == info.entry => Arc::clone(known),
            _ => {
                tables.insert(info.name.clone(), Arc::clone(&info));
                info
            }
        }
    }

    pub(crate) fn name_of(&self, table: TableId) -> Option<String> {
        self.tables.read().values().find(|info| info.entry.table == table).map(|info| info.name.clone())
    }

    pub(crate) fn remove(&self, name: &str) {
        self.tables.write().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_encoding() {
        let entry = Entry { table: TableId(0x0102_0304_0506), root: PageId(77) };
        assert_eq!(Entry::decode("t", &entry.encode()).ok(), Some(entry));
    }

    #[test]
    fn golden_bytes_of_an_entry() {
        let bytes = Entry { table: TableId(0x1122), root: PageId(0x33) }.encode();
        assert_eq!(bytes, [1, 1, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x33, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn golden_bytes_of_a_structure() {
        let entry = Entry { table: TableId(0x1122), root: PageId(0x33) };
        let bytes = entry.encode_structure(0x0405);
        assert_eq!(bytes, [1, 2, 5, 4, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x33, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Entry::decode_structure("s", &bytes).ok(), Some((0x0405, entry)));
        assert!(matches!(Entry::decode("s", &bytes), Err(Error::NotATable { .. })));
        assert!(matches!(Entry::decode_structure("t", &entry.encode()), Err(Error::NotAStructure { .. })));
    }

    #[test]
    fn damaged_entries_are_refused() {
        let good = Entry { table: TableId(1), root: PageId(2) }.encode();
        assert!(Entry::decode("t", &good[..23]).is_err());
        let mut newer = good;
        newer[0] = 9;
        assert!(matches!(Entry::decode("t", &newer), Err(Error::Corrupt { .. })));
    }
}
