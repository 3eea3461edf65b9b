//! Freeing what nobody wants any more (F3), page by page, each step whole.
//!
//! A tree is taken apart from the right, below first:
//! 1. Nodes that no parent names are posted, so that from the root down all is named. The entry says that this is done.
//!    How far it has come is noted in this process only.
//! 2. The last child of the last child ... is freed with its name in its parent; a leaf after its blobs; a node without
//!    children like a leaf. Links are not followed any more: they may point to what is gone.
//! 3. The root and the entry go.
//!
//! R1. Nobody else looks at the structure: every transaction that could has ended (F3). So pages read one by one do
//!     not change in between.
//! R2. Steps are groups of the reclaimer's transaction: they stay whatever becomes of it. So it ends every
//!     [`STEPS_MAX`] steps and another goes on: one that freed a whole large tree would hold back the log of all that
//!     time. What takes few steps is freed together: up to [`ENTRIES_MAX`] entries, while the log has not grown by
//!     [`TURN_LOG_BYTES`]. A transaction that purges emptied leaves or entries, or is at step 1, looks at [`STEPS_MAX`]
//!     nodes at most. So whoever closes the environment, or wants the next turn, does not wait until a large tree has
//!     been read.
//! R3. A page that cannot be read keeps nothing from being freed but the structure that it belongs to. That one is
//!     passed over, and the call tells of the first of them when it has freed the rest.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_lock::{LockError, LockName, Mode};
use ledgerstone_page::{OpId, PageId, PageSet, TableId};
use ledgerstone_region::{NumberSet, sync};
use ledgerstone_space::{OP_SPACE_CLEAR, SpaceError};
use ledgerstone_txn::{Durability, Part, RECORD_OVERHEAD_BYTES, Txn, TxnError};

use super::emptied::Where;
use super::{Entry, Kind, Posting, State, ToFree, VALUE_BYTES, VALUE_HEADER};
use crate::Direction;
use crate::TreeError;
use crate::blob::{self, BlobRef, OP_BLOB_FREE};
use crate::btree::args::{Place, ReplaceArgs, write_place, write_remove};
use crate::btree::node::Node;
use crate::btree::ops::{OP_NODE_DELETE, OP_NODE_FREE, OP_NODE_REMOVE, OP_NODE_REPLACE};
use crate::btree::search::{Aim, Descent, Spot, Unposted};
use crate::btree::tree::{Read, Tree};

/// Steps of one transaction.
const STEPS_MAX: u32 = 1024;

/// Locks on leaves of one transaction that purges, or a few more: users may want these leaves.
const LOCKS_MAX: u64 = 256;

/// Entries of one transaction; and how much the log grows, by anybody, before the next one begins.
const ENTRIES_MAX: u32 = 64;
const TURN_LOG_BYTES: u64 = 128 << 10;

/// How long a turn waits for another's end, at least. A turn's work is bounded (R2), and users' lock time-outs, which
/// may be zero, are not meant for it. Nor is it long: the other turn may wait for a callback of the user's, which waits
/// for this one in another thread.
const TURN_WAIT_NS_MIN: u64 = 2_000_000_000;
/// How often it looks meanwhile whether the environment has failed.
const TURN_LOOK_NS: u64 = 50_000_000;

impl ToFree {
    /// Frees everything that can be freed now, and unlinks the leaves that deletions have emptied. It leaves alone what
    /// running transactions still need.
    ///
    /// This takes many small transactions, one after the other. A failure ends the call with the rest undone, and the
    /// next call goes on. Two calls at the same time take turns.
    ///
    /// # Errors
    /// A page cannot be read (R3), or the log or the lock table refuses.
    pub fn reclaim(&self) -> Result<(), TreeError> {
        self.reclaim_in_turns(&mut || true).map(drop)
    }

