//! The functions that a program has registered for its indexes.

use ledgerstone_region::ByName;
use std::fmt;
use std::sync::Arc;

use ledgerstone_disk::quoted;

use ledgerstone_core::catalog::index::{IndexDef, JSON, KeysNeed};

use crate::Error;
use crate::catalog::TableInfo;
use crate::typed::TypeName;

/// Says the index keys of a record, from its key and value; or why there can be no such record.
pub(super) type Extract = dyn Fn(&[u8], &[u8], &mut dyn FnMut(&[u8])) -> Result<(), String> + Send + Sync;

/// A function that the program has registered.
#[derive(Clone)]
pub(super) struct Extractor {
    pub extract: Arc<Extract>,
    /// Of which types it says keys; `None`: of byte strings.
    pub types: Option<ExtractorTypes>,
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
    pub(super) by_name: ByName<str, Extractor>,
}

impl fmt::Debug for Extractors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

impl Extractors {
    pub(crate) fn add(&mut self, name: String, extract: Arc<Extract>, types: Option<ExtractorTypes>) {
        self.by_name.insert(&name, Extractor { extract, types });
    }

    /// What there is of them, a line for each.
    pub(crate) fn names(&self) -> Vec<String> {
        let of = |types: Option<ExtractorTypes>| match types {
            Some(ExtractorTypes { key, value, index_key }) => format!(" of {key} and {value}, which gives {index_key}"),
            None => String::new(),
        };
        let named =
            |(name, extractor): (&str, &Extractor)| format!("extractor {}{}", quoted(name), of(extractor.types));
        self.by_name.iter().map(named).collect()
    }

    /// What the catalog is to call the type of a new index's keys.
    pub(crate) fn key_type(&self, table: &TableInfo, def: &IndexDef) -> Result<Option<String>, Error> {
        Ok(match def.keys().needs() {
            KeysNeed::Function(name) => match self.by_name.get(name).and_then(|extractor| extractor.types) {
                Some(types) => {
                    table.check_types(&types.key, &types.value)?;
                    Some(types.index_key.to_string())
                }
                None => None,
            },
            KeysNeed::Json if !cfg!(feature = "json") => return Err(without_json(&table.name, def.name())),
            KeysNeed::Json => Some(JSON.to_string()),
            KeysNeed::Nothing => Some(BYTES.to_string()),
        })
    }
}

/// The type of keys that are bytes of a value.
pub(super) const BYTES: &str = "bytes";

/// The program was built without what such an index needs (X5).
pub(super) fn without_json(table: &str, index: &str) -> Error {
    Error::NotBuilt { what: format!("index {} of table {}", quoted(index), quoted(table)), feature: "json" }
}
