//! Records as they were at a snapshot: read without locks, from the page and the version store together.
//!
//! S1. The page is read, then the store is asked, then the page's version is checked: so both belong to one moment (V3
//!     of the version store). Whatever a transaction did that the snapshot does not see is taken back.
//! S2. A page older than the snapshot's horizon is taken as it is (V5).
//! S3. What a snapshot can see is on the page, if only as a ghost (G6 in `ghost.rs`): a reader that looks at all
//!     records misses none.
//! S4. A blob that a snapshot sees is still there: it is freed behind the oldest snapshot only (F3 in `to_free`).
//! S5. The floor is looked at before and after (V4).
//! S6. The changes of writers whose images are in the log are taken back last, when nothing is latched any more. The
//!     copy, its LSN and the list of those writers belong to one moment, and the log does not change (`history.rs`).
//! S7. Beside a leaf stands which of its records have changed since the page was last settled (V6): a bit for all those
//!     that share the last bits of their keys. No other need be looked for.

use ledgerstone_page::{Lsn, header};
use ledgerstone_txn::{At, Image, Look, Txn, Unseen};

use super::Direction;
use super::bytes::clamped;
use super::gathered::Gathered;
use super::history::{Asked, CopiedPage, History};
use super::node::{BLOB, GHOST, Node, PADDED, Probe};
use super::search::Descent;
use super::tree::Tree;
use crate::TreeError;
use crate::blob::{self, BlobRef};

/// Records of a copied leaf that are not what the snapshot sees, and what it sees instead.
#[derive(Default)]
pub(super) struct Images {
    /// By rising slot.
    list: Vec<(usize, Image)>,
    /// S6, to be done: of which copy, and whose changes.
    copied: Option<CopiedPage>,
    unseen: Unseen,
    /// Older changes of the leaves to come, once they are many.
    gathered: Option<Gathered>,
    /// Records of the log that were looked up one by one since then.
    looked_up_count: u64,
    /// Memory to be used again.
    spare: Vec<Image>,
    key: Vec<u8>,
}

/// What a record of the log costs that is looked up alone.
const LOOK_UP_BYTES: u64 = 8192;

/// What the resolving of a leaf came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolved {
    Done,
    /// A writer is committing: pause, and copy the leaf again.
    Committing,
}

impl Images {
    /// True if the snapshot sees all records as the leaf says.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What the snapshot sees in `slot`, if it is not what the leaf says.
    #[inline]
    pub(super) fn of(&self, slot: usize) -> Option<&Image> {
        if self.is_empty() {
            return None;
        }
        self.list.binary_search_by_key(&slot, |(slot, _)| *slot).ok().map(|at| &self.list[at].1)
    }

    /// Looks up all records of a leaf's copy. Counts if the leaf is found unchanged afterwards (S1).
    pub(super) fn resolve(&mut self, tree: &Tree, txn: &Txn, at: At, copied: CopiedPage, leaf: &[u8]) -> Resolved {
        let touched = if at.horizon == Lsn(0) { u64::MAX } else { copied.touched };
        self.spare.extend(self.list.drain(..).map(|(_, image)| image));
        self.copied = None;
        let node = Node::new(leaf);
        if copied.lsn < at.horizon {
            return Resolved::Done; // S2
        }
        let versions = &tree.engine.versions;
        let key = &mut self.key;
        // Neighbours are asked for together (H3 of the chains): what their keys have in common, and of which there are
        // images.
        let (mut stem, mut near) = (None, 0u16);
        for slot in 0..node.count() {
            let record = node.record(slot);
            let suffix = clamped(leaf, record.key_at(), record.key_len);
            let last = suffix.last().copied();
            if last.is_some_and(|last| touched >> touched_bit(last) & 1 == 0) {
                continue; // S7
            }
            let of_slot = last.map(|last| (&suffix[..suffix.len() - 1], last >> 4));
            if of_slot.is_none() || of_slot != stem {
                key.clear();
                node.key_to(slot, key);
                (stem, near) = (of_slot, versions.images_near(at, tree.root, key));
            }
            // Without a byte of its own, a key's last one is the prefix's.
            if near == 0 || last.is_some_and(|last| near >> (last & 15) & 1 == 0) {
                continue;
            }
            key.clear();
            node.key_to(slot, key);
            let mut image = self.spare.pop().unwrap_or_default();
            match txn.look(at, tree.root, key, &mut image) {
                Look::Page => self.spare.push(image),
                Look::Image => self.list.push((slot, image)),
                Look::Committing => return Resolved::Committing,
            }
        }
        self.unseen = txn.unseen(at, tree.root);
        if self.unseen.is_committing {
            return Resolved::Committing;
        }
        if copied.lsn >= self.unseen.first_lsn() {
            self.copied = Some(copied);
        }
        Resolved::Done
    }

    /// Takes back what is to be taken back by the log (S6). Nothing is latched. May read from the device.
    #[inline]
    pub(super) fn take_back(&mut self, tree: &Tree, leaf: &[u8], direction: Direction) -> Result<(), TreeError> {
        match self.copied.take() {
            None => Ok(()),
            Some(copied) => self.take_back_all(tree, copied, leaf, direction),
        }
    }

