//! Which snapshots are open: the protocol between a thread that opens one and a thread that throws images away.
//!
//! ```text
//!  opening                                        throwing away
//!  1 bound := tail, the slot: 0 -> bound          1 commit record reserved: tail rises above its LSN L
//!  2 the slot is counted among those in use       2 are all slots empty?   then nobody needs L's images
//!  3 S := tail, the slot: bound -> S              3 else T := tail, then the slots: oldest = min(T, slots)
//!                                                   nobody needs L's images if L < oldest
//! ```
//! One exchange takes the slot and publishes the bound. It, the count, and all looks at the tail, at the count and at
//! the slots are sequentially consistent, in this order. S and the close are stored with release only: seen late, they
//! keep more than they must. Who opens a snapshot writes its slot and nothing that others write, so that threads which
//! do nothing else do not wait for each other. Who commits looks at all slots up to the highest that is in use
//! ([`VersionStore::lower_used`](super::VersionStore::lower_used)).
//!
//! Q1. If 2 on the right sees a slot empty, its next snapshot publishes its bound after that look, and takes S after
//!     it, and so after the reservation of L: S > L, it sees L. A slot that is not looked at was counted after that
//!     look (U3 in `used.rs`), and S is taken after the count: the same holds.
//! Q2. `oldest` is at or below every snapshot's S. If the slot was seen empty or was not looked at, the snapshot took S
//!     after that look, and so after T was taken. If the bound was seen, it is at or below S.
//!
//! Q3. The same holds for a writer that asks after it has reserved the record of an update. If it sees the slot empty,
//!     the snapshot's look at the tail acquires the reservation. So the snapshot finds what the writer has staged (Z1
//!     in `staged.rs`).
//!
//! Q4. A commit that finds a snapshot open may leave something to whoever closes the last one (`spilled.rs`). It says
//!     so and then looks at the slots. Who closes empties the slot and then looks for what is left, with a fence in
//!     between ([`order_close`]). So one of them sees the other. Before the fence it looks whether anything is left at
//!     all. What that look misses, the next look of the housekeeper finds (`lower_used` in `view.rs`).
//!
//! Q5. What else stands in a slot (`horizon`, `position`) is stored by who has it, after 1 on the left, and with
//!     release. Who closes puts the horizon back to 0, not known yet, before it empties the slot. Who looks reads `lsn`
//!     first. If what it reads is older than a snapshot's 1, that takes its S after the look. Otherwise the look has
//!     acquired 1, and with it the close before: it finds 0, or what that snapshot has stored, or what came later.
//!     The position stays: it was the head before the slot was taken again, and so before S. That is all that K3 in
//!     `kept.rs` asks of a position. The head itself is looked at before the slots, and before their number. So it was
//!     the head before the S of every snapshot that this look does not find.
//! Q6. Every slot says whose it is, also between two stores of a thread that dies there. In the usual case a thread
//!     takes the slot of its own number: a slot without a name is that thread's. Another slot is first held under the
//!     thread's number, then named, and then the bound is published. It is held again while the name goes.
//!
//! Modelled under loom, which knows no sequentially consistent accesses: there, a fence stands for each (`order`).

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence};

use ledgerstone_region::SlotNo;
#[cfg(not(loom))]
use ledgerstone_region::sync;

use crate::used;

#[cfg(not(loom))]
ledgerstone_region::shared! {
    /// One open snapshot.
    pub(crate) struct SnapshotSlot {
        /// 0: nobody's. [`HELD`] and above: no snapshot, and held. Else a bound or the snapshot itself, an LSN.
        pub lsn: AtomicU64,
        /// Whose.
        pub xid: AtomicU64,
        /// Slot number of the thread that opened it, + 1; 0: of the thread with this slot's own number (Q6).
        pub thread: AtomicU64,
        /// When, on the clock of `region::sync`.
        pub opened_ns: AtomicU64,
        /// Its horizon; 0: not known yet; [`NO_HORIZON`]: it has none (V6, Q5).
        pub horizon: AtomicU64,
        /// Images of commits that are kept below it it has no need of. 0: nobody has stored one yet (Q5).
        pub position: AtomicU64,
        /// Room to a cache line.
        pub spare: [AtomicU64; 2],
    } size 64
}

