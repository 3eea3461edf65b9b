//! Ghosts are purged when nobody needs them as keys any more, and pads when nobody can want the old value back.
//!
//! G1. A ghost goes only if no transaction at all, the caller included, holds a lock on its key or on the gap before
//!     it. Then its deleter has ended, and no running transaction has read that the key is absent, or has read the gap.
//! G2. Nobody holds a lock on the whole table that stands for such locks, again the caller included.
//! G3. That is looked at under the exclusive latch of the leaf. A thread that locks a gap checks the leaf afterwards,
//!     and one that locks a key looks for it afterwards: both find that the ghost is gone.
//! G4. A pad goes only if nobody holds its key exclusively, in the same way.
//! G5. Rollback comes by here never: at restart the losers' locks are not there to be seen.
//! G6. Nor if a snapshot may still see the record that it was: then its image is in the version store, which is looked
//!     at under the latch, too. Images come only under it and with the key locked; so when there is none, there will be
//!     none but of later changes.
//! G7. Nor before the commit that made it is durable. A transaction that reads that a key is absent locks the key, or
//!     the gap before the next one. But only the key's lock knows of that commit. Without the ghost nobody would ask
//!     it, and a reader could call himself durable whose answer a crash takes back. A transaction that deleted with
//!     the whole table locked has told each reader by that lock. Where leaves are locked, it is the leaf's lock that
//!     knows, also of what a split has moved there.
//! G8. In the tree of deferred frees no key is locked, and no snapshot or reader looks for an absent one. There a ghost
//!     goes once the transaction that its value names has ended (T4 in `txn/table.rs`), which is looked at under the
//!     latch, too.

use ledgerstone_buffer::ExclusivePage;
use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_txn::{KeyLock, Part, RECORD_OVERHEAD_BYTES, Txn, key_name, table_name};

use super::args::write_remove;
use super::node::Node;
use super::ops::{OP_NODE_REMOVE, OP_NODE_TRIM};
use super::search::{Aim, Descent, hash_of};
use super::tree::Tree;
use crate::TreeError;
use crate::to_free::writer_of;

/// A leaf that uses less than this part of its page is merged with a neighbour.
const SPARSE_PART: usize = 4;

/// What a purge did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Ghosts removed.
    pub ghost_count: u64,
    /// Pages given back.
    pub page_count: u64,
    /// Ghosts that are still in use.
    pub held_count: u64,
}

impl Purged {
    /// Whether anything went.
    pub(crate) fn is_any(&self) -> bool {
        self.ghost_count + self.page_count > 0
    }
}

impl Tree {
    /// Removes the ghosts that are no longer needed from the whole tree, and gives empty pages back.
    ///
    /// For housekeeping, in a transaction of its own. Locks the table with an intention, which keeps others from
    /// locking all of it exclusively.
    ///
    /// # Errors
    /// A page cannot be read, the log refuses or fails, or a lock was refused.
    pub fn purge(&self, txn: &mut Txn) -> Result<Purged, TreeError> {
        txn.lock_table(self.table, Mode::IX)?;
        let mut all = Purged::default();
        let mut key = Some(Vec::new());
        while let Some(at) = key {
            let (purged, next) = self.purge_next(txn, &at)?;
            all.ghost_count += purged.ghost_count;
            all.page_count += purged.page_count;
            all.held_count += purged.held_count;
            key = next;
        }
        Ok(all)
    }

    /// As [`Tree::purge`], but of the leaf that holds `key`, and returns the key to go on with. The table is locked
    /// with an intention.
    pub(crate) fn purge_next(&self, txn: &mut Txn, key: &[u8]) -> Result<(Purged, Option<Vec<u8>>), TreeError> {
        let mut descent = Descent::default();
        let (has_work, next) = loop {
            let page = self.find_leaf(Aim::Key(key), &mut descent)?;
            let node = Node::new(page.words());
            let (has_work, is_rightmost, high) =
                (node.ghosts() > 0 || node.count() == 0, node.is_rightmost(), node.high());
            if page.check().is_ok() {
                break (has_work, (!is_rightmost).then_some(high));
            }
            descent.restarted();
        };
        let mut purged = Purged::default();
        if has_work {
            self.purge_leaf(txn, key, &mut purged)?;
        }
        Ok((purged, next))
    }

