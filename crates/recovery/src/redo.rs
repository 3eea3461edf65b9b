//! Redo: history repeated, page by page, by several workers.
//!
//! A page's records are redone in LSN order by one worker; pages are dealt out by their id. The analysis fills the
//! first window of each worker, so a log whose changes have room there is read once. What is behind that, every worker
//! reads for itself and picks its pages. So workers share nothing but the cache: no queues, and no hand-over.
//!
//! ```text
//! log ─► window: the changes of this worker's pages, until its memory is full
//!     ─► sorted by page, then LSN ─► pages come in, neighbours by one read, and get all of their changes at once
//! ```
//! E1. A record is applied to a page if the page's LSN is below the record's. All parts of a group that touch a page
//!     are applied together or not at all.
//! E2. Redo of a page reads only that page; an operation that formats it does not even read it from disk. So the order
//!     in which pages take their turns does not matter. A page that is damaged may be torn by a write that had no copy
//!     in the double-write area: then a later record formats it. So its records are passed over up to that one, and the
//!     damage is an error only if there is none.
//! E3. `rec_lsn` of a page redone is its record's own LSN: the checkpoint that ends recovery then keeps what is needed.
//! E4. A record that a later truncation of the data file has made void for a page is passed over (N3 in `analysis.rs`).
//! E5. A page is visited once a window, in the order of the ids. In the order of the log, a page of a file that is
//!     larger than the cache would be read and written again for nearly every record.
//! E6. A record goes on from the LSN that the page had before. A page at home with a smaller LSN is an older version
//!     of itself, and lacks changes that are not in the log that is read. Redo refuses it, since nothing would make it
//!     whole.
//! E7. Pages are asked for ahead of their turn, if the cache has threads that read. A worker that comes to a page which
//!     is not there reads it, and what follows it, for itself.

use std::sync::Arc;

use ledgerstone_buffer::{BufferError, Cache};
use ledgerstone_log::{LogScan, RecordKind, RecordView, Watch};
use ledgerstone_op::{Operation, PageMut, Registry};
use ledgerstone_page::{Lsn, OpId, PageId, planted};
use ledgerstone_region::{ByNumber, sync};
use ledgerstone_txn::Engine;

use crate::{Analysis, RecoveryError};

/// What redo did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redone {
    /// Page updates applied.
    pub applied_count: u64,
    /// Page updates that the pages already had.
    pub skipped_count: u64,
}

/// The changes that the analysis meets, for the workers of redo: their first windows.
pub struct Gathered {
    /// One for each worker.
    windows: Vec<Window>,
    /// Of each window.
    bytes_max: usize,
    /// The first record that had no room.
    until: Option<Lsn>,
}

impl Gathered {
    /// For `worker_count` workers beside a cache of so many bytes. Takes memory as changes come.
    #[must_use]
    pub fn beside(cache_bytes: u64, worker_count: u64) -> Gathered {
        let part = usize::try_from(cache_bytes / CACHE_PART).unwrap_or(usize::MAX);
        Gathered::of(part.clamp(WINDOWS_BYTES, WINDOWS_BYTES_MAX), worker_count)
    }

    /// For so many workers, which have so many bytes together.
    #[must_use]
    pub fn of(bytes_max: usize, worker_count: u64) -> Gathered {
        planted::begin_windows();
        let worker_count = worker_count.max(1) as usize;
        let windows = (0..worker_count).map(|_| Window::default()).collect();
        Gathered { windows, bytes_max: bytes_max / worker_count, until: None }
    }

    /// Puts what the record did into the windows, if there is room.
    #[inline]
    pub(crate) fn take(&mut self, record: RecordView<'_>) -> Result<(), RecoveryError> {
        if self.until.is_some() {
            return Ok(());
        }
        let is_full = |window: &Window| window.is_full(self.bytes_max);
        if self.windows.iter().any(is_full) {
            self.until = Some(record.lsn());
            return Ok(());
        }
        let count = self.windows.len() as u64;
        each_change(record, |page, wants, op, args| {
            self.windows[worker_of(page, count)].push(page, record.lsn(), wants, op, args);
        })
    }
}

impl std::fmt::Debug for Gathered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.windows.iter().map(Window::bytes).sum::<usize>();
        f.debug_struct("Gathered").field("bytes", &bytes).field("until", &self.until).finish_non_exhaustive()
    }
}

