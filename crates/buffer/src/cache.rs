//! The page table, and how to get a page that is in memory.
//!
//! The table is an array of entries, indexed by page id, that grows (`table.rs`); what an entry promises is in
//! `entry.rs` (C1 to C3).
//!
//! C4. No mutex is held while anything waits; everything that waits goes through `region::sync`.
//!
//! The table is address space: memory comes as entries are touched. It is counted in the statistics, not in the cache's
//! limit, which is frames and their descriptors.
//!
//! This file does not know how a page comes in (`miss.rs`) or goes out (`write_back.rs`).

use crate::behind::Behind;
use crate::config::{CacheConfig, TornPages, Tuning};
use crate::entry::PageEntry;
use crate::error::BufferError;
use crate::frame::Frames;
use crate::frame_no::FrameNo;
use crate::guard::{ExclusivePage, OptimisticPage, SharedPage};
use crate::miss::Content;
use crate::pending::Pending;
use crate::pool::Pool;
use crate::readers::Readers;
use crate::replace::{Marks, Policy, Replacement};
use crate::table::PageTable;
use crate::torn::DoubleWrite;
use crate::writer::Writer;
use ledgerstone_disk::DiskFile;
use ledgerstone_page::{Lsn, PageId};
#[cfg(all(feature = "deaths", not(miri)))]
use ledgerstone_region::SlotTable;
use ledgerstone_region::{Words, sync};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Times that a page is read in for one reader before its time counts: a single read may take long (M7 in `miss.rs`).
const LOADS_MAX: u32 = 1000;

/// Pages in memory. An environment has one in each process, and all threads share it.
pub struct Cache {
    table: PageTable,
    pub(crate) pool: Pool,
    policies: [Box<dyn Replacement>; 2],
    pub(crate) data: Arc<dyn DiskFile>,
    pub(crate) double_write: DoubleWrite,
    pub(crate) page_bytes: usize,
    pub(crate) tuning: Tuning,
    pub(crate) writer: Writer,
    pub(crate) behind: Behind,
    pub(crate) readers: Readers,
    pub(crate) pending: Pending,
}

const FRAMES_MIN: u64 = 16;

/// Cache lines of a page that are fetched ahead behind its first: of a 4 KiB leaf of a tree, fences and slots.
const PREFETCH_LINES: usize = 5;
/// So far ahead entries of the page table are fetched.
const ENTRIES_AHEAD: u64 = 8;

/// What a frame takes of the region.
fn frame_bytes(page_bytes: u32) -> u64 {
    u64::from(page_bytes) + Frames::DESCRIPTOR_BYTES + Policy::Lru.frame_bytes()
}

impl Cache {
    /// The cache of a region. It has no pages if the region was made here.
    ///
    /// Before this is called on a data file that was used before, its torn pages have to be repaired: see
    /// [`Cache::repair_torn`].
    ///
    /// # Errors
    /// `Pending` in a region that another process has made, for as long as it has changes pending.
    /// `Config` for sizes that cannot work, `Region` if the region is too small, `Disk`, and `DoubleWriteFormat` if the
    /// double-write area is another's.
    pub fn new(config: CacheConfig) -> Result<Arc<Cache>, BufferError> {
        Cache::with_tuning(config, Tuning::default())
    }