    /// As [`Tree::purge`], but of the leaf that holds `key` only. The table is locked with an intention.
    pub(crate) fn purge_at(&self, txn: &mut Txn, key: &[u8]) -> Result<Purged, TreeError> {
        let mut purged = Purged::default();
        self.purge_leaf(txn, key, &mut purged)?;
        Ok(purged)
    }

    /// Purges the leaf whose range holds `key`, and unlinks it if it is empty then, or merges it if little is left.
    pub(super) fn purge_leaf(&self, txn: &mut Txn, key: &[u8], purged: &mut Purged) -> Result<(), TreeError> {
        txn.claim(4 * RECORD_OVERHEAD_BYTES + self.page_bytes / 4)?;
        let mut leaf = self.latch_leaf_of(key, &mut Descent::default())?;
        let ghosts = Node::new(leaf.words()).ghosts() as u64;
        let gone = self.purge_latched(txn, &mut leaf)?;
        purged.ghost_count += gone;
        purged.held_count += ghosts - gone;
        let is_empty = Node::new(leaf.words()).count() == 0;
        let is_sparse = Node::new(leaf.words()).live_bytes() < self.page_bytes / SPARSE_PART;
        let low = Node::new(leaf.words()).low();
        drop(leaf);
        if is_empty {
            purged.page_count += self.unlink_empty(txn, &low)?;
        } else if is_sparse {
            purged.page_count += u64::from(self.merge_sparse(txn, &low)?);
        }
        Ok(())
    }

    /// G6.
    fn is_seen(&self, key: &[u8]) -> bool {
        !planted::is_on(Bug::GhostPurgedEarly) && self.engine.versions.has_images(self.root, key)
    }

    /// Removes the ghosts and pads that can go from a latched leaf, and says how many ghosts. The caller has claimed a
    /// quarter of a page of log.
    pub(crate) fn purge_latched(&self, txn: &mut Txn, leaf: &mut ExclusivePage<'_>) -> Result<u64, TreeError> {
        let node = Node::new(leaf.words());
        let records = || (0..node.count()).map(|slot| (slot, node.record(slot)));
        if !records().any(|(_, record)| record.is_ghost() || record.pad > 0) {
            return Ok(0);
        }
        let locks = &self.engine.locks;
        // G2.
        if !matches!(locks.held_by_any(table_name(self.table)), None | Some(Mode::IS | Mode::IX)) {
            return Ok(0);
        }
        if self.locks_pages() && !self.may_purge_leaf(txn, leaf) {
            return Ok(0);
        }
        let (mut ghosts, mut padded) = (Vec::new(), Vec::new());
        let running: Vec<Xid> = if self.names_writers { self.engine.table.running().collect() } else { Vec::new() };
        // G7.
        let durable = match &self.to_free {
            Some(to_free) if leaf.page_lsn() >= to_free.durable_below() => self.engine.log.durable_lsn(),
            _ => Lsn(u64::MAX),
        };
        let page = KeyLock::Page(leaf.id());
        let mut undurable = Lsn(0);
        for (slot, record) in records() {
            if !record.is_ghost() && record.pad == 0 {
                continue;
            }
            if self.names_writers {
                if record.is_ghost() && writer_of(&node.value(slot)).is_none_or(|writer| !running.contains(&writer)) {
                    ghosts.push(slot); // G8. All values have one length, so there are no pads.
                }
                continue;
            }
            let hash = hash_of(&node, slot);
            let held = |what| locks.held_by_any(key_name(self.table, what));
            let key = held(KeyLock::Key(hash));
            if record.is_ghost() && key.is_none() && held(KeyLock::Gap(hash)).is_none() {
                let lock = if self.locks_pages() { page } else { KeyLock::Key(hash) };
                let commit = locks.depends(key_name(self.table, lock));
                if commit >= durable {
                    undurable = undurable.max(commit);
                    continue;
                }
                if !self.is_seen(&node.key(slot)) {
                    ghosts.push(slot);
                }
            } else if record.pad > 0 && !matches!(key, Some(Mode::X | Mode::SIX)) {
                padded.push(slot);
            }
        }
        if undurable > Lsn(0) {
            self.engine.log.request_flush_soon(undurable); // For the next that comes by.
        }
        // The slots of both are those before any change: what moves none goes first.
        for (op, slots) in [(OP_NODE_TRIM, &padded), (OP_NODE_REMOVE, &ghosts)] {
            if !slots.is_empty() {
                let args = write_remove(slots);
                txn.group(&mut [leaf], &[Part { page: 0, op, args: &args }])?;
            }
        }
        Ok(ghosts.len() as u64)
    }
}
