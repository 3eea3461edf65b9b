//! What the log says of pages, gathered so that each page gets all of its changes at once.
//!
//! ```text
//! log ─► changes, one behind the other, each with the number of the one before it on the same page
//! page ─► its newest change: 64 neighbours are a run, 512 runs a part
//! ```
//! The changes of a page are a chain, so nothing is sorted. Pages come in the order of their ids by themselves, and the
//! changes of one page in the order of the log. A page that is wanted at once is found at once.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use ledgerstone_buffer::{BufferError, ExclusivePage, NeedsOld};
use ledgerstone_log::{RecordKind, RecordView};
use ledgerstone_op::{Operation, PageMut, Registry};
use ledgerstone_page::{Lsn, OpId, PageId, planted};

use crate::RecoveryError;
use crate::redo::Redone;

/// Neighbours go to one worker in runs of so many pages, so that each reads and writes sequentially.
const RUN_PAGES: usize = 64;
/// Runs of a part.
const PART_RUNS: usize = 512;
/// Memory of the changes that are gathered at a time, at least.
const BYTES: usize = 32 << 20;
/// And at most: beside a large cache, they take such a part of it.
const BYTES_MAX: usize = 256 << 20;
const CACHE_PART: u64 = 8;

/// The changes that the analysis meets, for redo.
pub struct Gathered {
    pub(crate) window: Window,
    pub(crate) worker_count: u64,
    /// Of all workers.
    pub(crate) bytes_max: usize,
    /// The first record that had no room.
    pub(crate) until: Option<Lsn>,
}

impl Gathered {
    /// For `worker_count` workers beside a cache of so many bytes. Takes memory as changes come.
    #[must_use]
    pub fn beside(cache_bytes: u64, worker_count: u64) -> Gathered {
        let part = usize::try_from(cache_bytes / CACHE_PART).unwrap_or(usize::MAX);
        Gathered::of(part.clamp(BYTES, BYTES_MAX), worker_count)
    }

    /// For so many workers, which have so many bytes together.
    #[must_use]
    pub fn of(bytes_max: usize, worker_count: u64) -> Gathered {
        planted::begin_windows();
        Gathered { window: Window::default(), worker_count: worker_count.max(1), bytes_max, until: None }
    }

    /// Whether everything has had room.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.until.is_none()
    }

    /// True if the log changed no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_whole() && self.window.changes.is_empty()
    }

    /// Puts what the record did into the window, if there is room.
    #[inline]
    pub(crate) fn take(&mut self, record: RecordView<'_>) -> Result<(), RecoveryError> {
        if self.until.is_some() {
            return Ok(());
        }
        if self.window.is_full(self.bytes_max) {
            self.until = Some(record.lsn());
            return Ok(());
        }
        each_change(record, |page, wants, op, args| self.window.push(page, record.lsn(), wants, op, args))
    }
}

impl std::fmt::Debug for Gathered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.window.bytes();
        f.debug_struct("Gathered").field("bytes", &bytes).field("until", &self.until).finish_non_exhaustive()
    }
}

/// Shows each change of a page that the record made: page, the LSN that it had before, operation, arguments.
#[inline]
pub(crate) fn each_change(
    record: RecordView<'_>,
    mut see: impl FnMut(PageId, Lsn, OpId, &[u8]),
) -> Result<(), RecoveryError> {
    match record.kind() {
        RecordKind::Update | RecordKind::Compensation => {
            check_page(record.page())?;
            see(record.page(), record.prev_page_lsn(), record.op(), record.args());
        }
        RecordKind::Group => {
            for part in record.parts() {
                let part = part.map_err(|source| RecoveryError::Record { lsn: record.lsn(), source })?;
                check_page(part.page)?;
                see(part.page, part.prev_page_lsn, part.op, part.args);
            }
        }
        _ => {}
    }
    Ok(())
}

/// No setting allows more pages (`page_count_max`). The table of runs takes memory for all that may be before one.
const PAGES_MAX: u64 = 1 << 40;

fn check_page(page: PageId) -> Result<(), RecoveryError> {
    if page.0 < PAGES_MAX { Ok(()) } else { Err(BufferError::PageOutOfRange { page, max_pages: PAGES_MAX }.into()) }
}

/// The worker that a page belongs to.
pub(crate) fn worker_of(page: PageId, worker_count: u64) -> u64 {
    page.0 / RUN_PAGES as u64 % worker_count
}

