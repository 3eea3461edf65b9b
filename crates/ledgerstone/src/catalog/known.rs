//! Tables that were found before.
//!
//! All threads share one map, behind a lock. To take it even for a look is to write a line that all threads write. So
//! each thread slot keeps the tables near that its threads have found last, and looks there first.
//!
//! K1. `changes` is raised, with the map locked, whenever a table leaves the map. What is kept near is stamped with the
//!     value that was read with the map locked, and counts only while the two are equal. So whoever looks after a table
//!     has left does not find it, here or there.
//! K2. Whoever looks at the same moment may still find it, here as in the map. It finds out by G2: the table says that
//!     it was dropped, which it is asked with its lock held.
//! K3. A table that is kept near has references beside those of handles. Up to 64 for each
//!     slot, until its next look beyond them: a thread that ends leaves them to the next one that gets its slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use ledgerstone_page::TableId;
use ledgerstone_region::{Mutex, PerSlot, RwLock, Share, SlotNo};
use ledgerstone_txn::key_hash;

use super::info::TableInfo;

/// Tables kept near a slot.
const NEAR_MAX: usize = 64;

/// Tables seen before, so that a transaction that names one need not search the tree (G2).
pub(crate) struct Known {
    tables: RwLock<BTreeMap<String, Arc<TableInfo>>>,
    changes: Changes,
    /// By thread slot.
    near: PerSlot<Box<Near>>,
}

/// How often a table has left the map (K1). Apart from the lock, which is written more often.
#[derive(Default)]
#[repr(align(64))]
struct Changes(AtomicU64);

/// What is kept near one thread slot. Its mutex is free but for the thread that looks.
#[derive(Default)]
#[repr(align(64))]
struct Near(Mutex<NearTables>);

#[derive(Default)]
struct NearTables {
    /// The value of `changes` that they were found at.
    changes: u64,
    /// With the hashes of their names, which are looked through one by one.
    tables: Vec<(u64, Share<TableInfo>)>,
    /// Which makes room for the next, when there are [`NEAR_MAX`].
    oldest: usize,
}

impl NearTables {
    fn find(&self, hash: u64, name: &str) -> Option<Share<TableInfo>> {
        self.tables.iter().find(|(other, info)| *other == hash && info.name == name).map(|(_, info)| info.clone())
    }

    /// What was kept before these changes goes (K3). It is for the caller to drop, with no mutex held.
    #[must_use]
    fn forget_if_old(&mut self, changes: u64) -> Vec<(u64, Share<TableInfo>)> {
        if self.changes == changes { Vec::new() } else { std::mem::take(&mut self.tables) }
    }

    /// Keeps a table that was found at `changes`. What has to go is for the caller to drop, with no mutex held.
    #[must_use]
    fn keep(&mut self, hash: u64, info: Share<TableInfo>, changes: u64) -> Vec<(u64, Share<TableInfo>)> {
        let mut gone = self.forget_if_old(changes);
        self.changes = changes;
        if self.tables.len() < NEAR_MAX {
            self.tables.push((hash, info));
        } else {
            gone.push(std::mem::replace(&mut self.tables[self.oldest], (hash, info)));
            self.oldest = (self.oldest + 1) % NEAR_MAX;
        }
        gone
    }
}

impl Known {
    /// Nothing is known. For threads in so many slots.
    pub(crate) fn new(slot_count: u32) -> Known {
        Known { tables: RwLock::default(), changes: Changes::default(), near: PerSlot::new(slot_count) }
    }

    /// The table of this name, for a thread in `slot`. Without a slot, nothing is near.
    pub(crate) fn get(&self, slot: Option<SlotNo>, name: &str) -> Option<Share<TableInfo>> {
        let Some(near) = slot.map(|slot| &self.near.get_or_make(slot, Box::default).0) else {
            return self.tables.read().get(name).map(|info| Share::new(Arc::clone(info)));
        };
        let hash = key_hash(name.as_bytes());
        {
            let near = near.lock();
            // Acquire pairs with the Release in `note_change`: what its thread did before is seen (I3).
            if near.changes == self.changes.0.load(Acquire)
                && let Some(info) = near.find(hash, name)
            {
                return Some(info);
            }
        }
        let tables = self.tables.read();
        let Some(found) = tables.get(name) else {
            drop(tables);
            drop(near.lock().forget_if_old(self.changes.0.load(Acquire)));
            return None;
        };
        let info = Share::new(Arc::clone(found));
        let changes = self.changes.0.load(Relaxed); // The map is locked: nothing changes it now.
        drop(tables);
        let gone = near.lock().keep(hash, info.clone(), changes);
        drop(gone);
        Some(info)
    }

    /// Remembers a table; gives back the one that is remembered, so that there is one for everybody.
    pub(crate) fn insert(&self, info: Arc<TableInfo>) -> Arc<TableInfo> {
        let mut tables = self.tables.write();
        match tables.get(&info.name) {
            Some(known) if known.is_as(&info.definition()) => Arc::clone(known),
            _ => {
                if tables.insert(info.name.clone(), Arc::clone(&info)).is_some() {
                    self.note_change();
                }
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

    /// Takes the table out, if it is what is known by its name. What a thread in `slot` has kept near goes at once.
    pub(crate) fn remove(&self, slot: Option<SlotNo>, info: &TableInfo) -> Option<Arc<TableInfo>> {
        let removed = {
            let mut tables = self.tables.write();
            let is_known = tables.get(&info.name).is_some_and(|known| known.entry == info.entry);
            let removed = is_known.then(|| tables.remove(&info.name))??;
            self.note_change();
            removed
        };
        if let Some(near) = slot.and_then(|slot| self.near.get(slot)) {
            let gone = std::mem::take(&mut near.0.lock().tables);
            drop(gone);
        }
        Some(removed)
    }

    /// A table has left the map, which is locked (K1).
    fn note_change(&self) {
        self.changes.0.fetch_add(1, Release);
    }
}
