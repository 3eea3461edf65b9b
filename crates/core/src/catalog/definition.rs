//! What the catalog says of a table, and its bytes.

use std::cmp::Ordering;

use ledgerstone_disk::quoted;
use ledgerstone_page::{PageId, TableId};

use crate::Error;
use crate::catalog::IndexDef;
use crate::error::DUMP_AND_LOAD;
use crate::typed::TableTypes;

/// Bytes of a catalog value without types and indexes.
const VALUE_BYTES: usize = 24;
const FORMAT: u8 = 3;
/// Bytes of an index in it, without the texts.
const INDEX_BYTES: usize = 21;
const FLAG_UNIQUE: u8 = 1;
const KIND_BTREE: u8 = 1;
const KIND_STRUCTURE: u8 = 2;
/// Longest name of a type.
pub const TYPE_NAME_BYTES_MAX: usize = 255;

/// Where a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub table: TableId,
    /// The root of its tree.
    pub root: PageId,
}

impl Entry {
    fn encode(self, kind: u8) -> [u8; VALUE_BYTES] {
        let mut bytes = [0; VALUE_BYTES];
        bytes[0] = FORMAT;
        bytes[1] = kind;
        bytes[8..16].copy_from_slice(&self.table.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.root.0.to_le_bytes());
        bytes
    }

    /// The value for an instance of a user's structure.
    pub fn encode_structure(self, structure: u16) -> [u8; VALUE_BYTES] {
        let mut bytes = self.encode(KIND_STRUCTURE);
        bytes[2..4].copy_from_slice(&structure.to_le_bytes());
        bytes
    }

    /// The number of the user's structure that a value is about, if it is about one.
    pub fn structure_of(bytes: &[u8]) -> Option<u16> {
        let is_structure = bytes.len() == VALUE_BYTES && bytes[0] == FORMAT && bytes[1] == KIND_STRUCTURE;
        is_structure.then(|| u16::from_le_bytes([bytes[2], bytes[3]]))
    }

    /// An instance of a user's structure.
    pub fn decode_structure(name: &str, bytes: &[u8]) -> Result<(u16, Entry), Error> {
        check_format(name, bytes)?;
        let structure = Entry::structure_of(bytes).ok_or_else(|| Error::NotAStructure { name: name.to_string() })?;
        Ok((structure, Entry { table: TableId(word(bytes, 8)), root: PageId(word(bytes, 16)) }))
    }
}

/// Refuses a value of another format. The page that it is from was whole.
pub fn check_format(name: &str, bytes: &[u8]) -> Result<(), Error> {
    let (Some(&found), supported) = (bytes.first(), u32::from(FORMAT)) else {
        return Err(damaged(name, "wrong length"));
    };
    let (found, path) = (u32::from(found), || format!("the catalog entry of table {}", quoted(name)));
    match found.cmp(&supported) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::NewerFormat { path: path(), found, supported }),
        Ordering::Less => Err(Error::OlderFormat { path: path(), found, supported, remedy: DUMP_AND_LOAD }),
    }
}

fn damaged(name: &str, what: &str) -> Error {
    Error::Corrupt { what: format!("catalog entry of table {}: {what}", quoted(name)) }
}

/// Eight bytes that are known to be there.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// An index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Where its tree is.
    pub entry: Entry,
    /// What it is.
    pub def: IndexDef,
    /// The name of its keys' type, if it is known.
    pub key_type: Option<String>,
}

impl IndexEntry {
    /// What the index of `table` is called in reports.
    pub fn place(&self, table: &str) -> String {
        format!("index {} of {table}", self.def.name())
    }
}

/// All that the catalog says of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Where its tree is.
    pub entry: Entry,
    /// The types of its keys and values.
    pub types: TableTypes,
    /// Its indexes.
    pub indexes: Vec<IndexEntry>,
}

impl From<Entry> for Definition {
    fn from(entry: Entry) -> Definition {
        Definition { entry, types: TableTypes::default(), indexes: Vec::new() }
    }
}

