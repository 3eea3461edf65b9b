//! An index that was found, with its tree.

use std::sync::Arc;

use ledgerstone_disk::quoted;
use ledgerstone_structures::Tree;
use ledgerstone_txn::run_users_code;

use ledgerstone_core::catalog::index::{IndexKeys as Keys, KeysNeed};

use super::entry::{Shape, Stored};
use super::extractors::{BYTES, Extract, Extractors, without_json};
use crate::catalog::{IndexEntry, TableInfo};
use crate::error::{Error, TypeMismatch};
use crate::typed::{TableTypes, TypeName};
use ledgerstone_core::typed::shown;

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

    /// Refuses a type that is not that of the index's keys. Keys that are bytes of a value are text, too, if they are
    /// text.
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

    /// The index key of an entry, for a message. Keys that are bytes of a value are text if they can be.
    #[cold]
    pub(crate) fn shown(&self, entry: &[u8]) -> String {
        let parts = self.shape().parts(entry, &[]);
        let key = parts.as_ref().map_or(entry, |(index_key, _)| index_key);
        match self.entry.key_type.as_deref() {
            #[cfg(feature = "json")]
            Some(ledgerstone_core::catalog::index::JSON)
                if let Ok(key) = <ledgerstone_core::catalog::JsonKey as crate::typed::Key>::decode(key) =>
            {
                key.to_string()
            }
            key_type => shown(key_type.filter(|&name| name != BYTES), key),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { is_unique: self.entry.def.is_unique() }
    }

    /// X5.
    pub(crate) fn is_computable(&self) -> bool {
        let is_there = match self.entry.def.keys().needs() {
            KeysNeed::Function(_) => self.extract.is_some(),
            KeysNeed::Json => cfg!(feature = "json"),
            KeysNeed::Nothing => true,
        };
        is_there && self.mismatch.is_none()
    }

    /// The entries of a record of `table`, in order, each once.
    pub(crate) fn entries(&self, table: &str, key: &[u8], value: &[u8]) -> Result<Vec<Stored>, Error> {
        if let Some((what, stored, asked)) = &self.mismatch {
            let (table, asked) = (table.to_string(), asked.to_string());
            let (what, stored) = (what.clone(), stored.clone());
            let extractor = match self.entry.def.keys() {
                Keys::Extractor(name) => name.as_str().to_owned(),
                _ => String::new(), // The others have no types of their own.
            };
            return Err(Error::TableTypeMismatch(Box::new(TypeMismatch::new(table, what, stored, asked, extractor))));
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
            (Keys::Json(_), _) if !cfg!(feature = "json") => return Err(without_json(table, self.name())),
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

    pub(crate) fn lacks(&self, table: &str, key: &[u8]) -> Error {
        self.differs(table, format!("it has no entry {}", self.shown(key)))
    }

    pub(crate) fn differs(&self, table: &str, what: String) -> Error {
        Error::IndexDiffers { table: table.into(), index: self.name().into(), what: what.into() }
    }
}

fn what_keys(index: &str) -> String {
    format!("keys in index {}", quoted(index))
}