/// Repeats history up to the end that the analysis found, with the workers that it has gathered for. For each worker,
/// `scan` makes a reader from an LSN on, with the incarnation in force there, if not all was gathered. If the analysis
/// found truncations, the data file has at most [`Analysis::page_count_max`] pages when this is called. Tells `watch`
/// how far it has come, and ends when that is stopped.
///
/// # Errors
/// The log or a page cannot be read. An operation is unknown, or refuses because page and log contradict each other. It
/// was stopped.
pub fn redo(
    engine: &Arc<Engine>,
    found: &Arc<Analysis>,
    gathered: Gathered,
    watch: &Arc<Watch>,
    scan: impl Fn(Lsn, u64) -> Result<LogScan, RecoveryError>,
) -> Result<Redone, RecoveryError> {
    let Gathered { windows, bytes_max, until } = gathered;
    let count = windows.len() as u64;
    // The analysis has seen records up to the end. So what is none now was misread, and is an error below the limit.
    let scan_rest = |_: &Window| {
        let mut rest = until.map(|until| scan(until, found.incarnation_at(until))).transpose()?;
        rest.iter_mut().for_each(|rest| rest.set_limit(found.end));
        Ok::<_, RecoveryError>(rest)
    };
    // All of them before a worker begins: none may outlive recovery.
    let rests = windows.iter().map(scan_rest).collect::<Result<Vec<_>, _>>()?;
    let mut others = Vec::new();
    let mut first = None;
    for ((no, window), rest) in (0..).zip(windows).zip(rests) {
        let (engine, found, watch) = (Arc::clone(engine), Arc::clone(found), Arc::clone(watch));
        let work = move || Worker::new(&engine, &found, &watch, (no, count)).run(window, until, bytes_max, rest);
        match no {
            0 => first = Some(work),
            _ => others.push(sync::spawn("redo", work)),
        }
    }
    let first = first.map_or(Ok(Redone::default()), |work| work());
    // And all are joined before any error is returned.
    let panicked = || Err(RecoveryError::WorkerPanicked("worker of redo"));
    let others: Vec<_> = others.into_iter().map(|w| w.join().unwrap_or_else(|_| panicked())).collect();
    let mut all = Redone::default();
    let mut failed = None;
    for done in [first].into_iter().chain(others) {
        match done {
            Ok(done) => {
                all.applied_count += done.applied_count;
                all.skipped_count += done.skipped_count;
            }
            // The engine has failed because of another worker, which says why.
            Err(error @ RecoveryError::Buffer(BufferError::Failed)) => failed = failed.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(all), Err)
}

/// Neighbours go to one worker in runs of so many pages, so that each reads and writes sequentially: a power of two.
const RUN_PAGES: u64 = 64;
/// Memory of the windows of all workers, at least.
const WINDOWS_BYTES: usize = 32 << 20;
/// And at most: beside a large cache, they take such a part of it.
const WINDOWS_BYTES_MAX: usize = 256 << 20;
const CACHE_PART: u64 = 8;
/// Pages that a worker asks for ahead (E7).
const AHEAD_PAGES: usize = 512;
/// All workers together have no larger part of the cache filled ahead.
const AHEAD_PART: usize = 16;

/// The worker that a page belongs to.
fn worker_of(page: PageId, worker_count: u64) -> usize {
    (page.0 / RUN_PAGES % worker_count) as usize
}

/// Shows each change of a page that the record made: page, the LSN that it had before, operation, arguments.
#[inline]
fn each_change(record: RecordView<'_>, mut see: impl FnMut(PageId, Lsn, OpId, &[u8])) -> Result<(), RecoveryError> {
    match record.kind() {
        RecordKind::Update | RecordKind::Compensation => {
            see(record.page(), record.prev_page_lsn(), record.op(), record.args());
        }
        RecordKind::Group => {
            for part in record.parts() {
                let part = part.map_err(|source| RecoveryError::Record { lsn: record.lsn(), source })?;
                see(part.page, part.prev_page_lsn, part.op, part.args);
            }
        }
        _ => {}
    }
    Ok(())
}

/// One change of one page, its arguments in the window's bytes.
struct Change {
    page: PageId,
    lsn: Lsn,
    /// The LSN that the page had before.
    wants: Lsn,
    /// Where its arguments begin: rises with the log, so that it orders the parts of a group, too.
    at: u32,
    len: u32,
    op: OpId,
}

/// A piece of history.
#[derive(Default)]
struct Window {
    changes: Vec<Change>,
    args: Vec<u8>,
}

impl Window {
    fn push(&mut self, page: PageId, lsn: Lsn, wants: Lsn, op: OpId, args: &[u8]) {
        let (at, len) = (self.args.len() as u32, args.len() as u32);
        self.args.extend_from_slice(args);
        self.changes.push(Change { page, lsn, wants, at, len, op });
    }

    fn bytes(&self) -> usize {
        self.args.len() + self.changes.len() * size_of::<Change>()
    }

    fn is_full(&self, bytes_max: usize) -> bool {
        self.bytes() >= bytes_max || planted::fills_window(self.changes.len())
    }

    fn args_of(&self, change: &Change) -> &[u8] {
        &self.args[change.at as usize..][..change.len as usize]
    }
}

struct Worker<'e> {
    engine: &'e Arc<Engine>,
    found: &'e Analysis,
    watch: &'e Watch,
    no: u64,
    worker_count: u64,
    window: Window,
    done: Redone,
    /// Pages that could not be read, and that no record has formatted since (E2).
    unread: ByNumber<PageId, BufferError>,
}

