//! Which losers are undone before the opening returns, and which are put off until afterwards.
//!
//! A large loser would keep everybody from everything for minutes. If it changed records of tables only, those tables
//! are all that it has to keep, and the rest can be used at once.
//!
//! P1. Put off is what goes beyond `restart_undo_bytes`, the largest transactions first. What cannot be put off counts
//!     there before all else.
//! P2. A loser that changed the catalog or deferred frees is not put off: nothing could be opened or freed before it
//!     has ended. So none is that made, dropped or changed a table, or wrote a large value. Nor is one that changed
//!     anything but records of trees, such as a program's own structure.
//! P3. Each tree must be a table or an index by the catalog, as it was committed: those that changed it have been
//!     undone before. The table is locked, too, where only an index of it was changed: nobody shall run into the
//!     index's lock half-way.
//! P4. The locks have to be free. They are not if a transaction in doubt has the table, or a larger loser that was put
//!     off.
//! P5. Losers that have changed one record are undone together, in the order of the log. Locks have kept them apart,
//!     unless the lock manager of this life or of the one before keeps nobody out: then nothing is put off.

use ledgerstone_region::{ByName, ByNumber, NumberSet};
use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_lock::LockName;
use ledgerstone_page::{PageId, TableId, Xid};
use ledgerstone_recovery::{Adopted, Loser};
use ledgerstone_structures::{Direction, Tree};
use ledgerstone_txn::{Durability, Engine, Horizon, table_name};

use crate::Error;
use crate::catalog::{CATALOG_ROOT, Definition, Entry, TO_FREE_ROOT};
use crate::inner::PutOff;

/// Trees of one loser, at most.
const TREES_MAX: usize = 64;

/// The losers that are to be put off, if their tables allow it (P1, P2).
pub(super) fn too_large(losers: &ByNumber<Xid, Loser>, bytes_max: u64) -> NumberSet<Xid> {
    let (mut of_tables, others): (Vec<_>, Vec<_>) = losers.iter().partition(|(_, loser)| is_of_tables(loser));
    of_tables.sort_by_key(|(_, loser)| loser.to_undo.bytes);
    let mut bytes: u64 = others.iter().map(|(_, loser)| loser.to_undo.bytes).sum();
    let mut too_large = NumberSet::new();
    for (xid, loser) in of_tables {
        bytes = bytes.saturating_add(loser.to_undo.bytes);
        if bytes > bytes_max {
            too_large.insert(xid);
        }
    }
    too_large
}

/// Locks that these losers need at most: for each tree its own, and that of the table that has it.
pub(super) fn locks_needed(losers: &ByNumber<Xid, Loser>, too_large: &NumberSet<Xid>) -> usize {
    let trees = too_large.iter().filter_map(|xid| losers.get(xid)?.to_undo.trees());
    trees.map(|trees| 2 * trees.len()).sum()
}

/// P2.
fn is_of_tables(loser: &Loser) -> bool {
    loser.to_undo.trees().is_some_and(|trees| {
        (1..=TREES_MAX).contains(&trees.len()) && !trees.contains(CATALOG_ROOT) && !trees.contains(TO_FREE_ROOT)
    })
}

/// Puts off those of `losers` that can be, and gives back the others. The larger ones have the choice of the tables.
///
/// # Errors
/// The catalog cannot be read.
pub(super) fn put_off(
    engine: &Arc<Engine>,
    catalog: &Tree,
    mut losers: Vec<Adopted>,
) -> Result<(Vec<PutOff>, Vec<Adopted>), Error> {
    let (mut put_off, mut others) = (Vec::new(), Vec::new());
    if losers.is_empty() {
        return Ok((put_off, losers));
    }
    losers.sort_by_key(|one| std::cmp::Reverse(one.loser().to_undo.bytes));
    let trees = Trees::read(engine, catalog)?;
    for mut one in losers {
        let roots = one.loser().to_undo.trees().unwrap_or_default();
        match trees.locks_of(&roots) {
            Some((tables, locked)) if one.keep_for_later(&names_of(&locked)) => {
                put_off.push(PutOff { loser: one, tables, locked });
            }
            _ => others.push(one),
        }
    }
    put_off.reverse(); // Who is done first gives its tables back first.
    Ok((put_off, others))
}

/// Whose tree it is, by its root (P3).
struct Trees(ByNumber<PageId, Owner>);

struct Owner {
    /// The table's name.
    name: Arc<str>,
    table: TableId,
    /// The table's, or its index's.
    tree: TableId,
}

impl Trees {
    fn read(engine: &Arc<Engine>, catalog: &Tree) -> Result<Trees, Error> {
        let mut trees = ByNumber::new();
        let mut txn = engine.begin()?;
        let view = txn.open_view(Horizon::None)?;
        let mut scan = catalog.scan_at(view.at(), Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((name, value)) = scan.next(&mut txn)? {
            if Entry::structure_of(value).is_some() {
                continue;
            }
            let name = String::from_utf8_lossy(name);
            // What cannot be read costs its own table only: what changed that is undone at once.
            let Ok(definition) = Definition::decode(&name, value) else { continue };
            let (name, table) = (Arc::<str>::from(&*name), definition.entry.table);
            for entry in definition.entries() {
                trees.insert(entry.root, Owner { name: Arc::clone(&name), table, tree: entry.table });
            }
        }
        drop(view);
        txn.commit(Durability::Volatile)?;
        Ok(Trees(trees))
    }

    /// The names of the tables that have these trees, and what has to be locked to keep others from them. `None` if a
    /// tree is of no table.
    fn locks_of(&self, roots: &NumberSet<PageId>) -> Option<(Vec<String>, NumberSet<TableId>)> {
        let (mut names, mut ids) = (ByName::new(), NumberSet::new());
        for root in roots {
            let owner = self.0.get(root)?;
            names.insert(&*owner.name, ());
            ids.extend([owner.table, owner.tree]);
        }
        Some((names.keys().map(str::to_string).collect(), ids))
    }
}

fn names_of(tables: &NumberSet<TableId>) -> Vec<LockName> {
    tables.iter().map(table_name).collect()
}
