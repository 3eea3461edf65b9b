//! The ends of a tree at which every record is a ghost, remembered, so that nobody passes them one by one.
//!
//! A queue takes records from one end. While a snapshot is open, the ghosts that this leaves cannot be purged, and
//! everybody that asks for the first record would pass all of them. So this process remembers for both ends of a tree
//! how far they are dead.
//!
//! E1. *Dead* is a range in which every record is a ghost whose deleter has committed. That is seen under the leaf's
//!     latch: a deleter holds its key exclusively, or the whole table, until it has ended, and keys are asked for
//!     before the table.
//! E2. A bound moves inwards, so that more is dead, leaf by leaf from where it was, under the leaf's shared latch. It
//!     moves back when a record appears in the dead range, before that and under the exclusive latch of the record's
//!     leaf. So there is no moment at which a record is dead by the bound and alive on its page. When there is nothing
//!     beyond the record at that end of the tree, there is no bound any more.
//! E3. Each bound is kept with the log's tail of the moment at which it was seen. A snapshot uses a bound that is no
//!     younger than itself: what was dead then, and has been since, is nothing that it sees. For others the newest one
//!     counts. When there are many, those stay that an open snapshot uses; of more than [`BOUNDS_MAX`] the oldest
//!     stays, and of the others some.
//! E4. A reader that locks takes one shared lock in place of those that it would have taken on the dead range: the
//!     lock of that end of the table. It looks at the bound afterwards, and notes it as guarded. A transaction that
//!     puts a record into a guarded range asks for that lock first, for an instant, with an intention. It does so for
//!     the gap before the next key, too (W3 in `write.rs`). While it waits, the bound stays where it is.
//! E5. Guarded stays what was guarded until nobody holds the lock of that end.
//! E6. A crash takes all this. The first reader afterwards passes the ghosts, or finds them purged.
//!     So it is, too, while several processes have the region: one does not see what another remembers, and so none
//!     remembers anything.
//! E7. A tree that is taken apart is forgotten, and a new one begins without: root pages are used again.
//! E8. Trees are kept in [`SHARD_COUNT`] shards by their roots, [`TREES_MAX`] in each. For a further one the tree goes
//!     whose bounds have not moved for longest; not if somebody holds the lock of one of its ends (E5).
//!
//! Writers look at two words of their shard first, which say where any of its trees has a bound or a guard. These
//! change only when bounds and guards come, move inwards or go: no lock, and hardly ever something that others have
//! written.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, TableId};
use ledgerstone_region::{ByNumber, Mutex};
use ledgerstone_txn::{KeyLock, Txn, key_name, table_name};

use super::Direction;
use super::node::Node;
use super::search::hash_of;
use super::tree::Tree;
use crate::TreeError;

/// Ghosts that a scan passes before it looks whether they are dead.
pub(super) const PASSED_MIN: u32 = 4;
/// Bounds that are kept of each end, the newest and older ones for older snapshots.
const BOUNDS_MAX: usize = 16;
const SHARD_COUNT: usize = 64;
/// Trees of one shard whose ends are remembered.
const TREES_MAX: usize = 16;

/// The ends of all trees.
#[derive(Debug)]
pub(crate) struct Edges {
    shards: [Shard; SHARD_COUNT],
}

#[derive(Debug)]
struct Shard {
    /// Keys whose prefix is below this one may be in a dead or guarded range at the front of one of these trees.
    front_below: AtomicU64,
    /// Keys whose prefix is not below this one may be in such a range at the back.
    back_from: AtomicU64,
    trees: Mutex<ByNumber<PageId, Ends>>,
    /// Guards that were noted in this shard, and bounds. Changed with the trees locked.
    note_count: AtomicU64,
}

/// Both ends of a tree.
#[derive(Debug)]
struct Ends {
    table: TableId,
    /// The note of the newest bound (E8).
    moved: u64,
    front: Edge,
    back: Edge,
}

