//! Put, insert, modify, delete.
//!
//! W1. The key is locked exclusively before anything is looked at. From then on nobody else changes this record.
//! W2. Log space is claimed before the leaf is latched, and nothing is waited for while it is.
//! W3. A new key is a change of the gap that it falls into. So the next key's gap is asked for, for an instant, with
//!     an intention that conflicts with a reader of the gap. If this transaction itself has read the gap, it now holds
//!     two: it inherits its lock to the gap before the new key. Where the tree is known to be dead at one of its ends,
//!     the lock of that end is asked for as well (E4 in `edges.rs`).
//! W4. Rollback needs no space. A new record that is taken back becomes a ghost. A deleted record is a ghost with its
//!     value, and a shorter value keeps the bytes that it does not use (N6 in `node.rs`). A new value for a ghost's key
//!     is a replacement: its undo brings the ghost back as it was.
//! W5. Only what differs is logged: a value of the same length is patched.
//! W6. A blob is written before its record, by groups that stay. It is freed after its record, by the reclaimer.
//!     Whenever no record stands for it, an entry in the tree of deferred frees does.
//! W7. What a record was is noted for snapshots before its first change, under the leaf's latch (V1 of the version
//!     store): a ghost was not a record. The tree of deferred frees is nobody's to read and notes nothing.
//! W8. A tree whose values are logged whole patches nothing, and a deletion replaces the value by an empty ghost. Both
//!     values are in the record, as readers of changes want them.

use ledgerstone_buffer::ExclusivePage;
use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{OpId, PageId};
use ledgerstone_txn::{Before, KeyLock, RECORD_OVERHEAD_BYTES, Txn, key_hash};

use super::args::{InsertArgs, PatchArgs, Place, ReplaceArgs, write_place};
use super::edit::{Plan, plan_insert, plan_replace};
use super::node::{BLOB, GHOST, Node, PADDED, value_bytes_max};
use super::ops::{OP_NODE_DELETE, OP_NODE_INSERT, OP_NODE_PATCH, OP_NODE_REPLACE};
use super::search::{Behind, Descent, Gap, Held, Spot};
use super::snapshot::touched_bit;
use super::split::Need;
use super::tree::Tree;
use crate::TreeError;
use crate::blob::{self, BLOB_BYTES_MAX, BlobRef};
use crate::difference::difference;
use crate::scratch::Scratch;

/// What to do when the key has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existing {
    Replace,
    Keep,
}

/// What a write met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// No value.
    Nothing,
    /// A value, now replaced. Its blob is nobody's.
    Value(Option<BlobRef>),
    /// A value, which was kept.
    Kept,
}

/// How often a writer that puts a record waits for readers of its gap before it keeps the lock on the gap.
const ENTER_WAITS_MAX: u32 = 3;

impl Tree {
    /// Sets the value of `key`, and returns whether it had one.
    ///
    /// # Errors
    /// The key or value is too large, a lock was refused, there is no space (nothing has changed), or a page cannot be
    /// read.
    pub fn put(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<bool, TreeError> {
        self.check_sizes(key, value)?;
        self.lock_to_write(txn, key)?;
        Ok(self.write(txn, key, value, Existing::Replace)? != Met::Nothing)
    }

    /// Sets the value of a key that has none. Returns false, with nothing changed, if the key has one.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn insert(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<bool, TreeError> {
        self.check_sizes(key, value)?;
        self.lock_to_write(txn, key)?;
        Ok(self.write(txn, key, value, Existing::Keep)? == Met::Nothing)
    }

    /// Reads the value of `key` and sets what `change` makes of it, in one descent. `None` leaves the value alone.
    /// Returns whether the key has a value.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn modify(
        &self,
        txn: &mut Txn,
        key: &[u8],
        change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<bool, TreeError> {
        self.modify_by(txn, key, change, Descent::of_writer())
    }

