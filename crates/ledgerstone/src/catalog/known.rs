//! Tables that were found before.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone_page::TableId;
use ledgerstone_region::RwLock;

use super::info::TableInfo;

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
            Some(known) if known.is_as(&info.definition()) => Arc::clone(known),
            _ => {
                tables.insert(info.name.clone(), Arc::clone(&info));
                info
            }
        }
    }

    /// The table that has this tree, or an index that has it.
    pub(crate) fn with_tree(&self, tree: TableId) -> Option<(Arc<TableInfo>, Option<usize>)> {
        self.tables.read().values().find_map(|info| {
            let index = info.indexes.iter().position(|index| index.entry.entry.table == tree);
            (index.is_some() || info.entry.table == tree).then(|| (Arc::clone(info), index))
        })
    }

    /// Takes the table out, if it is what is known by its name.
    pub(crate) fn remove(&self, info: &TableInfo) -> Option<Arc<TableInfo>> {
        let mut tables = self.tables.write();
        tables.get(&info.name).is_some_and(|known| known.entry == info.entry).then(|| tables.remove(&info.name))?
    }
}
