//! A node moves to another page, so that the file can end before the old one.
//!
//! ```text
//!          parent                                parent
//!         /      \                              /      \
//!   left ─► node (page 900) ─► right   ──►   left ─► node (page 40) ─► right
//! ```
//! J1. One group has the bits of both pages, the parent that names the page, the left sibling that links to it, and the
//!     new page with all its content. It also has the old page, formatted as something that is not a node (U1 in
//!     `merge.rs`).
//! J2. Latches in the usual order: the lower map, the higher map, parent, left sibling, node. The parent is latched
//!     only if it is unchanged since it named the node. A node that no parent names does not move: a thread that posts
//!     it relies on that (M1 in `post.rs`).
//! J3. The root never moves (T1 in `tree.rs`).
//! J4. All others know a page id only together with the page that named it. They follow it only if that page is
//!     unchanged (D1 in `search.rs`), or they latch the page and find that it is not a node any more.

use ledgerstone_buffer::OptimisticPage;
use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{OpId, PageId};
use ledgerstone_space::{OP_SPACE_CLEAR, OP_SPACE_SET, map_of};
use ledgerstone_txn::{KeyLock, Part, RECORD_OVERHEAD_BYTES, Txn, key_hash};

use super::args::{FormatArgs, write_relink, write_repoint};
use super::entry::entries_of;
use super::node::Node;
use super::ops::{OP_NODE_FORMAT, OP_NODE_FREE, OP_NODE_RELINK, OP_NODE_REPOINT};
use super::search::{Aim, Descent};
use super::tree::Tree;
use crate::TreeError;
use crate::blob::{self, BlobRef};

/// What moving has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Pages that have moved.
    pub moved_count: u64,
    /// Pages that could not, because others changed them all the time or there was no free page below the limit.
    pub stayed_count: u64,
    /// Leaves that were looked at, and once more if their large values were.
    pub leaf_count: u64,
}

/// What became of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveDone {
    Moved,
    Changed,
    NoPlace,
}

/// Bytes of a large value that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Tries of a node that others change all the time.
const TRY_COUNT_MAX: u32 = 8;

/// A child to move, as its parent names it.
struct Child<'t> {
    parent: OptimisticPage<'t>,
    slot: usize,
    id: PageId,
    /// The left sibling, if there is one.
    left: Option<PageId>,
}

impl Tree {
    /// Moves children of the node of `level` (1 or more) that holds `key`: those whose pages lie at or above `limit` go
    /// to free pages below it. Returns the key to go on with, or none at the end of the level.
    ///
    /// To be called as [`Tree::pack_children`] is.
    ///
    /// # Errors
    /// A page cannot be read, or the log refuses or fails.
    pub fn move_children(
        &self,
        txn: &mut Txn,
        level: u8,
        key: &[u8],
        limit: PageId,
        moved: &mut Moved,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        let (lows, high, child_count) = loop {
            let Some(parent) = self.find_parent(key, level)? else { return Ok(None) };
            let node = Node::new(parent.words());
            let due = (0..node.count()).filter(|&slot| node.child(slot) >= limit);
            let lows: Vec<Vec<u8>> = due.map(|slot| node.key(slot)).collect();
            let (high, child_count) = (node.high(), node.count());
            if parent.check().is_ok() {
                break (lows, high, child_count);
            }
        };
        if level == 1 {
            moved.leaf_count += child_count as u64;
        }
        for low in lows {
            let mut tries = 0;
            loop {
                match self.move_child(txn, level, &low, limit)? {
                    Some(MoveDone::Moved) => moved.moved_count += 1,
                    Some(MoveDone::Changed) if tries < TRY_COUNT_MAX => {
                        tries += 1;
                        continue;
                    }
                    Some(MoveDone::Changed | MoveDone::NoPlace) => moved.stayed_count += 1,
                    None => {}
                }
                break;
            }
        }
        Ok((!high.is_empty()).then_some(high))
    }

