//! Which pages are free: the file header, the space maps, and the growth of the data file.
//!
//! Pages are allocated and freed in the same group that links or unlinks them. So a crash can neither leak a page nor
//! give it to two owners. A caller that needs pages latches the map first ([`Space::latch_free`]), then the pages that
//! will refer to them. The bits of the map change in the same record.
//!
//! A freed page may be used again at once. That is safe for readers without latches: they follow a page id only after
//! they have found the page that named it unchanged (design 6).
//!
//! The first pages of the file are kept for roots ([`Space::latch_for_root`]). Roots never move, and so do not keep the
//! file from being cut where the last page in use lies (`shrink.rs`).
//!
//! This crate does not know what a page is used for. Begin reading at [`Space::latch_free`].
#![forbid(unsafe_code)]

mod error;
mod file_header;
mod map;
mod ops;
mod repair;
mod shrink;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_buffer::{BufferError, ExclusivePage};
use ledgerstone_disk::DiskFile;
use ledgerstone_log::Claim;
use ledgerstone_page::{Corrupt, Layout, LayoutTaken, Layouts, Lsn, PageId, PageSet, header};
use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::{Handle, Latch, Region, RegionError, sync};
use ledgerstone_txn::{Durability, Engine, Part, TxnError};

pub use error::SpaceError;
pub use file_header::{FileHeaderLayout, LAYOUT_FILE_HEADER};
pub use map::{LAYOUT_SPACE_MAP, SpaceMapLayout, bit_of, bits_of, map_of};
pub use ops::{OP_FILE_HEADER_FORMAT, OP_FILE_HEADER_MARK, OP_SPACE_CLEAR, OP_SPACE_FORMAT, OP_SPACE_SET, register};
pub use shrink::finish_shrink;

/// The file grows by a sixteenth of itself, within these bounds.
const GROW_BYTES_MIN: u64 = 256 << 10;
const GROW_BYTES_MAX: u64 = 64 << 20;

/// The first pages of the file are for roots, which never move: wherever they are, the file cannot end before them.
const ROOT_PAGES: u64 = 128;

/// Words in the region: where to look first, how many pages the file has, below which page all seem to be in use.
const HINT: usize = 0;
const PAGE_COUNT: usize = 1;
const LOW: usize = 2;
/// Whether the file is being cut (G2 in `repair.rs`). Under the growth latch.
const SHRINKS: usize = 3;
/// The slot, + 1, of whoever has the growth latch from a dead thread that was cutting the file, and finishes that.
const HEIR: usize = 4;
/// Not 0: the latch of checkpoints is kept for whoever finishes the cut (G5).
const KEPT: usize = 5;
/// How often somebody has begun to free a structure page by page.
const TAKEN_APART: usize = 6;

/// Free pages, and the map that must say that they are used.
pub struct FreeRun<'c> {
    /// The map, latched exclusively.
    pub map: ExclusivePage<'c>,
    /// The first of the pages.
    pub first: PageId,
    /// How many, one behind the other.
    pub count: u32,
}

impl FreeRun<'_> {
    /// Arguments of [`OP_SPACE_SET`] for these pages.
    #[must_use]
    pub fn args_set(&self) -> [u8; 8] {
        ops::mark_args(bit_of(self.first, self.map.words().len_bytes()), self.count)
    }
}

/// Registers the layouts of this crate, for checks and printing.
///
/// # Errors
/// An id is taken.
pub fn register_layouts(layouts: &mut Layouts) -> Result<(), LayoutTaken> {
    layouts.register(Box::new(FileHeaderLayout))?;
    layouts.register(Box::new(SpaceMapLayout))
}

/// Gives page 0 a new LSN, which says how old the data file is (`checkpoint.rs` in recovery, K3). Returns that LSN. The
/// page is dirty afterwards.
///
/// # Errors
/// The file header cannot be read, or the log refuses. Nothing has changed if the log refuses.
pub fn mark(engine: &Engine) -> Result<Lsn, SpaceError> {
    let claim = engine.log.claim_upkeep(128).map_err(TxnError::from)?;
    let mut header = match engine.cache.exclusive(PageId(0)) {
        Ok(header) => header,
        Err(error) => {
            engine.log.give_back(claim);
            return Err(error.into());
        }
    };
    Ok(engine.group_alone(claim, &mut [&mut header], &[Part { page: 0, op: OP_FILE_HEADER_MARK, args: &[] }])?)
}

