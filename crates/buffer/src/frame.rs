//! Frames: the places in memory that hold pages. Their descriptors, the list of those that are free, and the one bell
//! that rings when a frame may have become usable.
//!
//! ```text
//!          take_free                      page entry points here
//! free ---------------> nobody's -------------------------------> holding a page
//!   ^                       |                                        |
//!   |       give_back       |               evict (clean)            |
//!   +-----------------------+<---------------------------------------+
//!
//! holding:  clean                 rec_lsn == 0, flushing_rec_lsn == 0
//!           dirty                 rec_lsn != 0
//!           being written         flushing_rec_lsn != 0, and rec_lsn != 0 too if it was changed again
//! ```
//!
//! F1. A frame is on the free list, or one thread's, or one page entry holds its number: never two of these.
//! F2. `rec_lsn` leaves 0 only under the exclusive latch of the page, before the record of the change is reserved.
//! F3. `flushing_rec_lsn` leaves 0 by compare-exchange under a shared latch, and takes the value of `rec_lsn`. Only
//!     then does `rec_lsn` go to 0 (all SeqCst). So a thread that reads `rec_lsn` first and `flushing_rec_lsn` second
//!     misses no change that is not yet durable in the data file (`dirt.rs`).
//! F4. The thread that took `flushing_rec_lsn` from 0 writes the page, and sets the field back to 0 when the data file
//!     is synced. So one write of a page is in flight at a time.
//! F5. Only a clean frame is evicted, under the exclusive latch of its page.
//! F6. `touched` is all ones when a page comes in, and after each change. It is something else only if the thread that
//!     made the change says so before it gives the exclusive latch back. So it counts as the page's bytes do.
//! F7. The lowest bit of `rec_lsn` and of `flushing_rec_lsn` says that the first change formats the page. Then the log
//!     has the page's whole image from there on, and keeps it until the write is done: no checkpoint passes the change.
//! F8. `groups_used` passes a frame before the frame is used for the first time, in the one order of what is
//!     sequentially consistent. So who looks at all frames up to there misses only changes that begin afterwards, with
//!     a mark from the log's tail of that moment.
//!
//! This file does not know the page table, nor how a page gets in or out.

use crate::dirt;
use crate::frame_no::FrameNo;
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::sync;
use ledgerstone_region::{Handle, Region, RegionError, shared};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

shared! {
    /// What is known of a frame.
    pub(crate) struct Descriptor {
        /// Page id + 1; 0 if no page is in it. Changes only while the page's entry is latched exclusively.
        page: AtomicU64,
        /// A lower bound of the LSN of the first change that no write has taken along yet; 0 if there is none (F2, F7).
        pub(crate) rec_lsn: AtomicU64,
        /// The same for the changes that the write in flight takes along; 0 if none is in flight (F3, F4, F7).
        pub(crate) flushing_rec_lsn: AtomicU64,
        /// While it is free: frame number + 1 of the next free frame. While it holds a page: a thread that changes the
        /// page notes here what of it was changed; all ones: perhaps anything (F6).
        next_free_or_touched: AtomicU64,
    } size 32
}

shared! {
    /// What all threads share besides descriptors, frames and page table. No hit touches it.
    pub(crate) struct Control {
        /// Bits 0..32 frame number + 1 of the first free frame; bits 32.. a count of changes, against ABA.
        free: AtomicU64,
        free_count: AtomicU64,
        /// Groups of frames whose memory is wanted ahead of need, and those that have it (`populate.rs`).
        pub(crate) groups_wanted: AtomicU64,
        pub(crate) groups_there: AtomicU64,
        /// No frame of the groups from here on was ever taken (F8).
        groups_used: AtomicU64,
        free_line: [AtomicU64; 3],
        /// The bell: raised when a frame was given back, a batch was written, a lane was given back.
        progress: AtomicU32,
        /// How many threads sleep for it.
        progress_sleepers: AtomicU32,
        /// 1 after a write failed; never goes back.
        failed: AtomicU32,
        /// Raised to wake the background writer.
        pub(crate) writer_call: AtomicU32,
        /// 1 while the background writer sleeps.
        pub(crate) writer_asleep: AtomicU32,
        /// 1 if the background writer shall end.
        pub(crate) writer_stop: AtomicU32,
        /// Lanes of the double-write area that are taken, a bit each.
        pub(crate) lanes: AtomicU64,
        /// Threads that wait for a read or a write of the data file now.
        pub(crate) device_waits: AtomicU64,
        /// Which policy is in force.
        pub(crate) policy: AtomicU64,
        /// Bytes that went to the double-write area: counted where its lanes are.
        pub(crate) double_write_bytes: AtomicU64,
        progress_line: AtomicU64,
        /// Largest page id + 1 that was asked for and not found in memory.
        pub(crate) pages_seen: AtomicU64,
        pub(crate) misses: AtomicU64,
        pub(crate) reads: AtomicU64,
        pub(crate) writes: AtomicU64,
        pub(crate) write_batches: AtomicU64,
        pub(crate) foreground_batches: AtomicU64,
        pub(crate) evictions: AtomicU64,
        pub(crate) frame_waits: AtomicU64,
    } size 192
}

