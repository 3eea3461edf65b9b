//! Locks on leaves instead of locks on keys and gaps, where the environment is set so (Lemon 4.1).
//!
//! Fewer locks and coarser: a transaction that reads a key, or finds that it is not there, holds its leaf S until it
//! ends. One that writes there holds it X. So no gap needs a lock of its own, and a leaf with uncommitted changes is
//! one transaction's alone.
//!
//! H1. A leaf is locked by a try, while its version or its latch is held, and looked at afterwards. If the try fails,
//!     the lock is waited for with nothing held. Then the leaf is looked for again, because it may be another one by
//!     then. A lock taken in vain is kept and harms nobody.
//! H2. Records that a lock protects are moved to another page only by a transaction that holds both pages X. A split
//!     locks its new pages, which nobody knows yet. Merges and moves try the locks, and leave everything as it is if
//!     they fail.
//! H3. Ghosts and pads are purged by a transaction that holds the leaf X and has not changed it, or when nobody holds
//!     it. Then all transactions that made them have ended.
//! H4. The tree of deferred frees locks neither leaves nor keys: its entries name their writers. Every other tree in
//!     which another transaction may have work under way is one with deferred frees. So a transaction that purges or
//!     merges there, too, asks for the locks under which that work is done.

use ledgerstone_buffer::ExclusivePage;
use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_txn::{KeyLock, Txn, key_name};

use super::tree::Tree;
use crate::TreeError;

impl Tree {
    /// Whether leaves are locked instead of keys.
    #[inline]
    pub(super) fn locks_pages(&self) -> bool {
        self.engine.settings.locks_pages && self.to_free.is_some() // H4
    }

    /// True if keys need no lock of their own in this mode.
    #[inline]
    pub(super) fn covers_keys(&self, txn: &Txn, mode: Mode) -> bool {
        self.locks_pages() || self.names_writers || txn.covers(self.table, mode)
    }

    /// Locks a leaf if that needs no waiting; true as well if keys are locked here. May be called under latches (H1).
    #[inline]
    pub(super) fn try_lock_leaf(&self, txn: &mut Txn, leaf: PageId, mode: Mode) -> Result<bool, TreeError> {
        if !self.locks_pages() || planted::is_on(Bug::NoLeafLocks) {
            return Ok(true);
        }
        Ok(txn.try_lock_key(self.table, KeyLock::Page(leaf), mode)?)
    }

    /// Locks leaves whose content is to move, if that needs no waiting (H2).
    pub(super) fn try_lock_leaves(&self, txn: &mut Txn, leaves: &[PageId]) -> Result<bool, TreeError> {
        for &leaf in leaves {
            if !self.try_lock_leaf(txn, leaf, Mode::X)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for the lock of a leaf. Hold no latch.
    pub(super) fn wait_for_leaf(&self, txn: &mut Txn, leaf: PageId, mode: Mode) -> Result<(), TreeError> {
        Ok(txn.lock_key(self.table, KeyLock::Page(leaf), mode)?)
    }

    /// Whether the ghosts and pads of a latched leaf may go (H3).
    pub(super) fn may_purge_leaf(&self, txn: &Txn, leaf: &ExclusivePage<'_>) -> bool {
        match self.engine.locks.held_by_any(key_name(self.table, KeyLock::Page(leaf.id()))) {
            None => true,
            Some(_) => {
                let first = txn.first_lsn();
                let is_unchanged = first == Lsn::NONE || leaf.page_lsn() < first;
                is_unchanged && txn.held_key(self.table, KeyLock::Page(leaf.id())) == Some(Mode::X)
            }
        }
    }
}
