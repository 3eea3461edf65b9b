//! All records of a range go.
//!
//! Y1. The range is read as a scan reads it, but keys are locked exclusively. When the call returns, every key of the
//!     range is a ghost of this transaction, and every gap of the range is locked against new keys.
//! Y2. Records are deleted leaf by leaf, each leaf under one latch. That costs one descent a leaf, and one small log
//!     record for each record. A rollback takes each back by its key. So are keys that come sorted, as those of a
//!     table's indexes do.
//! Y3. With a snapshot, the first committer wins: the call is refused if another has put, changed or deleted a record
//!     of the range since (C9 in `scan.rs`). So what goes is what the snapshot shows.

use std::ops::Bound;

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_txn::{RECORD_OVERHEAD_BYTES, Txn};

use super::scan::Scan;
use super::search::{Descent, Spot};
use super::tree::Tree;
use super::{Direction, node::Node};
use crate::TreeError;
use crate::blob::BlobRef;

/// Records that are read before they are deleted.
const BATCH_COUNT_MAX: usize = 256;

impl Tree {
    /// Deletes the records whose keys lie between the bounds, and returns how many there were. No other transaction can
    /// put a record there until this transaction ends.
    ///
    /// # Errors
    /// As [`Tree::delete`]. What was deleted until then stays deleted, and the caller has to roll it back.
    pub fn delete_range(&self, txn: &mut Txn, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<u64, TreeError> {
        self.delete_scanned(txn, self.scan(start, end, Direction::Forward).for_deletion(), |_, _, _| Ok(()))
    }

    /// The same, and tells `going` of each record before it is deleted, with its value. No latch is held then.
    ///
    /// # Errors
    /// As [`Tree::delete_range`], and what `going` returns.
    pub fn delete_range_telling<E: From<TreeError>>(
        &self,
        txn: &mut Txn,
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
        going: impl FnMut(&mut Txn, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.delete_scanned(txn, self.scan(start, end, Direction::Forward).for_change(), going)
    }

    /// Deletes the records that the scan gives, which it has locked exclusively.
    fn delete_scanned<E: From<TreeError>>(
        &self,
        txn: &mut Txn,
        mut scan: Scan,
        mut going: impl FnMut(&mut Txn, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut count = 0;
        loop {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            while keys.len() < BATCH_COUNT_MAX
                && let Some((key, value)) = scan.next(txn)?
            {
                going(txn, key, value)?;
                keys.push(key.to_vec());
            }
            if keys.is_empty() {
                self.check_snapshot(txn)?;
                return Ok(count);
            }
            if planted::is_on(Bug::RangeDeleteStopsEarly) {
                keys.pop();
            }
            count += self.delete_sorted(txn, &keys)?.0;
        }
    }

    /// Deletes the records of these keys, which must rise. Returns how many there were, and the first key that had no
    /// record. Cheaper than one by one, because each leaf is visited once.
    ///
    /// # Errors
    /// As [`Tree::delete`]. What was deleted until then stays deleted, and the caller has to roll it back.
    pub fn delete_sorted(&self, txn: &mut Txn, keys: &[Vec<u8>]) -> Result<(u64, Option<usize>), TreeError> {
        for key in keys {
            // A lock on the table that covers reading need not cover writing.
            self.lock_to_write(txn, key)?;
        }
        if !self.locks_pages() {
            return self.delete_keys(txn, keys);
        }
        // Each leaf is locked when it is found.
        let (mut count, mut missing) = (0, None);
        for (no, key) in keys.iter().enumerate() {
            if self.delete(txn, key)? {
                count += 1;
            } else {
                missing = missing.or(Some(no));
            }
        }
        Ok((count, missing))
    }

    /// Y3: a ghost that was purged tells nothing; but that was done only when no open snapshot asked for its images, or
    ///     their loss raised the floor.
    fn check_snapshot(&self, txn: &Txn) -> Result<(), TreeError> {
        Ok(txn.snapshot().map_or(Ok(()), |at| self.engine.versions.check(at))?)
    }

    /// Deletes records whose keys are locked exclusively, in rising order (Y2). As [`Tree::delete_sorted`].
    fn delete_keys(&self, txn: &mut Txn, keys: &[Vec<u8>]) -> Result<(u64, Option<usize>), TreeError> {
        let (mut count, mut missing, mut next) = (0, None, 0);
        while next < keys.len() {
            // What a leaf seldom has more of, and the log always takes at once: a page of it, and a page of old values.
            let (mut part, mut bytes) = (0, 0);
            for key in keys[next..].iter().take(32) {
                let more = 2 * RECORD_OVERHEAD_BYTES + key.len();
                if part > 0 && bytes + more > self.page_bytes {
                    break;
                }
                (part, bytes) = (part + 1, bytes + more);
            }
            txn.claim(bytes + (part * self.ghost_bytes()).min(self.page_bytes))?;
            let mut descent = Descent::of_writer();
            let mut blobs: Vec<BlobRef> = Vec::new();
            let Spot { mut page, slot } = self.latch_leaf(&keys[next], &mut descent)?;
            let mut found = slot.ok();
            for key in &keys[next..next + part] {
                if let Some(slot) = found
                    && let Some(blob) = self.ghost_record(txn, &mut page, slot, key)?
                {
                    count += 1;
                    blobs.extend(blob);
                } else {
                    missing = missing.or(Some(next));
                }
                next += 1;
                let Some(key) = keys.get(next) else { break };
                let node = Node::new(page.words());
                if node.is_beyond(key) {
                    break;
                }
                found = node.search(key).ok();
            }
            drop(page);
            self.post_missing(txn, descent)?;
            for blob in blobs {
                self.defer_blob(txn, Some(blob))?;
            }
        }
        Ok((count, missing))
    }
}
