//! A snapshot: opened, asked, closed.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::{Share, SlotNo, sync};

use super::registry::{ByThread, SnapshotSlot};
use super::{VersionStore, registry};
use crate::{TxnError, TxnTable, used};

/// What a reader needs to know of a snapshot while its [`View`] is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Commits whose records begin below are seen.
    pub lsn: Lsn,
    /// Pages whose `page_lsn` is below need no look at the store (V5).
    pub horizon: Lsn,
    /// Images of commits that are kept below are not needed (K3).
    pub position: u64,
}

/// An open snapshot. What it sees is kept while it lives. Dropping it closes it.
#[derive(Debug)]
pub struct View {
    store: Share<VersionStore>,
    opened: Option<Opened>,
    at: At,
}

/// An open snapshot of somebody that has the store, and closes it there ([`VersionStore::close`]).
#[derive(Debug)]
pub(crate) struct Opened {
    slot: u32,
    pub at: At,
}

/// An open snapshot, for reports on what holds things back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPin {
    /// Its LSN. Images of later commits are kept for it, and pages that they unlinked are not freed.
    pub lsn: Lsn,
    /// The transaction that has it.
    pub xid: Xid,
    /// Slot number of the thread that opened it.
    pub thread: u32,
    /// For how long it has been open, in nanoseconds.
    pub age_ns: u64,
    /// Bytes of the images that it holds, alone or with others.
    pub held_bytes: u64,
}

/// How much of a page a snapshot may take without a look at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// Nothing: for a look at a few records.
    None,
    /// What is older than every open writer: costs a look at all of them.
    Marks,
}

impl View {
    /// What it sees.
    #[inline]
    #[must_use]
    pub fn at(&self) -> At {
        self.at
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take()
            && !self.store.threads.is_inherited()
        {
            self.store.threads.guarded(|| self.store.close(opened));
        }
    }
}

impl VersionStore {
    /// Opens a snapshot of everything committed until now, for transaction `xid`. It holds a clone of `store`.
    ///
    /// # Errors
    /// All snapshot slots are taken.
    pub(crate) fn open_view(
        store: &Share<VersionStore>,
        table: &TxnTable,
        thread: SlotNo,
        xid: Xid,
        horizon: Horizon,
    ) -> Result<View, TxnError> {
        let opened = store.open(table, thread, xid, horizon)?;
        Ok(View { store: store.clone(), at: opened.at, opened: Some(opened) })
    }

    /// Opens a snapshot of everything committed until now, for transaction `xid`, which closes it.
    ///
    /// # Errors
    /// All snapshot slots are taken.
    #[inline]
    pub(crate) fn open(
        &self,
        table: &TxnTable,
        thread: SlotNo,
        xid: Xid,
        horizon: Horizon,
    ) -> Result<Opened, TxnError> {
        let position = self.kept_head(); // K3
        let Some((slot, bound)) = self.open_slot(thread) else {
            return Err(TxnError::TooManySnapshots { slots: self.snapshots.len() as u32 });
        };
        sync::yield_point("snapshot: bound published");
        let entry = &self.snapshots[slot];
        entry.xid.store(xid.0, Relaxed); // Figures to print, as the next two.
        entry.thread.store(u64::from(thread.0) + 1, Relaxed);
        entry.opened_ns.store(sync::rough_now_ns(), Relaxed);
        entry.position.store(position, Release); // Q5
        // V5: between the two looks at the tail.
        let horizon = match horizon {
            Horizon::None => 0,
            Horizon::Marks => table.first_lsn_low().map_or(bound, |low| low.0.min(bound)),
        };
        let lsn = registry::take_snapshot(entry, bound, || self.log.tail().0);
        if horizon == 0 {
            entry.horizon.store(registry::NO_HORIZON, Release);
        } else {
            entry.horizon.store(horizon, Release);
            let settled = &self.state.settled;
            // Ours is one of those looked at: they cannot raise it above that.
            if settled.load(SeqCst) < horizon {
                self.raise_settled();
            }
        }
        self.link_all_staged(); // Z1
        Ok(Opened { slot: slot as u32, at: At { lsn: Lsn(lsn), horizon: Lsn(horizon), position } })
    }

    /// Raises `settled` to the lowest horizon of all snapshots that are open, if none is being taken (V6).
    fn raise_settled(&self) {
        let settled = &self.state.settled;
        let low = registry::lowest(registry::NO_HORIZON, self.used_snapshots().iter(), |slot| &slot.horizon);
        // While an older one is open, nothing changes, and the line stays the readers'.
        if low != registry::NO_HORIZON && low > settled.load(SeqCst) {
            settled.fetch_max(low, SeqCst);
        }
    }

    /// Closes a snapshot.
    #[inline]
    pub(crate) fn close(&self, opened: Opened) {
        let slot = &self.snapshots[opened.slot as usize];
        if slot.thread.load(Relaxed) == u64::from(opened.slot) + 1 {
            registry::close(slot);
        } else {
            slot.close_by_name(self.threads.current());
        }
        if self.has_spilled() {
            self.close_among_spilled();
        }
    }

    #[cold]
    fn close_among_spilled(&self) {
        registry::order_close();
        self.reclaim_spilled(self.oldest_snapshot().0);
    }

    /// The slots that are in use, and perhaps others.
    #[inline]
    pub(super) fn used_snapshots(&self) -> &[SnapshotSlot] {
        let used = self.state.slots_used.load(SeqCst) as usize;
        &self.snapshots[..used.min(self.snapshots.len())]
    }

