//! What survivors do for the cache after a death (see `repair.rs` of `region`).
//!
//! | words | what a death leaves | the repair |
//! | --- | --- | --- |
//! | a page's latch, shared | a holder too many, and its name in the slot's line | counts again who holds it |
//! | `lanes` | a lane that nobody gives back | mends pages at home, syncs, frees the lane (R3) |
//! | a page's latch, exclusive | the latch, half a change | takes it over; builds the page again, or it goes (R2) |
//! | `state` of a frame, `place` of an entry | they differ, under the latch | the frame goes from the page (R4) |
//! | `state`: who writes | a dirty page that nobody may write | the name goes; what was taken along stays dirty |
//! | `state`: in hand | a frame that is nobody's | frees it |
//! | `rec_lsn`, `flushing_rec_lsn` | a page that is dirty without cause | nothing: it is written once more |
//! | bits of free frames | a frame not found, now or when freed | sets those of free frames, and above other bits |
//! | device waits | somebody who seems to wait for the device | it counts for nobody |
//! | `writer` | nobody writes pages ahead of need | its name goes, so that another process starts one |
//! | the bell: `progress_sleepers` | a sleeper too many; a ring that was not heard | counts from 0, and rings for all |
//! | referenced bits, `touched`, words of policies, groups of frames | anything | nothing: they are hints |
//! | statistics, `pages_seen`, calls of the writer | one more or less | nothing |
//! | `failed` | set, and the log has not failed yet | it stays; the log fails, too (W5 in `write_back.rs`) |
//!
//! Some things are each process's own, and go with it. These are threads of the cache, what is asked of them, buffers,
//! pages left behind, pending changes, and the mark that is known to be durable.
//!
//! R1. Each part can be done again, also after a repairer that died in it. It takes things under its own name. So what
//!     was the dead's is then the dead repairer's.
//! R2. A page is changed only while its frame has a `rec_lsn` (G1 in `guard.rs`). So a page without one is what it was,
//!     and one with it is built again from the data file, by all records since then.
//! R3. A page whose write died may be torn at home. The lane of that write has its whole copy (D1 in `torn.rs`), or the
//!     log has the page (D0). Before the lane is free, the copy is put where it belongs, if what is there is torn, and
//!     the data file is synced. The page stays dirty, so it will be written again. Who writes a page is in its frame,
//!     so no other thread writes it, and old copies of other pages in the lane are left alone.
//! R4. A frame that says that it has a page, and is not in the page's entry, is on its way in or out: the latch of the
//!     page is held. It is clean (F5 in `frame.rs`).
//! R5. A repair latches nothing and waits for no I/O but its own. A page that is being written just now by a living
//!     thread may look torn at home: then its copy is in the double-write area, until that write is done. It has the
//!     changes that the write takes along. So the copy of an earlier write, which lacks changes, is told from it.
//! R6. If the device fails, or a page cannot be built again, the cache has failed, before anybody sees that page. If
//!     the log has failed, nothing is written home (W6 in `write_back.rs`), and lanes are freed as they are: nobody
//!     writes to them.
//! R7. Such a write may end meanwhile. Then the frame needs less of the log, and a checkpoint may have given up the
//!     rest: the page is built again from what is at home now. No other write of it begins while its latch is held.
//!
//! This file does not know what a page means.

use crate::cache::Cache;
use crate::dirt;
use crate::entry::PageEntry;
use crate::error::BufferError;
use crate::frame::Descriptor;
use crate::frame_no::FrameNo;
use crate::guard::ExclusivePage;
use crate::pool::page_of;
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::{AnotherDied, Dead, Repair, SlotNo};
use std::sync::atomic::Ordering::SeqCst;