    /// As [`ToFree::reclaim`], and calls `between` after each of its transactions. Nothing is latched or locked then,
    /// and `false` ends the call. Returns whether anything was freed or purged. If not, all that is left is still in
    /// use.
    ///
    /// # Errors
    /// As [`ToFree::reclaim`].
    pub fn reclaim_in_turns(&self, between: &mut dyn FnMut() -> bool) -> Result<bool, TreeError> {
        self.notes.has_entries.store(false, Relaxed);
        let mut round = Round { between, is_ended: false, has_freed: false, damage: None };
        let done = self.reclaim_entries(&mut round).and_then(|()| self.reclaim_emptied(&mut round));
        let done = done.and_then(|()| round.damage.take().map_or(Ok(()), Err));
        if done.is_err() || round.is_ended {
            self.notes.has_entries.store(true, Relaxed);
        }
        done.map(|()| round.has_freed)
    }

    /// Begins a transaction in which pages leave trees, as the reclaimer does it. Others wait until it has ended (H1).
    /// It never comes to lock a user's table whole.
    ///
    /// # Errors
    /// A lock was refused, or the environment has failed.
    pub fn begin_turn(&self) -> Result<Txn, TreeError> {
        let mut txn = self.tree.engine.begin()?;
        txn.never_lock_whole_tables();
        let engine = &self.tree.engine;
        let (began_ns, wait_ns) = (sync::now_ns(), engine.settings.lock_timeout_ns.max(TURN_WAIT_NS_MIN));
        txn.set_lock_timeout_ns(TURN_LOOK_NS);
        loop {
            match txn.lock(LockName::other(self.tree.table, 0), Mode::X) {
                // A log that has failed wakes nobody that waits here, and the other turn may never end.
                Err(TxnError::Lock(LockError::Timeout { .. })) if sync::now_ns().saturating_sub(began_ns) < wait_ns => {
                    engine.check()?;
                }
                locked => break locked?,
            }
        }
        txn.set_lock_timeout_ns(engine.settings.lock_timeout_ns);
        Ok(txn)
    }

    fn reclaim_entries(&self, round: &mut Round<'_>) -> Result<(), TreeError> {
        let entries = self.entries()?;
        self.forget_others(&entries);
        self.reclaim_all(&entries, round)?;
        if !entries.is_empty() {
            self.notes.has_ghosts.store(true, Relaxed);
        }
        if entries.iter().any(|entry| matches!(entry.kind, Kind::Own(_))) {
            // The pages that it was taken apart into (O1 in `own.rs`).
            let mut pages = self.entries()?;
            pages.retain(|entry| entry.kind == Kind::Page);
            self.reclaim_all(&pages, round)?;
        }
        if self.notes.has_ghosts.load(Relaxed) { self.purge_entries(round) } else { Ok(()) }
    }

    /// What other processes have freed needs no notes here any more.
    fn forget_others(&self, entries: &[Entry]) {
        let there: NumberSet<Entry> = entries.iter().copied().collect();
        self.notes.ended.lock().retain(|entry, _| there.contains(entry));
        self.notes.posting.lock().retain(|entry, _| there.contains(entry));
    }

    /// Purges the entries that are gone, [`STEPS_MAX`] leaves in a transaction (R2). Begins with a whole one even if
    /// the round has ended: most have no more.
    fn purge_entries(&self, round: &mut Round<'_>) -> Result<(), TreeError> {
        let mut goes_on_at = Some(Vec::new());
        loop {
            let mut txn = self.tree.engine.begin()?;
            let is_locked = txn.try_lock_table(self.tree.table, Mode::IX)?;
            let mut step_count = 0;
            while is_locked
                && step_count < STEPS_MAX
                && let Some(at) = goes_on_at.take()
            {
                (_, goes_on_at) = self.tree.purge_next(&mut txn, &at)?;
                step_count += 1;
            }
            txn.commit(Durability::Volatile)?;
            if goes_on_at.is_none() {
                self.notes.has_ghosts.store(false, Relaxed);
                return Ok(());
            }
            if !is_locked || round.is_ended {
                return Ok(()); // Somebody wants the entries to stand still, or the call to end: another time.
            }
            round.turn_ended(false);
        }
    }

