//! A loser of a restart that is rolled back later: after the opening, beside other transactions.
//!
//! It is an ordinary rollback, but for what a running transaction has and a loser has lost in the crash.
//!
//! A1. Locks keep others from what it has changed, exclusive ones on whole tables. Its own locks on keys are not known
//!     any more. If one of them is not free, or finds no room, the loser is not rolled back later.
//! A2. Snapshots that are opened meanwhile see the state before it. It is a spilled writer from the beginning
//!     (`version/spilled.rs`), and its compensation records are changes like any other, in whichever order they come.
//! A3. Room in the log for what is left of the rollback is reserved once more. What a compensation record has taken is
//!     given back from that, so that the rollback takes no more room from others than it needs.
//! A4. Its slot says ABORTING and keeps its `first_lsn`, so the log stays from its first record on.
//! A5. It may be left in the middle, between two updates, when the environment is closed. The log has all that the next
//!     restart needs (B3 in `rollback.rs`).

use ledgerstone_region::NumberSet;
use std::sync::Arc;

use ledgerstone_lock::{LockName, Mode, Wait};
use ledgerstone_page::PageId;
use ledgerstone_page::planted::{self, Bug};

use crate::version::{Who, tree_bit};
use crate::{Engine, Txn};

impl Txn {
    /// Prepares an adopted loser, which has called [`Txn::begin_undo`], to be rolled back beside other transactions. It
    /// has changed only the trees of these roots. The rollback takes `undo_bytes` of log, at most. Waits for nothing.
    /// To be called before any other transaction begins.
    ///
    /// `false` means that one of `locks` cannot be had. Nothing has changed then, and the loser has to be rolled back
    /// at once.
    #[must_use]
    pub fn keep_for_later(&mut self, locks: &[LockName], roots: &NumberSet<PageId>, undo_bytes: u64) -> bool {
        let engine: Arc<Engine> = Arc::clone(self.engine());
        for (no, &name) in locks.iter().enumerate() {
            if planted::is_on(Bug::DeferredWithoutLocks) {
                break;
            }
            if engine.locks.lock(self.owner(), name, Mode::X, Wait::Try).is_err() {
                for &taken in &locks[..no] {
                    let _ = engine.locks.unlock(self.owner(), taken);
                }
                return false; // A1
            }
        }
        let who = Who { slot: self.chain.no, xid: self.chain.xid, first_lsn: self.chain.first_lsn };
        let trees = roots.iter().fold(0, |trees, root| trees | tree_bit(root));
        engine.versions.begin_spilled_in(&mut self.writer, who, trees); // A2
        self.chain.reserve_for_undo_again(&engine, undo_bytes); // A3
        true
    }

    /// Bytes of log that are reserved for its rollback (A3). For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn reserved_for_undo(&self) -> u64 {
        self.chain.undo_reserved()
    }

    /// Leaves a loser as it is (A5). Its locks stay, and so does the mark that keeps its log, until the environment is
    /// closed. No page may be latched, and no update be half undone.
    pub fn leave(mut self) {
        self.release_claim();
        self.ended = true;
    }
}
