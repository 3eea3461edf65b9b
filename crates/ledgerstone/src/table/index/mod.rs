//! Secondary indexes: other ways to find a table's records, kept in the transaction that changes them.
//!
//! ```
//! # fn main() -> Result<(), ledgerstone::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! use ledgerstone::{IndexDef, IndexKeys};
//!
//! let env = ledgerstone::Environment::options().cache_bytes(16 << 20).open(dir.path())?;
//! env.transact(|txn| {
//!     txn.create_table("people")?;
//!     txn.create_index("people", &IndexDef::new("by_city", IndexKeys::Json("city".into())))?;
//!     let people = txn.bytes("people")?;
//!     people.put(b"1", br#"{"name":"Ada","city":"London"}"#)?;
//!     people.put(b"2", br#"{"name":"Max","city":"Bern"}"#)?;
//!     let in_bern = people.index("by_city")?.lookup(b"Bern")?.collect::<Result<Vec<_>, _>>()?;
//!     assert_eq!(in_bern, [(b"Bern".to_vec(), b"2".to_vec())]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! An index is a tree of its own, named in the catalog entry of its table (`catalog.rs`); its entries hold index key and primary
//! key (`entry.rs`).
//!
//! X1. A table and its indexes change together: each change of a record is one step of its transaction, with a savepoint before
//!     it, and taken back whole when any part of it is refused or panics. From there on logging, rollback, restart and snapshots need
//!     know nothing of indexes: an index is a tree like any other.
//! X2. What a record's entries are follows from its key and value alone. So the entries to remove are computed from the value
//!     that is replaced, which is locked for update before it is read.
//! X3. Nobody changes records with an old list of indexes: to create or drop one, the table is locked exclusively, and who
//!     writes has locked it and then compares what it knows with the catalog (G2, I4).
//! X4. Whoever reads an index locks its entries and the gaps between them, as of any tree: a record cannot come to match, or
//!     cease to, what was looked up. The index has a table id of its own for that; whoever locks the table exclusively locks
//!     its indexes, too.
//! X5. An index whose function is not registered in this process is read, dropped, moved and freed like any other; a change
//!     of a record, which would need the function, is refused. So is one whose function is registered for other types than
//!     the catalog names: its keys would not be those that are there.
//! X6. A range delete goes through each index in the index's own order, since in the table's order each record would cost a page of
//!     each index. The entries are locked as their records go, so that who looks meanwhile waits at the entry; they are deleted once
//!     they are sorted (`range_delete.rs`).

mod build;
mod check;
mod definition;
mod entry;
mod json;
mod keep;
mod range_delete;
mod read;
mod typed;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ledgerstone_structures::Tree;
use ledgerstone_txn::run_users_code;

pub(crate) use build::Builders;
pub use definition::{IndexDef, IndexKeys};
pub(crate) use entry::Stored;
pub use json::{JsonKey, JsonNumber};
pub use read::{Index, IndexRange, IndexedRecord, IndexedRecords};
pub use typed::{TypedIndex, TypedIndexRange};

use self::definition::IndexKeys as Keys;
use self::entry::Shape;
use crate::catalog::{IndexEntry, TableInfo};
use crate::typed::{Key, TableTypes, TypeName};
use crate::{Error, TypeMismatch};

/// Says the index keys of a record, from its key and value; or why there can be no such record.
type Extract = dyn Fn(&[u8], &[u8], &mut dyn FnMut(&[u8])) -> Result<(), String> + Send + Sync;

/// A function that the program has registered.
#[derive(Clone)]
struct Extractor {
    extract: Arc<Extract>,
    /// Of which types it says keys; `None`: of byte strings.
    types: Option<ExtractorTypes>,
}

/// What a function takes and gives.
#[derive(Clone, Copy)]
pub(crate) struct ExtractorTypes {
    pub key: TypeName,
    pub value: TypeName,
    pub index_key: TypeName,
}

/// The functions that the program has registered, by name.
#[derive(Clone, Default)]
pub(crate) struct Extractors {
    by_name: BTreeMap<String, Extractor>,
}

impl fmt::Debug for Extractors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

impl Extractors {
    pub(crate) fn add(&mut self, name: String, extract: Arc<Extract>, types: Option<ExtractorTypes>) {
        self.by_name.insert(name, Extractor { extract, types });
    }

    /// What the catalog is to call the type of a new index's keys.
    pub(crate) fn key_type(&self, table: &TableInfo, def: &IndexDef) -> Result<Option<String>, Error> {
        Ok(match def.keys() {
            Keys::Extractor(name) => match self.by_name.get(name).and_then(|extractor| extractor.types) {
                Some(types) => {
                    table.check_types(&types.key, &types.value)?;
                    Some(types.index_key.to_string())
                }
                None => None,
            },
            Keys::Json(_) => Some(JsonKey::TYPE.to_string()),
            Keys::Value | Keys::Bytes { .. } | Keys::Field { .. } => Some(BYTES.to_string()),
        })
    }
}