impl Definition {
    /// Where the table is, then where its indexes are.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.entry).chain(self.indexes.iter().map(|index| &index.entry))
    }

    /// The root pages of all of them.
    pub fn roots(&self) -> Vec<PageId> {
        self.entries().map(|entry| entry.root).collect()
    }

    /// Lengths of texts were checked when they were made: at most 255 bytes, and at most 65,535 for where keys come
    /// from. So was the length of the whole, which bounds the number of indexes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.entry.encode(KIND_BTREE).to_vec();
        let (key, value) = (text(&self.types.key), text(&self.types.value));
        bytes[4..6].copy_from_slice(&(self.indexes.len() as u16).to_le_bytes());
        bytes[6] = key.len() as u8;
        bytes[7] = value.len() as u8;
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(value.as_bytes());
        for index in &self.indexes {
            let (name, keys, key_type) = (index.def.name(), index.def.keys().to_string(), text(&index.key_type));
            bytes.extend_from_slice(&index.entry.table.0.to_le_bytes());
            bytes.extend_from_slice(&index.entry.root.0.to_le_bytes());
            bytes.push(if index.def.is_unique() { FLAG_UNIQUE } else { 0 });
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(&(keys.len() as u16).to_le_bytes());
            bytes.push(key_type.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(keys.as_bytes());
            bytes.extend_from_slice(key_type.as_bytes());
        }
        bytes
    }

    /// What these bytes, the value of this name, say of a table.
    ///
    /// # Errors
    /// [`Error::NotATable`] for a structure of users; an unknown format, or damage.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Definition, Error> {
        if Entry::structure_of(bytes).is_some() {
            return Err(Error::NotATable { name: name.to_string() });
        }
        let Some((head, rest)) = bytes.split_at_checked(VALUE_BYTES) else {
            return Err(damaged(name, "wrong length"));
        };
        check_format(name, head)?;
        if head[1] != KIND_BTREE {
            return Err(damaged(name, "unknown kind"));
        }
        let entry = Entry { table: TableId(word(head, 8)), root: PageId(word(head, 16)) };
        let (types, mut rest) = decode_types(head, rest).ok_or_else(|| damaged(name, "damaged names of types"))?;
        let mut definition = Definition { entry, types, indexes: Vec::new() };
        for _ in 0..u16::from_le_bytes([head[4], head[5]]) {
            let (index, more) = decode_index(rest).ok_or_else(|| damaged(name, "a damaged index"))?;
            definition.indexes.push(index);
            rest = more;
        }
        if rest.is_empty() { Ok(definition) } else { Err(damaged(name, "wrong number of indexes")) }
    }
}

fn text(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or_default()
}

/// A text of so many bytes at the beginning of `bytes`, and what is behind it.
fn take_text(bytes: &[u8], len: usize) -> Option<(&str, &[u8])> {
    let (text, rest) = bytes.split_at_checked(len)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

fn decode_types<'a>(head: &[u8], bytes: &'a [u8]) -> Option<(TableTypes, &'a [u8])> {
    let (key, rest) = take_text(bytes, usize::from(head[6]))?;
    let (value, rest) = take_text(rest, usize::from(head[7]))?;
    Some((TableTypes { key: some(key), value: some(value) }, rest))
}

/// An index at the beginning of `bytes`, and what is behind it.
fn decode_index(bytes: &[u8]) -> Option<(IndexEntry, &[u8])> {
    let (head, rest) = bytes.split_at_checked(INDEX_BYTES)?;
    let (name, rest) = take_text(rest, usize::from(head[17]))?;
    let (keys, rest) = take_text(rest, usize::from(u16::from_le_bytes([head[18], head[19]])))?;
    let (key_type, rest) = take_text(rest, usize::from(head[20]))?;
    if head[16] & !FLAG_UNIQUE != 0 {
        return None;
    }
    let def = IndexDef { name: name.to_string(), keys: keys.parse().ok()?, is_unique: head[16] & FLAG_UNIQUE != 0 };
    let entry = Entry { table: TableId(word(head, 0)), root: PageId(word(head, 8)) };
    Some((IndexEntry { entry, def, key_type: some(key_type) }, rest))
}