impl Descriptor {
    /// The page in the frame.
    pub(crate) fn page(&self) -> Option<PageId> {
        self.page.load(Acquire).checked_sub(1).map(PageId)
    }

    pub(crate) fn set_page(&self, page: Option<PageId>) {
        self.set_touched(u64::MAX);
        self.page.store(page.map_or(0, |id| id.0 + 1), Release);
    }

    /// F6. Counts as what was read of the page does.
    #[inline]
    pub(crate) fn touched(&self) -> u64 {
        self.next_free_or_touched.load(Relaxed) // The latch of the page orders it.
    }

    /// Under the exclusive latch of the page.
    #[inline]
    pub(crate) fn set_touched(&self, touched: u64) {
        self.next_free_or_touched.store(touched, Relaxed);
    }

    /// Whether the page differs from the data file, or may until a write in flight is done.
    pub(crate) fn is_dirty(&self) -> bool {
        self.rec_lsn.load(SeqCst) != 0 || self.flushing_rec_lsn.load(SeqCst) != 0
    }

    /// The oldest change that is not yet durable in the data file.
    pub(crate) fn oldest_change(&self) -> Option<Lsn> {
        dirt::oldest_change(&self.rec_lsn, &self.flushing_rec_lsn)
    }

    /// Whether the log has the whole image of the page, of which a write is not taken yet (F7).
    pub(crate) fn is_in_log(&self) -> bool {
        dirt::formats(self.rec_lsn.load(Relaxed))
    }

    /// The same for the write that the caller has taken.
    pub(crate) fn is_taken_in_log(&self) -> bool {
        dirt::formats(self.flushing_rec_lsn.load(Relaxed))
    }

    /// Takes the write of the page (F3), whose latch is held shared. `None` if it is clean or its write is another's.
    pub(crate) fn take_write(&self) -> Option<Lsn> {
        dirt::take_write(&self.rec_lsn, &self.flushing_rec_lsn)
    }
}

/// The frames of one cache, seen from this process.
pub(crate) struct Frames {
    descriptors: Handle<[Descriptor]>,
    words: Handle<[AtomicU64]>,
    control: Handle<[Control]>,
    words_per_page: usize,
}

impl Frames {
    /// Bytes that a frame costs besides its page.
    pub(crate) const DESCRIPTOR_BYTES: u64 = size_of::<Descriptor>() as u64;

    pub(crate) fn new(region: &Region, frame_count: u32, page_bytes: u32) -> Result<Frames, RegionError> {
        let words_per_page = page_bytes as usize / 8;
        let control = region.handle_slice(region.alloc::<Control>(1, 128)?)?;
        let descriptors = region.alloc::<Descriptor>(u64::from(frame_count), 128)?;
        region.advise_huge(descriptors); // All of them are written in `free_all`.
        let descriptors = region.handle_slice(descriptors)?;
        let span = region.alloc::<AtomicU64>(u64::from(frame_count) * words_per_page as u64, FRAMES_ALIGN_BYTES)?;
        region.advise_huge(span);
        let frames = Frames { descriptors, words: region.handle_slice(span)?, control, words_per_page };
        frames.free_all();
        Ok(frames)
    }

    pub(crate) fn count(&self) -> u32 {
        self.descriptors.len() as u32
    }

    pub(crate) fn count_free(&self) -> u32 {
        self.control().free_count.load(Relaxed) as u32
    }

