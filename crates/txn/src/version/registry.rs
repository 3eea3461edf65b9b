//! Which snapshots are open: the protocol between a thread that opens one and a thread that throws images away.
//!
//! ```text
//!  opening                                      throwing away
//!  1 bound := tail, published in the slot       1 commit record reserved: tail rises above its LSN L
//!  2 S := tail, published in the slot           2 are all slots empty?   then nobody needs L's images
//!                                               3 else T := tail, then the slots: oldest = min(T, slots)
//!                                                 nobody needs L's images if L < oldest
//! ```
//! All of it is sequentially consistent, in this order. Who opens a snapshot writes its slot and nothing that others
//! write, so that threads which do nothing else do not wait for each other. Who commits looks at all slots up to the
//! highest that is in use ([`VersionStore::lower_used`](super::VersionStore::lower_used)).
//!
//! Q1. If 2 on the right sees a slot empty, its next snapshot publishes its bound after that look, and takes S after
//!     it, and so after the reservation of L: S > L, it sees L. A slot that is not looked at is taken later, too: its
//!     number is counted before the bound is published.
//! Q2. `oldest` is at or below every snapshot's S. If the slot was seen empty, the snapshot published its bound after
//!     that look, and so took S after T was taken. If the bound was seen, it is at or below S.
//!
//! Q3. The same holds for a writer that asks after it has reserved the record of an update. If it sees the slot empty,
//!     the snapshot's look at the tail acquires the reservation. So the snapshot finds what the writer has staged (Z1
//!     in `staged.rs`).
//!
//! Q4. A commit that finds a snapshot open may leave something to whoever closes the last one (`spilled.rs`). It says
//!     so and then looks at the slots. Who closes empties the slot and then looks for what is left, with a fence in
//!     between ([`order_close`]). So one of them sees the other.
//!
//! Modelled under loom, which knows no sequentially consistent accesses: there, a fence stands for each (`order`).

#[cfg(not(loom))]
use ledgerstone_region::atomic::AtomicU32;
use ledgerstone_region::atomic::{AtomicU64, Ordering::Release, Ordering::SeqCst, fence};

#[cfg(not(loom))]
ledgerstone_region::shared! {
    /// One open snapshot.
    pub(crate) struct SnapshotSlot {
        /// 0: nobody's. Else a bound or the snapshot itself, an LSN.
        pub lsn: AtomicU64,
        /// [`FREE`](crate::used::FREE), or who has the slot ([`OPEN`], or somebody that lowers the number).
        pub taken: AtomicU32,
        /// To 8 bytes.
        pub spare_word: AtomicU32,
        /// Whose.
        pub xid: AtomicU64,
        /// Slot number of the thread that opened it.
        pub thread: AtomicU64,
        /// When, on the clock of `region::sync`.
        pub opened_ns: AtomicU64,
        /// Its horizon; [`TAKING`] while that is being taken; 0: it has none (V6).
        pub horizon: AtomicU64,
        /// Images of commits that are kept below it it has no need of; 0: not known yet.
        pub position: AtomicU64,
        /// Room to a cache line.
        pub spare: AtomicU64,
    } size 64
}

#[cfg(loom)]
#[derive(Default)]
pub(crate) struct SnapshotSlot {
    pub lsn: AtomicU64,
}

/// A slot with a snapshot that is open, or is being opened or closed.
#[cfg(not(loom))]
pub(super) const OPEN: u32 = 1;
/// In place of a horizon: below every LSN.
#[cfg(not(loom))]
pub(super) const TAKING: u64 = 1;

/// Puts what is before and what is after into the one order that everybody sees.
#[inline(always)]
fn order() {
    #[cfg(loom)]
    fence(SeqCst);
}

/// Publishes the bound in a slot that the caller has taken, and returns it (1).
#[inline]
pub(super) fn publish_bound(slot: &SnapshotSlot, tail: impl Fn() -> u64) -> u64 {
    let bound = tail();
    if !cfg!(feature = "planted-bound-unpublished") {
        slot.lsn.store(bound, SeqCst);
    }
    order();
    bound
}

/// Takes S and publishes it (2).
#[inline]
pub(super) fn take_snapshot(slot: &SnapshotSlot, tail: impl Fn() -> u64) -> u64 {
    order();
    let lsn = tail();
    slot.lsn.store(lsn, SeqCst);
    lsn
}

/// Closes the snapshot in a slot. Release: the reads through it come before. Who sees this late keeps more than it
/// must.
#[inline]
pub(super) fn close(slot: &SnapshotSlot) {
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
