//! The transaction table: one slot in the region for each running transaction.
//!
//! A slot says all that a checkpoint, a deadlock report or a survivor needs: who runs, since which LSN, and where its
//! chain of records ends. The handle of a transaction ([`crate::Txn`]) is process-private and adds only caches.
//!
//! T1. `first_lsn` is set from the log's tail before the transaction's first record is reserved, and cleared after its
//!     last record is appended. A checkpoint reads the tail first and the slots afterwards, all sequentially
//!     consistent. Either it sees the mark, or every record of the transaction has an LSN at or above that tail.
//! T2. Slots beyond the highest ever taken are not looked at: a transaction that takes one says so before it marks
//!     anything.
//! T3. `state` leaves `FREE` by compare-exchange only; the winner writes the rest.
//! T4. `xid` is there before the transaction changes any page, and goes after its last record: after a commit or a
//!     whole rollback. Suppose that a thread finds the id of a writer in a page, and then not in the table. So the
//!     writer has ended, and its end is in the log below the tail read after that. Nothing here is believed the other
//!     way round: an id that a former life has used may be found, and then looks like one that still runs.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{Handle, Region, RegionError, shared};

use crate::TxnError;

shared! {
    /// One transaction, as every process sees it.
    pub struct TxnSlot {
        /// See [`state`].
        pub state: AtomicU32,
        /// Open nested top actions.
        pub nesting: AtomicU32,
        /// The transaction's id.
        pub xid: AtomicU64,
        /// Log tail before its first record; 0 while it has none (T1).
        pub first_lsn: AtomicU64,
        /// Its newest record.
        pub last_lsn: AtomicU64,
        /// Where a rollback goes on.
        pub undo_next: AtomicU64,
        /// Room to a cache line.
        pub spare: [AtomicU64; 3],
    }
    size 64
}

/// Values of [`TxnSlot::state`].
pub mod state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// Reading and writing.
    pub const RUNNING: u32 = 1;
    /// Undoing.
    pub const ABORTING: u32 = 2;
    /// Its commit record is being appended.
    pub const COMMITTING: u32 = 3;
    /// Waiting for a decision, since a prepare or a restart.
    pub const PREPARED: u32 = 4;
}

/// Where beside the next id stands how many slots were ever taken (T2).
const USED: usize = 1;

/// Slots that only transactions of the library's own take: the housekeeper's, a compaction's, a look at the catalog.
/// However many transactions of users run, these begin. An environment has so many slots more than it was asked for.
pub const OWN_SLOT_COUNT: u32 = 4;

/// The table of all running transactions.
pub struct TxnTable {
    slots: Handle<[TxnSlot]>,
    next_xid: Handle<[AtomicU64]>,
}

impl TxnTable {
    /// Allocates a table of `count` slots in `region`.
    ///
    /// # Errors
    /// The region is too small.
    pub fn create(region: &Region, count: u32) -> Result<TxnTable, RegionError> {
        let slots = region.handle_slice(region.alloc::<TxnSlot>(u64::from(count), 64)?)?;
        let next_xid = region.handle_slice(region.alloc::<AtomicU64>(8, 64)?)?;
        next_xid[0].store(1, Relaxed);
        Ok(TxnTable { slots, next_xid })
    }

    /// How many slots there are.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// The slot of an owner.
    #[must_use]
    pub fn slot(&self, no: u32) -> &TxnSlot {
        &self.slots[no as usize]
    }

    /// Takes a free slot of those from `first` on, looking from `hint` on, and gives it the next [`Xid`].
    pub(crate) fn claim(&self, first: u32, hint: u32) -> Result<(u32, Xid), TxnError> {
        let count = self.slot_count().saturating_sub(first);
        for step in 0..count {
            let no = first + (hint % count + step) % count;
            let slot = self.slot(no);
            // Relaxed look first: a compare-exchange takes the cache line even when it fails.
            if slot.state.load(Relaxed) == state::FREE
                && slot.state.compare_exchange(state::FREE, state::RUNNING, SeqCst, Relaxed).is_ok()
            {
                if self.next_xid[USED].load(Relaxed) <= u64::from(no) {
                    self.next_xid[USED].fetch_max(u64::from(no) + 1, SeqCst); // T2
                }
                let xid = self.next_xid[0].fetch_add(1, Relaxed);
                slot.xid.store(xid, Release);
                slot.last_lsn.store(0, Relaxed);
                slot.undo_next.store(0, Relaxed);
                slot.nesting.store(0, Relaxed);
                return Ok((no, Xid(xid)));
            }
        }
        Err(TxnError::TooManyTransactions { slots: count })
    }

    /// Takes a free slot for a loser of recovery, which brings its own [`Xid`] and chain.
    pub(crate) fn claim_for(&self, xid: Xid, first: Lsn, last: Lsn) -> Result<u32, TxnError> {
        let (no, _) = self.claim(OWN_SLOT_COUNT, 0)?;
        let slot = self.slot(no);
        slot.xid.store(xid.0, Release);
        slot.first_lsn.store(first.0, SeqCst);
        slot.last_lsn.store(last.0, Relaxed);
        Ok(no)
    }

    /// Gives a slot back.
    pub(crate) fn free(&self, no: u32) {
        let slot = self.slot(no);
        slot.first_lsn.store(0, SeqCst); // T1: after the last record.
        slot.xid.store(0, Release); // T4
        slot.state.store(state::FREE, SeqCst);
    }

    /// The lowest LSN that a running transaction may need for its rollback, if any wrote at all.
    #[must_use]
    pub fn first_lsn_low(&self) -> Option<Lsn> {
        let used = self.next_xid[USED].load(SeqCst) as usize;
        self.slots[..used].iter().map(|s| s.first_lsn.load(SeqCst)).filter(|&l| l != 0).min().map(Lsn)
    }

    /// The ids of the transactions that run now or wait for a decision, in no order (T4).
    pub fn running(&self) -> impl Iterator<Item = Xid> + '_ {
        let used = self.next_xid[USED].load(SeqCst) as usize;
        self.slots[..used].iter().map(|s| Xid(s.xid.load(Acquire))).filter(|&xid| xid != Xid::NONE)
    }

    /// How many transactions run now. Sequentially consistent, for a close, which ends the beginning of transactions
    /// (E1 in `begins.rs`).
    #[must_use]
    pub fn active_count(&self) -> u32 {
        let active = self.slots.iter().filter(|s| s.state.load(SeqCst) != state::FREE).count();
        u32::try_from(active).unwrap_or(u32::MAX)
    }

    /// The id that the next transaction will get.
    #[must_use]
    pub fn next_xid(&self) -> Xid {
        Xid(self.next_xid[0].load(Relaxed))
    }

    /// Raises the next id to at least `floor` (recovery: ids are never reused).
    pub fn raise_next_xid(&self, floor: Xid) {
        self.next_xid[0].fetch_max(floor.0, Relaxed);
    }
}