    /// Moves the child of `level` that begins at `low`. `None` if it need not move any more.
    fn move_child(&self, txn: &mut Txn, level: u8, low: &[u8], limit: PageId) -> Result<Option<MoveDone>, TreeError> {
        txn.claim(self.page_bytes + self.page_bytes / 2 + 10 * RECORD_OVERHEAD_BYTES)?;
        let Some(parent) = self.find_parent(low, level)? else { return Ok(None) };
        let node = Node::new(parent.words());
        let slot = node.child_slot(low);
        let id = node.child(slot);
        let is_named = node.compare_key(slot, low).is_eq();
        let left = slot.checked_sub(1).map(|slot| node.child(slot));
        if parent.check().is_err() {
            return Ok(Some(MoveDone::Changed));
        }
        if !is_named || id < limit {
            return Ok(None);
        }
        let left = match left {
            None if !low.is_empty() => {
                let Some(left) = self.find_at(Aim::Below(low), level - 1, &mut Descent::default())? else {
                    return Ok(None);
                };
                Some(left.id())
            }
            left => left,
        };
        Ok(Some(self.move_named(txn, Child { parent, slot, id, left }, limit)?))
    }

    fn move_named(&self, txn: &mut Txn, child: Child<'_>, limit: PageId) -> Result<MoveDone, TreeError> {
        let (cache, space) = (&self.engine.cache, &self.space);
        // They are brought in before anything is latched.
        for id in child.left.into_iter().chain([child.id]) {
            let _ = cache.optimistic(id);
        }
        let Some(mut run) = space.latch_free_below(1, limit)? else { return Ok(MoveDone::NoPlace) };
        let map_id = map_of(child.id, self.page_bytes);
        // J2: the new page lies below the old one, and so does its map.
        let mut old_map = if map_id == run.map.id() { None } else { Some(space.latch_map_of(child.id)?) };
        let Ok(mut parent) = child.parent.try_upgrade() else { return Ok(MoveDone::Changed) };
        let mut left = match child.left {
            Some(id) => match self.exclusive_if_there(id)? {
                Some(page) => Some(page),
                None => return Ok(MoveDone::Changed),
            },
            None => None,
        };
        let mut page = cache.exclusive(child.id)?;
        let copy = page.words().to_vec(0, self.page_bytes);
        let node = Node::new(copy.as_slice());
        if !node.is_of(self.root) {
            return Err(Self::corrupt(child.id, "owner of a b-tree node", self.root.0, 0));
        }
        if let Some(left) = &left {
            let before = Node::new(left.words());
            if !before.is_of(self.root)
                || before.level() != node.level()
                || before.link() != child.id
                || before.high() != node.low()
            {
                return Ok(MoveDone::Changed);
            }
        }
        if node.level() == 0 && !self.try_lock_leaves(txn, &[child.id, run.first])? {
            return Ok(MoveDone::Changed);
        }
        let (low, high) = (node.low(), node.high());
        let (level, link, entries) = (node.level(), node.link(), entries_of(&node));
        let format = FormatArgs { root: self.root, level, link, low: &low, high: &high, entries }.write();
        let set = run.args_set();
        let clear = space.args_clear(old_map.as_ref().unwrap_or(&run.map), child.id, 1)?;
        let mut new = cache.exclusive_new(run.first)?;
        let (repoint, relink) = (write_repoint(child.slot, run.first), write_relink(run.first));
        let mut pages = vec![&mut run.map, &mut parent, &mut new, &mut page];
        let mut parts: Vec<(usize, OpId, &[u8])> = vec![
            (0, OP_SPACE_SET, &set),
            (2, OP_NODE_FORMAT, &format),
            (1, OP_NODE_REPOINT, &repoint),
            (3, OP_NODE_FREE, &[]),
        ];
        if let Some(left) = &mut left {
            parts.push((pages.len(), OP_NODE_RELINK, &relink));
            pages.push(left);
        }
        match &mut old_map {
            Some(map) => {
                parts.push((pages.len(), OP_SPACE_CLEAR, &clear));
                pages.push(map);
            }
            None => parts.push((0, OP_SPACE_CLEAR, &clear)),
        }
        let parts: Vec<Part<'_>> = parts.into_iter().map(|(page, op, args)| Part { page, op, args }).collect();
        if planted::is_on(Bug::HalfMove) {
            let (first, second) = parts.split_at(2);
            txn.group(&mut pages, second)?;
            txn.group(&mut pages, first)?;
        } else {
            txn.group(&mut pages, &parts)?;
        }
        Ok(MoveDone::Moved)
    }
}

