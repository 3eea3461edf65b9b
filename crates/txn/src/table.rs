//! The transaction table: one slot in the region for each running transaction.
//!
//! A slot says all that a checkpoint, a deadlock report or a survivor needs: who runs, since which LSN, and where its
//! chain of records ends. The handle of a transaction ([`crate::Txn`]) is process-private and adds only caches.
//!
//! T1. `first_lsn` is set from the log's tail before the transaction's first record is reserved, and cleared after its
//!     last record is appended. A checkpoint reads the tail first and the slots afterwards, all sequentially
//!     consistent. Either it sees the mark, or every record of the transaction has an LSN at or above that tail.
//! T2. Slots beyond the highest in use are not looked at: a transaction that takes one says so before it marks
//!     anything. The last slots, which are seldom taken, are counted by themselves. Now and then
//!     [`TxnTable::lower_used`] lowers the number past slots that are free. It holds the slot meanwhile, so whoever
//!     takes that slot next sees the lower number, and raises it again (`used.rs`).
//! T3. `state` leaves `FREE` by compare-exchange only; the winner writes the rest. The same exchange names the winner's
//!     thread slot (`state.rs`): so a slot that is in use is somebody's, whatever became of them (`orphans.rs`).
//! T4. `xid` is there before the transaction changes any page, and goes after its last record: after a commit or a
//!     whole rollback. Suppose that a thread finds the id of a writer in a page, and then not in the table. So the
//!     writer has ended, and its end is in the log below the tail read after that. Nothing here is believed the other
//!     way round: an id that a former life has used may be found, and then looks like one that still runs.
//! T5. An id is used once. Ids come from one counter, which only rises and stands in every checkpoint. A slot that
//!     begins transaction after transaction takes ids from the counter in blocks, so that its threads do not write the
//!     counter's line each time (`ids.rs`). What is left of a block belongs to the slot, and is used or lost.
//! T6. The ids say who is older, if only about: in a deadlock the youngest gives way. So a block is left when
//!     `LAG_MAX` later ids are taken. And a slot whose transaction has had to wait for a lock takes its next ids
//!     singly, from the counter. So where transactions wait for each other, their order comes to be that of their
//!     begins. The first conflict of a slot may still go by a block that was taken earlier. A transaction that is run
//!     again keeps its age, so none gives way for ever.

use ledgerstone_region::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use std::ops::Range;

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{Handle, Region, RegionError, SlotNo, shared, sync};

use crate::ids::OwnIds;
use crate::used::{self, ByOwner};
use crate::{TxnError, state};

shared! {
    /// One transaction, as every process sees it.
    pub struct TxnSlot {
        /// What its transaction does, and whose it is ([`state`]).
        pub state: AtomicU32,
        /// Open nested top actions.
        pub nesting: AtomicU32,
        /// The transaction's id.
        pub xid: AtomicU64,
        /// Its newest record.
        pub last_lsn: AtomicU64,
        /// Where a rollback goes on.
        pub undo_next: AtomicU64,
        /// The next id of the slot's block, and the first behind it (T5). Changed by who has the slot only, as the
        /// next.
        pub own_next: AtomicU64,
        /// As above.
        pub own_end: AtomicU64,
        /// Transactions since the last that had to wait for a lock, or since a block was left (T6).
        pub unhindered: AtomicU64,
        /// A number that stands for the global id under which it is being prepared, or was. 0: none.
        pub global_id: AtomicU64,
        /// Log tail before its first record; 0 while it has none (T1). In a line of its own: who opens a snapshot looks
        /// at those of all slots, and finds them unchanged where others only read.
        pub first_lsn: AtomicU64,
        /// To a cache line.
        pub spare_line: [AtomicU64; 7],
    }
    size 128
}

impl TxnSlot {
    /// The transaction goes on in another state. For who has the slot.
    #[inline]
    pub(crate) fn enter(&self, to: u32) {
        self.state.store(state::with(self.state.load(Relaxed), to), Relaxed);
    }
}