/// One end: forwards, keys below the bounds are dead; backwards, the bounds and the keys above.
#[derive(Debug, Default)]
struct Edge {
    /// From the oldest, narrowest to the newest, widest.
    bounds: Vec<(Vec<u8>, Lsn)>,
    /// E5: a holder of this end's lock may count on the range to here.
    guard: Option<Vec<u8>>,
    /// Which note that was: no two of one shard have one number, also where a tree was forgotten in between.
    guard_count: u64,
}

/// What a writer has to do before its record may appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asking {
    lock: KeyLock,
    direction: Direction,
    guard_count: u64,
}

impl Default for Edges {
    fn default() -> Edges {
        let shard = || Shard {
            front_below: AtomicU64::new(NONE_IN_FRONT),
            back_from: AtomicU64::new(NONE_BEHIND),
            trees: Mutex::default(),
            note_count: AtomicU64::new(0),
        };
        Edges { shards: std::array::from_fn(|_| shard()) }
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

const NONE_IN_FRONT: u64 = 0;
const NONE_BEHIND: u64 = u64::MAX;

/// The first bytes of a key as a number in the order of keys; one bit less than there are, so that there is a number
/// above all.
fn prefix(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = key.len().min(8);
    first[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(first) >> 1
}

fn lock_of(direction: Direction) -> KeyLock {
    match direction {
        Direction::Forward => KeyLock::Front,
        Direction::Backward => KeyLock::Back,
    }
}

/// The smallest key above `key`.
fn above(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// True if `key` lies in the range that ends at `bound`.
fn is_in(direction: Direction, key: &[u8], bound: &[u8]) -> bool {
    match direction {
        Direction::Forward => key < bound,
        Direction::Backward => key >= bound,
    }
}

impl Edge {
    fn newest(&self) -> Option<&(Vec<u8>, Lsn)> {
        self.bounds.last()
    }

    /// E2: nothing is dead any more from `key` inwards.
    fn move_back(&mut self, direction: Direction, key: &[u8]) {
        for (bound, _) in &mut self.bounds {
            if is_in(direction, key, bound) {
                *bound = match direction {
                    Direction::Forward => key.to_vec(),
                    Direction::Backward => above(key),
                };
            }
        }
    }

    /// A wider bound. `open` gives the snapshots that are open, and is asked only when there are many bounds.
    fn push(&mut self, bound: Vec<u8>, lsn: Lsn, open: impl FnOnce() -> Vec<Lsn>) {
        if self.bounds.len() == BOUNDS_MAX {
            let open = open();
            let ends: Vec<Lsn> = self.bounds.iter().skip(1).map(|(_, seen)| *seen).chain([lsn]).collect();
            let mut end = ends.iter();
            self.bounds.retain(|(_, seen)| {
                let next = end.next().copied().unwrap_or(lsn);
                open.iter().any(|snapshot| (*seen..next).contains(snapshot))
            });
        }
        if self.bounds.len() == BOUNDS_MAX {
            // The older, the fewer. But the oldest is the only one that the oldest snapshot can use.
            let mut no = 0;
            self.bounds.retain(|_| {
                no += 1;
                no > BOUNDS_MAX / 2 || no % 2 == 1
            });
        }
        self.bounds.push((bound, lsn));
    }

    fn is_guarded(&self, direction: Direction, key: &[u8]) -> bool {
        self.guard.as_ref().is_some_and(|guard| is_in(direction, key, guard))
    }

    /// The newest bound that was seen no later than `until`.
    fn bound(&self, until: Option<Lsn>) -> Option<&(Vec<u8>, Lsn)> {
        self.bounds.iter().rev().find(|(_, seen)| until.is_none_or(|until| *seen <= until))
    }
}

impl Ends {
    fn new(table: TableId) -> Ends {
        Ends { table, moved: 0, front: Edge::default(), back: Edge::default() }
    }

    fn says_nothing(&self) -> bool {
        [&self.front, &self.back].into_iter().all(|edge| edge.bounds.is_empty() && edge.guard.is_none())
    }

    /// E2. `is_outermost`: there is nothing beyond `key` at this end of the tree.
    fn enter(&mut self, direction: Direction, key: &[u8], is_outermost: bool) {
        let edge = self.edge(direction);
        edge.move_back(direction, key);
        if is_outermost {
            edge.bounds.retain(|(bound, _)| {
                let is_useless = match direction {
                    Direction::Forward => bound.as_slice() <= key,
                    Direction::Backward => bound.as_slice() > key,
                };
                !is_useless
            });
        }
    }

    fn edge(&mut self, direction: Direction) -> &mut Edge {
        match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        }
    }
}

impl Shard {
    /// What writers look at first. Called with the trees locked.
    fn publish(&self, trees: &ByNumber<PageId, Ends>) {
        let of = |edge: &'_ Edge| -> Vec<u64> {
            let bounds = edge.bounds.iter().map(|(bound, _)| bound).chain(&edge.guard);
            bounds.map(|bound| prefix(bound)).collect()
        };
        let front = trees.values().flat_map(|ends| of(&ends.front)).max();
        let back = trees.values().flat_map(|ends| of(&ends.back)).min();
        for (word, value) in [
            (&self.front_below, front.map_or(NONE_IN_FRONT, |prefix| prefix + 1)),
            (&self.back_from, back.unwrap_or(NONE_BEHIND)),
        ] {
            if word.load(Relaxed) != value {
                word.store(value, Relaxed);
            }
        }
    }

    fn note(&self) -> u64 {
        self.note_count.fetch_add(1, Relaxed) + 1
    }

    /// Makes room for one tree more (E8). False: all are held.
    fn make_room(trees: &mut ByNumber<PageId, Ends>, is_held: impl Fn(TableId) -> bool) -> bool {
        if trees.len() < TREES_MAX {
            return true;
        }
        let mut by_age: Vec<(u64, PageId)> = trees.iter().map(|(root, ends)| (ends.moved, root)).collect();
        by_age.sort_unstable();
        let oldest = by_age.into_iter().find(|(_, root)| trees.get(*root).is_some_and(|ends| !is_held(ends.table)));
        oldest.is_some_and(|(_, root)| trees.remove(root).is_some())
    }

    #[inline]
    fn may_hold(&self, key: &[u8]) -> bool {
        // Relaxed: what was dead in this leaf was published under its latch (E2).
        let prefix = prefix(key);
        prefix < self.front_below.load(Relaxed) || prefix >= self.back_from.load(Relaxed)
    }

    fn has_any(&self) -> bool {
        self.front_below.load(Relaxed) != NONE_IN_FRONT || self.back_from.load(Relaxed) != NONE_BEHIND
    }
}

impl Edges {
    #[inline]
    fn shard(&self, root: PageId) -> &Shard {
        &self.shards[(root.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARD_COUNT]
    }

    /// A ghost of this tree becomes a record again in a rollback, with its leaf latched exclusively (E2).
    #[inline]
    pub(super) fn revive(&self, root: PageId, key: &[u8]) {
        let shard = self.shard(root);
        if shard.may_hold(key)
            && let Some(ends) = shard.trees.lock().get_mut(root)
        {
            for direction in DIRECTIONS {
                ends.enter(direction, key, false);
            }
        }
    }

    /// E7.
    pub(crate) fn forget(&self, root: PageId) {
        let shard = self.shard(root);
        if shard.has_any() {
            let mut trees = shard.trees.lock();
            trees.remove(root);
            shard.publish(&trees);
        }
    }
}

impl Tree {
    fn edges(&self) -> Option<&Edges> {
        let remembers = !self.engine.slots.is_shared(); // E6
        self.to_free.as_deref().filter(|_| remembers).map(crate::ToFree::edges)
    }

    /// How far the tree is dead at the end where a scan begins, if it is; what is beyond need not be looked at. Takes
    /// the lock of that end if `locks` (E4); hold no latch. `until`: the snapshot that the scan is for.
    pub(super) fn dead_bound(
        &self,
        txn: &mut Txn,
        direction: Direction,
        start: Option<&[u8]>,
        locks: bool,
        until: Option<Lsn>,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        let Some(edges) = self.edges() else { return Ok(None) };
        let shard = edges.shard(self.root);
        if !shard.has_any() {
            return Ok(None);
        }
        let is_of_use = |bound: &[u8]| start.is_none_or(|start| is_in(direction, start, bound));
        let find = |note: bool| {
            let mut trees = shard.trees.lock();
            let edge = trees.get_mut(self.root)?.edge(direction);
            let (bound, seen) = edge.bound(until).filter(|(bound, _)| is_of_use(bound))?.clone();
            if note {
                edge.guard_count = shard.note();
                if edge.guard.as_ref().is_none_or(|guard| is_in(direction, guard, &bound)) {
                    edge.guard = Some(bound.clone());
                }
            }
            Some((bound, seen))
        };
        let Some(mut found) = find(false) else { return Ok(None) };
        if locks {
            txn.lock_key(self.table, lock_of(direction), Mode::S)?;
            match find(true) {
                Some(again) => found = again,
                None => return Ok(None),
            }
        }
        // What is not there depends on the transactions that deleted it.
        txn.depend_on_commits_below(found.1);
        Ok(Some(found.0))
    }

    /// A scan has passed ghosts of this leaf at the end where it began: remembers them if they are dead (E1). Hold no
    /// latch.
    #[cold]
    #[inline(never)]
    pub(super) fn note_dead(&self, leaf: PageId, direction: Direction) -> Result<(), TreeError> {
        let Some(edges) = self.edges() else { return Ok(()) };
        let shard = edges.shard(self.root);
        // Only a hint: the leaf may have been freed since. The next scan that needs it meets damage by itself.
        let Ok(page) = self.engine.cache.shared(leaf) else { return Ok(()) };
        let node = Node::new(page.words());
        if !node.is_of(self.root) || node.level() != 0 {
            return Ok(());
        }
        let old = {
            let mut trees = shard.trees.lock();
            trees.get_mut(self.root).and_then(|ends| ends.edge(direction).newest().cloned())
        };
        // E2: from where the bound is.
        let old = old.map(|(bound, _)| bound);
        let bound = match direction {
            Direction::Forward => {
                let mut slot = match &old {
                    None if node.low().is_empty() => 0,
                    Some(bound) if *bound >= node.low() && !node.is_beyond(bound) => {
                        node.search(bound).unwrap_or_else(|slot| slot)
                    }
                    _ => return Ok(()),
                };
                while slot < node.count() && self.is_dead(&node, leaf, slot) {
                    slot += 1;
                }
                match slot {
                    _ if slot < node.count() => node.key(slot),
                    _ if !node.is_rightmost() => node.high(),
                    0 => return Ok(()),
                    _ => above(&node.key(slot - 1)),
                }
            }
            Direction::Backward => {
                let mut slot = match &old {
                    None if node.is_rightmost() => node.count(),
                    Some(bound) if *bound >= node.low() && (node.is_rightmost() || *bound <= node.high()) => {
                        node.search(bound).unwrap_or_else(|slot| slot)
                    }
                    _ => return Ok(()),
                };
                while slot > 0 && self.is_dead(&node, leaf, slot - 1) {
                    slot -= 1;
                }
                if slot > 0 { above(&node.key(slot - 1)) } else { node.low() }
            }
        };
        // E1: the table after its keys.
        if self.engine.locks.held_by_any(table_name(self.table)) == Some(Mode::X) {
            return Ok(());
        }
        let mut trees = shard.trees.lock();
        let newest = trees.get_mut(self.root).and_then(|ends| ends.edge(direction).newest());
        let is_wider = match (&old, newest) {
            (None, None) => true,
            // Somebody else may have moved it meanwhile.
            (Some(old), Some((now, _))) => old == now && bound != *now,
            _ => false,
        };
        if !is_wider {
            return Ok(());
        }
        if !trees.contains(self.root) {
            let held = |table, lock| self.engine.locks.held_by_any(key_name(table, lock)).is_some();
            let is_held = |table| held(table, KeyLock::Front) || held(table, KeyLock::Back);
            if !Shard::make_room(&mut trees, is_held) {
                return Ok(());
            }
        }
        let ends = trees.get_or_insert_with(self.root, || Ends::new(self.table));
        // Read here, so that it never falls from one bound to the next. The bound may have moved back and out again
        // since it was looked at, for records that an older snapshot sees.
        let seen = self.engine.log.tail();
        ends.edge(direction).push(bound, seen, || self.engine.versions.open_snapshots());
        ends.moved = shard.note();
        shard.publish(&trees);
        Ok(())
    }

    /// E1, but for the table's lock.
    fn is_dead(&self, node: &Node<ledgerstone_region::Words<'_>>, leaf: PageId, slot: usize) -> bool {
        let what = if self.locks_pages() { KeyLock::Page(leaf) } else { KeyLock::Key(hash_of(node, slot)) };
        let held = || self.engine.locks.held_by_any(key_name(self.table, what));
        node.record(slot).is_ghost() && !matches!(held(), Some(Mode::X | Mode::SIX))
    }

    /// A record is about to appear under `key`, whose leaf is latched exclusively: no end is dead there any more (E2).
    /// Gives the lock to be asked for first, for an instant, with no latch held, if it is not to be had now (E4): then
    /// nothing has changed.
    #[inline]
    pub(super) fn enter_edges(
        &self,
        txn: &mut Txn,
        key: &[u8],
        leaf: &Node<ledgerstone_region::Words<'_>>,
    ) -> Result<Option<KeyLock>, TreeError> {
        match self.edges() {
            Some(edges) if edges.shard(self.root).may_hold(key) => self.enter_dead(txn, edges, key, leaf),
            _ => Ok(None),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_dead(
        &self,
        txn: &mut Txn,
        edges: &Edges,
        key: &[u8],
        leaf: &Node<ledgerstone_region::Words<'_>>,
    ) -> Result<Option<KeyLock>, TreeError> {
        let shard = edges.shard(self.root);
        let (slot, next) = match leaf.search(key) {
            Ok(slot) => (slot, slot + 1),
            Err(slot) => (slot, slot),
        };
        let is_outermost = |direction| match direction {
            Direction::Forward => slot == 0 && leaf.low().is_empty(),
            Direction::Backward => next == leaf.count() && leaf.is_rightmost(),
        };
        let is_covered = txn.covers(self.table, Mode::X);
        let mut granted: Vec<(Asking, bool)> = Vec::new();
        loop {
            let asking = {
                let mut trees = shard.trees.lock();
                let Some(ends) = trees.get_mut(self.root) else { return Ok(None) };
                let asking = DIRECTIONS.into_iter().find_map(|direction| {
                    let edge = ends.edge(direction);
                    let asking = Asking { lock: lock_of(direction), direction, guard_count: edge.guard_count };
                    let is_asked = is_covered || granted.iter().any(|(granted, _)| *granted == asking);
                    (!is_asked && edge.is_guarded(direction, key)).then_some(asking)
                });
                let Some(asking) = asking else {
                    for (Asking { direction, guard_count, .. }, is_own) in granted {
                        // E5: nobody held it just now, so any transaction that counts on the guard has noted it since.
                        let edge = ends.edge(direction);
                        if !is_own && edge.guard_count == guard_count {
                            edge.guard = None;
                        }
                    }
                    if !planted::is_on(Bug::DeadEdgeKept) {
                        DIRECTIONS.into_iter().for_each(|at| ends.enter(at, key, is_outermost(at)));
                    }
                    if ends.says_nothing() {
                        trees.remove(self.root);
                    }
                    shard.publish(&trees);
                    return Ok(None);
                };
                asking
            };
            if !txn.try_lock_key_instant(self.table, asking.lock, Mode::IX)? {
                return Ok(Some(asking.lock));
            }
            granted.push((asking, txn.held_key(self.table, asking.lock).is_some()));
        }
    }
}

#[cfg(test)]
#[path = "edges_tests.rs"]
mod tests;