/// What the first bytes of a data file say about it, read without a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// The environment.
    pub environment: [u8; 16],
    /// Bytes of a page.
    pub page_bytes: u32,
    /// LSN of page 0.
    pub lsn: Lsn,
}

impl FileHeader {
    /// Reads page 0. `None` if it is damaged or torn.
    ///
    /// # Errors
    /// [`SpaceError::OlderFormat`], [`SpaceError::NewerFormat`], a failure of the disk.
    pub fn read(data: &dyn DiskFile) -> Result<Option<FileHeader>, SpaceError> {
        file_header::read(data)
    }
}

/// The pages of one data file.
pub struct Space {
    engine: Arc<Engine>,
    data: Arc<dyn DiskFile>,
    page_bytes: usize,
    words: Handle<[AtomicU64]>,
    /// Held while the file grows or shrinks, and while a map is made. A disk without `fallocate` takes space by writing
    /// zeros behind the length it saw. Two at once would write zeros over each other's pages. Taken with no other latch
    /// held; a map may be latched under it.
    growth: Handle<Latch>,
}

impl Space {
    /// How often somebody has begun to free a structure page by page, of all processes. For those who free, and who
    /// note something of structures that may be gone since.
    #[must_use]
    pub fn taken_apart(&self) -> &AtomicU64 {
        &self.words[TAKEN_APART]
    }

    /// Makes the file header and the first map of a new data file, in a transaction of its own.
    ///
    /// # Errors
    /// There is no space, or the log or a page cannot be written.
    pub fn format(
        engine: &Arc<Engine>,
        data: Arc<dyn DiskFile>,
        environment: [u8; 16],
    ) -> Result<Arc<Space>, SpaceError> {
        let space = Space::new(engine, data)?;
        space.grow(8, space.page_count(), u64::MAX)?;
        let mut txn = engine.begin()?;
        txn.claim(1024)?;
        let mut header = engine.cache.exclusive_new(PageId(0))?;
        let args = file_header::args(environment, sync::unix_time_ns());
        txn.group(&mut [&mut header], &[Part { page: 0, op: OP_FILE_HEADER_FORMAT, args: &args }])?;
        drop(header);
        txn.claim(1024)?;
        let mut map = engine.cache.exclusive_new(PageId(1))?;
        txn.group(&mut [&mut map], &[Part { page: 0, op: OP_SPACE_FORMAT, args: &0u64.to_le_bytes() }])?;
        drop(map);
        txn.commit(Durability::Volatile)?;
        Ok(Arc::new(space))
    }

    /// Opens the space of a data file whose log has been redone.
    ///
    /// # Errors
    /// The file header is missing, damaged or another environment's.
    pub fn open(
        engine: &Arc<Engine>,
        data: Arc<dyn DiskFile>,
        environment: [u8; 16],
    ) -> Result<Arc<Space>, SpaceError> {
        let space = Space::new(engine, data)?;
        let header = engine.cache.shared(PageId(0))?;
        file_header::refuse_other_format(&*space.data, header.words())?;
        file_header::check(header.words(), Some(environment)).map_err(SpaceError::Header)?;
        drop(header);
        space.cover_pages_in_use()?;
        Ok(Arc::new(space))
    }

    /// The space of an engine in a region that another process has made, when that one has opened it.
    ///
    /// # Errors
    /// As [`Region::place`].
    pub fn join(engine: &Arc<Engine>, data: Arc<dyn DiskFile>) -> Result<Arc<Space>, SpaceError> {
        Space::new(engine, data).map(Arc::new)
    }

