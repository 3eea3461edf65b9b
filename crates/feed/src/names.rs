//! Which tables there are where a feed stands, and what a change of the catalog makes of them.
//!
//! The catalog logs its values whole, so that its changes are followed in both directions.

use ledgerstone_region::{ByName, ByNumber};
use std::sync::Arc;

use ledgerstone_page::{PageId, TableId};

use crate::gather::Raw;
use crate::{ChangeValue, TableChange, TableEvent};
use ledgerstone_core::catalog::Definition;

/// What a tree belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub table: TableId,
    /// It is an index of the table.
    pub is_index: bool,
}

/// The tables, by name, by id, and by the roots of their trees.
#[derive(Default)]
pub(crate) struct Names {
    tables: ByName<str, Definition>,
    ids: ByNumber<TableId, Arc<str>>,
    trees: ByNumber<PageId, Owner>,
    /// The table that the next change gives another name.
    renaming: Option<(TableId, String)>,
}

/// The trees of a table.
fn trees(definition: &Definition) -> impl Iterator<Item = (PageId, Owner)> {
    let table = definition.entry.table;
    definition.entries().enumerate().map(move |(no, entry)| (entry.root, Owner { table, is_index: no > 0 }))
}

/// All trees that changes of the catalog name.
pub(crate) fn trees_in<'r>(changes: impl Iterator<Item = &'r Raw>) -> ByNumber<PageId, Owner> {
    let sides = changes.flat_map(|raw| [definition(&raw.old), definition(&raw.new)]).flatten();
    sides.flat_map(|found| trees(&found).collect::<Vec<_>>()).collect()
}

/// The table that a value of the catalog is about; none for structures of users.
pub(crate) fn definition(value: &ChangeValue) -> Option<Definition> {
    let ChangeValue::Whole(bytes) = value else { return None };
    Definition::decode("", bytes).ok()
}

impl Names {
    /// Gives a name to a table, or takes it away; what it was before.
    pub fn set(&mut self, name: &str, new: Option<Definition>) -> Option<Definition> {
        let old = self.tables.remove(name);
        if let Some(old) = &old {
            for (root, owner) in trees(old) {
                if self.trees.get(root) == Some(&owner) {
                    self.trees.remove(root);
                }
            }
            if self.ids.get(old.entry.table).is_some_and(|known| &**known == name) {
                self.ids.remove(old.entry.table);
            }
        }
        if let Some(new) = new {
            self.ids.insert(new.entry.table, Arc::from(name));
            self.trees.extend(trees(&new));
            self.tables.insert(name, new);
        }
        old
    }

    /// What a tree belongs to.
    pub fn owner(&self, root: PageId) -> Option<Owner> {
        self.trees.get(root).copied()
    }

    pub fn name(&self, table: TableId) -> Option<&Arc<str>> {
        self.ids.get(table)
    }

    /// Takes a change of the catalog back.
    pub fn take_back(&mut self, raw: &Raw) {
        self.set(&String::from_utf8_lossy(&raw.key), definition(&raw.old));
    }

    /// Makes a change of the catalog; what it means is told to `tell`. `next`: the one behind it in its transaction, if
    /// any, since a new name is given in two steps.
    pub fn make(&mut self, raw: &Raw, next: Option<&Raw>, tell: &mut dyn FnMut(TableChange)) {
        let name = String::from_utf8_lossy(&raw.key).into_owned();
        let new = definition(&raw.new);
        let old = self.set(&name, new.clone());
        let mut say = |name: &str, table_id: TableId, event| tell(TableChange { table: name.into(), table_id, event });
        match (old, new) {
            (Some(old), Some(new)) if old.entry.table == new.entry.table => differences(&old, &new, &mut |event| {
                say(&name, new.entry.table, event);
            }),
            (old, new) => {
                if let Some(old) = old {
                    let id = old.entry.table;
                    let follows =
                        next.and_then(|next| definition(&next.new)).is_some_and(|next| next.entry.table == id);
                    if follows && new.is_none() {
                        self.renaming = Some((id, name));
                        return;
                    }
                    say(&name, id, TableEvent::Dropped);
                }
                let Some(new) = new else { return };
                match self.renaming.take() {
                    Some((id, from)) if id == new.entry.table => say(&from, id, TableEvent::Renamed { to: name }),
                    _ => {
                        say(&name, new.entry.table, TableEvent::Created { types: new.types.clone() });
                        let made = Definition { types: new.types.clone(), ..Definition::from(new.entry) };
                        differences(&made, &new, &mut |event| say(&name, new.entry.table, event));
                    }
                }
            }
        }
    }
}

/// What has become of a table that stays.
fn differences(old: &Definition, new: &Definition, tell: &mut dyn FnMut(TableEvent)) {
    let ids = |definition: &Definition| definition.indexes.iter().map(|index| index.entry.table).collect::<Vec<_>>();
    let (before, after) = (ids(old), ids(new));
    for index in old.indexes.iter().filter(|index| !after.contains(&index.entry.table)) {
        tell(TableEvent::IndexDropped { index: index.def.name().to_string() });
    }
    for index in new.indexes.iter().filter(|index| !before.contains(&index.entry.table)) {
        tell(TableEvent::IndexCreated { index: index.def.clone() });
    }
    if old.types != new.types {
        tell(TableEvent::Typed { types: new.types.clone() });
    }
}