/// Where beside the next id stands how many slots are in use (T2): of all but the last ones, and how many of the last
/// ones were ever taken. Each has a cache line of its own: the next id changes often, and the other two hardly do.
const USED: usize = 8;
const LAST_USED: usize = 16;

/// Slots that only transactions of the library's own take: the housekeeper's, a compaction's, a look at the catalog.
/// However many transactions of users run, these begin. However many of these run, so do users' transactions. An
/// environment has so many slots more than it was asked for.
pub const OWN_SLOT_COUNT: u32 = OWN_FIRST + OWN_LAST;
/// So many of them are the first of all, and are enough nearly always. Each that is in use is looked at for each
/// snapshot.
const OWN_FIRST: u32 = 4;
/// The others are the last of all.
const OWN_LAST: u32 = 12;

/// What a slot has of the ids.
#[inline]
fn own_ids(slot: &TxnSlot) -> OwnIds<'_> {
    OwnIds { next: &slot.own_next, end: &slot.own_end, unhindered: &slot.unhindered }
}

/// The table of all running transactions.
pub struct TxnTable {
    slots: Handle<[TxnSlot]>,
    next_xid: Handle<[AtomicU64]>,
}

impl TxnTable {
    /// The same table in another view of its region.
    ///
    /// # Errors
    /// As [`Region::place`].
    #[cfg(feature = "deaths")]
    pub fn view(&self, view: &Region) -> Result<TxnTable, RegionError> {
        TxnTable::place(view, self.slots.len() as u32 - OWN_SLOT_COUNT)
    }

    /// The table of `region`, for `users_count` transactions of users, and the library's own.
    ///
    /// # Errors
    /// As [`Region::place`].
    pub fn place(region: &Region, users_count: u32) -> Result<TxnTable, RegionError> {
        let count = u64::from(users_count) + u64::from(OWN_SLOT_COUNT);
        let slots = region.place::<TxnSlot>("transactions.slots", count, 64)?;
        let next_xid = region.place::<AtomicU64>("transactions.next", 24, 64)?;
        if region.is_made_here() {
            next_xid[0].store(1, Relaxed);
        }
        Ok(TxnTable { slots, next_xid })
    }