    fn reclaim_all(&self, entries: &[Entry], round: &mut Round<'_>) -> Result<(), TreeError> {
        let engine = &self.tree.engine;
        let mut left = entries.iter().filter(|&&entry| self.is_behind_snapshots(entry)).peekable();
        'turns: while left.peek().is_some() && !round.is_ended {
            let mut txn = self.begin_turn()?;
            let (began, mut count, mut has_freed) = (engine.log.tail(), 0, false);
            while count < ENTRIES_MAX
                && engine.log.tail().0 - began.0 < TURN_LOG_BYTES
                && let Some(&&entry) = left.peek()
            {
                let outcome = match self.reclaim_entry(&mut txn, entry) {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        self.pass_over(error, round)?;
                        left.next(); // Its entry stays, and what was done of it does, too.
                        drop(txn);
                        round.turn_ended(has_freed);
                        continue 'turns;
                    }
                };
                has_freed |= outcome != Freed::Held;
                if outcome == Freed::Partly {
                    break; // R2
                }
                left.next();
                count += 1;
            }
            txn.commit(Durability::Volatile)?;
            round.turn_ended(has_freed);
        }
        Ok(())
    }

    fn reclaim_emptied(&self, round: &mut Round<'_>) -> Result<(), TreeError> {
        // In a turn: another call may have taken notes that it will put back.
        let txn = self.begin_turn()?;
        self.forget_if_taken_apart();
        let trees = self.notes.emptied.trees();
        txn.commit(Durability::Volatile)?;
        for (table, root) in trees {
            let mut goes_on_at = Some(Vec::new());
            while let Some(at) = goes_on_at.take() {
                if round.is_ended {
                    return Ok(());
                }
                if !at.is_empty() {
                    // The transaction before has changed neighbours of what it left, and its locks tell of its commit.
                    self.make_durable()?;
                }
                let mut txn = self.begin_turn()?;
                self.forget_if_taken_apart();
                let mut has_purged = false;
                if let Some(noted) = self.notes.emptied.take(table, root) {
                    let purged = match self.purge_emptied(&mut txn, (table, root), noted.clone(), at) {
                        Ok(purged) => purged,
                        Err(error) => {
                            // All of it: what is done already is soon seen.
                            self.notes.emptied.put_back(table, root, noted);
                            self.pass_over(error, round)?;
                            drop(txn);
                            round.turn_ended(false);
                            break;
                        }
                    };
                    self.notes.emptied.put_back(table, root, purged.left);
                    (has_purged, goes_on_at) = (purged.is_any, purged.goes_on_at);
                }
                txn.commit(Durability::Volatile)?;
                round.turn_ended(has_purged);
            }
        }
        Ok(())
    }

    /// H1 in `emptied.rs`. In a turn.
    fn forget_if_taken_apart(&self) {
        let (here, all) = (&self.notes.taken_apart, self.tree.space.taken_apart());
        if here.swap(all.load(Relaxed), Relaxed) != all.load(Relaxed) {
            self.notes.emptied.forget_all();
        }
    }

    /// R3. Refuses what says nothing of a single structure.
    fn pass_over(&self, error: TreeError, round: &mut Round<'_>) -> Result<(), TreeError> {
        let is_damage = match &error {
            TreeError::Corrupt(_) | TreeError::Txn(TxnError::Corrupt(_)) => true,
            TreeError::Space(SpaceError::Map(_) | SpaceError::Outside(_)) => true,
            TreeError::Buffer(error)
            | TreeError::Txn(TxnError::Buffer(error))
            | TreeError::Space(SpaceError::Buffer(error)) => error.is_of_one_page(),
            _ => false,
        };
        if !is_damage || self.tree.engine.is_failed() {
            return Err(error);
        }
        round.damage.get_or_insert(error);
        Ok(())
    }

    /// F4. True, too, if it is not known yet when the entry's transaction ended.
    fn is_behind_snapshots(&self, entry: Entry) -> bool {
        let ended = self.notes.ended.lock().get(entry).copied();
        let is_behind = ended.is_none_or(|(_, ended)| self.tree.engine.versions.oldest_snapshot() >= ended);
        if !is_behind {
            self.notes.has_entries.store(true, Relaxed);
        }
        is_behind
    }

    /// Purges what was noted of a tree, from `at` on, as far as one transaction does (R2).
    fn purge_emptied(
        &self,
        txn: &mut Txn,
        (table, root): (TableId, PageId),
        noted: Where,
        at: Vec<u8>,
    ) -> Result<PurgedPart, TreeError> {
        if !txn.try_lock_table(table, Mode::IX)? || !txn.try_lock_table(self.tree.table, Mode::IX)? {
            // One of them is locked as a whole: another time. A dropped table is not locked any more. Whoever wants
            // its pages to stand still locks the deferred frees.
            return Ok(PurgedPart { left: noted, goes_on_at: None, is_any: false });
        }
        // With deferred frees: it locks what the table's users lock (H4 in `page_locks.rs`).
        let tree = Tree::new(&self.tree.engine, &self.tree.space, &Arc::new(self.clone()), table, root);
        let mut is_any = false;
        match noted {
            Where::From(first) => {
                // What an earlier part had to leave behind is another time's, and so is what was noted behind it.
                let mut left = (first < at).then(|| first.clone());
                let mut goes_on_at = Some(first.max(at));
                let mut count = 0;
                while count < STEPS_MAX
                    && txn.lock_count() < LOCKS_MAX
                    && let Some(key) = goes_on_at.take()
                {
                    let (purged, next) = tree.purge_next(txn, &key)?;
                    is_any |= purged.is_any();
                    if purged.held_count > 0 {
                        left.get_or_insert(key);
                    }
                    goes_on_at = next;
                    count += 1;
                }
                let left = left.or_else(|| goes_on_at.clone()).map_or_else(Where::nowhere, Where::From);
                Ok(PurgedPart { left, goes_on_at, is_any })
            }
            Where::Leaves(lows) => {
                let mut left = Vec::new();
                for low in lows {
                    let purged = tree.purge_at(txn, &low)?;
                    is_any |= purged.is_any();
                    if purged.held_count > 0 {
                        left.push(low);
                    }
                }
                Ok(PurgedPart { left: Where::Leaves(left), goes_on_at: None, is_any })
            }
        }
    }

    /// The pages of everything that waits to be freed. For checks that account for every page. Nothing may run
    /// meanwhile. Reads in `txn`, without locks.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn pages(&self, txn: &mut Txn) -> Result<PageSet, TreeError> {
        let mut pages = PageSet::default();
        for entry in self.entries_in(txn)? {
            match entry.kind {
                Kind::Page => drop(pages.insert(entry.root)),
                Kind::Own(structure) => {
                    pages.extend(self.own_pages(structure, entry.root)?.unwrap_or_else(|| vec![entry.root]));
                }
                Kind::Blob => pages.extend(blob::pages(&self.tree.engine.cache, entry.root, None)?),
                Kind::Tree => {
                    let tree = self.tree_of(entry);
                    if self.state_at(txn, entry)?.is_some_and(|state| state.is_posted) {
                        self.pages_by_name(&tree, tree.root, &mut pages)?;
                    } else {
                        let found = tree.check()?;
                        if let (true, Some(corrupt)) = (found.is_partial, found.problems.first()) {
                            return Err((*corrupt).into());
                        }
                        pages.extend(found.pages.iter());
                    }
                }
            }
        }
        Ok(pages)
    }

    fn entries(&self) -> Result<Vec<Entry>, TreeError> {
        let mut txn = self.tree.engine.begin()?;
        let entries = self.entries_in(&mut txn)?;
        txn.commit(Durability::Volatile)?;
        Ok(entries)
    }

    fn entries_in(&self, txn: &mut Txn) -> Result<Vec<Entry>, TreeError> {
        let mut entries = Vec::new();
        let mut scan = self.tree.scan_unlocked(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((key, _)) = scan.next(txn)? {
            entries.extend(Entry::decode(key));
        }
        Ok(entries)
    }

    fn tree_of(&self, entry: Entry) -> Tree {
        Tree::without_blobs(&self.tree.engine, &self.tree.space, self.tree.table, entry.root)
    }

    fn pages_by_name(&self, tree: &Tree, id: PageId, pages: &mut PageSet) -> Result<(), TreeError> {
        if !pages.insert(id) {
            return Err(Tree::corrupt(id, "page is used twice", 1, 2));
        }
        let copy = copy_of(tree, id)?;
        let node = Node::new(copy.as_slice());
        for slot in 0..node.count() {
            if node.level() > 0 {
                self.pages_by_name(tree, node.child(slot), pages)?;
            } else if node.record(slot).is_blob() && !node.record(slot).is_ghost() {
                let reference = BlobRef::decode(&node.value(slot))?;
                pages.extend(blob::pages(&tree.engine.cache, reference.page, None)?);
            }
        }
        Ok(())
    }

    /// What the entry says now, locked or not.
    fn state_at(&self, txn: &mut Txn, entry: Entry) -> Result<Option<State>, TreeError> {
        let value = self.tree.get(txn, &entry.key(), Read::Unlocked)?;
        value.map(|value| state_of(entry, &value)).transpose()
    }

    fn reclaim_entry(&self, txn: &mut Txn, entry: Entry) -> Result<Freed, TreeError> {
        // Not waited for: the housekeeper has other work, and may be asked to end.
        if !txn.try_lock_table(self.tree.table, Mode::IX)? {
            self.notes.has_entries.store(true, Relaxed);
            return Ok(Freed::Held);
        }
        let Some(state) = self.state_at(txn, entry)? else {
            self.notes.ended.lock().remove(entry);
            return Ok(Freed::Whole);
        };
        sync::yield_point("deferred free: entry read");
        if self.tree.engine.table.running().any(|xid| xid == state.writer) {
            self.notes.has_entries.store(true, Relaxed);
            return Ok(Freed::Held); // F3
        }
        // What the writer has left. It may have taken the entry out between the two looks, and then ended.
        if self.state_at(txn, entry)? != Some(state) {
            self.notes.has_entries.store(true, Relaxed);
            return Ok(Freed::Held);
        }
        let tail = self.tree.engine.log.tail();
        {
            let mut ended = self.notes.ended.lock();
            let noted = ended.get_or_insert_with(entry, || (state.writer, tail)); // F4
            if noted.0 != state.writer {
                *noted = (state.writer, tail);
            }
        }
        if !self.is_behind_snapshots(entry) {
            return Ok(Freed::Held);
        }
        match entry.kind {
            Kind::Own(structure) => self.take_own_apart(txn, entry, structure)?,
            Kind::Page => self.free_page(txn, entry)?,
            Kind::Blob => {
                if !blob::free_content(txn, &self.tree.space, entry.root, &mut { STEPS_MAX })? {
                    return Ok(Freed::Partly); // R2
                }
                self.free_root(txn, entry, OP_BLOB_FREE)?;
            }
            Kind::Tree => {
                // H1, and a tree half taken apart is none to look around in.
                self.forget_if_taken_apart();
                self.notes.emptied.forget(entry.root);
                self.notes.taken_apart.store(self.tree.space.taken_apart().fetch_add(1, Relaxed) + 1, Relaxed);
                self.notes.edges.forget(entry.root);
                let tree = self.tree_of(entry);
                if !state.is_posted {
                    let from = self.notes.posting.lock().remove(entry);
                    let from = from.filter(|(of, _)| *of == state.writer).map(|(_, from)| from);
                    if let Some(next) = post_some(txn, &tree, from)? {
                        self.notes.posting.lock().insert(entry, (state.writer, next));
                        return Ok(Freed::Partly); // R2
                    }
                    self.mark_posted(txn, entry, state)?;
                }
                let mut steps_left = STEPS_MAX;
                while let Some(step) = find_last(&tree)? {
                    if !free_last(txn, &tree, step, &mut steps_left)? {
                        return Ok(Freed::Partly); // R2
                    }
                }
                self.free_root(txn, entry, OP_NODE_FREE)?;
            }
        }
        self.notes.ended.lock().remove(entry);
        Ok(Freed::Whole)
    }

    /// Notes in the entry, for good, that links need not be followed any more.
    fn mark_posted(&self, txn: &mut Txn, entry: Entry, state: State) -> Result<(), TreeError> {
        let key = entry.key();
        txn.claim(4 * RECORD_OVERHEAD_BYTES)?;
        let Spot { page: mut leaf, slot } = self.tree.latch_leaf(&key, &mut Descent::default())?;
        let Ok(slot) = slot else { return Err(Tree::corrupt(entry.root, "entry to be freed", 1, 0)) };
        let place = Place { root: self.tree.root, slot, key: &key };
        // As long as the old value: it needs no room.
        let (old, new) = (state.encode(), State { is_posted: true, ..state }.encode());
        let header = VALUE_HEADER;
        let args = ReplaceArgs { place, old_header: header, old: &old, new_header: header, new: &new }.write();
        txn.group(&mut [&mut leaf], &[Part { page: 0, op: OP_NODE_REPLACE, args: &args }])?;
        Ok(())
    }

    /// The last step: root page and entry.
    fn free_root(&self, txn: &mut Txn, entry: Entry, op: OpId) -> Result<(), TreeError> {
        let (tree, key) = (&self.tree, entry.key());
        txn.claim(8 * RECORD_OVERHEAD_BYTES)?;
        let mut map = tree.space.latch_map_of(entry.root)?;
        let Spot { page: mut leaf, slot } = tree.latch_leaf(&key, &mut Descent::default())?;
        let Ok(slot) = slot else { return Err(Tree::corrupt(entry.root, "entry to be freed", 1, 0)) };
        let mut page = tree.engine.cache.exclusive(entry.root)?;
        let clear = tree.space.args_clear(&map, entry.root, 1)?;
        let ghost = write_place(Place { root: tree.root, slot, key: &key });
        txn.group(
            &mut [&mut map, &mut leaf, &mut page],
            &[
                Part { page: 0, op: OP_SPACE_CLEAR, args: &clear },
                Part { page: 1, op: OP_NODE_DELETE, args: &ghost },
                Part { page: 2, op, args: &[] },
            ],
        )?;
        Ok(())
    }
}