/// The type of keys that are bytes of a value.
const BYTES: &str = "bytes";

/// An index, with all that is needed to keep it and to read it.
pub(crate) struct IndexTree {
    pub entry: IndexEntry,
    pub tree: Tree,
    /// For [`Keys::Extractor`], if it is registered.
    extract: Option<Arc<Extract>>,
    /// What of the function's types is not what the catalog says (X5): what it is, the catalog's name, the function's.
    mismatch: Option<(String, String, TypeName)>,
}

impl IndexTree {
    pub(crate) fn new(entry: IndexEntry, tree: Tree, types: &TableTypes, extractors: &Extractors) -> IndexTree {
        let extractor = match entry.def.keys() {
            Keys::Extractor(name) => extractors.by_name.get(name),
            _ => None,
        };
        let mismatch = extractor.and_then(|extractor| extractor.types).and_then(|own| {
            let index_keys = what_keys(entry.def.name());
            [
                ("keys", &types.key, own.key),
                ("values", &types.value, own.value),
                (&index_keys[..], &entry.key_type, own.index_key),
            ]
            .into_iter()
            .filter_map(|(what, stored, own)| Some((what, stored.as_ref()?, own)))
            .find(|(_, stored, own)| !own.is(stored))
            .map(|(what, stored, own)| (what.to_string(), stored.clone(), own))
        });
        let extract = extractor.map(|extractor| Arc::clone(&extractor.extract));
        IndexTree { entry, tree, extract, mismatch }
    }

    /// Refuses a type that is not that of the index's keys. Keys that are bytes of a value are text, too, if they are text.
    pub(crate) fn check_type(&self, table: &TableInfo, asked: &TypeName) -> Result<(), Error> {
        let is_text = |stored: &str| stored == BYTES && matches!(asked, TypeName::Bytes(_) | TypeName::Named("string"));
        match &self.entry.key_type {
            Some(stored) if !asked.is(stored) && !is_text(stored) => {
                Err(table.mismatch(what_keys(self.name()), stored, asked.to_string()))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.entry.def.name()
    }

    /// What it is called in reports.
    pub(crate) fn place(&self, table: &str) -> String {
        self.entry.place(table)
    }

    fn shape(&self) -> Shape {
        Shape { is_unique: self.entry.def.is_unique() }
    }

    /// X5.
    fn is_computable(&self) -> bool {
        let is_there = self.extract.is_some() || !matches!(self.entry.def.keys(), Keys::Extractor(_));
        is_there && self.mismatch.is_none()
    }

    /// The entries of a record of `table`, in order, each once.
    fn entries(&self, table: &str, key: &[u8], value: &[u8]) -> Result<Vec<Stored>, Error> {
        if let Some((what, stored, asked)) = &self.mismatch {
            let (table, asked) = (table.to_string(), asked.to_string());
            let (what, stored) = (what.clone(), stored.clone());
            return Err(Error::TableTypeMismatch(Box::new(TypeMismatch { table, what, stored, asked })));
        }
        let (shape, mut entries) = (self.shape(), Vec::new());
        let mut emit = |index_key: &[u8]| entries.push(shape.entry(index_key, key));
        match (self.entry.def.keys(), &self.extract) {
            (Keys::Extractor(_), Some(extract)) => {
                let extracted = run_users_code(self.tree.engine(), || extract(key, value, &mut emit));
                extracted.map_err(|what| {
                    let (table, index) = (table.into(), self.name().into());
                    Error::NotIndexable { table, index, what: what.into() }
                })?;
            }
            (Keys::Extractor(extractor), None) => {
                return Err(Error::NoIndexExtractor {
                    table: table.into(),
                    index: self.name().into(),
                    extractor: extractor.as_str().into(),
                });
            }
            (keys, _) => keys.built_in(value, &mut emit),
        }
        entries.sort_unstable();
        entries.dedup();
        let max = self.tree.key_bytes_max();
        match entries.iter().map(|(key, _)| key.len()).max() {
            Some(len) if len > max => {
                Err(Error::IndexKeyTooLarge { table: table.into(), index: self.name().into(), len, max })
            }
            _ => Ok(entries),
        }
    }

    fn lacks(&self, table: &str, key: &[u8]) -> Error {
        self.differs(table, format!("it has no entry {:?}", shown(key)))
    }

    fn differs(&self, table: &str, what: String) -> Error {
        Error::IndexDiffers { table: table.into(), index: self.name().into(), what: what.into() }
    }
}

fn what_keys(index: &str) -> String {
    format!("keys in index {index:?}")
}

/// A key for a message: as text if it is some, and not too much of it.
pub(crate) fn shown(key: &[u8]) -> String {
    let text = key.iter().take(64).map(|&byte| std::ascii::escape_default(byte).to_string()).collect::<String>();
    if key.len() > 64 { format!("{text}... ({} bytes)", key.len()) } else { text }
}
