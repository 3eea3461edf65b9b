//! Frames: the places in memory that hold pages. Their descriptors, which of them are free, and the one bell that rings
//! when a frame may have become usable.
//!
//! ```text
//!          take_free                      page entry points here
//! free ---------------> in hand --------------------------------> holding a page
//!   ^                       |                                        |
//!   |       give_back       |               evict (clean)            |
//!   +-----------------------+<---------------------------------------+
//!
//! holding:  clean                 rec_lsn == 0, flushing_rec_lsn == 0
//!           dirty                 rec_lsn != 0
//!           being written         flushing_rec_lsn != 0, and rec_lsn != 0 too if it was changed again
//! ```
//!
//! F1. A frame is free, or in one thread's hand, or one page entry holds its number: never two of these.
//! F2. `rec_lsn` leaves 0 only under the exclusive latch of the page, before the record of the change is reserved.
//! F3. `flushing_rec_lsn` leaves 0 under a shared latch, by the thread that writes the page (F4), and takes the value
//!     of `rec_lsn`. Only then does `rec_lsn` go to 0 (all SeqCst). So a thread that reads `rec_lsn` first and
//!     `flushing_rec_lsn` second misses no change that is not yet durable in the data file (`dirt.rs`).
//! F4. Under a shared latch, a thread puts its name into the frame's state by compare-exchange. Then it writes the
//!     page, sets `flushing_rec_lsn` back to 0 when the data file is synced, and takes its name away last. So one write
//!     of a page is in flight at a time.
//! F5. Only a clean frame is evicted, under the exclusive latch of its page.
//! F6. `touched` is all ones when a page comes in, and after each change. It is something else only if the thread that
//!     made the change says so before it gives the exclusive latch back. So it counts as the page's bytes do.
//! F7. The lowest bit of `rec_lsn` and of `flushing_rec_lsn` says that the first change formats the page. Then the log
//!     has the page's whole image from there on, and keeps it until the write is done: no checkpoint passes the change.
//! F8. `groups_used` passes a frame before the frame is used for the first time, in the one order of what is
//!     sequentially consistent. So who looks at all frames up to there misses only changes that begin afterwards, with
//!     a mark from the log's tail of that moment.
//! F9. A frame's `state` says by itself what it is, and whose, for those that look after a death:
//!
//! ```text
//! bits  0..48   page id + 1; 0 no page; all ones: a thread has the frame in hand
//! bits 48..64   slot + 1 of the thread that has it in hand, or that writes its page; 0 nobody
//! ```
//!
//! This file does not know the page table, nor how a page gets in or out.

use crate::config::TornPages;
use crate::dirt::{self, state};
use crate::frame_no::FrameNo;
use crate::free::FreeBits;
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64};
use ledgerstone_region::sync;
use ledgerstone_region::{Handle, Region, RegionError, SlotNo, shared};

shared! {
    /// What is known of a frame.
    pub(crate) struct Descriptor {
        /// The page in it, or who has it in hand, and who writes the page (F9). The page changes only while its entry
        /// is latched exclusively.
        state: AtomicU64,
        /// A lower bound of the LSN of the first change that no write has taken along yet; 0 if there is none (F2, F7).
        pub(crate) rec_lsn: AtomicU64,
        /// The same for the changes that the write in flight takes along, or that a write took along whose thread has
        /// died; 0 if there is none (F3, F4, F7).
        pub(crate) flushing_rec_lsn: AtomicU64,
        /// A thread that changes the page notes here what of it was changed; all ones: perhaps anything (F6).
        touched: AtomicU64,
    } size 32
}