/// Makes a page again that a thread was changing when it died.
pub trait Rebuild: Send + Sync {
    /// Repeats on `page` all changes that the log has of it, from the record at `from` on, as redo does. What lies
    /// before is in the page's bytes, which are those of the data file. `is_void`: they are all zeros, since the page
    /// was never written there, or is damaged there. Then the first record, if there is one, has to format the page.
    ///
    /// # Errors
    /// Page and log contradict each other. The cache fails.
    fn rebuild(&self, page: &mut ExclusivePage<'_>, from: Lsn, is_void: bool) -> Result<(), BufferError>;
}

/// A part of the repair, or of one of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Failure,
    Shared,
    Lanes,
    HomePages,
    Strays,
    Latches,
    HalfChanged,
    Writes,
    InHand,
    FreeBits,
    DeviceWaits,
    Writer,
    Bell,
    CopyOfTorn,
    AfterWrite,
}

impl Part {
    /// In their order. Lanes come while frames say who writes, and before pages are read that may be torn at home;
    /// strays while the pages are latched.
    const ORDER: [Part; 11] = [
        Part::Failure,
        Part::Shared,
        Part::Lanes,
        Part::Strays,
        Part::Latches,
        Part::Writes,
        Part::InHand,
        Part::FreeBits,
        Part::DeviceWaits,
        Part::Writer,
        Part::Bell,
    ];
}

/// The cache's part of a repair.
pub struct CacheRepair<'c> {
    cache: &'c Cache,
    rebuild: &'c dyn Rebuild,
    /// A bug, planted by a test: this part is left out.
    forgotten: Option<Part>,
}

impl Cache {
    /// The cache's part of a repair. Pages that were half changed are given to `rebuild`.
    pub fn repairer<'c>(&'c self, rebuild: &'c dyn Rebuild) -> CacheRepair<'c> {
        CacheRepair { cache: self, rebuild, forgotten: None }
    }
}

impl Cache {
    /// Whether a thread holds a latch of a page, a frame or a lane, or writes a page.
    #[must_use]
    pub fn is_held_up_by(&self, slot: SlotNo) -> bool {
        self.seen(PageId(0)).any(|(_, entry)| entry.latch.owner() == Some(slot))
            || self.lane_owners().any(|(_, owner)| owner == slot)
            || self.pool.frames.all().any(|(_, frame)| [frame.in_hand_of(), frame.writer()].contains(&Some(slot)))
    }
}

impl std::fmt::Debug for CacheRepair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheRepair").field("forgotten", &self.forgotten).finish_non_exhaustive()
    }
}

impl Repair for CacheRepair<'_> {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        let me = self.cache.pool.slot();
        for part in Part::ORDER.into_iter().filter(|part| self.does(*part)) {
            match part {
                Part::Failure => self.cache.fail_log(),
                Part::Shared => self.recount_shared(dead)?,
                Part::Lanes => self.free_lanes(dead),
                Part::Strays => self.take_strays(dead, me),
                Part::Latches => self.take_latches(dead, me),
                Part::Writes => self.give_writes_back(dead),
                Part::InHand => self.free_in_hand(dead),
                Part::FreeBits => self.show_free(),
                Part::DeviceWaits => self.forget_device_waits(dead),
                Part::Writer => self.cache.forget_dead_writer(|slot| dead.has(slot)),
                Part::Bell => self.cache.pool.frames.ring_for_all(),
                // Of lanes, and of latches.
                Part::HomePages | Part::HalfChanged | Part::CopyOfTorn | Part::AfterWrite => {}
            }
        }
        Ok(())
    }
}

/// What has come of building a page again.
struct Attempt {
    rebuilt: Result<(), BufferError>,
    /// What is at home is damaged, and the page needs it.
    damage: Option<BufferError>,
    /// Nothing that is at home was used.
    is_void: bool,
}

