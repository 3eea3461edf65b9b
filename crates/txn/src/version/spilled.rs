//! Writers whose images are in the log. They changed more than the store has room for, or a restart has found them
//! prepared (design 5: "they become LSNs of log records when the store is full").
//!
//! Everything that takes a change back is in its log record, and every record names the LSN that its page had before.
//! So no image of such a writer is kept in memory, however large it is. A reader at a snapshot that does not see the
//! writer goes back from the page's LSN to the writer's first record. It takes back the changes that it finds
//! (`structures/btree/history.rs`).
//!
//! ```text
//!        spill                begin_commit            stamp(L)            no snapshot is at or below L
//!   0 ──────────► OPEN, xid, first_lsn ──► COMMITTING ──► COMMITTED, L ──────────────────────────────► 0
//!                  └──── rolled back, pages put right: no tree's bit ──► COMMITTED, L ────────────────► 0
//! status word as in `writer.rs`; FILLING, which is none of those, while xid and first_lsn are written
//! ```
//! L1. A writer is spilled as a whole and for good, before the page changes whose record it has no room for. Its images
//!     in memory, if it had any, go afterwards: a reader that misses one there finds the writer here.
//! L2. A reader looks here after it has looked at the page and at the chain, and checks the page's version afterwards:
//!     as V3.
//! L3. The log is kept from `first_lsn` on while the writer stands here: by the transaction's own mark while it is
//!     open, then by [`VersionStore::log_low`], which checkpoints read after the marks.
//! L4. While a spilled writer stands here, ghosts stay ([`VersionStore::has_images`] says so of every key). A snapshot
//!     that does not see its commit writes nothing, because only a look at the log tells what the writer has changed.
//! L5. A writer that a restart has put off, to be rolled back later, is known to have changed these trees and no
//!     others. Their bits stand here; any other writer has all. Who reads or purges in a tree without a bit passes it
//!     over.
//! L6. A writer that was rolled back has no bit any more, so nobody asks for it again. It stands here until the
//!     snapshots have closed that were open then, for its log only: a reader may be on its way through that.
//! L7. Slots are taken and given back under a latch, and the number of those in use changes with them. Whoever takes it
//!     over from the dead frees what was being filled, and counts again.

use ledgerstone_region::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, Xid};
use ledgerstone_region::shared;

use super::VersionStore;
use super::view::At;
use super::writer::{COMMITTED, COMMITTING, STATE_BITS};

shared! {
    /// A spilled writer.
    pub(crate) struct SpilledSlot {
        /// See the file's beginning; 0: nobody's.
        status: AtomicU64,
        xid: AtomicU64,
        first_lsn: AtomicU64,
        /// The trees that it may have changed (L5, L6).
        trees: AtomicU64,
    } size 32
}

const OPEN: u64 = 1;
/// Not a state of a writer: no state bits, and not free.
const FILLING: u64 = 4;

/// All trees (L5).
pub(crate) const ALL_TREES: u64 = u64::MAX;

/// The bit of a tree among 64, by its root; of no tree in particular: all of them.
pub(crate) fn tree_bit(root: PageId) -> u64 {
    if root == PageId::NONE { ALL_TREES } else { 1 << (root.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) }
}

/// Spilled writers that a snapshot does not see. Empty, most of the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Each with an LSN at or below its first record.
    pub writers: Vec<(Xid, Lsn)>,
    /// One of all is committing: look again, at the page too.
    pub is_committing: bool,
}

impl Unseen {
    /// Records below it are none of theirs.
    #[must_use]
    pub fn first_lsn(&self) -> Lsn {
        self.writers.iter().map(|(_, first)| *first).min().unwrap_or(Lsn(u64::MAX))
    }

    /// True if the transaction is one of them.
    #[must_use]
    pub fn contains(&self, xid: Xid) -> bool {
        self.writers.iter().any(|(writer, _)| *writer == xid)
    }
}

impl SpilledSlot {
    /// L6.
    fn is_rolled_back(&self) -> bool {
        self.trees.load(SeqCst) == 0
    }
}