    /// The same by a descent that has begun, and so may latch its way.
    #[inline]
    pub(super) fn modify_by(
        &self,
        txn: &mut Txn,
        key: &[u8],
        change: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
        mut descent: Descent,
    ) -> Result<bool, TreeError> {
        self.check_key(key)?;
        let mut ahead = if descent.is_latching() { None } else { self.leaf_ahead(key) };
        self.lock_to_write(txn, key)?;
        let mut old = Scratch::new();
        let (found, slot, is_blob) = loop {
            let spot = match ahead.take().and_then(|leaf| self.key_in(leaf, key)) {
                Some(spot) => spot,
                None => self.find_key(key, &mut descent)?,
            };
            let leaf = spot.page.id();
            if !self.try_lock_leaf_to_write(txn, leaf, key)? {
                drop(spot);
                self.wait_for_leaf(txn, leaf, Mode::X)?;
                continue;
            }
            match spot.slot {
                Ok(slot) => {
                    let node = Node::new(spot.page.words());
                    let record = node.record(slot);
                    old.clear();
                    node.value_to(slot, &mut old);
                    if spot.page.check().is_err() {
                        descent.restarted();
                    } else if record.is_ghost() {
                        return Ok(false);
                    } else {
                        break (spot.page.unlatched(), slot, record.is_blob());
                    }
                }
                Err(slot) => {
                    if self.lock_absent(txn, spot.page, slot, key, &mut descent)? {
                        return Ok(false);
                    }
                }
            }
        };
        if is_blob {
            let reference = BlobRef::decode(&old)?;
            old.clear();
            blob::read(&self.engine.cache, reference, &mut old)?;
            if let Some(new) = change(&old) {
                self.check_sizes(key, &new)?;
                self.write(txn, key, &new, Existing::Replace)?;
            }
            return Ok(true);
        }
        // W1: nobody else changes the value while the caller thinks about it; no latch is held (W2), also if one was
        // needed to find the leaf.
        let Some(new) = change(&old) else { return Ok(true) };
        self.check_sizes(key, &new)?;
        if new == *old {
            return Ok(true);
        }
        if new.len() <= value_bytes_max(self.page_bytes, key.len()) {
            txn.claim(2 * RECORD_OVERHEAD_BYTES + key.len() + old.len() + new.len())?;
            if let Ok(mut page) = found.try_upgrade()
                && plan_replace(&Node::new(page.words()), slot, new.len()) != Plan::Full
            {
                self.log_value(txn, &mut page, slot, key, (old.len() as u16, &old), (new.len() as u16, &new))?;
                drop(page);
                self.post_missing(txn, descent)?;
                return Ok(true);
            }
        }
        self.write(txn, key, &new, Existing::Replace)?;
        Ok(true)
    }