/// One change of one page, its arguments in the window's bytes.
struct Change {
    lsn: Lsn,
    /// The LSN that the page had before.
    wants: Lsn,
    /// The change of this page before it, its number plus one; 0: none.
    before: u32,
    at: u32,
    len: u32,
    op: OpId,
}

/// A piece of history.
#[derive(Default)]
pub(crate) struct Window {
    changes: Vec<Change>,
    args: Vec<u8>,
    newest: Newest,
    ops: Ops,
}

/// A bit for each operation that there is among the changes.
struct Ops(Box<[u64; 1 << 10]>);

impl Default for Ops {
    fn default() -> Ops {
        Ops(Box::new([0; 1 << 10]))
    }
}

impl Window {
    #[inline]
    pub fn push(&mut self, page: PageId, lsn: Lsn, wants: Lsn, op: OpId, args: &[u8]) {
        let (at, len) = (self.args.len() as u32, args.len() as u32);
        self.args.extend_from_slice(args);
        self.ops.0[usize::from(op.0 / 64)] |= 1 << (op.0 % 64);
        let newest = self.newest.get_mut(page);
        let before = *newest & !IS_MADE;
        // A page that had no LSN before is made by its change.
        let is_made = if before == 0 && wants == Lsn(0) { IS_MADE } else { *newest & IS_MADE };
        *newest = (self.changes.len() as u32 + 1) | is_made;
        self.changes.push(Change { lsn, wants, before, at, len, op });
    }

    /// How many changes it has.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn bytes(&self) -> usize {
        self.args.len() + self.changes.len() * size_of::<Change>() + self.newest.bytes
    }

    pub fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes() >= bytes_max || planted::fills_window(self.changes.len())
    }

    /// Forgets all of them, and keeps the memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.args.clear();
        self.ops.0.fill(0);
        self.newest = Newest::default();
    }

    /// The pages of a worker that have changes left, in the order of their ids, and whether they have to be read.
    pub fn pages(&self, no: u64, worker_count: u64) -> impl Iterator<Item = (PageId, bool)> {
        let of_worker = move |(first, _): &(u64, &Run)| worker_of(PageId(*first), worker_count) == no;
        self.newest.runs().filter(of_worker).flat_map(|(first, run)| {
            let pages = (first..).zip(run.iter().map(|newest| newest.load(Acquire)));
            pages.filter(|&(_, newest)| newest != 0).map(|(page, newest)| (PageId(page), newest & IS_MADE == 0))
        })
    }

    /// The last page that has changes.
    pub fn last_page(&self) -> Option<PageId> {
        let (first, run) = self.newest.runs().last()?;
        let at = run.iter().rposition(|newest| newest.load(Acquire) != 0)?;
        Some(PageId(first + at as u64))
    }

    /// Whether a page has changes left. Certain for who has latched the page exclusively.
    pub fn has(&self, page: PageId) -> bool {
        self.newest.get(page) != 0
    }

    /// The changes of a page, in the order of the log.
    pub fn changes_of(&self, page: PageId) -> Vec<u32> {
        let mut list = Vec::new();
        let mut no = self.newest.get(page) & !IS_MADE;
        while no != 0 {
            list.push(no - 1);
            no = self.changes[no as usize - 1].before;
        }
        list.reverse();
        list
    }

    /// Its changes are repeated.
    pub fn forget(&self, page: PageId) {
        self.newest.forget(page);
    }

    pub fn lsn_of(&self, change: u32) -> Lsn {
        self.changes[change as usize].lsn
    }

    /// What they need of the page's old bytes.
    pub fn needs_of(&self, ops: &Registry, list: &[u32]) -> Result<NeedsOld, RecoveryError> {
        Ok(match self.first_format(ops, list)? {
            Some(0) => NeedsOld::No,
            Some(_) => NeedsOld::UnlessDamaged,
            None => NeedsOld::Yes,
        })
    }

    /// The first record among them that begins with a format.
    pub fn first_format(&self, ops: &Registry, list: &[u32]) -> Result<Option<usize>, RecoveryError> {
        let mut at = 0;
        for parts in self.by_record(list) {
            if self.operation(ops, parts[0])?.formats() {
                return Ok(Some(at));
            }
            at += parts.len();
        }
        Ok(None)
    }

    /// Parts of one group have one LSN.
    fn by_record<'l>(&self, list: &'l [u32]) -> impl Iterator<Item = &'l [u32]> {
        list.chunk_by(|&a, &b| self.lsn_of(a) == self.lsn_of(b))
    }

    fn operation<'o>(&self, ops: &'o Registry, change: u32) -> Result<&'o dyn Operation, RecoveryError> {
        let Change { lsn, op, .. } = self.changes[change as usize];
        ops.get(op).map_err(|source| RecoveryError::UnknownOperation { lsn, source })
    }

    /// Whether all operations are known.
    pub fn is_known(&self, ops: &Registry) -> bool {
        let words = (0_u16..).zip(&*self.ops.0);
        words
            .flat_map(|(word, bits)| {
                (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| OpId(word * 64 + bit))
            })
            .all(|op| ops.get(op).is_ok())
    }

    /// Applies changes of a page to it, as far as it lacks them (E1, E3, E6). After an error the caller fails the
    /// engine before the page is unlatched: what is half changed must not go home.
    pub fn apply(&self, ops: &Registry, page: &mut ExclusivePage<'_>, list: &[u32]) -> Result<Redone, RecoveryError> {
        let id = page.id();
        let mut done = Redone::default();
        for parts in self.by_record(list) {
            let Change { lsn, wants, .. } = self.changes[parts[0] as usize];
            if page.page_lsn() >= lsn {
                done.skipped_count += parts.len() as u64;
                continue;
            }
            let formats = self.operation(ops, parts[0])?.formats();
            if page.page_lsn() < wants && !formats {
                return Err(RecoveryError::OldPage { page: id, has: page.page_lsn(), lsn, wants });
            }
            page.begin_change_with(lsn, formats);
            for &part in parts {
                let redone = self.operation(ops, part).and_then(|operation| {
                    let Change { at, len, .. } = self.changes[part as usize];
                    let args = &self.args[at as usize..][..len as usize];
                    let redone = operation.redo(&mut PageMut::new(id, page.page_mut()), args);
                    redone.map_err(|source| RecoveryError::Redo { lsn, page: id, source })
                });
                redone?;
            }
            page.finish_change(lsn);
            done.applied_count += parts.len() as u64;
        }
        Ok(done)
    }
}