impl VersionStore {
    /// Makes `xid` a spilled writer, all of whose records are at or above `first_lsn`, and which changes these trees
    /// only; gives its name here.
    #[cold]
    pub(super) fn spill(&self, xid: Xid, first_lsn: Lsn, trees: u64) -> u32 {
        loop {
            self.latch_spilled();
            let free = self.spilled.iter().position(|slot| slot.status.load(Acquire) == 0);
            if let Some(no) = free {
                let slot = &self.spilled[no];
                slot.status.store(FILLING, Relaxed); // L7
                slot.xid.store(xid.0, Relaxed); // Published by the status.
                slot.first_lsn.store(first_lsn.0, Relaxed);
                slot.trees.store(trees, Relaxed);
                slot.status.store(OPEN, Release);
                self.state.spilled_count.fetch_add(1, SeqCst); // L1: the page changes after it.
            }
            self.state.spilled_latch.unlatch_exclusive();
            if let Some(no) = free {
                return no as u32 + 1;
            }
            // There are more slots than transactions: some are of commits.
            self.drop_oldest_spilled();
        }
    }

    fn latch_spilled(&self) {
        while self.state.spilled_latch.exclusive(self.threads.current()).is_err() {}
    }

    /// Makes whole what the latch guards, which was taken over from the dead (L7).
    pub(super) fn mend_spilled(&self) {
        for slot in self.spilled.iter().filter(|slot| slot.status.load(Acquire) == FILLING) {
            slot.status.store(0, Release);
        }
        let count = self.spilled.iter().filter(|slot| slot.status.load(Acquire) != 0).count();
        self.state.spilled_count.store(count as u64, SeqCst);
    }

    /// The name of a transaction that is spilled and has not ended.
    pub(super) fn spilled_name(&self, xid: Xid) -> Option<u32> {
        let is_its = |slot: &SpilledSlot| {
            let status = slot.status.load(Acquire); // Pairs with the Release of the thread that filled it.
            matches!(status & STATE_BITS, OPEN | COMMITTING) && slot.xid.load(Relaxed) == xid.0
        };
        self.spilled.iter().position(is_its).map(|no| no as u32 + 1)
    }

    /// One that was rolled back goes, or the oldest commit, at the cost of the snapshots that do not see it.
    #[cold]
    fn drop_oldest_spilled(&self) {
        let ended = self.spilled.iter().map(|slot| (slot.status.load(Acquire), slot));
        let oldest = ended
            .filter(|(status, _)| status & STATE_BITS == COMMITTED)
            .min_by_key(|(status, slot)| (!slot.is_rolled_back(), *status));
        if let Some((status, slot)) = oldest {
            if !slot.is_rolled_back() {
                self.raise_floor(Lsn(status >> 2));
            }
            self.free_spilled(slot, status);
        }
    }

    fn free_spilled(&self, slot: &SpilledSlot, status: u64) {
        self.latch_spilled();
        if slot.status.compare_exchange(status, 0, SeqCst, Relaxed).is_ok() {
            self.state.spilled_count.fetch_sub(1, SeqCst);
        }
        self.state.spilled_latch.unlatch_exclusive();
    }

    /// The word that says what became of a spilled writer.
    pub(super) fn spilled_status(&self, name: u32) -> &AtomicU64 {
        &self.spilled[name as usize - 1].status
    }

    /// A spilled writer's commit record has its place at `lsn`.
    pub(super) fn commit_spilled(&self, name: u32, lsn: Lsn) {
        let slot = &self.spilled[name as usize - 1];
        let status = lsn.0 << 2 | COMMITTED;
        // From here on it may be anybody's. Before the look at the slots: either the closer of the last snapshot sees
        // it, or we see that none is open.
        slot.status.store(status, SeqCst);
        if self.is_none_open() {
            self.free_spilled(slot, status);
        }
    }

    /// A spilled writer was rolled back (L6).
    pub(super) fn abort_spilled(&self, name: u32) {
        let slot = &self.spilled[name as usize - 1];
        slot.trees.store(0, SeqCst); // No commit, from before it looks like one.
        self.commit_spilled(name, self.log.tail());
    }