    pub(crate) fn count_dirty(&self) -> u32 {
        self.all().filter(|(_, frame)| frame.is_dirty()).count() as u32
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.count()) * Self::DESCRIPTOR_BYTES + self.words.len() as u64 * 8
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control[0]
    }

    /// For a thread that must not keep the cache alive.
    pub(crate) fn control_handle(&self) -> Handle<[Control]> {
        self.control.clone()
    }

    pub(crate) fn descriptor(&self, frame: FrameNo) -> &Descriptor {
        &self.descriptors[frame.0 as usize]
    }

    /// Those that were ever taken, and perhaps some more (F8).
    pub(crate) fn all(&self) -> impl Iterator<Item = (FrameNo, &Descriptor)> {
        let used = self.control().groups_used.load(SeqCst) as usize * GROUP_FRAMES as usize;
        self.descriptors.iter().take(used).enumerate().map(|(frame, descriptor)| (FrameNo(frame as u32), descriptor))
    }

    /// Asks the processor to fetch what is known of a frame.
    #[inline]
    pub(crate) fn prefetch_descriptor(&self, frame: FrameNo) {
        ledgerstone_region::prefetch(self.descriptor(frame));
    }

    /// Takes the memory of a group of frames from the system.
    pub(crate) fn populate(&self, group: u64) {
        let words = GROUP_FRAMES as usize * self.words_per_page;
        let start = group as usize * words;
        self.words.populate(start..(start + words).min(self.words.len()));
    }

    /// The words of a frame.
    #[inline]
    pub(crate) fn words(&self, frame: FrameNo) -> &[AtomicU64] {
        let start = frame.0 as usize * self.words_per_page;
        &self.words[start..start + self.words_per_page]
    }

    /// Takes a frame from the free list. It is the caller's until it is given back or given to a page.
    pub(crate) fn take_free(&self) -> Option<FrameNo> {
        let free = &self.control().free;
        let mut head = free.load(Acquire);
        loop {
            let frame = FrameNo((head as u32).checked_sub(1)?);
            // May be a frame that others take and give back meanwhile: then the count in the head has changed, and we
            // lose.
            let next = self.descriptor(frame).next_free_or_touched.load(Relaxed) & u64::from(u32::MAX);
            match free.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | next, AcqRel, Acquire) {
                Ok(_) => {
                    self.control().free_count.fetch_sub(1, Relaxed);
                    let (used, groups) = (&self.control().groups_used, u64::from(frame.0 / GROUP_FRAMES) + 1);
                    // Acquire: who raised it comes before whatever happens to this frame.
                    if used.load(Acquire) < groups {
                        used.fetch_max(groups, SeqCst);
                    }
                    return Some(frame);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Puts a frame on the free list and rings the bell.
    pub(crate) fn give_back(&self, frame: FrameNo) {
        self.push_free(frame);
        self.ring();
    }

    /// Makes the list of all of them, which nobody has seen yet.
    fn free_all(&self) {
        let mut next = 0;
        for turn in (0..self.count()).rev() {
            let frame = FrameNo(frame_of_turn(turn, self.count()));
            self.descriptor(frame).next_free_or_touched.store(next, Relaxed);
            next = u64::from(frame.0 + 1);
        }
        self.control().free_count.store(u64::from(self.count()), Relaxed);
        self.control().free.store(next, Release);
    }

    /// The count goes up first, so that it never runs below 0.
    fn push_free(&self, frame: FrameNo) {
        let descriptor = self.descriptor(frame);
        assert!(descriptor.page().is_none() && !descriptor.is_dirty(), "{frame} is given back while in use");
        let free = &self.control().free;
        self.control().free_count.fetch_add(1, Relaxed);
        let mut head = free.load(Relaxed);
        loop {
            descriptor.next_free_or_touched.store(u64::from(head as u32), Relaxed);
            match free.compare_exchange_weak(head, ((head >> 32) + 1) << 32 | u64::from(frame.0 + 1), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// What [`Frames::wait_progress`] compares with. Read it before looking for what you need.
    pub(crate) fn progress(&self) -> u32 {
        self.control().progress.load(SeqCst)
    }

    /// Says that something happened that a sleeper may wait for.
    pub(crate) fn ring(&self) {
        let control = self.control();
        control.progress.fetch_add(1, SeqCst);
        if control.progress_sleepers.load(SeqCst) != 0 {
            sync::futex_wake(&control.progress, u32::MAX);
        }
    }

    /// Sleeps until the bell rings, or has since `seen`, at most for `timeout_ns`.
    pub(crate) fn wait_progress(&self, seen: u32, timeout_ns: u64) {
        let control = self.control();
        control.progress_sleepers.fetch_add(1, SeqCst);
        sync::futex_wait(&control.progress, seen, Some(timeout_ns));
        control.progress_sleepers.fetch_sub(1, SeqCst);
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.control().failed.load(Acquire) != 0
    }

    /// Nothing is written any more from now on.
    pub(crate) fn fail(&self) {
        self.control().failed.store(1, SeqCst);
        self.ring();
    }
}

/// The frame that is the first to be taken, the second, ...: of each 512, those with even numbers and then the others.
/// Two descriptors share a cache line. So pages that come in one after the other, as those of a small table do, do not
/// share one. And no more huge pages are touched than if frames were taken in order.
fn frame_of_turn(turn: u32, frame_count: u32) -> u32 {
    let (group, no) = (turn - turn % GROUP_FRAMES, turn % GROUP_FRAMES);
    if group + GROUP_FRAMES > frame_count {
        return turn;
    }
    group + if no < GROUP_FRAMES / 2 { 2 * no } else { 2 * no - GROUP_FRAMES + 1 }
}

/// Frames that are handed out for the first time together.
pub(crate) const GROUP_FRAMES: u32 = 512;

/// Frames begin where a huge page can begin.
const FRAMES_ALIGN_BYTES: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::frame_of_turn;

    #[test]
    fn each_frame_has_its_turn_and_neighbours_in_time_share_no_line() {
        for count in [16, 511, 512, 1300] {
            let mut frames: Vec<u32> = (0..count).map(|turn| frame_of_turn(turn, count)).collect();
            let in_groups = count / 512 * 512;
            assert!(frames[..in_groups as usize].windows(2).all(|two| two[0] / 2 != two[1] / 2), "{count}");
            frames.sort_unstable();
            assert_eq!(frames, (0..count).collect::<Vec<u32>>());
        }
    }
}