/// What an entry's value says.
fn state_of(entry: Entry, value: &[u8]) -> Result<State, TreeError> {
    let what = "value of a deferred free, in bytes";
    State::decode(value).ok_or_else(|| Tree::corrupt(entry.root, what, VALUE_BYTES as u64, value.len() as u64))
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freed {
    /// Nothing: somebody needs it.
    Held,
    /// So much as one transaction does.
    Partly,
    Whole,
}

/// What a transaction purged of a tree.
struct PurgedPart {
    /// What is still to be looked at.
    left: Where,
    /// Where the next transaction goes on, now.
    goes_on_at: Option<Vec<u8>>,
    /// Whether anything went.
    is_any: bool,
}

/// One call of the reclaimer.
struct Round<'b> {
    between: &'b mut dyn FnMut() -> bool,
    is_ended: bool,
    has_freed: bool,
    /// The first page that could not be read.
    damage: Option<TreeError>,
}

impl Round<'_> {
    fn turn_ended(&mut self, has_freed: bool) {
        self.has_freed |= has_freed;
        self.is_ended = !(self.between)();
    }
}

fn copy_of(tree: &Tree, id: PageId) -> Result<Vec<u8>, TreeError> {
    let page = tree.engine.cache.shared(id)?;
    let copy = page.words().to_vec(0, tree.page_bytes);
    if Node::new(copy.as_slice()).is_of(tree.root) {
        Ok(copy)
    } else {
        Err(Tree::corrupt(id, "owner of a b-tree node", tree.root.0, 0))
    }
}