#[cfg(loom)]
#[derive(Default)]
pub(crate) struct SnapshotSlot {
    pub lsn: AtomicU64,
    pub horizon: AtomicU64,
    pub position: AtomicU64,
}

/// In place of a horizon: above every LSN.
pub(super) const NO_HORIZON: u64 = u64::MAX;

/// In place of an LSN, with a thread's slot number: no snapshot, and held by that thread. Above every LSN.
pub(super) const HELD: u64 = 1 << 63;

/// A slot that a thread holds while the number of slots in use sinks below it (U2).
pub(super) struct ByThread<'s>(pub &'s SnapshotSlot, pub SlotNo);

impl used::Slot for ByThread<'_> {
    #[inline]
    fn hold(&self) -> bool {
        take(self.0, if cfg!(feature = "planted-snapshot-not-held") { 0 } else { held_by(self.1) })
    }

    #[inline]
    fn let_go(&self) {
        self.0.lsn.store(0, Release);
    }
}

#[inline]
fn held_by(thread: SlotNo) -> u64 {
    HELD | u64::from(thread.0)
}

impl SnapshotSlot {
    /// The LSN of the snapshot that is open here, or a bound of it.
    #[inline]
    pub(super) fn open_lsn(&self) -> Option<u64> {
        let lsn = self.lsn.load(SeqCst);
        (lsn != 0 && lsn < HELD).then_some(lsn)
    }
}

#[cfg(not(loom))]
impl SnapshotSlot {
    /// True if who takes it next may have it soon, or at once.
    pub(super) fn may_be_had(&self) -> bool {
        matches!(self.lsn.load(SeqCst), 0 | HELD..)
    }

    /// Takes it for a thread of another number (Q6), with `bound` as [`take_with_bound`].
    pub(super) fn take_by_name(&self, no: u64, slots_used: &AtomicU64, bound: u64, thread: SlotNo) -> bool {
        let is_ours = take(self, held_by(thread));
        if is_ours {
            self.thread.store(u64::from(thread.0) + 1, Relaxed); // Published by the next.
            self.lsn.store(bound, SeqCst);
            used::count(slots_used, no);
        }
        is_ours
    }

    /// Closes the snapshot here, whose slot has a thread's name (Q6).
    pub(super) fn close_by_name(&self, thread: SlotNo) {
        self.horizon.store(0, Release);
        self.lsn.store(held_by(thread), Release);
        self.thread.store(0, Release);
        self.lsn.store(0, Release);
    }

    /// For a repair by `me`: whether one of the dead has slot `no`, which this is, or holds it (Q7).
    pub(super) fn is_left_by(&self, no: u64, is_dead: impl Fn(SlotNo) -> bool, me: SlotNo) -> bool {
        let lsn = self.lsn.load(SeqCst);
        sync::yield_point("slot of a snapshot looked at");
        let name = self.thread.load(SeqCst);
        let is_named_dead = name.checked_sub(1).is_some_and(|no| is_dead(SlotNo(no as u16)));
        match lsn {
            held @ HELD.. if is_dead(SlotNo(held as u16)) => true,
            0 | HELD.. => {
                if is_named_dead {
                    let _ = self.thread.compare_exchange(name, 0, SeqCst, Relaxed); // Of a repairer that has died.
                }
                false
            }
            _ if name == 0 => is_dead(SlotNo(no as u16)) && self.takes_name(me),
            _ => is_named_dead,
        }
    }