    /// Removes `key`, and returns whether it had a value.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn delete(&self, txn: &mut Txn, key: &[u8]) -> Result<bool, TreeError> {
        self.check_key(key)?;
        self.lock_to_write(txn, key)?;
        let mut descent = Descent::of_writer();
        let blob = loop {
            txn.claim(2 * RECORD_OVERHEAD_BYTES + key.len() + self.ghost_bytes())?;
            let Spot { mut page, slot } = self.latch_leaf(key, &mut descent)?;
            let leaf = page.id();
            if !self.try_lock_leaf_to_write(txn, leaf, key)? {
                drop(page);
                self.wait_for_leaf(txn, leaf, Mode::X)?;
                continue;
            }
            match slot {
                Ok(slot) => {
                    let node = Node::new(page.words());
                    let record = node.record(slot);
                    if record.is_ghost() {
                        return Ok(false);
                    }
                    break self.ghost_record(txn, &mut page, slot, key)?.flatten();
                }
                Err(_) => {
                    // The rare case, not worth locking under the latch.
                    drop(page);
                    let spot = self.find_key(key, &mut descent)?;
                    if let Err(slot) = spot.slot
                        && self.lock_absent(txn, spot.page, slot, key, &mut descent)?
                    {
                        return Ok(false);
                    }
                }
            }
        };
        self.post_missing(txn, descent)?;
        self.defer_blob(txn, blob)?;
        Ok(true)
    }

    /// Bytes of the log that a deletion takes for the old value (W8).
    pub(super) fn ghost_bytes(&self) -> usize {
        if self.logs_whole { value_bytes_max(self.page_bytes, 0) } else { 0 }
    }

    /// Makes a record of a latched leaf, whose key is locked exclusively, a ghost; gives its blob, which is nobody's
    /// now. None if it was a ghost already.
    pub(super) fn ghost_record(
        &self,
        txn: &mut Txn,
        page: &mut ExclusivePage<'_>,
        slot: usize,
        key: &[u8],
    ) -> Result<Option<Option<BlobRef>>, TreeError> {
        let node = Node::new(page.words());
        let record = node.record(slot);
        if record.is_ghost() {
            return Ok(None);
        }
        let blob = if record.is_blob() { Some(BlobRef::decode(&node.value(slot))?) } else { None };
        self.note(txn, key, Before::Record(record.header & !PADDED, &node.value(slot)));
        let place = Place { root: self.root, slot, key };
        if self.logs_whole {
            let (old_header, old) = (record.header & !PADDED, &node.value(slot)[..]);
            let args = ReplaceArgs { place, old_header, old, new_header: GHOST, new: &[] };
            self.update_record(txn, page, key, OP_NODE_REPLACE, &args.write())?; // W8
        } else {
            self.update_record(txn, page, key, OP_NODE_DELETE, &write_place(place))?;
        }
        let node = Node::new(page.words());
        if has_become_sparse(node.count(), node.ghosts())
            && page.id() != self.root
            && let Some(to_free) = &self.to_free
        {
            to_free.note_emptied(self, node.low());
        }
        Ok(Some(blob))
    }

    /// Refuses a record that is too large.
    ///
    /// # Errors
    /// A key or value too large.
    pub fn check_sizes(&self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        self.check_key(key)?;
        let max = if self.to_free.is_some() { BLOB_BYTES_MAX } else { value_bytes_max(self.page_bytes, key.len()) };
        if value.len() > max { Err(TreeError::ValueTooLarge { len: value.len(), max }) } else { Ok(()) }
    }

    /// The key is not there: locks the gap where it would be. False: look again.
    fn lock_absent(
        &self,
        txn: &mut Txn,
        leaf: Held<'_>,
        slot: usize,
        key: &[u8],
        descent: &mut Descent,
    ) -> Result<bool, TreeError> {
        if self.covers_keys(txn, Mode::S) {
            if leaf.check().is_ok() {
                return Ok(true);
            }
            descent.restarted();
            return Ok(false);
        }
        match self.try_lock_gap(txn, &leaf, slot)? {
            Gap::Locked => return Ok(true),
            Gap::Changed => descent.restarted(),
            Gap::Held(gap) => {
                drop(leaf);
                txn.lock_key_at(self.table, gap, Mode::S, key)?;
            }
        }
        Ok(false)
    }

    /// Sets the value of a key that is locked, as [`Tree::put`] would.
    pub(super) fn put_locked(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        self.write(txn, key, value, Existing::Replace).map(drop)
    }

    /// Writes a value of any size under a key that is locked.
    fn write(&self, txn: &mut Txn, key: &[u8], value: &[u8], existing: Existing) -> Result<Met, TreeError> {
        if value.len() <= value_bytes_max(self.page_bytes, key.len()) {
            let met = self.write_record(txn, key, value.len() as u16, value, existing)?;
            if let Met::Value(blob) = met {
                self.defer_blob(txn, blob)?;
            }
            return Ok(met);
        }
        let Some(to_free) = self.to_free.clone() else {
            return Err(TreeError::ValueTooLarge {
                len: value.len(),
                max: value_bytes_max(self.page_bytes, key.len()),
            });
        };
        self.lock_leaf_to_write(txn, key)?; // W1, where leaves are locked: before anything is looked at.
        if existing == Existing::Keep && self.get(txn, key, super::tree::Read::Unlocked)?.is_some() {
            return Ok(Met::Kept);
        }
        // W6: permanent from here on, and in the tree of deferred frees until the record stands.
        let blob = blob::create(txn, &to_free, value)?;
        let met = self.write_record(txn, key, blob::REF_HEADER, &blob.encode(), existing)?;
        if met != Met::Kept {
            to_free.settle_blob(txn, blob)?;
        }
        if let Met::Value(old) = met {
            self.defer_blob(txn, old)?;
        }
        Ok(met)
    }

    /// Writes a value as a blob to which pages can be added, whatever its length, under a key that is locked.
    pub(super) fn put_as_blob(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        let Some(to_free) = self.to_free.clone() else {
            return Err(TreeError::ValueTooLarge {
                len: value.len(),
                max: value_bytes_max(self.page_bytes, key.len()),
            });
        };
        let blob = blob::create_with_index(txn, &to_free, value)?; // W6
        let met = self.write_record(txn, key, blob::REF_HEADER, &blob.encode(), Existing::Replace)?;
        to_free.settle_blob(txn, blob)?;
        if let Met::Value(old) = met {
            self.defer_blob(txn, old)?;
        }
        Ok(())
    }

    pub(super) fn defer_blob(&self, txn: &mut Txn, blob: Option<BlobRef>) -> Result<(), TreeError> {
        if let (Some(blob), Some(to_free)) = (blob, &self.to_free) {
            to_free.defer_blob(txn, blob)?;
        }
        Ok(())
    }

    /// Writes a record under a key that is locked.
    fn write_record(
        &self,
        txn: &mut Txn,
        key: &[u8],
        header: u16,
        value: &[u8],
        existing: Existing,
    ) -> Result<Met, TreeError> {
        let claim = |old_len: usize| 2 * RECORD_OVERHEAD_BYTES + key.len() + value.len() + old_len;
        // Most records are as long as the one that they replace.
        let (mut descent, mut waits, mut old_len_max) = (Descent::of_writer(), 0, value.len());
        let met = loop {
            txn.claim(claim(old_len_max))?;
            let Spot { mut page, slot } = match self.latch_near(txn, key, &descent) {
                Some(spot) => spot,
                None => self.latch_leaf(key, &mut descent)?,
            };
            let leaf = page.id();
            if !self.try_lock_leaf_to_write(txn, leaf, key)? {
                drop(page);
                self.wait_for_leaf(txn, leaf, Mode::X)?;
                continue;
            }
            let node = Node::new(page.words());
            match slot {
                Ok(slot) => {
                    let record = node.record(slot);
                    if !record.is_ghost() && existing == Existing::Keep {
                        break Met::Kept;
                    }
                    if record.value_len() > old_len_max {
                        old_len_max = record.value_len();
                        drop(page);
                        continue;
                    }
                    if plan_replace(&node, slot, value.len()) == Plan::Full {
                        drop(page);
                        self.make_room(txn, &Need::Replace { key, value_len: value.len() })?;
                        continue;
                    }
                    let is_ghost = record.is_ghost();
                    if is_ghost && let Some(edge) = self.enter_edges(txn, key, &node)? {
                        drop(page);
                        self.wait_to_enter(txn, edge, key, &mut waits)?;
                        continue;
                    }
                    let mut old = Scratch::new();
                    node.value_to(slot, &mut old);
                    self.log_value(txn, &mut page, slot, key, (record.header, &old), (header, value))?;
                    if is_ghost {
                        break Met::Nothing;
                    }
                    break Met::Value(if record.is_blob() { Some(BlobRef::decode(&old)?) } else { None });
                }
                Err(slot) => {
                    if plan_insert(&node, key, value.len()) == Plan::Full {
                        drop(page);
                        self.make_room(txn, &Need::Insert { key, value_len: value.len() })?;
                        continue;
                    }
                    match self.try_enter_gap(txn, &page, slot, key)? {
                        Entering::Entered => {}
                        Entering::Changed => {
                            drop(page);
                            descent.restarted();
                            continue;
                        }
                        Entering::Instant(gap) => {
                            drop(page);
                            self.wait_to_enter(txn, gap, key, &mut waits)?;
                            continue;
                        }
                        Entering::Inherit(gap) => {
                            drop(page);
                            txn.lock_key_at(self.table, gap, Mode::S, key)?;
                            continue;
                        }
                    }
                    if let Some(edge) = self.enter_edges(txn, key, &node)? {
                        drop(page);
                        self.wait_to_enter(txn, edge, key, &mut waits)?;
                        continue;
                    }
                    let args = InsertArgs { place: Place { root: self.root, slot, key }, header, value }.write();
                    if self.to_free.is_some() {
                        txn.note_new(self.root, key); // W7
                    }
                    let is_last = slot == node.count();
                    self.update_record(txn, &mut page, key, OP_NODE_INSERT, &args)?;
                    if is_last {
                        txn.set_near(self.root, leaf); // Keys in order go there next.
                    }
                    break Met::Nothing;
                }
            }
        };
        self.post_missing(txn, descent)?;
        Ok(met)
    }

    /// Waits until a record may be put into a gap that readers hold. The lock is given back at once, as the record is
    /// what others will meet. But readers that come again and again would be granted it in that moment, each time:
    /// after a few waits it is kept, and the last of them is behind.
    fn wait_to_enter(&self, txn: &mut Txn, gap: KeyLock, key: &[u8], waits: &mut u32) -> Result<(), TreeError> {
        *waits += 1;
        if *waits <= ENTER_WAITS_MAX {
            txn.lock_key_instant(self.table, gap, Mode::IX, key)?;
        } else {
            txn.lock_key_at(self.table, gap, Mode::IX, key)?;
        }
        Ok(())
    }

    /// Logs and makes the change of a record from `old` to `new`, each a header and a value; the smallest way that does
    /// it.
    pub(crate) fn log_value(
        &self,
        txn: &mut Txn,
        page: &mut ExclusivePage<'_>,
        slot: usize,
        key: &[u8],
        old: (u16, &[u8]),
        new: (u16, &[u8]),
    ) -> Result<(), TreeError> {
        let place = Place { root: self.root, slot, key };
        let old = (old.0 & !PADDED, old.1);
        if old.0 == new.0 && new.0 & (GHOST | BLOB) == 0 && (!self.logs_whole || old.1 == new.1) {
            // W5. The lengths are equal, since they are in the headers.
            let Some(range) = difference(old.1, new.1) else { return Ok(()) };
            let args = PatchArgs { place, offset: range.start, old: &old.1[range.clone()], new: &new.1[range] };
            self.note(txn, key, Before::Record(old.0, old.1));
            self.update_record(txn, page, key, OP_NODE_PATCH, &args.write())?;
        } else {
            let is_ghost = old.0 & GHOST != 0;
            self.note(txn, key, if is_ghost { Before::Absent } else { Before::Record(old.0, old.1) });
            let args = ReplaceArgs { place, old_header: old.0, old: old.1, new_header: new.0, new: new.1 };
            self.update_record(txn, page, key, OP_NODE_REPLACE, &args.write())?;
        }
        Ok(())
    }

    /// Logs and makes the change of one record, and notes which it was (S7 in `snapshot.rs`).
    fn update_record(
        &self,
        txn: &mut Txn,
        page: &mut ExclusivePage<'_>,
        key: &[u8],
        op: OpId,
        args: &[u8],
    ) -> Result<(), TreeError> {
        let is_settled = page.page_lsn() < self.engine.versions.settled();
        let touched = if is_settled || planted::is_on(Bug::TouchedForgotten) { 0 } else { page.touched() };
        txn.update(page, op, args)?;
        page.set_touched(touched | 1 << touched_bit(key.last().copied().unwrap_or(0)));
        Ok(())
    }

    /// W7.
    #[inline]
    pub(super) fn note(&self, txn: &mut Txn, key: &[u8], before: Before<'_>) {
        if self.to_free.is_some() {
            txn.note(self.root, key, before);
        }
    }

    /// Takes the exclusive lock of a key that will be written later. Of two writers with snapshots, the first to commit
    /// wins. Where leaves are locked instead of keys, the write itself takes the lock.
    ///
    /// # Errors
    /// A lock was refused.
    #[inline]
    pub fn lock_to_write(&self, txn: &mut Txn, key: &[u8]) -> Result<(), TreeError> {
        if self.to_free.is_some() {
            self.engine.versions.expect_note(self.root, key); // W7, when the leaf has been found.
        }
        if self.locks_pages() {
            return Ok(()); // Once it is found.
        }
        if self.names_writers {
            return Ok(()); // Nobody else writes this entry: F7 in `to_free`.
        }
        txn.lock_key_at(self.table, KeyLock::Key(key_hash(key)), Mode::X, key)?;
        self.check_first(txn, key)
    }

    #[inline]
    pub(super) fn check_first(&self, txn: &mut Txn, key: &[u8]) -> Result<(), TreeError> {
        if txn.snapshot().is_some() {
            txn.check_first(self.root, key)?;
        }
        Ok(())
    }

    /// The same where leaves are locked, once the leaf is found. False: it must be waited for.
    #[inline]
    pub(super) fn try_lock_leaf_to_write(&self, txn: &mut Txn, leaf: PageId, key: &[u8]) -> Result<bool, TreeError> {
        if !self.locks_pages() {
            return Ok(true);
        }
        if !self.try_lock_leaf(txn, leaf, Mode::X)? {
            return Ok(false);
        }
        self.check_first(txn, key)?;
        Ok(true)
    }

    /// Makes sure, under the latch of its leaf, that a new key may go before `slot` (W3).
    fn try_enter_gap(
        &self,
        txn: &mut Txn,
        leaf: &ExclusivePage<'_>,
        slot: usize,
        key: &[u8],
    ) -> Result<Entering, TreeError> {
        if self.covers_keys(txn, Mode::X) {
            return Ok(Entering::Entered);
        }
        let mut behind = Behind::default();
        let Some(gap) = self.gap_of(leaf.words(), slot, &mut behind)? else { return Ok(Entering::Changed) };
        if !behind.is_unchanged() {
            return Ok(Entering::Changed);
        }
        if !txn.try_lock_key_instant(self.table, gap, Mode::IX)? {
            return Ok(Entering::Instant(gap));
        }
        if !behind.is_unchanged() {
            return Ok(Entering::Changed);
        }
        if matches!(txn.held_key(self.table, gap), Some(Mode::S | Mode::SIX | Mode::U | Mode::X)) {
            let own = KeyLock::Gap(key_hash(key));
            if !txn.try_lock_key(self.table, own, Mode::S)? {
                return Ok(Entering::Inherit(own));
            }
        }
        Ok(Entering::Entered)
    }
}

/// True if the last deletion left nothing but ghosts, or less than a quarter for the first time.
fn has_become_sparse(count: usize, ghosts: usize) -> bool {
    let left = count - ghosts.min(count);
    left == 0 || (count >= 16 && left == count / 4)
}

/// What came of the try to put a new key into a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entering {
    Entered,
    /// Leaves to the right changed: look again.
    Changed,
    /// Somebody has read this gap: wait until that is over.
    Instant(KeyLock),
    /// The new gap's name is taken by somebody (another key with the same hash): wait for it.
    Inherit(KeyLock),
}
