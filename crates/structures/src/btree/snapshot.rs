//! Records as they were at a snapshot: read without locks, from the page and the version store together.
//!
//! S1. The page is read, then the store is asked, then the page's version is checked: so both belong to one moment (V3 of the
//!     version store). Whatever a transaction did that the snapshot does not see is taken back.
//! S2. A page older than the snapshot's horizon is taken as it is (V5).
//! S3. What a snapshot can see is on the page, if only as a ghost (G6 in `ghost.rs`): who looks at all records misses none.
//! S4. A blob that a snapshot sees is still there: it is freed behind the oldest snapshot only (F3 in `to_free`).
//! S5. The floor is looked at before and after (V4).

use ledgerstone_page::{Lsn, header};
use ledgerstone_txn::{At, Image, Look, Txn};

use super::node::{BLOB, Node};
use super::search::Descent;
use super::tree::Tree;
use crate::TreeError;
use crate::blob::{self, BlobRef};

/// Records of a copied leaf that are not what the snapshot sees, and what it sees instead.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// By rising slot.
    list: Vec<(usize, Image)>,
}

/// What the resolving of a leaf came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolved {
    Done,
    /// A writer is committing: pause, and copy the leaf again.
    Committing,
}

impl Images {
    /// What the snapshot sees in `slot`, if it is not what the leaf says.
    #[inline]
    pub(super) fn of(&self, slot: usize) -> Option<&Image> {
        if self.list.is_empty() {
            return None;
        }
        self.list.binary_search_by_key(&slot, |(slot, _)| *slot).ok().map(|at| &self.list[at].1)
    }

    /// Looks up all records of a leaf's copy. Counts if the leaf is found unchanged afterwards (S1).
    pub(super) fn resolve(&mut self, tree: &Tree, txn: &Txn, at: At, page_lsn: Lsn, leaf: &[u8]) -> Resolved {
        self.list.clear();
        let node = Node::new(leaf);
        if page_lsn < at.horizon {
            return Resolved::Done; // S2
        }
        let mut key = Vec::new();
        let mut image = Image::default();
        for slot in 0..node.count() {
            key.clear();
            node.key_to(slot, &mut key);
            match txn.look(at, tree.root, &key, &mut image) {
                Look::Page => {}
                Look::Image => self.list.push((slot, std::mem::take(&mut image))),
                Look::Committing => return Resolved::Committing,
            }
        }
        Resolved::Done
    }
}

impl Tree {
    /// The value of `key` at a snapshot, into `value`; says whether there is one.
    pub(super) fn get_at(&self, txn: &mut Txn, key: &[u8], at: At, value: &mut Vec<u8>) -> Result<bool, TreeError> {
        let Some(is_blob) = self.get_stored_at(txn, key, at, value)? else { return Ok(false) };
        if is_blob {
            let reference = BlobRef::decode(value)?;
            value.clear();
            let view = Some((&*txn, at));
            blob::read_at(&self.engine.cache, reference, (0, reference.len), view, value)?; // S4
            self.engine.versions.check(at)?; // S5
        }
        Ok(true)
    }

    /// The same, but a large value's reference as it stands; says whether it is one.
    pub(super) fn get_stored_at(
        &self,
        txn: &mut Txn,
        key: &[u8],
        at: At,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, TreeError> {
        let versions = &self.engine.versions;
        versions.check(at)?;
        txn.depend_on_commits_below(at.lsn);
        let mut descent = Descent::default();
        let mut image = Image::default();
        let mut round = 0;
        loop {
            value.clear();
            let spot = self.find_key(key, &mut descent)?;
            let words = spot.page.words();
            let mut header = None;
            if let Ok(slot) = spot.slot {
                let node = Node::new(words);
                let record = node.record(slot);
                if !record.is_ghost() {
                    header = Some(record.header);
                    node.value_to(slot, value);
                }
            }
            if header::page_lsn(words) >= at.horizon {
                match txn.look(at, self.root, key, &mut image) {
                    Look::Page => {}
                    Look::Image => {
                        header = image.header;
                        std::mem::swap(value, &mut image.value);
                    }
                    Look::Committing => {
                        drop(spot);
                        versions.pause(round);
                        round += 1;
                        continue;
                    }
                }
            }
            if spot.page.check().is_err() {
                descent.restarted();
                continue;
            }
            versions.check(at)?; // S5
            drop(spot);
            let Some(header) = header else {
                value.clear();
                return Ok(None);
            };
            return Ok(Some(header & BLOB != 0));
        }
    }
}