/// Refuses a name of a type that cannot be.
pub fn check_type_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > TYPE_NAME_BYTES_MAX {
        let (len, max) = (name.len(), TYPE_NAME_BYTES_MAX);
        return Err(Error::BadTypeName { name: name.chars().take(64).collect(), len, max });
    }
    Ok(())
}

/// Refuses what cannot be the name of a table.
///
/// # Errors
/// [`Error::BadTableName`].
#[inline]
pub fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > 255 {
        return Err(Error::BadTableName { name: name.chars().take(64).collect() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::IndexKeys;

    const ENTRY: Entry = Entry { table: TableId(0x1122), root: PageId(0x33) };

    #[test]
    fn golden_bytes_of_a_table() {
        let bytes = Definition::from(ENTRY).encode();
        assert_eq!(bytes, [3, 1, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x33, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Definition::decode("t", &bytes).ok(), Some(ENTRY.into()));
    }

    #[test]
    fn golden_bytes_of_a_structure() {
        let bytes = ENTRY.encode_structure(0x0405);
        assert_eq!(bytes, [3, 2, 5, 4, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x33, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Entry::decode_structure("s", &bytes).ok(), Some((0x0405, ENTRY)));
        assert!(matches!(Definition::decode("s", &bytes), Err(Error::NotATable { .. })));
        let table = Definition::from(ENTRY).encode();
        assert!(matches!(Entry::decode_structure("t", &table), Err(Error::NotAStructure { .. })));
    }

    #[test]
    fn golden_bytes_of_a_table_with_types_and_indexes() {
        let index = |table, root, def: IndexDef, key_type: Option<&str>| IndexEntry {
            entry: Entry { table: TableId(table), root: PageId(root) },
            def,
            key_type: key_type.map(str::to_string),
        };
        let definition = Definition {
            entry: ENTRY,
            types: TableTypes::of::<u64, String>(),
            indexes: vec![
                index(0x4455, 0x66, IndexDef::new("a", IndexKeys::Value), None),
                index(0x77, 0x88, IndexDef::new("b", IndexKeys::Json("c".into())).unique(), Some("json")),
            ],
        };
        let bytes = definition.encode();
        let mut expected = vec![3, 1, 0, 0, 2, 0, 3, 6, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x33, 0, 0, 0, 0, 0, 0, 0];
        expected.extend(b"u64string");
        expected.extend([0x55, 0x44, 0, 0, 0, 0, 0, 0, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5, 0, 0]);
        expected.extend(b"avalue");
        expected.extend([0x77, 0, 0, 0, 0, 0, 0, 0, 0x88, 0, 0, 0, 0, 0, 0, 0, 1, 1, 6, 0, 4]);
        expected.extend(b"bjson:cjson");
        assert_eq!(bytes, expected);
        assert_eq!(Definition::decode("t", &bytes).ok(), Some(definition));
        for len in 0..bytes.len() {
            assert!(Definition::decode("t", &bytes[..len]).is_err(), "cut off at {len}");
        }
    }

    #[test]
    fn damaged_entries_are_refused() {
        let mut bytes = Definition::from(ENTRY).encode();
        assert!(Definition::decode("t", &bytes[..23]).is_err());
        bytes[1] = 9;
        assert!(matches!(Definition::decode("t", &bytes), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn entries_of_other_formats_are_refused_and_say_so() {
        for structure in [false, true] {
            let mut bytes =
                if structure { ENTRY.encode_structure(7).to_vec() } else { Definition::from(ENTRY).encode() };
            let read = |bytes: &[u8]| match structure {
                true => Entry::decode_structure("t", bytes).map(drop),
                false => Definition::decode("t", bytes).map(drop),
            };
            bytes[0] = 2;
            assert!(matches!(read(&bytes), Err(Error::OlderFormat { found: 2, supported: 3, .. })));
            bytes[0] = 4;
            assert!(matches!(read(&bytes), Err(Error::NewerFormat { found: 4, supported: 3, .. })));
        }
    }
}
