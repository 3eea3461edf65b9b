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
//! K3. What other processes have told since the map was filled ends all that it has, and `changes` is raised (N2 in
//!     `news.rs`).
//! K4. A table that is kept near has references beside those of handles. Up to 64 for each
//!     slot, until its next look beyond them: a thread that ends leaves them to the next one that gets its slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use ledgerstone_page::TableId;
use ledgerstone_region::{ByName, OwnCell, PerSlot, RwLock, Share, SlotNo, SlotTable};
use ledgerstone_txn::key_hash;

use super::info::TableInfo;
use super::news::{Learnt, News};

/// Tables kept near a slot.
const NEAR_MAX: usize = 64;

/// Tables seen before, so that a transaction that names one need not search the tree (G2).
pub(crate) struct Known {
    tables: RwLock<ByName<str, Arc<TableInfo>>>,
    /// When the map was begun, as far as others change what it has (K3).
    learnt: Learnt,
    changes: Changes,
    slots: Arc<SlotTable>,
    /// By thread slot. Taken out for each look, and put back.
    near: PerSlot<Near>,
}

type Near = OwnCell<Box<NearTables>>;

/// How often a table has left the map (K1). Apart from the lock, which is written more often.
#[derive(Default)]
#[repr(align(64))]
struct Changes(AtomicU64);

/// What is kept near one thread slot.
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

    /// What was kept before these changes goes (K4).
    fn forget_if_old(&mut self, changes: u64) {
        if self.changes != changes {
            self.tables.clear();
        }
    }

    /// Keeps a table that was found at `changes`.
    fn keep(&mut self, hash: u64, info: Share<TableInfo>, changes: u64) {
        self.forget_if_old(changes);
        self.changes = changes;
        if self.tables.len() < NEAR_MAX {
            self.tables.push((hash, info));
        } else {
            self.tables[self.oldest] = (hash, info);
            self.oldest = (self.oldest + 1) % NEAR_MAX;
        }
    }
}

impl Known {
    /// Nothing is known. For threads in these slots.
    pub(crate) fn new(slots: &Arc<SlotTable>, news: &News) -> Known {
        Known {
            tables: RwLock::default(),
            learnt: Learnt::now(news),
            changes: Changes::default(),
            slots: Arc::clone(slots),
            near: PerSlot::new(slots.count()),
        }
    }

    fn near(&self, slot: SlotNo) -> &Near {
        self.near.get_or_make(slot, || OwnCell::new(Arc::clone(&self.slots), slot))
    }

    /// The table of this name, for a thread in `slot`. Without a slot, nothing is near.
    pub(crate) fn get(&self, slot: Option<SlotNo>, name: &str) -> Option<Share<TableInfo>> {
        if !self.learnt.counts() {
            self.forget_all();
        }
        let Some(near) = slot.map(|slot| self.near(slot)) else {
            return self.tables.read().get(name).map(|info| Share::new(Arc::clone(info)));
        };
        let mut tables = near.take().unwrap_or_default();
        let found = self.get_by(&mut tables, name);
        drop(near.put(tables));
        found
    }

    fn get_by(&self, near: &mut NearTables, name: &str) -> Option<Share<TableInfo>> {
        let hash = key_hash(name.as_bytes());
        // Acquire pairs with the Release in `note_change`: what its thread did before is seen (I3).
        if near.changes == self.changes.0.load(Acquire)
            && let Some(info) = near.find(hash, name)
        {
            return Some(info);
        }
        let tables = self.tables.read();
        let Some(found) = tables.get(name) else {
            drop(tables);
            near.forget_if_old(self.changes.0.load(Acquire));
            return None;
        };
        let info = Share::new(Arc::clone(found));
        let changes = self.changes.0.load(Relaxed); // The map is locked: nothing changes it now.
        drop(tables);
        near.keep(hash, info.clone(), changes);
        Some(info)
    }

    /// Remembers a table; gives back the one that is remembered, so that there is one for everybody.
    pub(crate) fn insert(&self, info: Arc<TableInfo>) -> Arc<TableInfo> {
        let mut tables = self.tables.write();
        if info.may_be_dropped() {
            return info; // It is to be asked again: nobody finds it here (K3).
        }
        match tables.get(&info.name) {
            Some(known) if !known.may_be_dropped() && known.is_as(&info.definition()) => Arc::clone(known),
            _ => {
                if tables.insert(&info.name, Arc::clone(&info)).is_some() {
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
            drop(near.take());
        }
        Some(removed)
    }

    /// K3
    #[cold]
    fn forget_all(&self) {
        let mut tables = self.tables.write();
        let forget = || {
            self.note_change();
            Ok::<_, std::convert::Infallible>(true)
        };
        let (all, _) = (std::mem::take(&mut *tables), self.learnt.again(forget));
        drop(tables);
        drop(all);
    }

    /// A table has left the map, which is locked (K1).
    fn note_change(&self) {
        self.changes.0.fetch_add(1, Release);
    }
}