    /// Forgets spilled writers whose commits lie below every snapshot.
    pub(super) fn reclaim_spilled(&self, oldest: u64) {
        if !self.has_spilled() {
            return;
        }
        for slot in self.spilled.iter() {
            let status = slot.status.load(SeqCst);
            // If nothing was logged since, the oldest of none is as old as the end of one that was rolled back.
            if status & STATE_BITS == COMMITTED && (status >> 2 < oldest || self.is_none_open()) {
                self.free_spilled(slot, status);
            }
        }
    }

    /// True if there may be one that has changed this tree (L4, L5). Counts under the exclusive latch of a page of it.
    #[inline]
    pub(super) fn has_spilled_in(&self, root: PageId) -> bool {
        self.has_spilled() && self.any_spilled_in(root)
    }

    #[cold]
    fn any_spilled_in(&self, root: PageId) -> bool {
        self.spilled.iter().any(|slot| match slot.status.load(Acquire) {
            0 => false,
            FILLING => true,
            _ => slot.trees.load(Relaxed) & tree_bit(root) != 0,
        })
    }

    /// True if there may be any.
    #[inline]
    pub(super) fn has_spilled(&self) -> bool {
        self.state.spilled_count.load(SeqCst) != 0
    }

    /// The spilled writers that a snapshot does not see and that may have changed a tree, by its root; with no page for
    /// a root, any tree. The reader's own transaction is left out. To be asked after the page and its chains were read
    /// (L2).
    #[inline]
    #[must_use]
    pub fn unseen(&self, at: At, own: Xid, root: PageId) -> Unseen {
        if self.has_spilled() { self.unseen_of_all(at, own, root) } else { Unseen::default() }
    }

    #[cold]
    fn unseen_of_all(&self, at: At, own: Xid, root: PageId) -> Unseen {
        let mut unseen = Unseen::default();
        if planted::is_on(Bug::SpilledForgotten) {
            return unseen;
        }
        for slot in self.spilled.iter() {
            let status = slot.status.load(Acquire); // Pairs with the Release of the thread that filled it.
            let writer = (Xid(slot.xid.load(Relaxed)), Lsn(slot.first_lsn.load(Relaxed)));
            match status & STATE_BITS {
                0 => {}
                COMMITTED if status >> 2 < at.lsn.0 => {}
                _ if writer.0 == own => {}
                _ if slot.trees.load(Relaxed) & tree_bit(root) == 0 => {} // L5, L6
                COMMITTING => unseen.is_committing = true,
                _ => unseen.writers.push(writer),
            }
        }
        unseen
    }

    /// The newest commit of a spilled writer that stands here; 0: none.
    #[must_use]
    pub(crate) fn newest_spilled_commit(&self) -> Lsn {
        if !self.has_spilled() {
            return Lsn(0);
        }
        // The status first: whoever is rolled back has no tree's bit any more when it looks like a commit (L6).
        let all = self.spilled.iter().map(|slot| (slot.status.load(SeqCst), slot));
        let commits = all.filter(|(status, slot)| status & STATE_BITS == COMMITTED && !slot.is_rolled_back());
        Lsn(commits.map(|(status, _)| status >> 2).max().unwrap_or(0))
    }

    /// The oldest record that the reader of a snapshot may still need to take a change back (L3). To be asked after the
    /// marks of the transaction table.
    #[must_use]
    pub fn log_low(&self) -> Option<Lsn> {
        if !self.has_spilled() {
            return None;
        }
        let filled = self.spilled.iter().filter(|slot| slot.status.load(Acquire) & STATE_BITS != 0);
        filled.map(|slot| Lsn(slot.first_lsn.load(Relaxed))).min()
    }

    /// How many stand here.
    pub(super) fn spilled_count(&self) -> u64 {
        self.state.spilled_count.load(Relaxed) // A figure.
    }

    /// How many slots are in use.
    #[cfg(all(feature = "deaths", not(miri)))]
    pub(super) fn spilled_in_use(&self) -> usize {
        self.spilled.iter().filter(|slot| slot.status.load(SeqCst) != 0).count()
    }
}