shared! {
    /// What all threads share besides descriptors, frames and page table. No hit touches it.
    pub(crate) struct Control {
        /// Groups of frames whose memory is wanted ahead of need, and those that have it (`populate.rs`).
        pub(crate) groups_wanted: AtomicU64,
        pub(crate) groups_there: AtomicU64,
        /// No frame of the groups from here on was ever taken (F8).
        groups_used: AtomicU64,
        /// Which policy is in force.
        pub(crate) policy: AtomicU64,
        /// Pages of a batch at most, and whether the device writes pages whole: as who made the region has it. Others
        /// write in the same double-write area, so it is theirs, too.
        pub(crate) batch_pages: AtomicU64,
        pub(crate) device_is_atomic: AtomicU64,
        /// 1 while changes of pages are pending, which the process that has made the region knows (P5 in `pending.rs`).
        pub(crate) pending: AtomicU64,
        groups_line: AtomicU64,
        /// The bell: raised when a frame was given back, a batch was written, a lane was given back.
        progress: AtomicU32,
        /// How many threads sleep for it. After a death it may be too low for a while: then one of them sleeps on until
        /// its time is over.
        progress_sleepers: AtomicU32,
        /// 1 after a write failed; never goes back.
        failed: AtomicU32,
        /// Raised to wake the background writer.
        pub(crate) writer_call: AtomicU32,
        /// 1 while the background writer sleeps.
        pub(crate) writer_asleep: AtomicU32,
        /// Slot + 1 of the thread that is the background writer; 0 nobody (B2 in `writer.rs`).
        pub(crate) writer: AtomicU32,
        /// Lanes of the double-write area: 16 bits each, slot + 1 of the thread that has taken it (`lane.rs`).
        pub(crate) lanes: AtomicU64,
        /// Bytes that went to the double-write area: counted where its lanes are.
        pub(crate) double_write_bytes: AtomicU64,
        progress_line: [AtomicU64; 3],
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

#[cfg(feature = "deaths")]
impl Control {
    pub(crate) fn progress_sleepers(&self) -> u32 {
        self.progress_sleepers.load(SeqCst)
    }
}

impl Control {
    /// What stands for all processes about the double-write area.
    pub(crate) fn double_write(&self) -> (u32, TornPages) {
        let batch_pages = self.batch_pages.load(Relaxed).clamp(1, u64::from(u32::MAX)) as u32; // Set with the region.
        match self.device_is_atomic.load(Relaxed) {
            0 => (batch_pages, TornPages::DoubleWrite),
            _ => (batch_pages, TornPages::DeviceAtomic),
        }
    }
}

impl Descriptor {
    /// The page in the frame.
    pub(crate) fn page(&self) -> Option<PageId> {
        match self.state.load(Acquire) & state::PAGE {
            state::IN_HAND => None,
            page => page.checked_sub(1).map(PageId),
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.state.load(SeqCst) == state::FREE
    }

    /// The thread that has the frame in hand.
    pub(crate) fn in_hand_of(&self) -> Option<SlotNo> {
        let found = self.state.load(Acquire);
        state::who(found).filter(|_| found & state::PAGE == state::IN_HAND)
    }

    /// The thread that writes the page.
    pub(crate) fn writer(&self) -> Option<SlotNo> {
        let found = self.state.load(SeqCst);
        state::who(found).filter(|_| found & state::PAGE != state::IN_HAND)
    }

    /// Takes the frame into a thread's hand if it is free.
    fn take(&self, me: SlotNo) -> bool {
        self.state.compare_exchange(state::FREE, state::IN_HAND | state::of_who(me), SeqCst, Relaxed).is_ok()
    }

    /// The frame, which the caller has in hand, gets a page, whose entry he has latched exclusively.
    pub(crate) fn set_page(&self, page: PageId) {
        self.set_touched(u64::MAX);
        self.state.store(page.0 + 1, Release);
    }

    /// Takes the frame from its page into a thread's hand. It has latched the page's entry exclusively, and nobody
    /// writes the page.
    pub(crate) fn take_from_page(&self, me: SlotNo) {
        self.state.store(state::IN_HAND | state::of_who(me), Release);
    }

    /// F6. Counts as what was read of the page does.
    #[inline]
    pub(crate) fn touched(&self) -> u64 {
        self.touched.load(Relaxed) // The latch of the page orders it.
    }

    /// Under the exclusive latch of the page.
    #[inline]
    pub(crate) fn set_touched(&self, touched: u64) {
        self.touched.store(touched, Relaxed);
    }

    /// Whether the page differs from the data file, or may until a write in flight is done.
    pub(crate) fn is_dirty(&self) -> bool {
        self.rec_lsn.load(SeqCst) != 0 || self.flushing_rec_lsn.load(SeqCst) != 0
    }

    /// The oldest change that is not yet durable in the data file.
    pub(crate) fn oldest_change(&self) -> Option<Lsn> {
        dirt::oldest_change(&self.rec_lsn, &self.flushing_rec_lsn)
    }

    /// Whether the log has the whole image of the page from the oldest change on that is not yet durable (F7).
    pub(crate) fn is_in_log(&self) -> bool {
        dirt::begins_with_format(&self.rec_lsn, &self.flushing_rec_lsn)
    }

    /// Whether there is a change, and nobody writes the page.
    pub(crate) fn wants_write(&self) -> bool {
        self.is_dirty() && self.writer().is_none()
    }

    /// Takes the write of the page (F3), whose latch is held shared. `None` if it is clean or its write is another's.
    pub(crate) fn take_write(&self, me: SlotNo) -> Option<Lsn> {
        dirt::take_write(&self.state, &self.rec_lsn, &self.flushing_rec_lsn, me)
    }

    /// The write is done, and the data file is synced.
    pub(crate) fn finish_write(&self) {
        dirt::finish_write(&self.state, &self.flushing_rec_lsn);
    }

    /// The thread that wrote the page has died. Its changes are to be written by another.
    pub(crate) fn take_write_from_the_dead(&self) {
        dirt::give_write_back(&self.state);
    }
}

/// The frames of one cache, seen from this process.
pub(crate) struct Frames {
    descriptors: Handle<[Descriptor]>,
    words: Handle<[AtomicU64]>,
    control: Handle<[Control]>,
    free: FreeBits<Handle<[AtomicU64]>>,
    /// How often the thread in each slot waits for a read or a write of the data file now. It is 2 in a call that the
    /// device's code makes.
    device_waits: Handle<[AtomicU64]>,
    words_per_page: usize,
}

impl Frames {
    /// Bytes that a frame costs besides its page.
    pub(crate) const DESCRIPTOR_BYTES: u64 = size_of::<Descriptor>() as u64;

    pub(crate) fn new(
        region: &Region,
        frame_count: u32,
        page_bytes: u32,
        slot_count: u32,
    ) -> Result<Frames, RegionError> {
        let words_per_page = page_bytes as usize / 8;
        let control = region.place::<Control>("cache.control", 1, 128)?;
        let free_words = FreeBits::<Handle<[AtomicU64]>>::words_needed(frame_count) as u64;
        let free = FreeBits::over(region.place("cache.free", free_words, 64)?, frame_count);
        let device_waits = region.place("cache.device_waits", u64::from(slot_count), 64)?;
        let descriptors = region.place("cache.descriptors", u64::from(frame_count), 128)?;
        descriptors.advise_huge();
        let word_count = u64::from(frame_count) * words_per_page as u64;
        let words = region.place("cache.frames", word_count, FRAMES_ALIGN_BYTES)?;
        words.advise_huge();
        let frames = Frames { descriptors, words, control, free, device_waits, words_per_page };
        if region.is_made_here() {
            (0..frame_count).for_each(|turn| frames.free.set(turn));
        }
        Ok(frames)
    }

    pub(crate) fn count(&self) -> u32 {
        self.descriptors.len() as u32
    }

    pub(crate) fn count_free(&self) -> u32 {
        self.count() - self.all().filter(|(_, frame)| !frame.is_free()).count() as u32
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

    /// Takes a free frame. It is the caller's until it is given back or given to a page.
    #[inline]
    pub(crate) fn take_free(&self, me: SlotNo) -> Option<FrameNo> {
        if self.free.is_empty() { None } else { self.take_first_free(me) }
    }

    #[cold]
    fn take_first_free(&self, me: SlotNo) -> Option<FrameNo> {
        while let Some(turn) = self.free.first() {
            let frame = FrameNo(frame_of_turn(turn, self.count()));
            let (used, groups) = (&self.control().groups_used, u64::from(frame.0 / GROUP_FRAMES) + 1);
            // Before it is taken: whoever looks for the frames of the dead looks at those below only (F8).
            if used.load(Acquire) < groups {
                used.fetch_max(groups, SeqCst);
            }
            let descriptor = self.descriptor(frame);
            if descriptor.take(me) {
                self.free.clear(turn);
                return Some(frame);
            }
            self.free.clear_unless(turn, || descriptor.is_free());
        }
        None
    }

    /// Frees a frame that the caller has in hand, and rings the bell.
    pub(crate) fn give_back(&self, frame: FrameNo) {
        let descriptor = self.descriptor(frame);
        let is_in_hand = descriptor.in_hand_of().is_some() && !descriptor.is_dirty();
        // A thread that has died unwinds beside what the repair has made of its frames: seen by nobody.
        assert!(is_in_hand || std::thread::panicking(), "{frame} is given back while in use");
        descriptor.state.store(state::FREE, SeqCst);
        self.free.set(turn_of_frame(frame.0, self.count()));
        self.ring();
    }

    /// After a death: a frame that is free gets all its bits (B3 in `free.rs`).
    pub(crate) fn show_free(&self, frame: FrameNo) {
        self.free.set_all_levels(turn_of_frame(frame.0, self.count()));
    }

    /// After a death: every bit is found from above (B3 in `free.rs`).
    pub(crate) fn mend_free(&self) {
        self.free.mend();
    }

    /// The word by which a slot's thread says that it waits for the device (M7 in `miss.rs`).
    pub(crate) fn device_wait(&self, slot: SlotNo) -> &AtomicU64 {
        &self.device_waits[usize::from(slot.0)]
    }

    /// Whether any thread waits for the device.
    pub(crate) fn has_device_wait(&self) -> bool {
        self.device_waits.iter().any(|count| count.load(Relaxed) != 0)
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
        // After a death, the count may have begun anew.
        let _is_counted = control.progress_sleepers.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    }

    /// After a death: nobody sleeps who is not woken now, so the count of sleepers begins anew.
    pub(crate) fn ring_for_all(&self) {
        let control = self.control();
        control.progress_sleepers.store(0, SeqCst);
        control.progress.fetch_add(1, SeqCst);
        sync::futex_wake(&control.progress, u32::MAX);
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

/// The turn of a frame.
fn turn_of_frame(frame: u32, frame_count: u32) -> u32 {
    let (group, no) = (frame - frame % GROUP_FRAMES, frame % GROUP_FRAMES);
    if group + GROUP_FRAMES > frame_count {
        return frame;
    }
    group + no / 2 + if no.is_multiple_of(2) { 0 } else { GROUP_FRAMES / 2 }
}

/// Frames that are handed out for the first time together.
pub(crate) const GROUP_FRAMES: u32 = 512;

/// Frames begin where a huge page can begin.
const FRAMES_ALIGN_BYTES: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::{frame_of_turn, turn_of_frame};

    #[test]
    fn each_frame_has_its_turn_and_neighbours_in_time_share_no_line() {
        for count in [16, 511, 512, 1300] {
            let mut frames: Vec<u32> = (0..count).map(|turn| frame_of_turn(turn, count)).collect();
            assert!(frames.iter().zip(0..).all(|(&frame, turn)| turn_of_frame(frame, count) == turn), "{count}");
            let in_groups = count / 512 * 512;
            assert!(frames[..in_groups as usize].windows(2).all(|two| two[0] / 2 != two[1] / 2), "{count}");
            frames.sort_unstable();
            assert_eq!(frames, (0..count).collect::<Vec<u32>>());
        }
    }
}