    /// The same with other settings.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub fn with_tuning(config: CacheConfig, tuning: Tuning) -> Result<Arc<Cache>, BufferError> {
        let CacheConfig { region, slots, data, double_write, log, page_bytes, cache_bytes, max_pages, policy } = config;
        if !page_bytes.is_power_of_two() || !(4096..=32768).contains(&page_bytes) {
            return Err(BufferError::Config { what: "page_bytes", found: page_bytes.into(), min: 4096, max: 32768 });
        }
        let frame_bytes = frame_bytes(page_bytes);
        let frame_count = cache_bytes / frame_bytes;
        if !(FRAMES_MIN..u64::from(u32::MAX)).contains(&frame_count) {
            let max = u64::from(u32::MAX - 1) * frame_bytes;
            return Err(BufferError::Config {
                what: "cache_bytes",
                found: cache_bytes,
                min: FRAMES_MIN * frame_bytes,
                max,
            });
        }
        let frame_count = frame_count as u32;
        let data_pages = data.len()?.div_ceil(u64::from(page_bytes));
        let table = PageTable::new(&region, data_pages, max_pages, tuning.table_pages_min)?;
        let frames = Frames::new(&region, frame_count, page_bytes, slots.count())?;
        let (batch_pages, torn_pages) = (tuning.batch_pages_max.min(frame_count / 4).max(1), tuning.torn_pages);
        let double_write = if region.is_made_here() {
            let control = frames.control();
            control.policy.store(policy as u64, Relaxed); // Nobody else has the region yet.
            control.batch_pages.store(batch_pages.into(), Relaxed);
            control.device_is_atomic.store((torn_pages == TornPages::DeviceAtomic).into(), Relaxed);
            DoubleWrite::open(double_write, page_bytes, batch_pages, torn_pages)?
        } else {
            if frames.control().pending.load(SeqCst) != 0 {
                return Err(BufferError::Pending);
            }
            let (batch_pages, torn_pages) = frames.control().double_write();
            DoubleWrite::join(double_write, page_bytes, batch_pages, torn_pages)?
        };
        Ok(Arc::new(Cache {
            policies: [Policy::Clock.make(&region, frame_count)?, Policy::Lru.make(&region, frame_count)?],
            table,
            pool: Pool { frames, slots, log },
            data,
            double_write,
            page_bytes: page_bytes as usize,
            tuning,
            writer: Writer::new(),
            behind: Behind::default(),
            readers: Readers::new(),
            pending: Pending::none(),
        }))
    }

    /// The cache as a thread of another simulated process finds it, in its view of the region, with `log` in the same
    /// view. Files are used by both.
    ///
    /// # Errors
    /// As [`Cache::new`].
    #[cfg(all(feature = "deaths", not(miri)))]
    pub fn attach(
        &self,
        view: &ledgerstone_region::Region,
        slots: Arc<SlotTable>,
        log: Arc<dyn crate::WriteAhead>,
    ) -> Result<Arc<Cache>, BufferError> {
        self.attach_on(view, slots, log, Arc::clone(&self.data), self.double_write.file())
    }

    /// The same, with the data file and the double-write file as that process has opened them.
    ///
    /// # Errors
    /// As [`Cache::attach`].
    #[cfg(all(feature = "deaths", not(miri)))]
    pub fn attach_on(
        &self,
        view: &ledgerstone_region::Region,
        slots: Arc<SlotTable>,
        log: Arc<dyn crate::WriteAhead>,
        data: Arc<dyn DiskFile>,
        double_write: Arc<dyn DiskFile>,
    ) -> Result<Arc<Cache>, BufferError> {
        let page_bytes = self.page_bytes as u32;
        let config = CacheConfig {
            region: view.clone(),
            slots,
            data,
            double_write,
            log,
            page_bytes,
            cache_bytes: u64::from(self.frame_count()) * frame_bytes(page_bytes),
            max_pages: self.table.max_pages(),
            policy: Policy::default(), // That of the region is in force.
        };
        Cache::with_tuning(config, self.tuning)
    }

    /// Bytes of the region that the page table of a cache for these takes at the open.
    #[must_use]
    pub fn table_bytes(data_bytes: u64, page_bytes: u32, max_pages: u64) -> u64 {
        PageTable::first_bytes(data_bytes.div_ceil(u64::from(page_bytes)), max_pages)
    }

    /// Bytes of address space that the page table reserves besides in a region that other processes can have, too
    /// ([`Region::is_shared`](ledgerstone_region::Region::is_shared)). Memory comes as the data file grows.
    #[must_use]
    pub fn reserved_table_bytes(data_bytes: u64, page_bytes: u32, max_pages: u64) -> u64 {
        PageTable::reserved_bytes(data_bytes.div_ceil(u64::from(page_bytes)), max_pages)
    }

    /// A page to be read without latching it, read in if it is absent.
    ///
    /// May wait: for a writer of the page to finish, for the disk, for a frame. Latches are not left behind.
    ///
    /// # Errors
    /// `NeverWritten`, `Damaged`, `Disk`, `CacheFull`, `LatchTimeout`, `PageOutOfRange`, `Failed`.
    #[inline]
    pub fn optimistic(&self, id: PageId) -> Result<OptimisticPage<'_>, BufferError> {
        match self.optimistic_if_here(id) {
            Some(page) => Ok(page),
            None => self.optimistic_slow(id),
        }
    }

    /// The same, if the page is in memory and is not being changed just now. Never waits.
    #[inline]
    pub fn optimistic_if_here(&self, id: PageId) -> Option<OptimisticPage<'_>> {
        let entry = self.table.get(id.0)?;
        let version = entry.latch.optimistic()?;
        let frame = entry.frame_used()?;
        let page = OptimisticPage::new(&self.pool, entry, id, version, frame);
        // A reader looks up and down a page's first lines; fetched one by one they cost a wait each.
        page.words().prefetch_beginning(PREFETCH_LINES);
        Some(page)
    }

    /// How many pages were not in memory when they were wanted, since the cache was made. What was read ahead does not
    /// count.
    #[inline]
    #[must_use]
    pub fn miss_count(&self) -> u64 {
        self.pool.frames.control().misses.load(Relaxed)
    }

    /// Asks the processor to fetch some stretches of a page that is in memory, for a reader that will read it soon.
    /// Never waits.
    #[inline]
    pub fn fetch_ahead(&self, id: PageId, stretches: std::ops::Range<usize>) {
        // Leaves that were filled in order lie in order, and others write in the page table.
        if let Some(entry) = self.table.get(id.0.wrapping_add(ENTRIES_AHEAD)) {
            ledgerstone_region::prefetch(entry);
        }
        if let Some(frame) = self.table.get(id.0).and_then(PageEntry::frame_used) {
            let words = Words::new(self.pool.frames.words(frame));
            stretches.for_each(|no| words.prefetch_stretch(no));
            self.pool.frames.prefetch_descriptor(frame);
        }
    }

    /// The page is absent, or somebody changes it. After a few rounds the shared latch guarantees an end.
    #[cold]
    fn optimistic_slow(&self, id: PageId) -> Result<OptimisticPage<'_>, BufferError> {
        let entry = self.entry_to_latch(id)?;
        let mut round = 0;
        while sync::spin(round) {
            match entry.latch.optimistic().map(|version| (version, entry.frame_used())) {
                Some((version, Some(frame))) => return Ok(OptimisticPage::new(&self.pool, entry, id, version, frame)),
                Some((_, None)) => break,
                None => round += 1,
            }
        }
        Ok(self.shared(id)?.unlatch())
    }

    /// A page latched shared, read in if it is absent. Waits as [`Cache::optimistic`] does, with the same errors.
    #[inline]
    pub fn shared(&self, id: PageId) -> Result<SharedPage<'_>, BufferError> {
        let entry = self.entry_to_latch(id)?;
        if let Some(held) = self.pool.try_shared(id, entry) {
            if let Some(frame) = entry.frame_used() {
                return Ok(SharedPage::new(&self.pool, entry, id, frame, held));
            }
            held.unlatch(&entry.latch);
        }
        self.shared_slow(id, entry)
    }

    /// The page is absent, or latched exclusively.
    #[cold]
    fn shared_slow<'a>(&'a self, id: PageId, entry: &'a PageEntry) -> Result<SharedPage<'a>, BufferError> {
        let mut began_ns = None;
        let mut load_count = 0;
        loop {
            // Read in; it can be evicted again before we latch it, if the cache is very small. Not for ever.
            if entry.frame().is_none() {
                drop(self.load(id, entry)?);
                load_count += 1;
            }
            let held = match self.pool.try_shared(id, entry) {
                Some(held) => held,
                None => self.outwait(id, || self.pool.shared(id, entry))?,
            };
            if let Some(frame) = entry.frame_used() {
                return Ok(SharedPage::new(&self.pool, entry, id, frame, held));
            }
            held.unlatch(&entry.latch);
            let now_ns = sync::now_ns();
            let waited_ns = now_ns - *began_ns.get_or_insert(now_ns);
            if load_count > LOADS_MAX && waited_ns > self.tuning.full_wait_ns_max {
                return Err(self.full(waited_ns));
            }
        }
    }

    /// A page latched exclusively, read in if it is absent. Waits as [`Cache::optimistic`] does, with the same errors.
    pub fn exclusive(&self, id: PageId) -> Result<ExclusivePage<'_>, BufferError> {
        let entry = self.entry_to_latch(id)?;
        self.latch_exclusive(id, entry)?;
        match entry.frame_used() {
            Some(frame) => Ok(ExclusivePage::new(&self.pool, entry, id, frame, false)),
            None => self.load_latched(id, entry, Content::Read),
        }
    }

    /// The same, but `None` if the page's latch is held. May still wait for the disk and for a frame.
    pub fn try_exclusive(&self, id: PageId) -> Result<Option<ExclusivePage<'_>>, BufferError> {
        let entry = self.entry_to_latch(id)?;
        if !entry.latch.try_exclusive(self.pool.slot()) {
            return Ok(None);
        }
        match entry.frame_used() {
            Some(frame) => Ok(Some(ExclusivePage::new(&self.pool, entry, id, frame, false))),
            None => self.load_latched(id, entry, Content::Read).map(Some),
        }
    }

    /// A page about to be formatted, latched exclusively. The disk is not read: if the page is absent it is all zeros,
    /// and goes away again if it is not changed.
    ///
    /// # Errors
    /// `CacheFull`, `LatchTimeout`, `PageOutOfRange`, `Failed`.
    pub fn exclusive_new(&self, id: PageId) -> Result<ExclusivePage<'_>, BufferError> {
        let entry = self.entry_to_latch(id)?;
        self.latch_exclusive(id, entry)?;
        match entry.frame_used() {
            Some(frame) => Ok(ExclusivePage::new(&self.pool, entry, id, frame, false)),
            None => self.load_latched(id, entry, Content::Zeros),
        }
    }

    /// For redo: a page latched exclusively, and whether it could be read. One that was never written is all zeros, and
    /// goes away again if it is not changed.
    ///
    /// # Errors
    /// As [`Cache::exclusive`] but `NeverWritten`. `Damaged` is an error here too: a page whose bytes are wrong must
    /// not be taken for an empty one. A record that formats the page needs no old bytes: use [`Cache::exclusive_new`].
    pub fn exclusive_or_new(&self, id: PageId) -> Result<(ExclusivePage<'_>, bool), BufferError> {
        let entry = self.entry_to_latch(id)?;
        self.latch_exclusive(id, entry)?;
        let page = match entry.frame_used() {
            Some(frame) => ExclusivePage::new(&self.pool, entry, id, frame, false),
            None => self.load_latched(id, entry, Content::ReadOrZeros)?,
        };
        let was_readable = !page.is_new();
        Ok((page, was_readable))
    }

    /// The oldest change in memory that is not yet durable in the data file, or `None`.
    ///
    /// A checkpoint that read the log's tail before misses no record below that tail. Marks are set before records are
    /// reserved, and all of these accesses are SeqCst.
    pub fn dirty_low(&self) -> Option<Lsn> {
        self.pool.frames.all().filter_map(|(_, frame)| frame.oldest_change()).min()
    }

    /// Pages that memory has room for.
    pub fn frame_count(&self) -> u32 {
        self.pool.frames.count()
    }

    /// Pages in the data file.
    ///
    /// # Errors
    /// `Disk`.
    pub fn page_count(&self) -> Result<u64, BufferError> {
        Ok(self.data.len()? / self.page_bytes as u64)
    }

    /// Pages that there may be at most: no page with a higher number can be latched.
    #[inline]
    #[must_use]
    pub fn max_pages(&self) -> u64 {
        self.table.max_pages()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Changes the policy, for all threads from now on.
    pub fn set_policy(&self, policy: Policy) {
        self.pool.frames.control().policy.store(policy as u64, Relaxed);
    }

    pub(crate) fn policy(&self) -> &dyn Replacement {
        &*self.policies[(self.pool.frames.control().policy.load(Relaxed) % 2) as usize]
    }

    /// Whether a write failed: nothing is written any more, and pages that are absent are not read.
    pub fn is_failed(&self) -> bool {
        self.pool.frames.is_failed()
    }

    #[inline]
    pub(crate) fn entry(&self, id: PageId) -> Result<&PageEntry, BufferError> {
        match self.table.get(id.0) {
            Some(entry) => Ok(entry),
            None => self.table.get_or_grow(id),
        }
    }

    /// The entry of a page, if there is one: so it is if the page was ever in memory, or was latched.
    pub(crate) fn entry_there(&self, id: PageId) -> Option<&PageEntry> {
        self.table.get(id.0)
    }

    /// The entry of a page that is about to be latched. Those below `pages_seen` are looked at after a death, and pages
    /// in memory are.
    #[inline]
    pub(crate) fn entry_to_latch(&self, id: PageId) -> Result<&PageEntry, BufferError> {
        let entry = self.entry(id)?;
        if entry.frame().is_none() {
            self.note_seen(id);
        }
        Ok(entry)
    }

    #[cold]
    fn note_seen(&self, id: PageId) {
        let seen = &self.pool.frames.control().pages_seen;
        if seen.load(SeqCst) <= id.0 {
            seen.fetch_max(id.0 + 1, SeqCst);
        }
    }

    #[inline]
    pub(crate) fn latch_exclusive(&self, id: PageId, entry: &PageEntry) -> Result<(), BufferError> {
        let slot = self.pool.slot();
        if entry.latch.try_exclusive(slot) { Ok(()) } else { self.outwait(id, || entry.latch.exclusive(slot)) }
    }

    pub(crate) fn full(&self, waited_ns: u64) -> BufferError {
        BufferError::CacheFull { frames: self.pool.frames.count(), dirty: self.pool.frames.count_dirty(), waited_ns }
    }

    /// The largest id of a page that was latched, and one more.
    pub(crate) fn pages_seen(&self) -> u64 {
        self.pool.frames.control().pages_seen.load(SeqCst)
    }

    /// The entries of all pages from `from` on that were latched ever. Makes none.
    pub(crate) fn seen(&self, from: PageId) -> impl Iterator<Item = (PageId, &PageEntry)> {
        self.table.entries(from.0, self.pages_seen())
    }

    pub(crate) fn page_table_bytes(&self) -> u64 {
        self.pages_seen() * size_of::<PageEntry>() as u64
    }
}

/// The writer and the readers end by themselves; nobody waits for them, since one of them may do the last drop.
impl Drop for Cache {
    fn drop(&mut self) {
        self.leave_writers_place(); // Not that of another process.
        self.readers.tell_to_stop();
    }
}

/// What a policy sees of the cache: who is there, and who was used.
impl Marks for Cache {
    fn count(&self) -> u32 {
        self.pool.frames.count()
    }

    fn is_occupied(&self, frame: FrameNo) -> bool {
        self.pool.frames.descriptor(frame).page().is_some()
    }

    fn is_referenced(&self, frame: FrameNo) -> bool {
        self.marked_entry(frame).is_some_and(PageEntry::is_referenced)
    }

    fn take_referenced(&self, frame: FrameNo) -> bool {
        self.marked_entry(frame).is_some_and(PageEntry::take_referenced)
    }
}

impl Cache {
    /// The entry of the page in a frame. Nothing is latched: it can be another page's a moment later, and then a mark
    /// too much or too few is all that happens.
    fn marked_entry(&self, frame: FrameNo) -> Option<&PageEntry> {
        self.table.get(self.pool.frames.descriptor(frame).page()?.0)
    }
}