    /// Gives the slot the name of `me`, if a snapshot without a name is open here (Q7).
    fn takes_name(&self, me: SlotNo) -> bool {
        let name = u64::from(me.0) + 1;
        if self.thread.compare_exchange(0, name, SeqCst, Relaxed).is_err() {
            return false;
        }
        // In this order.
        let is_taken = self.open_lsn().is_some() && self.thread.load(SeqCst) == name;
        if !is_taken {
            let _ = self.thread.compare_exchange(name, 0, SeqCst, Relaxed);
        }
        is_taken
    }
}

/// Puts what is before and what is after into the one order that everybody sees.
#[inline(always)]
fn order() {
    #[cfg(loom)]
    fence(SeqCst);
}

/// Takes a slot that is free.
#[inline]
fn take(slot: &SnapshotSlot, to: u64) -> bool {
    // Relaxed look first: a compare-exchange takes the cache line even when it fails.
    slot.lsn.load(Relaxed) == 0 && slot.lsn.compare_exchange(0, to, SeqCst, Relaxed).is_ok()
}

/// Takes slot `no` if it is free, with `bound`, which was the tail a moment ago (1), and counts it (2).
#[inline]
pub(super) fn take_with_bound(slot: &SnapshotSlot, no: u64, slots_used: &AtomicU64, bound: u64) -> bool {
    let is_ours = take(slot, bound);
    if is_ours {
        if cfg!(feature = "planted-bound-unpublished") {
            slot.lsn.store(0, SeqCst);
        }
        used::count(slots_used, no);
    }
    order();
    is_ours
}

/// Takes S and publishes it (3).
#[inline]
pub(super) fn take_snapshot(slot: &SnapshotSlot, bound: u64, tail: impl Fn() -> u64) -> u64 {
    order();
    let lsn = tail();
    if lsn != bound {
        slot.lsn.store(lsn, Release);
    }
    lsn
}

/// Closes the snapshot in a slot (Q5). Release: the reads through it come before. Who sees this late keeps more than it
/// must.
#[inline]
pub(super) fn close(slot: &SnapshotSlot) {
    if !cfg!(feature = "planted-horizon-left") {
        slot.horizon.store(0, Release);
    }
    slot.lsn.store(0, Release);
}

/// Between a close and a look for what others have left to it (Q4).
#[inline]
pub(super) fn order_close() {
    if !cfg!(feature = "planted-close-unordered") {
        fence(SeqCst);
    }
}

/// True if no snapshot is open but such as see all that was reserved before this look (Q1). To be asked after the
/// record is reserved.
#[inline]
pub(super) fn is_none_open<'s>(mut slots: impl Iterator<Item = &'s SnapshotSlot>) -> bool {
    order();
    slots.all(|slot| slot.lsn.load(SeqCst) == 0)
}

/// At or below every snapshot that is open or can be opened (Q2).
pub(super) fn oldest<'s>(tail: u64, slots: impl Iterator<Item = &'s SnapshotSlot>) -> u64 {
    order();
    slots.map(|slot| slot.lsn.load(SeqCst)).filter(|&lsn| lsn != 0).fold(tail, u64::min)
}

/// The lowest that the open snapshots have in one of their words, or `top`. 0: one of them is not known yet (Q5).
pub(super) fn lowest<'s>(
    top: u64,
    slots: impl Iterator<Item = &'s SnapshotSlot>,
    word: impl Fn(&SnapshotSlot) -> &AtomicU64,
) -> u64 {
    order();
    slots.filter(|slot| slot.open_lsn().is_some()).map(|slot| word(slot).load(SeqCst)).fold(top, u64::min)
}

/// Where the images begin that open snapshots may ask for, and those that are opened later (Q5). What they are kept by
/// is the head, and the slots that are in use, to be looked at in this order.
pub(super) fn lowest_position<'s, S: Iterator<Item = &'s SnapshotSlot>>(
    head: impl Fn() -> u64,
    used: impl Fn() -> S,
) -> u64 {
    if cfg!(feature = "planted-head-too-late") {
        let low = lowest(u64::MAX, used(), |slot| &slot.position);
        return low.min(head());
    }
    let head = head();
    lowest(head, used(), |slot| &slot.position)
}
