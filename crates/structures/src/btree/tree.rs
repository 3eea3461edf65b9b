//! One tree: what it is made of, how it is created, and the point read.
//!
//! T1. The root page never moves: when it is full, its content moves to two new pages below it. So a tree is known by
//!     its root's page id for ever, in the catalog, in log records and in lock-free readers alike.
//! T2. A read locks the key first and looks afterwards. If the key is not there, the gap in which it would be must
//!     stand still. The gap is locked by the name of the next key, with a try, while the leaf is known to be unchanged.
//!     If the try fails, the lock is waited for with nothing held, and then everything is looked at again.
//! T3. A ghost is a key: a reader that finds one has its answer under the key's lock, since nobody brings the key back
//!     without that lock.

use std::sync::Arc;

use ledgerstone_buffer::OptimisticPage;
use ledgerstone_lock::Mode;
use ledgerstone_page::{Corrupt, PageId, TableId};
use ledgerstone_space::{OP_SPACE_SET, Space};
use ledgerstone_txn::{At, Engine, KeyLock, Part, RECORD_OVERHEAD_BYTES, Txn, key_hash};

use super::args::FormatArgs;
use super::node::{Node, Probe, key_bytes_max, value_bytes_max};
use super::ops::OP_NODE_FORMAT;
use super::search::{Descent, Gap};
use crate::{ToFree, TreeError, blob};

/// How a point read locks the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Shared: no other transaction changes it until this one ends.
    Locked,
    /// For update: other transactions may still read it, but none gets it for update.
    ForUpdate,
    /// Not at all. Reads what is there, committed or not.
    Unlocked,
    /// For update, and nothing else: where the key is missing, others may put it.
    ForUpdateOnly,
    /// As it was at a snapshot that the caller keeps open, with the transaction's own changes. Never waits.
    At(At),
}

impl Read {
    fn mode(self) -> Option<Mode> {
        match self {
            Read::Locked => Some(Mode::S),
            Read::ForUpdate | Read::ForUpdateOnly => Some(Mode::U),
            Read::Unlocked | Read::At(_) => None,
        }
    }
}

/// What is read of a large value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Large {
    Whole,
    Reference,
}

/// A B-link tree. Cheap to clone: a few references and numbers.
#[derive(Clone)]
pub struct Tree {
    pub(crate) engine: Arc<Engine>,
    pub(crate) space: Arc<Space>,
    pub(crate) to_free: Option<Arc<ToFree>>,
    pub(crate) table: TableId,
    pub(crate) root: PageId,
    pub(crate) page_bytes: usize,
    /// Old and new values go to the log whole (W8 in `write.rs`).
    pub(crate) logs_whole: bool,
    /// No key is locked. Each value, also that of a ghost, begins with the id of the transaction that wrote it last (F6
    /// in `to_free`).
    pub(crate) names_writers: bool,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("table", &self.table).field("root", &self.root).finish_non_exhaustive()
    }
}

impl Tree {
    /// The tree with this root, whose keys are locked under `table`. Nothing is read.
    #[must_use]
    pub fn new(engine: &Arc<Engine>, space: &Arc<Space>, to_free: &Arc<ToFree>, table: TableId, root: PageId) -> Tree {
        let to_free = Some(Arc::clone(to_free));
        Tree { to_free, ..Tree::without_blobs(engine, space, table, root) }
    }

    /// A tree whose values always stay in the leaves, and which locks no leaves whatever the setting. It is for the
    /// tree of deferred frees itself, which blobs stand on. It is also for a tree that nobody else looks at, or whose
    /// locks are not asked for (rollback).
    pub(crate) fn without_blobs(engine: &Arc<Engine>, space: &Arc<Space>, table: TableId, root: PageId) -> Tree {
        let page_bytes = engine.cache.page_bytes();
        Tree {
            engine: Arc::clone(engine),
            space: Arc::clone(space),
            to_free: None,
            table,
            root,
            page_bytes,
            logs_whole: false,
            names_writers: false,
        }
    }

    /// The tree of deferred frees.
    pub(crate) fn of_entries(engine: &Arc<Engine>, space: &Arc<Space>, table: TableId, root: PageId) -> Tree {
        Tree { names_writers: true, ..Tree::without_blobs(engine, space, table, root) }
    }