impl<'e> Worker<'e> {
    fn new(
        engine: &'e Arc<Engine>,
        found: &'e Analysis,
        watch: &'e Watch,
        (no, worker_count): (u64, u64),
    ) -> Worker<'e> {
        let (window, done, unread) = (Window::default(), Redone::default(), ByNumber::new());
        Worker { engine, found, watch, no, worker_count, window, done, unread }
    }

    /// Redoes what was gathered up to `until`, and then what `rest` reads.
    fn run(
        mut self,
        window: Window,
        until: Option<Lsn>,
        bytes_max: usize,
        rest: Option<LogScan>,
    ) -> Result<Redone, RecoveryError> {
        self.window = window;
        self.redo_window(until.unwrap_or(self.found.end))?;
        let Some(mut scan) = rest else { return self.end() };
        while let Some(record) = scan.next_view()? {
            let (window, no, count) = (&mut self.window, self.no as usize, self.worker_count);
            each_change(record, |page, wants, op, args| {
                if worker_of(page, count) == no {
                    window.push(page, record.lsn(), wants, op, args);
                }
            })?;
            if self.window.is_full(bytes_max) {
                let end = scan.end();
                self.redo_window(end)?;
            }
        }
        self.redo_window(self.found.end)?;
        self.end()
    }

    fn end(self) -> Result<Redone, RecoveryError> {
        match self.unread.into_iter().next() {
            Some((_, damaged)) => Err(damaged.into()),
            None => Ok(self.done),
        }
    }

    /// Redoes the changes in the window, which end before `end` (E5).
    fn redo_window(&mut self, end: Lsn) -> Result<(), RecoveryError> {
        let mut window = std::mem::take(&mut self.window);
        let found = self.found;
        if !found.truncations.is_empty() {
            let before = window.changes.len();
            window.changes.retain(|change| !found.is_over(change.lsn, change.page)); // E4
            self.done.skipped_count += (before - window.changes.len()) as u64;
        }
        window.changes.sort_unstable_by_key(|change| (change.page, change.lsn, change.at));
        let began = found.redo_from.0.0.min(end.0);
        let mut soon = Soon::of(&window.changes, &self.engine.cache, self.worker_count);
        let mut ahead = self.engine.cache.read_wanted();
        let mut came_to = PageId(0); // Pages below have been read in.
        let mut left = &window.changes[..];
        while let Some(first) = left.first() {
            if first.page >= came_to {
                let part = (window.changes.len() - left.len()) as f64 / window.changes.len() as f64;
                self.watch.check()?;
                if self.no == 0 {
                    self.watch.set(Lsn(began + ((end.0 - began) as f64 * part) as u64));
                }
                soon.ask(&self.engine.cache, first.page);
                let count = run_length(left, ahead.pages_max());
                ahead.run(first.page, count);
                came_to = PageId(first.page.0 + count.max(1));
            }
            // E1: parts of one group have one LSN.
            let count = left.iter().take_while(|c| (c.page, c.lsn) == (first.page, first.lsn)).count();
            let (parts, rest) = left.split_at(count);
            self.redo_parts(&window, parts)?;
            left = rest;
        }
        window.changes.clear();
        window.args.clear();
        self.window = window;
        Ok(())
    }

    /// Applies what one record does to one page.
    fn redo_parts(&mut self, window: &Window, parts: &[Change]) -> Result<(), RecoveryError> {
        let Some(&Change { page: id, lsn, wants, op, .. }) = parts.first() else { return Ok(()) };
        let ops = &self.engine.ops;
        let formats = operation(ops, lsn, op)?.formats();
        // E2
        let cache = &self.engine.cache;
        let mut page = match formats {
            true => {
                self.unread.remove(id);
                cache.exclusive_new(id)?
            }
            false => match cache.exclusive_or_new(id) {
                Err(damaged @ BufferError::Damaged { .. }) => {
                    if self.unread.get(id).is_none() {
                        self.unread.insert(id, damaged);
                    }
                    self.done.skipped_count += parts.len() as u64;
                    return Ok(());
                }
                read => read?.0,
            },
        };
        if page.page_lsn() >= lsn {
            self.done.skipped_count += parts.len() as u64; // E1
            return Ok(());
        }
        if page.page_lsn() < wants && !formats {
            return Err(RecoveryError::OldPage { page: id, has: page.page_lsn(), lsn, wants }); // E6
        }
        page.begin_change_with(lsn, formats); // E3
        for part in parts {
            let redone = operation(ops, lsn, part.op).and_then(|operation| {
                let redone = operation.redo(&mut PageMut::new(id, page.page_mut()), window.args_of(part));
                redone.map_err(|source| RecoveryError::Redo { lsn, page: id, source })
            });
            if let Err(error) = redone {
                self.engine.fail(&error.to_string()); // E1: what is half changed must not go home.
                return Err(error);
            }
        }
        page.finish_change(lsn);
        self.done.applied_count += parts.len() as u64;
        Ok(())
    }
}