    /// How many slots there are.
    #[inline]
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.slots.len().min(u32::MAX as usize) as u32 // No branch: each claim asks.
    }

    /// The slot of an owner.
    #[inline]
    #[must_use]
    pub fn slot(&self, no: u32) -> &TxnSlot {
        &self.slots[no as usize]
    }

    /// The first of the last slots, which the library's own transactions take when the first ones are taken.
    fn last_slots(&self) -> u32 {
        self.slot_count() - OWN_LAST
    }

    /// Takes a free slot of users' for one of their transactions, and gives it the next [`Xid`]. `thread` is the
    /// caller's, and neighbours in time do not look at the same slots.
    #[inline]
    pub(crate) fn claim(&self, thread: SlotNo) -> Result<(u32, Xid), TxnError> {
        let no = OWN_FIRST.saturating_add(u32::from(thread.0));
        // The usual case.
        if no < self.last_slots()
            && let Some(xid) = self.try_take(no, no, USED, thread)
        {
            return Ok((no, xid));
        }
        self.claim_of(OWN_FIRST..self.last_slots(), u32::from(thread.0), USED, thread)
    }

    /// The same for a transaction of the library's own.
    pub(crate) fn claim_own(&self, thread: SlotNo) -> Result<(u32, Xid), TxnError> {
        self.claim_of(0..OWN_FIRST, 0, USED, thread)
            .or_else(|_| self.claim_of(self.last_slots()..self.slot_count(), 0, LAST_USED, thread))
            .map_err(|_| TxnError::OwnSlotsTaken { slots: OWN_SLOT_COUNT })
    }

    #[inline(never)]
    fn claim_of(&self, slots: Range<u32>, hint: u32, used: usize, thread: SlotNo) -> Result<(u32, Xid), TxnError> {
        let mut round = 0;
        loop {
            if let Some(taken) = self.try_claim_of(&slots, hint, used, thread) {
                return Ok(taken);
            }
            // The one that is held, or was, may be the only one that is free.
            let may_be_had = |no| matches!(state::of(self.slot(no).state.load(Acquire)), state::FREE | state::LOWERING);
            if !slots.clone().any(may_be_had) {
                return Err(TxnError::TooManyTransactions { slots: slots.end - slots.start });
            }
            if !sync::spin(round) {
                sync::sleep_ns(20_000);
            }
            round += 1;
        }
    }

    #[inline]
    fn try_claim_of(&self, slots: &Range<u32>, hint: u32, which: usize, thread: SlotNo) -> Option<(u32, Xid)> {
        let (first, count) = (slots.start, slots.end - slots.start);
        for step in 0..count {
            let no = first + (hint % count + step) % count;
            let before = if which == LAST_USED { first } else { 0 };
            if let Some(xid) = self.try_take(no, no - before, which, thread) {
                return Some((no, xid));
            }
        }
        None
    }

    /// Takes slot `no`, if it is free, which has number `counted_no` among those that word `which` counts (T2).
    #[inline(always)]
    fn try_take(&self, no: u32, counted_no: u32, which: usize, thread: SlotNo) -> Option<Xid> {
        let slot = self.slot(no);
        if !used::take(&slot.state, state::word(state::RUNNING, thread)) {
            return None;
        }
        sync::yield_point("transactions: slot taken");
        used::count(&self.next_xid[which], u64::from(counted_no)); // T2
        let xid = own_ids(slot).take(&self.next_xid[0]); // T5, T6
        slot.last_lsn.store(0, Relaxed); // The id publishes it: a slot without one has no chain.
        slot.undo_next.store(0, Relaxed);
        slot.nesting.store(0, Relaxed);
        slot.xid.store(xid, Release);
        Some(Xid(xid))
    }

    /// The transaction in this slot, which is the caller's, has to wait for a lock (T6).
    pub(crate) fn note_wait(&self, no: u32) {
        own_ids(self.slot(no)).leave_block();
    }

    /// Takes a free slot for a loser of recovery, which brings its own [`Xid`] and chain.
    pub(crate) fn claim_for(&self, thread: SlotNo, xid: Xid, first: Lsn, last: Lsn) -> Result<u32, TxnError> {
        let (no, _) = self.claim(thread)?;
        let slot = self.slot(no);
        slot.xid.store(xid.0, Release);
        slot.first_lsn.store(first.0, SeqCst);
        slot.last_lsn.store(last.0, Relaxed);
        Ok(no)
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn free(&self, no: u32) {
        let slot = self.slot(no);
        // One that has written nothing has no mark.
        if slot.first_lsn.load(Relaxed) != 0 {
            slot.first_lsn.store(0, SeqCst); // T1: after the last record.
        }
        if slot.global_id.load(Relaxed) != 0 {
            slot.global_id.store(0, Relaxed); // Published below.
        }
        slot.xid.store(0, Release); // T4
        used::give_back(&slot.state); // T3
    }

    /// Looks whether the slots with the highest numbers are in use still, so that who opens a snapshot need not look at
    /// those that are not (T2). Calls `also` with each that it passes, while it holds it. `thread` is the caller's. To
    /// be called now and then.
    pub fn lower_used(&self, thread: SlotNo, also: impl Fn(u32)) {
        let used = &self.next_xid[USED];
        loop {
            let count = used.load(SeqCst);
            if count <= u64::from(OWN_FIRST) {
                return;
            }
            let no = (count - 1) as u32;
            let held = || {
                sync::yield_point("transactions: slot held");
                also(no);
            };
            let lowered = || sync::yield_point("transactions: slots lowered");
            if !used::lower_below(used, u64::from(no), &ByOwner(&self.slot(no).state, thread), held, lowered) {
                return; // It is in use, or the number was raised: others come.
            }
        }
    }

    /// The slots that are in use, and perhaps others (T2).
    fn used(&self) -> impl Iterator<Item = &TxnSlot> {
        let [used, last_used] = [USED, LAST_USED].map(|word| self.next_xid[word].load(SeqCst) as usize);
        let last = self.slots.len() - OWN_LAST as usize;
        self.slots[..used].iter().chain(&self.slots[last..last + last_used])
    }

    /// The lowest LSN that a running transaction may need for its rollback, if any wrote at all.
    #[must_use]
    pub fn first_lsn_low(&self) -> Option<Lsn> {
        let [used, last_used] = [USED, LAST_USED].map(|word| self.next_xid[word].load(SeqCst) as usize);
        let last = self.slots.len() - OWN_LAST as usize;
        // Each snapshot comes here: plain loops.
        let mut low = None;
        for slots in [&self.slots[..used], &self.slots[last..last + last_used]] {
            for slot in slots {
                let mark = slot.first_lsn.load(SeqCst);
                if mark != 0 {
                    low = Some(low.map_or(mark, |low: u64| low.min(mark)));
                }
            }
        }
        low.map(Lsn)
    }

    /// The ids of the transactions that run now or wait for a decision, in no order (T4).
    pub fn running(&self) -> impl Iterator<Item = Xid> + '_ {
        self.used().map(|s| Xid(s.xid.load(Acquire))).filter(|&xid| xid != Xid::NONE)
    }

    /// Notes a number, not 0, that stands for the global id of the transaction in this slot, unless another transaction
    /// of any process has it. Of two that ask at the same moment, both may be refused.
    #[must_use]
    pub fn claim_global_id(&self, no: u32, number: u64) -> bool {
        let slot = self.slot(no);
        slot.global_id.store(number, SeqCst); // Before the look at the others, which do the same.
        let is_other = |other: &u32| *other != no && self.slot(*other).global_id.load(SeqCst) == number;
        let is_taken = (0..self.slot_count()).any(|other| is_other(&other));
        if is_taken {
            slot.global_id.store(0, SeqCst);
        }
        !is_taken
    }

    /// The owners of the transactions that run now or wait for a decision: a thread of each one's process.
    pub fn owners(&self) -> impl Iterator<Item = SlotNo> + '_ {
        let word = |slot: &TxnSlot| slot.state.load(Acquire); // Something to print.
        let is_active = |word: &u32| !matches!(state::of(*word), state::FREE | state::LOWERING);
        self.used().map(word).filter(is_active).filter_map(state::owner)
    }

    /// How many transactions run now. Sequentially consistent, for a close, which ends the beginning of transactions
    /// (E1 in `begins.rs`).
    #[must_use]
    pub fn active_count(&self) -> u32 {
        let is_active = |slot: &&TxnSlot| !matches!(state::of(slot.state.load(SeqCst)), state::FREE | state::LOWERING);
        let active = self.slots.iter().filter(is_active).count();
        u32::try_from(active).unwrap_or(u32::MAX)
    }

    /// Above all ids that were taken.
    #[must_use]
    pub fn next_xid(&self) -> Xid {
        Xid(self.next_xid[0].load(Relaxed))
    }

    /// Raises the next id to at least `floor` (recovery: ids are never reused). Called before any transaction begins,
    /// so that no slot has a block.
    pub fn raise_next_xid(&self, floor: Xid) {
        self.next_xid[0].fetch_max(floor.0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::ids::{BLOCK_IDS, LAG_MAX, UNHINDERED_MIN};

    fn table() -> TxnTable {
        let region = Region::anonymous(1 << 20).expect("a small region");
        TxnTable::place(&region, 8).expect("it fits")
    }

    /// The id of a transaction that begins in slot `no` and ends at once.
    fn id(table: &TxnTable, no: u32) -> u64 {
        let (got, xid) = table.claim(SlotNo(no as u16)).expect("a free slot");
        assert_eq!(got, OWN_FIRST + no);
        table.free(got);
        xid.0
    }

    /// Neither takes the other's slots, however many there are, and all are looked at.
    #[test]
    fn users_transactions_and_the_librarys_own_have_their_slots() {
        let table = table();
        let own: Vec<_> = (0..OWN_SLOT_COUNT).map(|_| table.claim_own(SlotNo(0)).expect("a slot of its own")).collect();
        assert!(matches!(table.claim_own(SlotNo(0)), Err(TxnError::OwnSlotsTaken { slots: OWN_SLOT_COUNT })));
        let users: Vec<_> = (0..8).map(|hint| table.claim(SlotNo(hint)).expect("a slot of users'")).collect();
        assert!(matches!(table.claim(SlotNo(0)), Err(TxnError::TooManyTransactions { slots: 8 })));
        let all: BTreeSet<(u32, Xid)> = own.iter().chain(&users).copied().collect();
        assert_eq!(all.iter().map(|(no, _)| *no).collect::<Vec<_>>(), (0..OWN_SLOT_COUNT + 8).collect::<Vec<_>>());
        assert_eq!(table.running().collect::<BTreeSet<_>>(), all.iter().map(|(_, xid)| *xid).collect());
        for (no, _) in all {
            table.slot(no).first_lsn.store(u64::from(100 + no), SeqCst);
            assert_eq!(table.first_lsn_low(), Some(Lsn(u64::from(100 + no))), "the only one that has written");
            table.free(no);
        }
        assert_eq!((table.running().count(), table.active_count()), (0, 0));
    }

    #[test]
    fn slots_that_are_free_again_are_not_looked_at_for_ever() {
        let table = table();
        let passed = std::cell::RefCell::new(Vec::new());
        let slots: Vec<_> = (0..8).map(|hint| table.claim(SlotNo(hint)).expect("a slot").0).collect();
        let highest = slots[7];
        slots[3..].iter().for_each(|&no| table.free(no));
        table.lower_used(SlotNo(9), |no| {
            assert_eq!(table.active_count(), 3, "what is held for a moment is no transaction");
            passed.borrow_mut().push(no);
        });
        assert_eq!(table.used().count(), slots[2] as usize + 1, "down to one that is taken");
        assert_eq!(passed.take(), (slots[3]..=highest).rev().collect::<Vec<_>>());
        // Who takes one beyond is looked at again.
        let (no, xid) = table.claim(SlotNo(5)).expect("a slot");
        assert!(table.running().any(|running| running == xid));
        slots[..3].iter().for_each(|&no| table.free(no));
        table.lower_used(SlotNo(9), |_| ());
        assert!(table.running().eq([xid]));
        table.free(no);
        table.lower_used(SlotNo(9), |_| ());
        assert_eq!(table.used().count(), OWN_FIRST as usize, "those of the library stay");
    }

    /// The housekeeper may lose its processor while it holds the only one that is free.
    #[test]
    fn a_slot_that_is_held_for_a_moment_is_waited_for() {
        for seed in 0..50 {
            let outcome = sync::Scheduler::run(seed, || {
                let table = Arc::new(table());
                let taken: Vec<_> = (0..8).map(|hint| table.claim(SlotNo(hint)).expect("a slot").0).collect();
                table.free(taken[7]);
                let lowering = {
                    let table = Arc::clone(&table);
                    sync::spawn("lowers", move || table.lower_used(SlotNo(9), |_| sync::sleep_ns(1_000_000)))
                };
                sync::yield_point("before it begins");
                let (no, _) = table.claim(SlotNo(3)).expect("the last slot");
                assert_eq!(no, taken[7]);
                lowering.join().expect("no panic");
                assert!(matches!(table.claim(SlotNo(3)), Err(TxnError::TooManyTransactions { slots: 8 })));
            });
            assert!(outcome.is_ok(), "seed {seed}: {:?}", outcome.err());
        }
    }

    /// Beside threads that take slots and give them back, in many orders: whoever runs is found.
    #[test]
    fn a_transaction_is_seen_while_the_number_of_slots_sinks() {
        let (mut lowered, mut raised) = (0, 0);
        for seed in 0..300 {
            let run = move || {
                let table = Arc::new(table());
                let is_over = Arc::new(AtomicU32::new(0));
                let run_some = |hint: u16| {
                    let table = Arc::clone(&table);
                    sync::spawn("transactions", move || {
                        for _ in 0..20 {
                            let (no, xid) = table.claim(SlotNo(hint)).expect("a slot");
                            table.slot(no).first_lsn.store(7, SeqCst);
                            sync::yield_point("runs");
                            assert!(table.running().any(|running| running == xid), "{xid} in slot {no} is not seen");
                            assert_eq!(table.first_lsn_low(), Some(Lsn(7)));
                            table.free(no);
                            sync::yield_point("between two");
                        }
                    })
                };
                let threads = [run_some(1), run_some(4), run_some(6)];
                let lowering = {
                    let (table, is_over) = (Arc::clone(&table), Arc::clone(&is_over));
                    sync::spawn("lowers", move || {
                        let mut passed = 0;
                        while is_over.load(SeqCst) == 0 {
                            let count = AtomicU32::new(0);
                            table.lower_used(SlotNo(9), |_| _ = count.fetch_add(1, SeqCst));
                            passed += count.into_inner();
                            sync::yield_point("between two");
                        }
                        passed
                    })
                };
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
                is_over.store(1, SeqCst);
                lowering.join().expect("no panic")
            };
            let passed = sync::Scheduler::run(seed, run).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
            lowered += u32::from(passed > 0);
            raised += u32::from(passed > 7);
        }
        assert!(lowered > 200 && raised > 100, "{lowered} {raised}: too seldom to prove anything");
    }

    #[test]
    fn a_slot_that_is_used_often_takes_ids_in_blocks() {
        let table = table();
        let single: Vec<u64> = (0..UNHINDERED_MIN).map(|_| id(&table, 0)).collect();
        assert_eq!(single, (1..=UNHINDERED_MIN).collect::<Vec<_>>(), "one by one, and in order");
        let first = id(&table, 0);
        assert_eq!(table.next_xid(), Xid(first + BLOCK_IDS));
        let other = id(&table, 1);
        assert_eq!(other, first + BLOCK_IDS, "not of the block of another slot");
        let rest: Vec<u64> = (1..BLOCK_IDS).map(|_| id(&table, 0)).collect();
        assert_eq!(rest, (first + 1..first + BLOCK_IDS).collect::<Vec<_>>());
        assert_eq!(id(&table, 0), other + 1, "the next block");
    }

    #[test]
    fn after_a_wait_for_a_lock_ids_are_taken_in_order() {
        let table = table();
        for _ in 0..=UNHINDERED_MIN {
            id(&table, 0);
        }
        let other = id(&table, 1);
        assert!(id(&table, 0) < other, "of its block");
        table.note_wait(OWN_FIRST);
        for _ in 0..UNHINDERED_MIN {
            let one = id(&table, 0);
            assert!(one > other && table.next_xid() == Xid(one + 1));
        }
    }

    #[test]
    fn a_block_that_is_far_behind_is_left() {
        let table = table();
        let first = (0..=UNHINDERED_MIN).fold(0, |_, _| id(&table, 0));
        let end = first + BLOCK_IDS;
        while table.next_xid().0 < end + LAG_MAX {
            id(&table, 1);
        }
        assert_eq!(id(&table, 0), first + 1, "not too far");
        while table.next_xid().0 <= end + LAG_MAX {
            id(&table, 1);
        }
        let newest = table.next_xid().0;
        assert_eq!(id(&table, 0), newest);
        assert_eq!(id(&table, 0), newest + 1);
        assert_eq!(table.next_xid().0, newest + 2, "singly again");
    }

    #[test]
    fn no_id_is_used_twice_by_threads_that_share_slots() {
        const EACH: usize = 3000;
        let table = table();
        let ids: Vec<u64> = std::thread::scope(|scope| {
            let ids = |hint: u16| {
                let table = &table;
                move || {
                    let one = |n: usize| {
                        let (no, xid) = table.claim(SlotNo(hint)).expect("there are enough slots");
                        if n % 500 == 499 {
                            table.note_wait(no);
                        }
                        table.free(no);
                        xid.0
                    };
                    (0..EACH).map(one).collect::<Vec<u64>>()
                }
            };
            let threads: Vec<_> = [0, 0, 1, 1].map(|hint| scope.spawn(ids(hint))).into();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 4 * EACH);
        assert!(ids.iter().all(|&id| id < table.next_xid().0));
    }
}