    /// A crash can take the file's last growth while redo brings back pages that lay there: makes it long enough again.
    fn cover_pages_in_use(&self) -> Result<(), SpaceError> {
        let bits = bits_of(self.page_bytes);
        let mut needed = 0;
        for no in 0.. {
            match self.engine.cache.shared(map_of(PageId(no * bits), self.page_bytes)) {
                Ok(map) => {
                    SpaceMapLayout.check(map.words()).map_err(SpaceError::Map)?;
                    // A map's own bit is set, so there is always a last one.
                    needed = map::last_set(map.words(), bits).map_or(needed, |bit| no * bits + bit + 1);
                }
                // The first map is as old as the file header: without it, pages in use would be given out again.
                Err(error) if error.is_never_written() && no > 0 => break,
                // The page table may end before the next map would begin. If the file has that map, it is too small.
                Err(BufferError::PageOutOfRange { .. }) if no * bits >= self.page_count() => break,
                Err(error) => return Err(error.into()),
            }
        }
        let page_count = self.page_count();
        if needed > page_count {
            self.grow(u32::try_from(needed - page_count).unwrap_or(u32::MAX), page_count, u64::MAX)?;
        }
        Ok(())
    }

    fn new(engine: &Arc<Engine>, data: Arc<dyn DiskFile>) -> Result<Space, SpaceError> {
        let page_bytes = engine.cache.page_bytes();
        let region = &engine.region;
        let (words, growth) = places(region).map_err(|error| SpaceError::Buffer(error.into()))?;
        let page_count = data.len().map_err(SpaceError::Disk)? / page_bytes as u64;
        if region.is_made_here() {
            words[PAGE_COUNT].store(page_count, Relaxed);
            words[HINT].store(ROOT_PAGES, Relaxed);
            words[LOW].store(ROOT_PAGES, Relaxed);
        }
        Ok(Space { engine: Arc::clone(engine), data, page_bytes, words, growth })
    }