impl<'c> CacheRepair<'c> {
    /// The repair without one of its parts.
    #[cfg(all(test, feature = "deaths"))]
    pub(crate) fn without(self, part: Option<Part>) -> CacheRepair<'c> {
        CacheRepair { forgotten: part, ..self }
    }

    fn does(&self, part: Part) -> bool {
        self.forgotten != Some(part)
    }

    fn recount_shared(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        for name in dead.held_shared() {
            if let Some(entry) = self.cache.entry_there(page_of(name)) {
                dead.recount_shared(&entry.latch, name)?;
            }
        }
        Ok(())
    }

    fn free_lanes(&self, dead: &Dead<'_>) {
        for (lane, owner) in self.cache.lane_owners().filter(|(_, owner)| dead.has(*owner)) {
            if self.does(Part::HomePages)
                && self.cache.check_writes().is_ok()
                && let Err(error) = self.mend_home(lane, owner)
            {
                self.cache.fail_writes(error);
            }
            self.cache.give_lane_back(lane);
        }
    }

    /// R3.
    fn mend_home(&self, lane: u32, owner: SlotNo) -> Result<(), BufferError> {
        let cache = self.cache;
        let is_its = |id| {
            let frame = cache.entry_there(id).and_then(PageEntry::frame);
            frame.is_some_and(|frame| cache.pool.frames.descriptor(frame).writer() == Some(owner))
        };
        cache.double_write.mend_home(lane, &*cache.data, is_its)?;
        Ok(cache.data.sync()?)
    }

    /// R4.
    fn take_strays(&self, dead: &Dead<'_>, me: SlotNo) {
        let frames = &self.cache.pool.frames;
        for (frame, descriptor) in frames.all() {
            let Some(entry) = descriptor.page().and_then(|id| self.cache.entry_there(id)) else { continue };
            let is_stray = entry.latch.owner().is_some_and(|owner| dead.has(owner))
                && entry.frame() != Some(frame)
                && !descriptor.is_dirty();
            if is_stray {
                descriptor.take_from_page(me);
                frames.give_back(frame);
            }
        }
    }

    fn take_latches(&self, dead: &Dead<'_>, me: SlotNo) {
        for (id, entry) in self.cache.seen(PageId(0)) {
            if let Some(owner) = entry.latch.owner()
                && dead.has(owner)
                && entry.latch.take_over(owner, me)
            {
                self.mend_page(id, entry, me);
            }
        }
    }

    /// The latch is ours. Gives it back.
    fn mend_page(&self, id: PageId, entry: &PageEntry, me: SlotNo) {
        let frames = &self.cache.pool.frames;
        let Some(frame) = entry.frame() else { return entry.latch.unlatch_exclusive() };
        let descriptor = frames.descriptor(frame);
        let is_changed = descriptor.rec_lsn.load(SeqCst) != 0;
        if is_changed && self.does(Part::HalfChanged) {
            self.rebuild(id, entry, frame, descriptor);
        } else if descriptor.is_dirty() || descriptor.writer().is_some() {
            entry.latch.unlatch_exclusive(); // It is as it was taken along by a write, or before (R2).
        } else {
            // It may be a page that nobody made (G2 in `guard.rs`), or one whose changes were given up with it
            // (`discard.rs`). So nothing is said of what it has at home.
            entry.set_frame(None);
            descriptor.take_from_page(me);
            entry.latch.unlatch_exclusive();
            frames.give_back(frame);
        }
    }

    /// R2. If the page cannot be built again, the cache fails before anybody can latch it. Then it goes from its entry,
    /// and stays in its frame, dirty: nobody reads or writes it (G3 in `guard.rs`).
    fn rebuild(&self, id: PageId, entry: &PageEntry, frame: FrameNo, descriptor: &Descriptor) {
        let mut page = ExclusivePage::new(&self.cache.pool, entry, id, frame, false);
        let Attempt { rebuilt, damage, is_void } = loop {
            let from = descriptor.oldest_change();
            let attempt = self.try_rebuild(&mut page, descriptor, from.unwrap_or_default());
            // R7
            if attempt.rebuilt.is_ok() || descriptor.oldest_change() == from || !self.does(Part::AfterWrite) {
                break attempt;
            }
        };
        match (rebuilt, damage) {
            // The log has nothing of the page. It was new and is not made yet (G2 in `guard.rs`). Or it was about to be
            // put back, and is as damaged as it was (O3 in `copy_out.rs`).
            (Ok(()), _) if is_void && page.page_lsn() == Lsn(0) && descriptor.writer().is_none() => {
                descriptor.flushing_rec_lsn.store(0, SeqCst);
                page.take_out();
            }
            (Ok(()), None) => {}
            (rebuilt, damage) => {
                self.cache.fail_writes(damage.or(rebuilt.err()).unwrap_or(BufferError::Failed));
                page.give_up();
            }
        }
    }

    fn try_rebuild(&self, page: &mut ExclusivePage<'_>, descriptor: &Descriptor, from: Lsn) -> Attempt {
        let is_formatted = dirt::begins_with_format(&descriptor.rec_lsn, &descriptor.flushing_rec_lsn);
        let on_its_way = dirt::lsn_of(descriptor.flushing_rec_lsn.load(SeqCst));
        let (base, damage) = match self.read_home(page.id(), on_its_way) {
            Ok(base) => (Ok(base), None),
            Err(damage @ BufferError::Damaged { .. }) => (Ok(None), Some(damage).filter(|_| !is_formatted)),
            Err(error) => (Err(error), None),
        };
        let is_void = matches!(base, Ok(None));
        let rebuilt = base.and_then(|base| {
            page.refill(base.as_deref());
            self.rebuild.rebuild(page, from, is_void)
        });
        Attempt { rebuilt, damage, is_void }
    }

    fn give_writes_back(&self, dead: &Dead<'_>) {
        for (_, descriptor) in self.cache.pool.frames.all() {
            if descriptor.writer().is_some_and(|writer| dead.has(writer)) {
                descriptor.take_write_from_the_dead();
            }
        }
    }

    fn free_in_hand(&self, dead: &Dead<'_>) {
        let frames = &self.cache.pool.frames;
        for (frame, descriptor) in frames.all() {
            if descriptor.in_hand_of().is_some_and(|owner| dead.has(owner)) {
                frames.give_back(frame);
            }
        }
    }

    fn show_free(&self) {
        let frames = &self.cache.pool.frames;
        for (frame, _) in frames.all().filter(|(_, descriptor)| descriptor.is_free()) {
            frames.show_free(frame);
        }
        frames.mend_free();
    }

    fn forget_device_waits(&self, dead: &Dead<'_>) {
        for slot in dead.slots() {
            self.cache.pool.frames.device_wait(*slot).store(0, SeqCst);
        }
    }

    /// A page's bytes in the data file, verified; `None` if it was never written. Its latch is held exclusively. So at
    /// most one write of it is on its way, with a change at or above that LSN. It may make it look torn (R5).
    fn read_home(&self, id: PageId, on_its_way: Option<Lsn>) -> Result<Option<Vec<u8>>, BufferError> {
        let read = || match self.cache.read_page_direct(id) {
            Err(BufferError::NeverWritten { .. }) => Ok(None),
            read => read.map(Some),
        };
        let damaged = match read() {
            Err(damaged @ BufferError::Damaged { .. }) if self.does(Part::CopyOfTorn) => damaged,
            whole => return whole,
        };
        let copy = self.cache.double_write.find_copy(id)?;
        // If it looks torn still, the write was on its way while we looked for its copy.
        match read() {
            Err(BufferError::Damaged { .. }) => {
                let is_its = |lsn: Lsn| on_its_way.is_some_and(|first| first <= lsn);
                copy.filter(|(lsn, _)| is_its(*lsn)).map(|(_, copy)| Some(copy)).ok_or(damaged)
            }
            now => now,
        }
    }
}
