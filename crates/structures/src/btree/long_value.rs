//! Parts of large values: read and written without the rest.
//!
//! L1. The key is locked as for the whole value. Each call finds the record anew, so that several handles of a
//!     transaction agree. At a snapshot the record is found once, and again after each change of the transaction's
//!     own. Otherwise the changes that a writer has made since, part by part, would be taken back for each part that is
//!     read.
//! L2. A transaction that writes a part makes the value a blob with an index, if it was none, whatever its length.
//! L3. The first part that a transaction writes notes the record itself for snapshots too, although it may not change:
//!     of two writers with snapshots the first to commit wins.
//! L4. Every part that is written changes the record, or replaces it by itself: that is how readers of changes learn of
//!     it.

use ledgerstone_lock::Mode;
use ledgerstone_page::Lsn;
use ledgerstone_txn::{At, Before, RECORD_OVERHEAD_BYTES, Txn};

use super::node::{Node, PADDED};
use super::search::{Descent, Spot};
use super::tree::{Read, Tree};
use crate::TreeError;
use crate::blob::{self, BLOB_BYTES_MAX, BlobRef, REF_HEADER};

/// Bytes that are zeroed at a time.
const ZEROS_COUNT_MAX: u64 = 32 << 10;

/// What the record of a key was found to be, for a reader of its value in parts (L1).
#[derive(Debug, Default)]
pub struct FoundValue {
    stored: Vec<u8>,
    /// None: there is no value.
    is_blob: Option<bool>,
    /// The snapshot, and the last record of the reader's own transaction. None: to be found anew.
    seen: Option<(At, Lsn)>,
}