/// The pages of a window that others may read ahead (E7).
struct Soon {
    /// Those that are to be read, by their ids.
    pages: Vec<PageId>,
    asked_count: usize,
    ahead_max: usize,
}

impl Soon {
    fn of(changes: &[Change], cache: &Cache, worker_count: u64) -> Soon {
        let ahead_max = AHEAD_PAGES.min(cache.frame_count() as usize / AHEAD_PART / worker_count as usize);
        let mut pages = Vec::new();
        if cache.reads_ahead() && ahead_max > 0 {
            let firsts = changes.chunk_by(|a, b| a.page == b.page).filter_map(<[Change]>::first);
            pages.extend(firsts.filter(|first| first.wants != Lsn(0)).map(|first| first.page));
        }
        Soon { pages, asked_count: 0, ahead_max }
    }

    /// It is the turn of `page`.
    fn ask(&mut self, cache: &Arc<Cache>, page: PageId) {
        let asked = &self.pages[..self.asked_count];
        let passed_count = asked.partition_point(|asked| *asked < page);
        if self.asked_count < self.pages.len() && self.asked_count - passed_count <= self.ahead_max / 2 {
            let to = self.pages.len().min(passed_count + self.ahead_max);
            cache.read_soon(&self.pages[self.asked_count..to]);
            self.asked_count = to;
        }
    }
}

/// How many neighbours from the first page on have changes that need to read them: none or one if that is all.
fn run_length(changes: &[Change], pages_max: u64) -> u64 {
    let Some(first) = changes.first() else { return 0 };
    let mut count = 0;
    let mut last = None;
    for change in changes {
        if last == Some(change.page) {
            continue;
        }
        // A page that had no LSN before is made by its change.
        if count == pages_max || change.page.0 != first.page.0 + count || change.wants == Lsn(0) {
            break;
        }
        last = Some(change.page);
        count += 1;
    }
    count
}

fn operation(ops: &Registry, lsn: Lsn, op: OpId) -> Result<&dyn Operation, RecoveryError> {
    ops.get(op).map_err(|source| RecoveryError::UnknownOperation { lsn, source })
}
