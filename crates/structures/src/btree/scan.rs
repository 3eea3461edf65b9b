//! Ranges: forwards and backwards, from a private copy of one leaf at a time.
//!
//! A scan owns all it needs: it can be sent, kept, and left alone between calls. It locks what it passes as it goes.
//!
//! C1. A leaf is copied once, under its version. While the copy is in use, each record is given out only after its key
//!     and the gap before it are locked, and the leaf is found unchanged since. So nobody else can have put anything in
//!     between. No latch is held, so the locks are simply waited for.
//! C2. Forwards, the gap before a leaf's first record reaches back into the leaves before it: those that were left
//!     since the last locked record are checked too (`behind`). Backwards, the gap above is locked already when a leaf
//!     is copied.
//! C3. When a leaf changed, the scan finds its place anew by the last key it gave. What was locked stays locked.
//! C4. A lock on the table that covers spares all this; then only this transaction itself can change anything, which
//!     shows in its own last LSN. The lock may come between two steps, by other calls, and without a record. So a copy
//!     that was made without it is checked once more, as C1 and C2 say.
//! C5. Ghosts are keys: they are locked as others are, and not given out.
//! C6. At the end, the gap that reaches over the bound is locked. Forwards, that is the gap before the first key
//!     beyond the bound. Backwards, it is the gap of the last key given, or of the first key above the range if there
//!     was none.
//! C7. On a snapshot, all records of a leaf are resolved when it is copied (`snapshot.rs`). After that the copy is
//!     right whatever becomes of the leaf, except for this transaction's own changes (as C4).
//! C8. Forwards, the next leaf begins where the one before ended, if that one has not changed; backwards, below it.
//!     Otherwise a write of one of them was lost, and the scan could go in circles for ever.
//! C10. Where the end of the tree at which a scan begins is known to be dead, it begins behind the ghosts (`edges.rs`),
//!     with one lock in place of theirs. A scan that has passed ghosts at the tree's end sees to it that this is known.
//! C11. A scan may find one frame only whose page can go, since all others are to be written first. So it is where
//!      nobody writes pages ahead of need: the page writer is behind, has died, or was stopped. There, the next leaf
//!      pushes out the one before, and the place is lost each time. So a scan that loses its place again and again
//!      writes some pages itself. If the environment has failed, nothing is written any more, and the scan ends.
//! C9. A scan for a change reads what is there now. A ghost in it may be a record that the transaction's snapshot still
//!     shows: then another was the first to commit a change of it.

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, header};
use ledgerstone_region::Version;
use ledgerstone_txn::{At, KeyLock, Txn, key_hash};

use super::ahead::Ahead;
use super::bytes::clamped;
use super::edges::PASSED_MIN;
use super::fetch::Fetch;
use super::history::CopiedPage;
use super::last_key::LastKey;
use super::node::{BLOB, Node};
use super::search::{Aim, Descent, Gap, with_key};
use super::snapshot::{Images, Resolved};
use super::tree::Tree;
use crate::TreeError;
use crate::blob::{self, BlobRef};
use crate::scratch::{PageScratch, Scratch};

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Keys rise.
    Forward,
    /// Keys fall.
    Backward,
}

/// A record: key and value, lent by the scan until its next step.
pub type Record<'s> = (&'s [u8], &'s [u8]);

/// A scan over a range of a tree.
pub struct Scan {
    tree: Tree,
    direction: Direction,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    locks: bool,
    /// The snapshot that is read, if one is.
    at: Option<At>,
    images: Images,
    /// How keys are locked.
    key_mode: Mode,
    /// Large values are read.
    reads_blobs: bool,
    place: Place,
    /// The leaf's copy, and what it is a copy of.
    page: PageScratch,
    leaf: PageId,
    version: Option<Version>,
    /// The transaction's last record when the copy was known to be good under a lock that covers, or [`UNCOVERED`]
    /// (C4).
    covered_at: Lsn,
    /// Forwards, the next slot to look at. Backwards, how many slots are still to look at.
    slot: usize,
    /// All keys of the copy lie within the bound that the scan runs towards.
    is_inside: bool,
    /// Leaves left behind since the last locked record (C2).
    behind: Vec<(PageId, Version)>,
    /// The high fence of the leaf that the scan comes from (C8).
    fence: Scratch,
    key: LastKey,
    has_key: bool,
    /// Ghosts passed before the first record (C10).
    passed: u32,
    has_given: bool,
    /// How often the place was lost since a leaf was left for the next one (C11).
    lost_count: u32,
    ahead: Ahead,
    fetch: Fetch,
    /// Where the value of the record is that was found last.
    given: Given,
    /// A blob's content.
    value: Vec<u8>,
}