    #[cold]
    fn take_back_all(
        &mut self,
        tree: &Tree,
        copied: CopiedPage,
        leaf: &[u8],
        direction: Direction,
    ) -> Result<(), TreeError> {
        let node = Node::new(leaf);
        let is_wanted = |key: &[u8]| !node.is_before(key) && !node.is_beyond(key);
        let (log, low) = (&tree.engine.log, self.unseen.first_lsn());
        let span_bytes = log.durable_lsn().0.saturating_sub(low.0);
        let is_due = self.looked_up_count * LOOK_UP_BYTES > span_bytes;
        // Where the gathered ends, the next pass begins at once.
        let is_left = self.gathered.as_ref().is_some_and(|gathered| !gathered.covers(&node, low));
        if (is_due || is_left) && span_bytes > 0 {
            self.gathered = Some(Gathered::read(log, tree.root, low, &node, direction)?);
            self.looked_up_count = 0;
        }
        let asked = Asked { log, root: tree.root, unseen: &self.unseen, is_wanted: &is_wanted };
        let history = match &self.gathered {
            Some(gathered) if gathered.covers(&node, low) => History::read_with(asked, gathered, (copied, &node))?,
            _ => History::read(asked, copied)?,
        };
        self.looked_up_count += history.read_count();
        for slot in 0..node.count() {
            let at = self.list.binary_search_by_key(&slot, |(slot, _)| *slot);
            let image = at.ok().map(|at| &self.list[at].1);
            let on_page = (node.record(slot).header & !PADDED, node.value(slot).to_vec());
            if let Some(before) = history.before(&node.key(slot), Some(on_page), image)? {
                match at {
                    Ok(at) => self.list[at].1 = before,
                    Err(at) => self.list.insert(at, (slot, before)),
                }
            }
        }
        Ok(())
    }
}

/// The bit of a record whose key ends in this byte (S7).
#[inline]
pub(super) fn touched_bit(last: u8) -> u32 {
    u32::from(last) & 63
}

impl Tree {
    /// Copies the value of `key` at a snapshot into `value`, and says whether there is one.
    pub(super) fn get_at(&self, txn: &mut Txn, key: &[u8], at: At, value: &mut Vec<u8>) -> Result<bool, TreeError> {
        let Some(is_blob) = self.get_stored_at(txn, key, at, value)? else { return Ok(false) };
        if is_blob {
            let reference = BlobRef::decode(value)?;
            value.clear();
            let view = Some((&*txn, at));
            blob::read_at(&self.engine.cache, reference, (0, reference.len), view, value)?; // S4, S5
        }
        Ok(true)
    }

    /// The same, but a large value's reference as it stands. Says whether it is one.
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
        let probe = Probe::new(key);
        if let Some(leaf) = self.leaf_ahead_of(&probe)
            && header::page_lsn(leaf.words()) < at.horizon
            && self.value_in(&leaf, &probe, value)
        {
            versions.check(at)?; // S5
            return Ok(Some(false)); // S2
        }
        let mut descent = Descent::default();
        let mut image = Image::default();
        let mut round = 0;
        loop {
            value.clear();
            let spot = self.find_key(key, &mut descent)?;
            let words = spot.page.words();
            let mut on_page = None;
            if let Ok(slot) = spot.slot {
                let node = Node::new(words);
                on_page = Some(node.record(slot).header & !PADDED);
                node.value_to(slot, value);
            }
            let copied = CopiedPage { id: spot.page.id(), lsn: header::page_lsn(words), touched: u64::MAX };
            let (mut look, mut unseen) = (Look::Page, Unseen::default());
            if copied.lsn >= at.horizon {
                look = txn.look(at, self.root, key, &mut image);
                unseen = txn.unseen(at, self.root);
                if look == Look::Committing || unseen.is_committing {
                    drop(spot);
                    txn.engine().pause_for_commit(round)?;
                    round += 1;
                    continue;
                }
            }
            if spot.page.check().is_err() {
                descent.restarted();
                continue;
            }
            versions.check(at)?; // S5
            drop(spot);
            if copied.lsn >= unseen.first_lsn() {
                let is_wanted = |other: &[u8]| other == key;
                let (log, root) = (&self.engine.log, self.root);
                let history = History::read(Asked { log, root, unseen: &unseen, is_wanted: &is_wanted }, copied)?; // S6
                let on_page = on_page.map(|header| (header, value.clone()));
                let found = (look == Look::Image).then_some(&image);
                if let Some(before) = history.before(key, on_page, found)? {
                    (look, image) = (Look::Image, before);
                }
                versions.check(at)?;
            }
            let header = if look == Look::Image {
                std::mem::swap(value, &mut image.value);
                image.header
            } else {
                on_page.filter(|header| header & GHOST == 0)
            };
            let Some(header) = header else {
                value.clear();
                return Ok(None);
            };
            return Ok(Some(header & BLOB != 0));
        }
    }
}