    /// Pages that the data file has room for.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.words[PAGE_COUNT].load(Relaxed)
    }

    /// Those of them that can be latched. The file may be longer than that: it may have been made with another setting.
    fn usable_count(&self) -> u64 {
        self.page_count().min(self.engine.cache.max_pages())
    }

    /// Finds `count` free pages in a row, growing the file if there are none, and latches the map that covers them.
    ///
    /// The caller makes a group that marks the pages ([`FreeRun::args_set`] with [`OP_SPACE_SET`]) and uses them. Claim
    /// log space before the call, and hold no latch: maps come before all other pages in the latch order.
    ///
    /// # Errors
    /// [`SpaceError::NoSpace`], or there are as many pages as there may be: with nothing changed. A map cannot be read.
    pub fn latch_free(&self, count: u32) -> Result<FreeRun<'_>, SpaceError> {
        let bits = bits_of(self.page_bytes);
        let max = u32::try_from(bits / 2).unwrap_or(u32::MAX);
        if count == 0 || count > max {
            return Err(SpaceError::BadCount { count, max });
        }
        loop {
            let page_count = self.page_count();
            if let Some(run) = self.latch_free_now(count)? {
                return Ok(run);
            }
            self.grow(count, page_count, self.engine.cache.max_pages())?;
            // From the last map's beginning on: free pages at the old end are the first of the run, wherever the end
            // was.
            self.words[HINT].store(page_count - page_count % bits, Relaxed);
        }
    }

    /// As [`Space::latch_free`], but the file does not grow.
    fn latch_free_now(&self, count: u32) -> Result<Option<FreeRun<'_>>, SpaceError> {
        let bits = bits_of(self.page_bytes);
        let page_count = self.usable_count();
        let map_count = page_count.div_ceil(bits);
        let hint = PageId(self.words[HINT].load(Relaxed).min(page_count.saturating_sub(1)));
        let first_map = hint.0 / bits;
        for step in 0..=map_count {
            let no = (first_map + step) % map_count;
            // The map of the hint is searched from the hint on first, and from its beginning last.
            let from = if step == 0 { bit_of(hint, self.page_bytes) } else { 0 };
            let from = if no == 0 { from.max(ROOT_PAGES as u32) } else { from };
            if let Some(run) = self.find_in(no, from, count, u64::MAX)? {
                self.words[HINT].store(run.first.0 + u64::from(count), Relaxed);
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// The lowest `count` free pages in a row below `limit`, if there are any. The file does not grow. Otherwise as
    /// [`Space::latch_free`].
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn latch_free_below(&self, count: u32, limit: PageId) -> Result<Option<FreeRun<'_>>, SpaceError> {
        let bits = bits_of(self.page_bytes);
        let low = PageId(self.words[LOW].load(Relaxed).max(ROOT_PAGES));
        let first_map = low.0 / bits;
        for no in first_map..limit.0.min(self.usable_count()).div_ceil(bits) {
            let from = if no == first_map { bit_of(low, self.page_bytes) } else { 0 };
            if let Some(run) = self.find_in(no, from, count, limit.0)? {
                if count == 1 {
                    // A thread that frees a lower page says so; one that was missed is found by those that do not ask
                    // for the lowest.
                    self.words[LOW].store(run.first.0 + 1, Relaxed);
                }
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// As [`Space::latch_free`], for one page of a root, which can never be moved. It is one of the first pages of the
    /// file, or else the lowest free one. So roots do not keep the file from becoming shorter.
    ///
    /// # Errors
    /// As there.
    pub fn latch_for_root(&self) -> Result<FreeRun<'_>, SpaceError> {
        if let Some(run) = self.find_in(0, 0, 1, ROOT_PAGES)? {
            return Ok(run);
        }
        match self.latch_free_below(1, PageId(self.page_count()))? {
            Some(run) => Ok(run),
            None => self.latch_free(1),
        }
    }

    /// Where the file could end if all pages that can move lay as low as they can.
    ///
    /// # Errors
    /// A map cannot be read or is damaged.
    pub fn page_count_min(&self) -> Result<u64, SpaceError> {
        let mut count = ROOT_PAGES;
        let mut first = 0;
        let bits = bits_of(self.page_bytes);
        self.for_each_map(|map, limit| {
            let skipped = ROOT_PAGES.saturating_sub(first).min(limit);
            count += map::count_set(map, limit) - map::count_set(map, skipped);
            first += bits;
        })?;
        Ok(count)
    }

    /// As [`Space::latch_free`], but takes fewer pages in a row, down to one, before the file grows.
    ///
    /// # Errors
    /// As there.
    pub fn latch_free_up_to(&self, count: u32) -> Result<FreeRun<'_>, SpaceError> {
        if let Some(run) = self.latch_up_to_now(count)? {
            return Ok(run);
        }
        match self.latch_free(count) {
            // The last growth was for fewer pages.
            Err(SpaceError::Buffer(refused @ BufferError::PageOutOfRange { .. })) => {
                self.latch_up_to_now(count)?.ok_or(SpaceError::Buffer(refused))
            }
            other => other,
        }
    }

    fn latch_up_to_now(&self, count: u32) -> Result<Option<FreeRun<'_>>, SpaceError> {
        let mut wanted = count;
        while wanted > 0 {
            if let Some(run) = self.latch_free_now(wanted)? {
                return Ok(Some(run));
            }
            wanted /= 2;
        }
        Ok(None)
    }

    /// From now on free pages are looked for from the beginning of the file.
    pub fn look_from_beginning(&self) {
        self.words[HINT].store(ROOT_PAGES, Relaxed);
        self.words[LOW].store(ROOT_PAGES, Relaxed);
    }

    /// Latches the map that covers `page` exclusively, to free the page with [`OP_SPACE_CLEAR`].
    ///
    /// # Errors
    /// The page lies outside the file, or the map cannot be read.
    pub fn latch_map_of(&self, page: PageId) -> Result<ExclusivePage<'_>, SpaceError> {
        if page.0 >= self.page_count() {
            return Err(SpaceError::Outside(page));
        }
        Ok(self.engine.cache.exclusive(map_of(page, self.page_bytes))?)
    }

    /// The arguments of [`OP_SPACE_CLEAR`] for `count` pages that `map` covers. The map is latched.
    ///
    /// # Errors
    /// One of the pages is free already: the map is out of date, or the page that refers to it is. This is found before
    /// anything is logged, because a record that cannot be applied would fail the environment, now and at each open.
    pub fn args_clear(&self, map: &ExclusivePage<'_>, first: PageId, count: u32) -> Result<[u8; 8], SpaceError> {
        let bits = bit_of(first, self.page_bytes)..bit_of(first, self.page_bytes) + count;
        let is_free = |bit: &u32| u64::from(*bit) >= bits_of(self.page_bytes) || !map::is_set(map.words(), *bit);
        if let Some(bit) = bits.clone().find(is_free) {
            let page = first.0 + u64::from(bit - bits.start);
            let corrupt = Corrupt::new("page to be freed is free already", page, 1, 0);
            return Err(SpaceError::Map(corrupt.on(map.id())));
        }
        self.words[LOW].fetch_min(first.0, Relaxed);
        Ok(ops::mark_args(bits.start, count))
    }

    /// True if `page` is in use.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn is_allocated(&self, page: PageId) -> Result<bool, SpaceError> {
        if page.0 >= self.page_count() {
            return Ok(false);
        }
        let map = self.engine.cache.shared(map_of(page, self.page_bytes))?;
        Ok(map::is_set(map.words(), bit_of(page, self.page_bytes)))
    }

    /// How many pages are in use.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn allocated_count(&self) -> Result<u64, SpaceError> {
        let mut count = 0;
        self.for_each_map(|map, limit| count += map::count_set(map, limit))?;
        Ok(count)
    }

    /// All pages in use, in order.
    ///
    /// # Errors
    /// A map cannot be read or is damaged.
    pub fn allocated_pages(&self) -> Result<PageSet, SpaceError> {
        let mut pages = PageSet::default();
        let mut first = 0;
        let bits = bits_of(self.page_bytes);
        self.for_each_map(|map, limit| {
            pages.extend((0..limit).filter(|&b| map::is_set(map, b as u32)).map(|b| PageId(first + b)));
            first += bits;
        })?;
        Ok(pages)
    }

    fn for_each_map(&self, mut f: impl FnMut(ledgerstone_region::Words<'_>, u64)) -> Result<(), SpaceError> {
        let (bits, page_count) = (bits_of(self.page_bytes), self.page_count());
        let mut first = 0;
        while first < page_count {
            match self.engine.cache.shared(map_of(PageId(first), self.page_bytes)) {
                Ok(map) => {
                    SpaceMapLayout.check(map.words()).map_err(SpaceError::Map)?;
                    f(map.words(), bits.min(page_count - first));
                }
                // The file has grown past the last map, which is made with its first page.
                Err(error) if error.is_never_written() => break,
                Err(error) => return Err(error.into()),
            }
            first += bits;
        }
        Ok(())
    }

    /// Looks for free pages below `below` under one map's latch.
    fn find_in(&self, map_no: u64, from: u32, count: u32, below: u64) -> Result<Option<FreeRun<'_>>, SpaceError> {
        let bits = bits_of(self.page_bytes);
        let first = map_no * bits;
        let map = match self.engine.cache.exclusive(map_of(PageId(first), self.page_bytes)) {
            Err(error) if error.is_never_written() => match self.make_map(first)? {
                Some(map) => map,
                None => return Ok(None),
            },
            other => other?,
        };
        let layout = header::layout(map.words());
        if layout != LAYOUT_SPACE_MAP {
            let (expected, found) = (u64::from(LAYOUT_SPACE_MAP.0), u64::from(layout.0));
            return Err(SpaceError::Map(Corrupt::new("layout", header::LAYOUT as u64, expected, found).on(map.id())));
        }
        // The count of pages is looked at under the map's latch: that is how `shrink.rs` tells that they are fewer.
        let end = self.usable_count().min(below);
        let limit = u32::try_from(bits.min(end.saturating_sub(first))).unwrap_or(u32::MAX);
        let found = map::find_clear(map.words(), from, limit, count);
        Ok(found.map(|bit| FreeRun { map, first: PageId(first + u64::from(bit)), count }))
    }

    /// Makes the map of the pages from `first` on, if the file has them. Nothing refers to it yet, so it belongs to no
    /// transaction.
    fn make_map(&self, first: u64) -> Result<Option<ExclusivePage<'_>>, SpaceError> {
        let claim = self.engine.log.claim_upkeep(256).map_err(TxnError::from)?;
        if let Err(error) = self.latch_growth() {
            self.engine.log.give_back(claim);
            return Err(error);
        }
        let made = self.make_map_latched(first, claim);
        self.growth.unlatch_exclusive();
        made
    }

    /// The file neither grows nor shrinks meanwhile: no map is made behind its end.
    fn make_map_latched(&self, first: u64, claim: Claim) -> Result<Option<ExclusivePage<'_>>, SpaceError> {
        if first >= self.page_count() {
            self.engine.log.give_back(claim);
            return Ok(None);
        }
        let mut map = match self.engine.cache.exclusive_new(map_of(PageId(first), self.page_bytes)) {
            Ok(map) => map,
            Err(error) => {
                self.engine.log.give_back(claim);
                return Err(error.into());
            }
        };
        if header::layout(map.words()) == LAYOUT_SPACE_MAP {
            self.engine.log.give_back(claim); // Somebody was faster.
            return Ok(Some(map));
        }
        let parts = [Part { page: 0, op: OP_SPACE_FORMAT, args: &first.to_le_bytes() }];
        self.engine.group_alone(claim, &mut [&mut map], &parts)?;
        Ok(Some(map))
    }

    /// Gives up after [`ledgerstone_region::LATCH_TIMEOUT_NS`] (Q3 in `repair.rs`).
    fn latch_growth(&self) -> Result<(), SpaceError> {
        self.growth
            .exclusive(self.engine.slots.current())
            .map_err(|timeout| BufferError::LatchTimeout { page: PageId::NONE, timeout })?;
        Ok(())
    }

    /// Makes the file longer, by at least `count` pages but to no more than `most`, unless it has more than `seen`
    /// pages meanwhile. Not logged: the length is found again, and what redo writes makes it longer by itself.
    fn grow(&self, count: u32, seen: u64, most: u64) -> Result<(), SpaceError> {
        self.latch_growth()?;
        let done = if self.page_count() == seen { self.grow_latched(count, seen, most) } else { Ok(()) };
        self.growth.unlatch_exclusive();
        done
    }

    fn grow_latched(&self, count: u32, page_count: u64, most: u64) -> Result<(), SpaceError> {
        if page_count >= most {
            return Err(BufferError::PageOutOfRange { page: PageId(page_count), max_pages: most }.into());
        }
        let bytes = page_count * self.page_bytes as u64;
        let step = (bytes / 16).clamp(GROW_BYTES_MIN, GROW_BYTES_MAX);
        let wanted = (u64::from(count) + 2 + ROOT_PAGES.saturating_sub(page_count)) * self.page_bytes as u64;
        let left = (most - page_count).saturating_mul(self.page_bytes as u64);
        let step = step.max(wanted).next_multiple_of(self.page_bytes as u64).min(left);
        let grown = self.data.allocate(bytes, step);
        if let Err(source) = grown {
            return Err(match source.is_no_space() {
                true => SpaceError::NoSpace { count, source },
                false => {
                    self.engine.fail(&format!("growing the data file: {source}"));
                    SpaceError::Disk(source)
                }
            });
        }
        self.words[PAGE_COUNT].store(page_count + step / self.page_bytes as u64, Relaxed);
        Ok(())
    }
}

/// What a space has in its region.
fn places(region: &Region) -> Result<(Handle<[AtomicU64]>, Handle<Latch>), RegionError> {
    Ok((region.place("space.words", 8, 64)?, region.place_one("space.growth", 64)?))
}

impl From<SpaceError> for TxnError {
    fn from(error: SpaceError) -> TxnError {
        match error {
            SpaceError::Txn(error) => error,
            SpaceError::Buffer(error) => error.into(),
            other => TxnError::Structure { structure: "space", what: other.to_string() },
        }
    }
}