/// Where a record's value is.
#[derive(Debug, Clone, Copy)]
enum Given {
    /// In the leaf's copy.
    Here { at: usize, len: usize },
    /// What the snapshot shows in place of it (C7).
    Image { slot: usize },
    /// Read from pages of its own.
    Large,
}

/// How often a scan may lose its place in a row before it makes room (C11).
const LOST_MAX: u32 = 100;

/// No record's LSN: the copy was made without a lock that covers.
const UNCOVERED: Lsn = Lsn(u64::MAX);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing was read yet.
    Start,
    /// The copy is good for the slots to come, until a check says otherwise.
    InLeaf,
    /// The copy is stale: go on by the last key.
    Lost,
    /// The copy is used up.
    NextLeaf,
    Done,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan")
            .field("tree", &self.tree)
            .field("direction", &self.direction)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Tree {
    /// The records whose keys lie between the bounds, in order. Nothing is read or locked yet.
    #[must_use]
    pub fn scan(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>, direction: Direction) -> Scan {
        Scan {
            tree: self.clone(),
            direction,
            start,
            end,
            locks: true,
            at: None,
            images: Images::default(),
            key_mode: Mode::S,
            reads_blobs: true,
            place: Place::Start,
            page: PageScratch::new(self.page_bytes),
            leaf: PageId(0),
            version: None,
            covered_at: UNCOVERED,
            slot: 0,
            is_inside: false,
            behind: Vec::new(),
            fence: Scratch::new(),
            key: LastKey::new(),
            has_key: false,
            passed: 0,
            has_given: false,
            lost_count: 0,
            ahead: Ahead::default(),
            fetch: Fetch::over(self.page_bytes, 0),
            given: Given::Large,
            value: Vec::new(),
        }
    }

    /// The same without locks: what is there, committed or not. For housekeeping, and for transactions that read
    /// uncommitted.
    #[must_use]
    pub fn scan_unlocked(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>, direction: Direction) -> Scan {
        Scan { locks: false, ..self.scan(start, end, direction) }
    }

    /// The same at a snapshot, which the caller keeps open, with the transaction's own changes. Without locks.
    #[must_use]
    pub fn scan_at(&self, at: At, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>, direction: Direction) -> Scan {
        Scan { locks: false, at: Some(at), ..self.scan(start, end, direction) }
    }
}

impl Scan {
    /// Locks keys exclusively, and gives references of large values as they stand.
    pub(super) fn for_deletion(self) -> Scan {
        Scan { reads_blobs: false, ..self.for_change() }
    }

    /// The same with keys locked exclusively, for a caller that changes what it finds.
    #[must_use]
    pub fn for_change(self) -> Scan {
        Scan { key_mode: Mode::X, ..self }
    }