impl Tree {
    /// The length of the value of `key`, or none if the key has no value.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn value_len(&self, txn: &mut Txn, key: &[u8], read: Read) -> Result<Option<u64>, TreeError> {
        let mut stored = Vec::new();
        Ok(match self.get_stored(txn, key, read, &mut stored)? {
            None => None,
            Some(false) => Some(stored.len() as u64),
            Some(true) => Some(BlobRef::decode(&stored)?.len),
        })
    }

    /// Appends up to `len` bytes of the value of `key`, from `offset` on, to `out`. Returns whether there is a value.
    /// `found` is what the last call for this key found.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn read_part(
        &self,
        txn: &mut Txn,
        key: &[u8],
        read: Read,
        (offset, len): (u64, u64),
        found: &mut FoundValue,
        out: &mut Vec<u8>,
    ) -> Result<bool, TreeError> {
        let seen = match read {
            Read::At(at) => Some((at, txn.last_lsn())),
            _ => None,
        };
        if seen.is_none() || found.seen != seen {
            found.seen = None;
            found.stored.clear();
            found.is_blob = self.get_stored(txn, key, read, &mut found.stored)?;
            found.seen = seen;
        }
        let stored = &found.stored;
        match found.is_blob {
            None => return Ok(false),
            Some(false) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(stored.len());
                let to = from.saturating_add(usize::try_from(len).unwrap_or(usize::MAX)).min(stored.len());
                out.extend_from_slice(&stored[from..to]);
            }
            Some(true) => {
                let view = match read {
                    Read::At(at) => Some((&*txn, at)),
                    _ => None,
                };
                blob::read_at(&self.engine.cache, BlobRef::decode(stored)?, (offset, len), view, out)?;
            }
        }
        Ok(true)
    }

    /// Makes the value of `key` one whose parts can be written, and returns its length. If there is no value, makes an
    /// empty one.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn open_value(&self, txn: &mut Txn, key: &[u8]) -> Result<u64, TreeError> {
        self.check_key(key)?;
        self.lock_to_write(txn, key)?;
        self.lock_leaf_to_write(txn, key)?;
        let mut stored = Vec::new();
        if self.get_stored(txn, key, Read::Unlocked, &mut stored)? == Some(true) {
            let blob = BlobRef::decode(&stored)?;
            if blob::has_index(&self.engine.cache, blob.page)? {
                self.note_record(txn, key)?; // L3
                return Ok(blob.len);
            }
            stored.clear();
            blob::read(&self.engine.cache, blob, &mut stored)?;
        }
        self.put_as_blob(txn, key, &stored)?; // L2
        Ok(stored.len() as u64)
    }

    /// Writes `bytes` at `offset` of a value that [`Tree::open_value`] opened in this transaction. A gap before it
    /// becomes zeros.
    ///
    /// # Errors
    /// [`TreeError::ValueTooLarge`], the value was deleted meanwhile, or as [`Tree::put`].
    pub fn write_part(&self, txn: &mut Txn, key: &[u8], offset: u64, bytes: &[u8]) -> Result<(), TreeError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > BLOB_BYTES_MAX as u64 {
            let len = usize::try_from(end).unwrap_or(usize::MAX);
            return Err(TreeError::ValueTooLarge { len, max: BLOB_BYTES_MAX });
        }
        let blob = self.open_blob(txn, key)?;
        let mut at = blob.len;
        while at < offset {
            let count = (offset - at).min(ZEROS_COUNT_MAX);
            blob::write_at(txn, &self.space, blob.page, at, &vec![0; count as usize])?;
            at += count;
        }
        blob::write_at(txn, &self.space, blob.page, offset, bytes)?;
        self.set_blob_len(txn, key, BlobRef { len: end.max(blob.len), ..blob }) // L4
    }

    /// Makes a value that was opened by [`Tree::open_value`] shorter, or longer by zeros.
    ///
    /// # Errors
    /// As [`Tree::write_part`].
    pub fn set_value_len(&self, txn: &mut Txn, key: &[u8], len: u64) -> Result<(), TreeError> {
        let blob = self.open_blob(txn, key)?;
        if len > blob.len {
            return self.write_part(txn, key, len - 1, &[0]);
        }
        if len == blob.len { Ok(()) } else { self.set_blob_len(txn, key, BlobRef { len, ..blob }) }
    }

    /// The blob of a key; if it is none any more, since the transaction has put another value there, it becomes one
    /// again.
    fn open_blob(&self, txn: &mut Txn, key: &[u8]) -> Result<BlobRef, TreeError> {
        self.open_value(txn, key)?;
        match self.blob_of(key)? {
            Some(blob) => Ok(blob),
            None => Err(Self::corrupt(self.root, "large value of a key", 1, 0)),
        }
    }

    /// Where leaves are locked: locks the one of a key exclusively.
    pub(super) fn lock_leaf_to_write(&self, txn: &mut Txn, key: &[u8]) -> Result<(), TreeError> {
        while self.locks_pages() {
            let page = self.latch_leaf(key, &mut Descent::default())?.page;
            let leaf = page.id();
            if self.try_lock_leaf_to_write(txn, leaf, key)? {
                return Ok(());
            }
            drop(page);
            self.wait_for_leaf(txn, leaf, Mode::X)?;
        }
        Ok(())
    }

    /// Latches the leaf of a key that is there and locked exclusively.
    fn latch_record(
        &self,
        txn: &mut Txn,
        key: &[u8],
    ) -> Result<(ledgerstone_buffer::ExclusivePage<'_>, usize), TreeError> {
        loop {
            txn.claim(4 * RECORD_OVERHEAD_BYTES + key.len())?;
            let Spot { page, slot } = self.latch_leaf(key, &mut Descent::default())?;
            let leaf = page.id();
            if !self.try_lock_leaf_to_write(txn, leaf, key)? {
                drop(page);
                self.wait_for_leaf(txn, leaf, Mode::X)?;
                continue;
            }
            return match slot {
                Ok(slot) => Ok((page, slot)),
                Err(_) => Err(Self::corrupt(leaf, "record of a large value", 1, 0)),
            };
        }
    }

    fn note_record(&self, txn: &mut Txn, key: &[u8]) -> Result<(), TreeError> {
        let (page, slot) = self.latch_record(txn, key)?;
        let node = Node::new(page.words());
        self.note(txn, key, Before::Record(node.record(slot).header & !PADDED, &node.value(slot)));
        Ok(())
    }

    fn set_blob_len(&self, txn: &mut Txn, key: &[u8], blob: BlobRef) -> Result<(), TreeError> {
        let (mut page, slot) = self.latch_record(txn, key)?;
        let node = Node::new(page.words());
        let (header, old) = (node.record(slot).header, node.value(slot));
        self.log_value(txn, &mut page, slot, key, (header, &old), (REF_HEADER, &blob.encode()))
    }
}