    /// True if no snapshot is open but such as see all that was reserved before (Q1 in `registry.rs`).
    #[inline]
    pub(super) fn is_none_open(&self) -> bool {
        registry::is_none_open(self.used_snapshots().iter().rev()) // The last ones are likelier to be in use.
    }

    /// Looks whether the slots with the highest numbers are in use still, so that writers need not look at what is not.
    /// Forgets spilled writers that nobody needs. To be called now and then.
    ///
    /// Each of these slots is held while the number of those in use sinks below its own. Who takes it next sees that,
    /// and raises the number again before it takes its LSN (`used.rs`).
    pub fn lower_used(&self) {
        // Who has closed the last snapshot may have looked before the writer was spilled, and be seen after its commit.
        self.reclaim_spilled(self.oldest_snapshot().0);
        let slots_used = &self.state.slots_used;
        let me = self.threads.current();
        let held = || sync::yield_point("snapshots: slot held");
        let lowered = || sync::yield_point("snapshots: slots lowered");
        while let Some(last) = slots_used.load(SeqCst).checked_sub(1) {
            if !used::lower_below(slots_used, last, &ByThread(&self.snapshots[last as usize], me), held, lowered) {
                return; // It is in use, or the number was raised: others come.
            }
        }
    }

    /// Looks no further for staged images than there are slots in use, when the slot of writer `no` is free and held
    /// ([`TxnTable::lower_used`]): it has staged none.
    pub(crate) fn lower_writers(&self, no: u32) {
        let (used, no) = (&self.state.writers_used, u64::from(no));
        let _ = used.compare_exchange(no + 1, no, SeqCst, Relaxed);
    }

    /// Takes a free slot, from the thread's own number on: two threads that take turns in one slot would wait for each
    /// other. Returns it and the bound that it has published there.
    #[inline]
    fn open_slot(&self, thread: SlotNo) -> Option<(usize, u64)> {
        let own = usize::from(thread.0);
        let (bound, slots_used) = (self.log.tail().0, &self.state.slots_used);
        if let Some(slot) = self.snapshots.get(own)
            && registry::take_with_bound(slot, own as u64, slots_used, bound)
        {
            return Some((own, bound)); // The usual case.
        }
        self.open_any_slot(thread)
    }

    #[cold]
    #[inline(never)]
    fn open_any_slot(&self, thread: SlotNo) -> Option<(usize, u64)> {
        let count = self.snapshots.len();
        let start = usize::from(thread.0) % count;
        let mut round = 0;
        loop {
            let mut all = (start..count).chain(0..start);
            if let Some(taken) = all.find_map(|no| Some((no, self.try_open(no, thread)?))) {
                return Some(taken);
            }
            // The one that `lower_used` holds, or has held, may be the only one that is free.
            if !self.snapshots.iter().any(SnapshotSlot::may_be_had) {
                return None;
            }
            self.pause(round);
            round += 1;
        }
    }

    fn try_open(&self, no: usize, thread: SlotNo) -> Option<u64> {
        let (slot, bound, slots_used) = (&self.snapshots[no], self.log.tail().0, &self.state.slots_used);
        let is_ours = if no == usize::from(thread.0) {
            registry::take_with_bound(slot, no as u64, slots_used, bound)
        } else {
            slot.take_by_name(no as u64, slots_used, bound, thread)
        };
        is_ours.then_some(bound)
    }

    /// Pages with changes below this LSN only hold nothing that a snapshot with a horizon, open now or later, does not
    /// see (V6). A snapshot that was opened with [`Horizon::None`] may not see what they hold. The value only grows.
    #[inline]
    #[must_use]
    pub fn settled(&self) -> Lsn {
        Lsn(self.state.settled.load(SeqCst))
    }

    /// Refuses a snapshot that may miss images (V4). To be asked before a look and after it.
    ///
    /// # Errors
    /// [`TxnError::SnapshotTooOld`].
    #[inline]
    pub fn check(&self, at: At) -> Result<(), TxnError> {
        let state = &*self.state;
        let floor = state.floor.load(SeqCst);
        if floor > at.lsn.0 {
            return Err(TxnError::SnapshotTooOld { snapshot: at.lsn, floor: Lsn(floor) });
        }
        Ok(())
    }

    /// Waits a little for a thread that waits for nothing itself. `round` counts from 0.
    pub(crate) fn pause(&self, round: u32) {
        if !sync::spin(round) {
            sync::sleep_ns(20_000 << (round / 8).min(6)); // It may have been stopped, or have died.
        }
    }

    /// The LSNs of the open snapshots, in no order. For one that is being opened, an LSN that is no larger than its
    /// own.
    #[must_use]
    pub fn open_snapshots(&self) -> Vec<Lsn> {
        self.used_snapshots().iter().filter_map(SnapshotSlot::open_lsn).map(Lsn).collect()
    }

    /// The open snapshots, oldest first: they hold back images, deferred frees and the log.
    #[must_use]
    pub fn pins(&self) -> Vec<SnapshotPin> {
        let now = sync::now_ns();
        let pin = |slot: &SnapshotSlot| {
            Some(SnapshotPin {
                lsn: Lsn(slot.open_lsn()?),
                xid: Xid(slot.xid.load(Relaxed)),
                thread: slot.thread.load(Relaxed).saturating_sub(1) as u32, // Its own number, for a moment (Q6).
                age_ns: now.saturating_sub(slot.opened_ns.load(Relaxed)),
                held_bytes: self.kept_bytes_from(slot.position.load(SeqCst)),
            })
        };
        let mut pins: Vec<SnapshotPin> = self.used_snapshots().iter().filter_map(pin).collect();
        pins.sort_by_key(|pin| pin.lsn);
        pins
    }
}