    /// The next record, or `None` at the end of the range.
    ///
    /// # Errors
    /// A lock was refused, or a page cannot be read. After a refused lock the scan can go on, if the transaction can.
    #[inline]
    pub fn next(&mut self, txn: &mut Txn) -> Result<Option<Record<'_>>, TreeError> {
        Ok(self.advance(txn)?.then(|| self.record()))
    }

    /// The record that [`Scan::advance`] has found last.
    #[inline]
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        let value = match self.given {
            Given::Here { at, len } => clamped(&self.page, at, len),
            Given::Image { slot } => self.images.of(slot).map_or(&[][..], |image| &image.value),
            Given::Large => &self.value,
        };
        (self.key.get(), value)
    }

    /// Goes to the next record, which [`Scan::record`] lends then. False at the end of the range.
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub fn advance(&mut self, txn: &mut Txn) -> Result<bool, TreeError> {
        loop {
            if self.place != Place::InLeaf && !self.settle(txn)? {
                return Ok(false);
            }
            let covered = self.is_covered(txn);
            if covered && txn.last_lsn() != self.covered_at && !self.is_good_covered(txn) {
                self.place = Place::Lost;
                continue;
            }
            let node = Node::new(&*self.page);
            let slot = match self.direction {
                Direction::Forward if self.slot < node.count() => self.slot,
                Direction::Backward if self.slot > 0 => self.slot - 1,
                _ => {
                    self.place = Place::NextLeaf;
                    continue;
                }
            };
            let record = node.record(slot);
            // The key of the record to come replaces the last one only when it is certain (C3).
            if !covered {
                match self.lock_record(txn, slot)? {
                    Step::Give => {}
                    Step::Lost => {
                        self.place = Place::Lost;
                        continue;
                    }
                    Step::End => {
                        self.place = Place::Done;
                        return Ok(false);
                    }
                }
            } else if !self.is_inside && !self.is_within(slot) {
                self.place = Place::Done;
                return Ok(false);
            }
            let node = Node::new(&*self.page); // Once more, since a lock may have been taken in between.
            self.key.take(&node, &record);
            self.has_key = true;
            self.slot = match self.direction {
                Direction::Forward => {
                    self.fetch.step(&self.tree, node.link());
                    slot + 1
                }
                Direction::Backward => slot,
            };
            let (at, len) = (record.value_at(), record.value_len());
            let image = self.images.of(slot);
            let is_blob = match image {
                Some(image) => match image.header {
                    Some(header) => header & BLOB != 0,
                    None => continue,
                },
                None if record.is_ghost() => {
                    if self.key_mode == Mode::X {
                        self.tree.check_first(txn, self.key.get())?; // C9
                    }
                    self.passed += 1;
                    continue;
                }
                None => record.is_blob(),
            };
            if !self.has_given {
                self.has_given = true;
                if self.passed >= PASSED_MIN {
                    self.tree.note_dead(self.leaf, self.direction)?; // C10
                }
            }
            if is_blob && self.reads_blobs {
                let reference = match image {
                    Some(image) => BlobRef::decode(&image.value)?,
                    None => BlobRef::decode(clamped(&self.page, at, len))?,
                };
                self.value.clear();
                let view = self.at.map(|at| (&*txn, at));
                let all = (0, reference.len);
                blob::read_at(&self.tree.engine.cache, reference, all, view, &mut self.value)?;
                self.given = Given::Large;
                return Ok(true);
            }
            self.given = if image.is_some() { Given::Image { slot } } else { Given::Here { at, len } };
            return Ok(true);
        }
    }

    /// The key up to which the scan has come: of the record that it gave last, or of a ghost behind that. None at the
    /// beginning.
    #[inline]
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.has_key.then(|| self.key.get())
    }

    /// Calls `f` with the next records as long as each needs no more than a look at the leaf's copy, in which nothing
    /// waits. [`Scan::next`] gives the one after that. False: `f` has ended the scan by saying so.
    ///
    /// None is given where a record has to be locked (C1), where some are not what the copy says (C7), or where the
    /// bound is near. The caller has the transaction to itself: nothing is done with it in `f`.
    ///
    /// Not inlined: the loop wants the registers to itself.
    #[inline(never)]
    pub fn each_in_leaf(&mut self, txn: &Txn, mut f: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        let is_usual = self.place == Place::InLeaf
            && self.direction == Direction::Forward
            && self.has_given
            && self.is_inside
            && self.images.is_empty()
            && self.is_covered(txn)
            && txn.last_lsn() == self.covered_at; // C4
        if !is_usual {
            return true;
        }
        let node = Node::new(&*self.page);
        let count = node.count();
        let next = node.link();
        for slot in self.slot..count {
            self.fetch.step(&self.tree, next);
            let record = node.record(slot);
            if record.is_ghost() || record.is_blob() {
                return true;
            }
            self.key.take(&node, &record);
            self.slot = slot + 1;
            if !f(self.key.get(), clamped(node.bytes(), record.value_at(), record.value_len())) {
                return false;
            }
        }
        true
    }

    /// True if the slot's key lies within the bound that the scan runs towards.
    fn is_within(&self, slot: usize) -> bool {
        let node = Node::new(&*self.page);
        match (self.direction, &self.start, &self.end) {
            (Direction::Forward, _, Bound::Included(end)) => node.compare_key(slot, end).is_le(),
            (Direction::Forward, _, Bound::Excluded(end)) => node.compare_key(slot, end).is_lt(),
            (Direction::Backward, Bound::Included(start), _) => node.compare_key(slot, start).is_ge(),
            (Direction::Backward, Bound::Excluded(start), _) => node.compare_key(slot, start).is_gt(),
            (Direction::Forward, _, Bound::Unbounded) | (Direction::Backward, Bound::Unbounded, _) => true,
        }
    }

    /// True if the leaf is still what was copied.
    fn is_current(&self) -> bool {
        self.version.is_some_and(|version| self.is_still(self.leaf, version))
    }

    fn is_still(&self, page: PageId, version: Version) -> bool {
        self.tree.engine.cache.optimistic(page).is_ok_and(|page| page.version() == version)
    }

    fn is_all_current(&self) -> bool {
        self.is_current() && self.behind.iter().all(|&(page, version)| self.is_still(page, version))
    }

    /// True if nothing needs to be locked.
    #[inline]
    fn is_covered(&self, txn: &Txn) -> bool {
        !self.locks || self.tree.covers_keys(txn, Mode::S)
    }

    /// Under a lock that covers: whether the copy is good, and nothing appeared in the gap before it, until now (C4).
    #[cold]
    #[inline(never)]
    fn is_good_covered(&mut self, txn: &Txn) -> bool {
        if !self.is_all_current() {
            return false;
        }
        self.behind.clear();
        self.covered_at = txn.last_lsn();
        true
    }

    /// Locks what the record in `slot` needs, and says whether it may be given (C1).
    #[cold]
    #[inline(never)]
    fn lock_record(&mut self, txn: &mut Txn, slot: usize) -> Result<Step, TreeError> {
        let table = self.tree.table;
        let is_within = self.is_inside || self.is_within(slot);
        if !is_within {
            // C6. Forwards the last gap reaches over the bound, unless the bound itself was the last key.
            if self.direction == Direction::Backward || self.ends_on_last_key() {
                return Ok(if self.is_all_current() { Step::End } else { Step::Lost });
            }
        }
        with_key(&Node::new(&*self.page), slot, |key| {
            let hash = key_hash(key);
            if is_within {
                txn.lock_key_at(table, KeyLock::Key(hash), self.key_mode, key)?;
            }
            txn.lock_key_at(table, KeyLock::Gap(hash), Mode::S, key)
        })?;
        if !self.is_all_current() {
            return Ok(Step::Lost);
        }
        if !is_within {
            return Ok(Step::End);
        }
        self.behind.clear();
        Ok(Step::Give)
    }

    /// True if the last key given is the bound: nothing between it and the next key belongs to the range.
    fn ends_on_last_key(&self) -> bool {
        matches!(&self.end, Bound::Included(end) if self.has_key && self.key.get() == end)
    }

    /// Gets a good copy of the leaf to go on in. False: the range is done.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, txn: &mut Txn) -> Result<bool, TreeError> {
        loop {
            match self.place {
                Place::InLeaf => return Ok(true),
                Place::Done => return Ok(false),
                Place::Start => {
                    if self.begin_behind_dead(txn)? {
                        self.place = Place::Done;
                        return Ok(false);
                    }
                    if self.direction == Direction::Backward {
                        self.lock_above(txn)?;
                    }
                    self.descend(txn)?;
                }
                Place::Lost => {
                    self.lost_count += 1;
                    if self.lost_count.is_multiple_of(LOST_MAX) {
                        self.tree.engine.check()?; // C11
                        self.tree.engine.cache.make_room()?;
                    }
                    self.descend(txn)?;
                }
                Place::NextLeaf => {
                    // Only after an error: what was refused then is covered now.
                    let is_covered = self.is_covered(txn);
                    if is_covered && txn.last_lsn() != self.covered_at && !self.is_good_covered(txn) {
                        self.place = Place::Lost;
                        continue;
                    }
                    if !self.has_given && self.passed > 0 {
                        // However few they are: the bound moves leaf by leaf.
                        self.tree.note_dead(self.leaf, self.direction)?; // C10
                    }
                    let more = match self.direction {
                        Direction::Forward => self.next_leaf(txn)?,
                        Direction::Backward => self.previous_leaf(txn)?,
                    };
                    if !more {
                        self.place = Place::Done;
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// C10. True if nothing is left of the range.
    fn begin_behind_dead(&mut self, txn: &mut Txn) -> Result<bool, TreeError> {
        let start = match self.direction {
            Direction::Forward => &self.start,
            Direction::Backward => &self.end,
        };
        let start = match start {
            Bound::Included(start) | Bound::Excluded(start) => Some(start.as_slice()),
            Bound::Unbounded => None,
        };
        let until = self.at.or(txn.snapshot()).map(|at| at.lsn);
        let Some(bound) = self.tree.dead_bound(txn, self.direction, start, self.locks, until)? else {
            return Ok(false);
        };
        match self.direction {
            Direction::Forward => {
                let is_left = match &self.end {
                    Bound::Included(end) => bound <= *end,
                    Bound::Excluded(end) => bound < *end,
                    Bound::Unbounded => true,
                };
                self.start = Bound::Included(bound);
                Ok(!is_left)
            }
            Direction::Backward => {
                let is_left = match &self.start {
                    Bound::Included(start) | Bound::Excluded(start) => bound > *start,
                    Bound::Unbounded => true,
                };
                self.end = Bound::Excluded(bound);
                Ok(!is_left)
            }
        }
    }

    /// Copies the leaf where the scan goes on, by the last key or by the bound it starts from.
    fn descend(&mut self, txn: &mut Txn) -> Result<(), TreeError> {
        self.behind.clear();
        let from = match self.direction {
            Direction::Forward if self.has_key => Bound::Excluded(self.key.get().to_vec()),
            Direction::Backward if self.has_key => Bound::Excluded(self.key.get().to_vec()),
            Direction::Forward => self.start.clone(),
            Direction::Backward => self.end.clone(),
        };
        match (self.direction, &from) {
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => self.copy_leaf(txn, Aim::Key(key))?,
            (Direction::Forward, Bound::Unbounded) => self.copy_leaf(txn, Aim::Key(&[]))?,
            (Direction::Backward, Bound::Included(key)) => self.copy_leaf(txn, Aim::Key(key))?,
            (Direction::Backward, Bound::Excluded(key)) => self.copy_leaf(txn, Aim::Below(key))?,
            (Direction::Backward, Bound::Unbounded) => self.copy_leaf(txn, Aim::Last)?,
        }
        let node = Node::new(&*self.page);
        self.slot = match (self.direction, &from) {
            (Direction::Forward, Bound::Unbounded) => 0,
            (Direction::Forward, Bound::Included(key)) => node.search(key).unwrap_or_else(|slot| slot),
            (Direction::Forward, Bound::Excluded(key)) => node.search(key).map_or_else(|slot| slot, |slot| slot + 1),
            (Direction::Backward, Bound::Unbounded) => node.count(),
            (Direction::Backward, Bound::Included(key)) => node.search(key).map_or_else(|slot| slot, |slot| slot + 1),
            (Direction::Backward, Bound::Excluded(key)) => node.search(key).unwrap_or_else(|slot| slot),
        };
        self.fetch = Fetch::over(self.page.len(), node.count() - self.slot);
        Ok(())
    }

    /// Goes to the leaf on the right. False: there is none, and the gap above the last key is locked.
    fn next_leaf(&mut self, txn: &mut Txn) -> Result<bool, TreeError> {
        let node = Node::new(&*self.page);
        let (link, is_rightmost) = (node.link(), node.is_rightmost());
        let needs_locks = !self.is_covered(txn);
        let is_last = is_rightmost || self.is_past_end();
        if !is_last || needs_locks && !is_rightmost && !self.ends_on_last_key() {
            // C6: the gap that reaches over the bound may end at a key further to the right.
            return self.follow(txn, link, needs_locks);
        }
        if needs_locks {
            if !self.ends_on_last_key() {
                txn.lock_key(self.tree.table, KeyLock::Supremum, Mode::S)?;
            }
            if !self.is_all_current() {
                self.place = Place::Lost;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn follow(&mut self, txn: &mut Txn, link: PageId, needs_locks: bool) -> Result<bool, TreeError> {
        // D1 in `search.rs`: the link is good if the leaf is unchanged after the target's version was read.
        let (leaf, version) = (self.leaf, self.version);
        self.fence.clear();
        Node::new(&*self.page).high_to(&mut self.fence);
        let engine = Arc::clone(&self.tree.engine);
        let here = engine.cache.optimistic_if_here(link);
        self.ahead.goes_on(&self.tree, self.direction, here.is_some(), &self.fence, &self.end);
        let target = match here.map_or_else(|| engine.cache.optimistic(link), Ok) {
            Ok(target) => target,
            Err(_) if !self.is_current() => return Ok(self.lost()),
            Err(error) => return Err(error.into()),
        };
        if !self.is_current() {
            return Ok(self.lost());
        }
        if needs_locks && let Some(version) = version {
            self.behind.push((leaf, version));
        }
        match self.copy_page(txn, &target)? {
            Copied::Good if Node::new(&*self.page).compare_low(&self.fence).is_ne() => {
                // C8
                let is_unchanged = version.is_some_and(|version| self.is_still(leaf, version));
                if is_unchanged { Err(Tree::corrupt(link, "low fence of a leaf", 1, 0)) } else { Ok(self.lost()) }
            }
            Copied::Good => {
                self.lost_count = 0;
                self.take_back()?;
                self.slot = 0;
                self.fetch = Fetch::over(self.page.len(), Node::new(&*self.page).count());
                Ok(true)
            }
            Copied::Stranger if self.is_current() => Err(Tree::corrupt(link, "leaf of a b-tree", 1, 0)),
            Copied::Changed | Copied::Stranger => Ok(self.lost()),
            Copied::Committing => {
                engine.pause_for_commit(0)?;
                Ok(self.lost())
            }
            Copied::Locked(leaf) => {
                self.tree.wait_for_leaf(txn, leaf, self.key_mode)?;
                Ok(self.lost())
            }
        }
    }

    /// The leaf changed while the scan was leaving it, or the next one changed while it was copied, which has spoilt
    /// the copy. The last key given tells the place. True, for the callers: there is more to do.
    fn lost(&mut self) -> bool {
        self.place = Place::Lost;
        true
    }

    /// Goes to the leaf on the left, from above. False: there is none.
    fn previous_leaf(&mut self, txn: &mut Txn) -> Result<bool, TreeError> {
        let low = Node::new(&*self.page).low();
        if low.is_empty() || self.is_before_start(&low) {
            if !self.is_covered(txn) && !self.is_all_current() {
                self.place = Place::Lost;
                return Ok(true);
            }
            return Ok(false);
        }
        let misses = self.tree.engine.cache.miss_count();
        self.copy_leaf(txn, Aim::Below(&low))?;
        let was_here = self.tree.engine.cache.miss_count() == misses;
        let node = Node::new(&*self.page);
        if node.compare_low(&low).is_ge() {
            return Err(Tree::corrupt(self.leaf, "low fence of a leaf", 0, 1)); // C8
        }
        if was_here && !self.ahead.is_asking() {
            self.ahead.found();
        } else {
            self.ahead.goes_on(&self.tree, self.direction, was_here, &node.low(), &self.start);
        }
        // The leaf may reach further now: whatever is at or above the fence was given already.
        self.slot = node.search(&low).unwrap_or_else(|slot| slot);
        Ok(true)
    }

    fn is_past_end(&self) -> bool {
        let node = Node::new(&*self.page);
        if node.is_rightmost() {
            return true;
        }
        match &self.end {
            Bound::Included(end) => node.compare_high(end).is_gt(),
            Bound::Excluded(end) => node.compare_high(end).is_ge(),
            Bound::Unbounded => false,
        }
    }

    fn is_before_start(&self, low: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) | Bound::Excluded(start) => low <= start.as_slice(),
            Bound::Unbounded => false,
        }
    }

    /// Copies the leaf at `aim`.
    fn copy_leaf(&mut self, txn: &mut Txn, aim: Aim<'_>) -> Result<(), TreeError> {
        let tree = self.tree.clone();
        let mut descent = Descent::default();
        let mut round = 0;
        loop {
            let held = tree.find_leaf(aim, &mut descent)?;
            // A shared latch keeps the version, so that the optimistic view of the page is good under it.
            let page = tree.engine.cache.optimistic(held.id())?;
            if held.check().is_ok() {
                match self.copy_page(txn, &page)? {
                    Copied::Good if held.check().is_ok() => {
                        drop(held);
                        return self.take_back();
                    }
                    Copied::Good | Copied::Changed | Copied::Stranger => {}
                    Copied::Locked(leaf) => {
                        drop(held);
                        tree.wait_for_leaf(txn, leaf, self.key_mode)?;
                        continue;
                    }
                    Copied::Committing => {
                        drop(held);
                        tree.engine.pause_for_commit(round)?;
                        round += 1;
                        continue;
                    }
                }
            }
            descent.restarted();
        }
    }

    /// S6 of `snapshot.rs`, for the leaf that was copied. Nothing is latched.
    #[inline]
    fn take_back(&mut self) -> Result<(), TreeError> {
        let Some(at) = self.at else { return Ok(()) };
        self.images.take_back(&self.tree, &self.page, self.direction)?;
        Ok(self.tree.engine.versions.check(at)?)
    }

    /// Copies a leaf that is not latched.
    fn copy_page(&mut self, txn: &mut Txn, page: &ledgerstone_buffer::OptimisticPage<'_>) -> Result<Copied, TreeError> {
        if self.locks && !self.tree.try_lock_leaf(txn, page.id(), self.key_mode)? {
            return Ok(Copied::Locked(page.id()));
        }
        page.words().copy_to(0, &mut self.page);
        // The last key is still needed to find the way back. Only its prefix is no longer the copy's.
        self.key.leaves_node();
        if page.check().is_err() {
            return Ok(Copied::Changed);
        }
        let node = Node::new(&*self.page);
        if !node.is_of(self.tree.root) || node.level() != 0 {
            return Ok(Copied::Stranger);
        }
        if let Some(at) = self.at {
            let versions = &self.tree.engine.versions;
            versions.check(at)?;
            txn.depend_on_commits_below(at.lsn);
            let copied = CopiedPage { id: page.id(), lsn: header::page_lsn(page.words()), touched: page.touched() };
            if self.images.resolve(&self.tree, txn, at, copied, &self.page) == Resolved::Committing {
                return Ok(Copied::Committing);
            }
            if page.check().is_err() {
                return Ok(Copied::Changed);
            }
            versions.check(at)?;
        }
        self.leaf = page.id();
        self.version = Some(page.version());
        let is_covered = self.is_covered(txn) || planted::is_on(Bug::OldCopyKept);
        self.covered_at = if is_covered { txn.last_lsn() } else { UNCOVERED };
        let count = node.count();
        self.is_inside = match self.direction {
            _ if count == 0 => true,
            Direction::Forward => self.is_within(count - 1),
            Direction::Backward => self.is_within(0),
        };
        self.place = Place::InLeaf;
        Ok(Copied::Good)
    }

    /// Backwards: locks the gap of the first key above the range (C6).
    fn lock_above(&mut self, txn: &mut Txn) -> Result<(), TreeError> {
        let table = self.tree.table;
        if self.is_covered(txn) {
            return Ok(());
        }
        let tree = self.tree.clone();
        let mut descent = Descent::default();
        let (key, is_included) = match &self.end {
            Bound::Included(key) => (key.clone(), true),
            Bound::Excluded(key) => (key.clone(), false),
            Bound::Unbounded => {
                // The right end needs no look at the tree: its name is always the same.
                txn.lock_key(table, KeyLock::Supremum, Mode::S)?;
                return Ok(());
            }
        };
        if is_included {
            // The bound itself belongs to the range. If it is a key, its own lock comes with it.
            txn.lock_key_at(table, KeyLock::Key(key_hash(&key)), Mode::S, &key)?;
        }
        loop {
            let spot = tree.find_key(&key, &mut descent)?;
            let slot = match spot.slot {
                // Nothing between the bound and itself: the scan locks it and its gap as the first record.
                Ok(_) if is_included && spot.page.check().is_ok() => return Ok(()),
                Ok(slot) | Err(slot) => slot,
            };
            match tree.try_lock_gap(txn, &spot.page, slot)? {
                Gap::Locked => return Ok(()),
                Gap::Changed => descent.restarted(),
                Gap::Held(gap) => {
                    drop(spot);
                    txn.lock_key_at(table, gap, Mode::S, &key)?;
                }
            }
        }
    }
}

/// What the copying of a leaf came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    Good,
    /// It changed meanwhile.
    Changed,
    /// It is not a leaf of this tree. A thread that followed a link that is still there has found damage.
    Stranger,
    /// A record's writer is committing: pause, and copy again.
    Committing,
    /// Leaves are locked, and somebody writes in this one: wait, and look again.
    Locked(PageId),
}

/// What the locking of a record came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Give,
    Lost,
    End,
}