    /// The same tree, whose changes log old and new values whole, for readers of the log that follow changes.
    #[must_use]
    pub fn logging_whole_values(self, logs_whole: bool) -> Tree {
        Tree { logs_whole, ..self }
    }

    /// Its root page.
    #[must_use]
    pub fn root(&self) -> PageId {
        self.root
    }

    /// Log, cache and locks.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The table its locks belong to.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The longest key.
    #[must_use]
    pub fn key_bytes_max(&self) -> usize {
        key_bytes_max(self.page_bytes)
    }

    /// Makes a new, empty tree and returns its root.
    ///
    /// The pages are the caller's if the transaction commits. If it aborts they are freed later (see `to_free`). The
    /// caller links the root somewhere in the same transaction, and locks the tree's table exclusively before using it.
    ///
    /// # Errors
    /// There is no space, the lock table is full, or the environment has failed.
    pub fn create(txn: &mut Txn, to_free: &ToFree) -> Result<PageId, TreeError> {
        to_free.create_tree(txn)
    }

    /// Formats the root of a tree whose place is fixed, in a new environment. The first free page must be its root.
    ///
    /// # Errors
    /// There is no space. [`TreeError::Corrupt`] if another page is the first free one.
    pub fn format_root(txn: &mut Txn, space: &Arc<Space>, tree: &Tree) -> Result<(), TreeError> {
        let args = empty_root_args(tree.root);
        txn.claim(2 * RECORD_OVERHEAD_BYTES + args.len() + 64)?;
        let mut run = space.latch_for_root()?;
        if run.first != tree.root {
            let what = "first free page of a new environment";
            return Err(Self::corrupt(run.first, what, tree.root.0, run.first.0));
        }
        let set = run.args_set();
        let mut page = tree.engine.cache.exclusive_new(tree.root)?;
        txn.group(
            &mut [&mut run.map, &mut page],
            &[Part { page: 0, op: OP_SPACE_SET, args: &set }, Part { page: 1, op: OP_NODE_FORMAT, args: &args }],
        )?;
        Ok(())
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// A key too large, a refused lock, a page that cannot be read.
    #[inline]
    pub fn get(&self, txn: &mut Txn, key: &[u8], read: Read) -> Result<Option<Vec<u8>>, TreeError> {
        let mut value = Vec::new();
        Ok(self.get_into(txn, key, read, &mut value)?.then_some(value))
    }

    /// Reads the value of `key` into `value`, replacing its content. Returns whether there is a value. If the buffer is
    /// large enough, nothing is allocated.
    ///
    /// # Errors
    /// As [`Tree::get`].
    #[inline]
    pub fn get_into(&self, txn: &mut Txn, key: &[u8], read: Read, value: &mut Vec<u8>) -> Result<bool, TreeError> {
        if let Read::At(at) = read {
            self.check_key(key)?;
            value.clear();
            return self.get_at(txn, key, at, value);
        }
        Ok(self.get_as(txn, key, read, Large::Whole, value)?.is_some())
    }

    /// What the record of `key` holds: its value, or the reference of a large one; says which.
    pub(super) fn get_stored(
        &self,
        txn: &mut Txn,
        key: &[u8],
        read: Read,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, TreeError> {
        if let Read::At(at) = read {
            self.check_key(key)?;
            value.clear();
            return self.get_stored_at(txn, key, at, value);
        }
        self.get_as(txn, key, read, Large::Reference, value)
    }

    fn get_as(
        &self,
        txn: &mut Txn,
        key: &[u8],
        read: Read,
        large: Large,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, TreeError> {
        self.check_key(key)?;
        value.clear();
        if let Some(mode) = read.mode()
            && !self.locks_pages()
        {
            let probe = Probe::new(key);
            let ahead = self.leaf_ahead_of(&probe);
            txn.lock_key_at(self.table, KeyLock::Key(key_hash(key)), mode, key)?;
            if read == Read::ForUpdateOnly {
                txn.check_first(self.root, key)?;
            }
            if let Some(leaf) = ahead
                && self.value_in(&leaf, &probe, value)
            {
                return Ok(Some(false));
            }
        }
        self.get_descending(txn, key, read, large, value)
    }

    /// The usual case: the record is in the leaf that was found ahead, with a value. False says nothing, and leaves the
    /// buffer empty.
    #[inline]
    pub(super) fn value_in(&self, leaf: &OptimisticPage<'_>, probe: &Probe<'_>, value: &mut Vec<u8>) -> bool {
        let Some((node, Ok(slot))) = self.node_ahead(leaf, probe) else { return false };
        let record = node.record(slot);
        if record.is_ghost() || record.is_blob() {
            return false;
        }
        node.value_of(&record, value);
        let is_good = leaf.check().is_ok();
        if !is_good {
            value.clear();
        }
        is_good
    }

    /// Looks for the key from the root. Its lock is held, if it has one.
    fn get_descending(
        &self,
        txn: &mut Txn,
        key: &[u8],
        read: Read,
        large: Large,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, TreeError> {
        let mode = read.mode();
        let mut descent = Descent::default();
        loop {
            let spot = self.find_key(key, &mut descent)?;
            if let Some(mode) = mode
                && self.locks_pages()
            {
                let leaf = spot.page.id();
                if !self.try_lock_leaf(txn, leaf, mode)? {
                    drop(spot);
                    self.wait_for_leaf(txn, leaf, mode)?;
                    continue;
                }
                if read == Read::ForUpdateOnly {
                    txn.check_first(self.root, key)?;
                }
            }
            match spot.slot {
                Ok(slot) => {
                    let node = Node::new(spot.page.words());
                    let record = node.record(slot);
                    if !record.is_ghost() {
                        node.value_to(slot, value);
                    }
                    if spot.page.check().is_err() {
                        value.clear();
                        descent.restarted();
                        continue;
                    }
                    let is_blob = record.is_blob() && !record.is_ghost();
                    if is_blob && large == Large::Whole {
                        let reference = blob::BlobRef::decode(value)?;
                        value.clear();
                        if mode.is_some() {
                            drop(spot);
                            blob::read(&self.engine.cache, reference, value)?;
                        } else {
                            // Nobody keeps the blob from being freed: what was read counts if its record still stands.
                            let was_read = blob::read(&self.engine.cache, reference, value);
                            if spot.page.check().is_err() {
                                value.clear();
                                descent.restarted();
                                continue;
                            }
                            was_read?;
                        }
                    }
                    return Ok((!record.is_ghost()).then_some(is_blob));
                }
                Err(slot) => {
                    if mode.is_none() || read == Read::ForUpdateOnly || self.covers_keys(txn, Mode::S) {
                        match spot.page.check() {
                            Ok(()) => return Ok(None),
                            Err(_) => {
                                descent.restarted();
                                continue;
                            }
                        }
                    }
                    match self.try_lock_gap(txn, &spot.page, slot)? {
                        Gap::Locked => return Ok(None),
                        Gap::Changed => descent.restarted(),
                        Gap::Held(gap) => {
                            drop(spot);
                            txn.lock_key_at(self.table, gap, Mode::S, key)?;
                        }
                    }
                }
            }
        }
    }

    /// The longest value that stays in the leaf with any key, even the longest.
    #[must_use]
    pub fn short_value_bytes_max(&self) -> usize {
        value_bytes_max(self.page_bytes, key_bytes_max(self.page_bytes))
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), TreeError> {
        let max = key_bytes_max(self.page_bytes);
        if key.len() > max { Err(TreeError::KeyTooLarge { len: key.len(), max }) } else { Ok(()) }
    }

    /// A page that names another or is named is not what it must be.
    pub(crate) fn corrupt(page: PageId, what: &'static str, expected: u64, found: u64) -> TreeError {
        TreeError::Corrupt(Corrupt::new(what, 0, expected, found).on(page))
    }
}

/// Arguments that make a page the empty root of a new tree.
pub(crate) fn empty_root_args(root: PageId) -> Vec<u8> {
    FormatArgs { root, level: 0, link: PageId(0), low: &[], high: &[], entries: Vec::new() }.write()
}