/// Step 1, from the leaves up: a post can split a node above, which then has its turn. Looks at up to [`STEPS_MAX`]
/// nodes, and says where to go on if there are more (R1).
fn post_some(txn: &mut Txn, tree: &Tree, from: Option<Posting>) -> Result<Option<Posting>, TreeError> {
    let Posting { mut level, node: mut id } = from.unwrap_or(Posting { level: 0, node: PageId::NONE });
    let mut count = 0;
    loop {
        let height = Node::new(copy_of(tree, tree.root)?.as_slice()).level();
        if level >= height {
            return Ok(None);
        }
        if id == PageId::NONE {
            let Some(first) = tree.find_at(Aim::Key(&[]), level, &mut Descent::default())? else { return Ok(None) };
            id = first.id();
        }
        while id != PageId::NONE {
            if count == STEPS_MAX {
                return Ok(Some(Posting { level, node: id }));
            }
            count += 1;
            let copy = copy_of(tree, id)?;
            let node = Node::new(copy.as_slice());
            if !node.is_rightmost() {
                let unposted = Unposted { level: level + 1, separator: node.high(), child: node.link() };
                tree.post_surely(txn, &unposted)?;
            }
            id = node.link();
        }
        level += 1;
    }
}

/// What goes next.
enum Step {
    /// A blob of the last leaf, in this slot.
    Blob { leaf: PageId, slot: usize, blob: PageId },
    /// A node without children or blobs, and its parent.
    Node { node: PageId, parent: PageId },
}

