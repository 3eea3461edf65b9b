//! The first record whose key begins with some bytes, for a reader that locks: without a copy of its leaf.
//!
//! B1. What is found counts after its key and the gap before it are locked, and its leaf is found unchanged since, as
//!     in a scan (C1 in `scan.rs`). The bytes asked for lie in the range of that leaf. So the gap holds every key that
//!     could come between them and the record.

use ledgerstone_lock::Mode;
use ledgerstone_txn::{KeyLock, Txn, key_hash};

use super::node::Node;
use super::search::{Descent, Held};
use super::tree::Tree;
use crate::TreeError;

impl Tree {
    /// Reads the first record whose key begins with `prefix` into `key` and `value`, and locks it and the gap before it
    /// as a scan does. False says nothing: ask a scan.
    ///
    /// # Errors
    /// A refused lock, a page that cannot be read.
    pub fn first_with(
        &self,
        txn: &mut Txn,
        prefix: &[u8],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, TreeError> {
        if self.locks_pages() {
            return Ok(false);
        }
        let mut descent = Descent::default();
        loop {
            let spot = self.find_key(prefix, &mut descent)?;
            let Held::Optimistic(leaf) = spot.page else { return Ok(false) };
            let node = Node::new(leaf.words());
            let (Ok(slot) | Err(slot)) = spot.slot;
            if slot >= node.count() {
                return Ok(false); // In another leaf, or nowhere.
            }
            let record = node.record(slot);
            if record.is_ghost() || record.is_blob() {
                return Ok(false);
            }
            key.clear();
            node.key_to(slot, key);
            value.clear();
            node.value_to(slot, value);
            if leaf.check().is_err() {
                descent.restarted();
                continue;
            }
            if !key.starts_with(prefix) {
                return Ok(false);
            }
            if self.covers_keys(txn, Mode::S) {
                return Ok(true);
            }
            let hash = key_hash(key);
            txn.lock_key_at(self.table, KeyLock::Key(hash), Mode::S, key)?;
            txn.lock_key_at(self.table, KeyLock::Gap(hash), Mode::S, key)?;
            if leaf.check().is_ok() {
                return Ok(true); // B1
            }
            descent.restarted();
        }
    }
}