impl Tree {
    /// Writes large values of the leaf that holds `key` anew, if they have a page at or above `limit`. Their old pages
    /// are freed as those of any replaced value. Returns the key to go on with, or none at the end of the tree.
    ///
    /// Takes the keys' locks exclusively, without waiting. A value that is in use stays.
    ///
    /// # Errors
    /// A page cannot be read, there is no space, or the log refuses or fails.
    pub fn move_blobs(
        &self,
        txn: &mut Txn,
        key: &[u8],
        limit: PageId,
        moved: &mut Moved,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        let (keys, high) = {
            let leaf = self.engine.cache.shared(self.find_leaf(Aim::Key(key), &mut Descent::default())?.id());
            let leaf = match leaf {
                Ok(leaf) => leaf,
                Err(error) if error.is_never_written() => return Ok(Some(key.to_vec())),
                Err(error) => return Err(error.into()),
            };
            let node = Node::new(leaf.words());
            if !node.is_of(self.root) || node.level() != 0 || node.is_before(key) || node.is_beyond(key) {
                return Ok(Some(key.to_vec())); // Changed between the descent and the latch: again.
            }
            let is_blob = |&slot: &usize| node.record(slot).is_blob() && !node.record(slot).is_ghost();
            let keys: Vec<Vec<u8>> = (0..node.count()).filter(is_blob).map(|slot| node.key(slot)).collect();
            (keys, node.high())
        };
        moved.leaf_count += 1;
        for key in keys {
            let is_locked = if self.locks_pages() {
                self.try_lock_leaf(txn, self.find_key(&key, &mut Descent::default())?.page.id(), Mode::X)?
            } else {
                txn.try_lock_key(self.table, KeyLock::Key(key_hash(&key)), Mode::X)?
            };
            if !is_locked {
                moved.stayed_count += 1;
                continue;
            }
            let Some(reference) = self.blob_of(&key)? else { continue };
            let pages = blob::pages(&self.engine.cache, reference.page, Some(reference.len))?;
            let above = pages.iter().filter(|&&page| page >= limit).count() as u64;
            if above > 0 {
                self.rewrite_blob(txn, &key, reference)?;
                moved.moved_count += above;
            }
        }
        Ok((!high.is_empty()).then_some(high))
    }

    /// Writes a blob anew, piece by piece, so that no more than a piece is in memory.
    fn rewrite_blob(&self, txn: &mut Txn, key: &[u8], old: BlobRef) -> Result<(), TreeError> {
        let mut piece = Vec::new();
        blob::read_range(&self.engine.cache, old, 0, PIECE_BYTES, &mut piece)?;
        if piece.len() as u64 == old.len {
            return self.put_locked(txn, key, &piece);
        }
        self.put_as_blob(txn, key, &piece)?;
        let mut at = piece.len() as u64;
        while at < old.len {
            piece.clear();
            blob::read_range(&self.engine.cache, old, at, PIECE_BYTES, &mut piece)?;
            self.write_part(txn, key, at, &piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The reference of a key that is locked, if it has a large value.
    pub(super) fn blob_of(&self, key: &[u8]) -> Result<Option<BlobRef>, TreeError> {
        let mut descent = Descent::default();
        loop {
            let spot = self.find_key(key, &mut descent)?;
            let node = Node::new(spot.page.words());
            let record = spot.slot.ok().map(|slot| (node.record(slot), node.value(slot)));
            if spot.page.check().is_err() {
                descent.restarted();
                continue;
            }
            return match record {
                Some((record, value)) if record.is_blob() && !record.is_ghost() => Ok(Some(BlobRef::decode(&value)?)),
                _ => Ok(None),
            };
        }
    }
}