/// Step 2: finds what goes next. `None` if only the root is left.
fn find_last(tree: &Tree) -> Result<Option<Step>, TreeError> {
    let (mut id, mut parent) = (tree.root, None);
    loop {
        let copy = copy_of(tree, id)?;
        let node = Node::new(copy.as_slice());
        if node.level() > 0 && node.count() > 0 {
            parent = Some(id);
            id = node.child(node.last_slot());
            continue;
        }
        if node.level() == 0 {
            for slot in 0..node.count() {
                let record = node.record(slot);
                if record.is_blob() && !record.is_ghost() {
                    let blob = BlobRef::decode(&node.value(slot))?.page;
                    return Ok(Some(Step::Blob { leaf: id, slot, blob }));
                }
            }
        }
        return Ok(parent.map(|parent| Step::Node { node: id, parent }));
    }
}

/// False: this would be more than `steps_left`, which it counts down.
fn free_last(txn: &mut Txn, tree: &Tree, step: Step, steps_left: &mut u32) -> Result<bool, TreeError> {
    let (cache, space) = (&tree.engine.cache, &tree.space);
    if let Step::Blob { blob, .. } = step
        && !blob::free_content(txn, space, blob, steps_left)?
    {
        return Ok(false);
    }
    if *steps_left == 0 {
        return Ok(false);
    }
    *steps_left -= 1;
    match step {
        Step::Blob { leaf, slot, blob } => {
            txn.claim(8 * RECORD_OVERHEAD_BYTES)?;
            let mut map = space.latch_map_of(blob)?;
            let mut leaf = cache.exclusive(leaf)?;
            let mut index = cache.exclusive(blob)?;
            let (clear, remove) = (space.args_clear(&map, blob, 1)?, write_remove(&[slot]));
            txn.group(
                &mut [&mut map, &mut leaf, &mut index],
                &[
                    Part { page: 0, op: OP_SPACE_CLEAR, args: &clear },
                    Part { page: 1, op: OP_NODE_REMOVE, args: &remove },
                    Part { page: 2, op: OP_BLOB_FREE, args: &[] },
                ],
            )?;
        }
        Step::Node { node, parent } => {
            txn.claim(8 * RECORD_OVERHEAD_BYTES)?;
            let mut map = space.latch_map_of(node)?;
            let mut parent = cache.exclusive(parent)?;
            let mut page = cache.exclusive(node)?;
            let last = Node::new(parent.words()).last_slot();
            let (clear, remove) = (space.args_clear(&map, node, 1)?, write_remove(&[last]));
            txn.group(
                &mut [&mut map, &mut parent, &mut page],
                &[
                    Part { page: 0, op: OP_SPACE_CLEAR, args: &clear },
                    Part { page: 1, op: OP_NODE_REMOVE, args: &remove },
                    Part { page: 2, op: OP_NODE_FREE, args: &[] },
                ],
            )?;
        }
    }
    Ok(true)
}