/// The newest change of each page of a run: its number plus one; 0: the page has none, or none left. The highest bit:
/// the oldest one makes the page.
type Run = [AtomicU32; RUN_PAGES];
type Part = [Option<Box<Run>>; PART_RUNS];

const IS_MADE: u32 = 1 << 31;

#[derive(Default)]
struct Newest {
    parts: Vec<Option<Box<Part>>>,
    bytes: usize,
}

impl Newest {
    #[inline]
    fn get_mut(&mut self, page: PageId) -> &mut u32 {
        let (part, run, at) = place(page);
        if part >= self.parts.len() {
            self.parts.resize_with(part + 1, || None);
        }
        let bytes = &mut self.bytes;
        let part = self.parts[part].get_or_insert_with(|| {
            *bytes += size_of::<Part>();
            Box::new([const { None }; PART_RUNS])
        });
        let run = part[run].get_or_insert_with(|| {
            *bytes += size_of::<Run>();
            Box::new([const { AtomicU32::new(0) }; RUN_PAGES])
        });
        run[at].get_mut()
    }

    fn find(&self, page: PageId) -> Option<&AtomicU32> {
        let (part, run, at) = place(page);
        Some(&self.parts.get(part)?.as_ref()?[run].as_ref()?[at])
    }

    /// Acquire: pairs with `forget`. Workers look without the page's latch, and the last of them lets a checkpoint go
    /// on, which has to see that the page is dirty.
    fn get(&self, page: PageId) -> u32 {
        self.find(page).map_or(0, |newest| newest.load(Acquire))
    }

    fn forget(&self, page: PageId) {
        if let Some(newest) = self.find(page) {
            newest.store(0, Release); // The frame says before that it is dirty (D2).
        }
    }

    /// All runs, each with its first page.
    fn runs(&self) -> impl Iterator<Item = (u64, &Run)> {
        let parts = self.parts.iter().enumerate().filter_map(|(no, part)| Some((no, part.as_ref()?)));
        parts.flat_map(|(part, runs)| {
            let runs = runs.iter().enumerate().filter_map(|(no, run)| Some((no, &**run.as_ref()?)));
            runs.map(move |(no, run)| (((part * PART_RUNS + no) * RUN_PAGES) as u64, run))
        })
    }
}

fn place(page: PageId) -> (usize, usize, usize) {
    let (run, at) = (page.0 as usize / RUN_PAGES, page.0 as usize % RUN_PAGES);
    (run / PART_RUNS, run % PART_RUNS, at)
}
