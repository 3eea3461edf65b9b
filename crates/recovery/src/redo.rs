//! Redo: history repeated, page by page, by several workers.
//!
//! A page's records are redone in LSN order by one worker; pages are dealt out by their id. The analysis gathers what
//! there is room for (`gathered.rs`), so a log whose changes have room is read once. What is behind that, every worker
//! reads for itself and picks its pages. So workers share nothing but the cache: no queues, and no hand-over.
//!
//! ```text
//! log ─► window: the changes of pages, until its memory is full
//!     ─► page by page ─► pages come in, neighbours by one read, and get all of their changes at once
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
//! E8. Since no page waits for another (E2), a page may have its turn when somebody asks for it. If one window has all,
//!     the environment may open before its pages have had theirs (`pending.rs`).

use std::sync::Arc;

use ledgerstone_buffer::{BufferError, Cache};
use ledgerstone_log::{LogScan, Watch};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::{ByNumber, sync};
use ledgerstone_txn::Engine;

use crate::gathered::{Gathered, Window, each_change, worker_of};
use crate::{Analysis, RecoveryError};

/// What redo did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redone {
    /// Page updates applied.
    pub applied_count: u64,
    /// Page updates that the pages already had.
    pub skipped_count: u64,
}

impl Redone {
    fn add(&mut self, other: Redone) {
        self.applied_count += other.applied_count;
        self.skipped_count += other.skipped_count;
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
    let Gathered { window, worker_count: count, bytes_max, until } = gathered;
    let (first_window, bytes_max) = (Arc::new(window), bytes_max / count as usize);
    // The analysis has seen records up to the end. So what is none now was misread, and is an error below the limit.
    let scan_rest = |_| {
        let mut rest = until.map(|until| scan(until, found.incarnation_at(until))).transpose()?;
        rest.iter_mut().for_each(|rest| rest.set_limit(found.end));
        Ok::<_, RecoveryError>(rest)
    };
    // All of them before a worker begins: none may outlive recovery.
    let rests = (0..count).map(scan_rest).collect::<Result<Vec<_>, _>>()?;
    let mut others = Vec::new();
    let mut first = None;
    for (no, rest) in (0..).zip(rests) {
        let (engine, found, watch) = (Arc::clone(engine), Arc::clone(found), Arc::clone(watch));
        let window = Arc::clone(&first_window);
        let work = move || Worker::new(&engine, &found, &watch, (no, count)).run(window, until, bytes_max, rest);
        match no {
            0 => first = Some(work),
            _ => others.push(sync::spawn("redo", work)),
        }
    }
    drop(first_window);
    let first = first.map_or(Ok(Redone::default()), |work| work());
    // And all are joined before any error is returned.
    let panicked = || Err(RecoveryError::WorkerPanicked("worker of redo"));
    let others: Vec<_> = others.into_iter().map(|w| w.join().unwrap_or_else(|_| panicked())).collect();
    let mut all = Redone::default();
    let mut failed = None;
    for done in [first].into_iter().chain(others) {
        match done {
            Ok(done) => all.add(done),
            // The engine has failed because of another worker, which says why.
            Err(error @ RecoveryError::Buffer(BufferError::Failed)) => failed = failed.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(all), Err)
}

/// Pages that a worker asks for ahead (E7).
const AHEAD_PAGES: usize = 512;
/// All workers together have no larger part of the cache filled ahead.
const AHEAD_PART: usize = 16;

struct Worker<'e> {
    engine: &'e Arc<Engine>,
    found: &'e Analysis,
    watch: &'e Watch,
    no: u64,
    worker_count: u64,
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
        Worker { engine, found, watch, no, worker_count, done: Redone::default(), unread: ByNumber::new() }
    }

    /// Redoes what was gathered up to `until`, and then what `rest` reads.
    fn run(
        mut self,
        gathered: Arc<Window>,
        until: Option<Lsn>,
        bytes_max: usize,
        rest: Option<LogScan>,
    ) -> Result<Redone, RecoveryError> {
        self.redo_window(&gathered, until.unwrap_or(self.found.end))?;
        drop(gathered); // The last worker to come here gives its memory back.
        let Some(mut scan) = rest else { return self.end() };
        let mut window = Window::default();
        while let Some(record) = scan.next_view()? {
            let (no, count) = (self.no, self.worker_count);
            each_change(record, |page, wants, op, args| {
                if worker_of(page, count) == no {
                    window.push(page, record.lsn(), wants, op, args);
                }
            })?;
            if window.is_full(bytes_max) {
                self.redo_window(&window, scan.end())?;
                window.clear();
            }
        }
        self.redo_window(&window, self.found.end)?;
        self.end()
    }

    fn end(self) -> Result<Redone, RecoveryError> {
        match self.unread.into_iter().next() {
            Some((_, damaged)) => Err(damaged.into()),
            None => Ok(self.done),
        }
    }

    /// Redoes the changes in the window, which end before `end` (E5).
    fn redo_window(&mut self, window: &Window, end: Lsn) -> Result<(), RecoveryError> {
        let (engine, found, watch, no) = (self.engine, self.found, self.watch, self.no);
        let began = found.redo_from.0.0.min(end.0);
        let pages: Vec<(PageId, bool)> = window.pages(no, self.worker_count).collect();
        let see = |part: f64| {
            watch.check()?;
            if no == 0 {
                watch.set(Lsn(began + ((end.0 - began) as f64 * part) as u64));
            }
            Ok(())
        };
        in_order(&engine.cache, self.worker_count, &pages, see, |page| self.redo_page(window, page))
    }

    /// Applies what the window has of one page.
    fn redo_page(&mut self, window: &Window, id: PageId) -> Result<(), RecoveryError> {
        let mut list = window.changes_of(id);
        if !self.found.truncations.is_empty() {
            let before = list.len();
            list.retain(|&change| !self.found.is_over(window.lsn_of(change), id)); // E4
            self.done.skipped_count += (before - list.len()) as u64;
        }
        let (cache, ops) = (&self.engine.cache, &self.engine.ops);
        let format = window.first_format(ops, &list)?;
        // E2
        let (mut page, from) = match format {
            _ if list.is_empty() => return Ok(()),
            Some(0) => (cache.exclusive_new(id)?, 0),
            _ => match (cache.exclusive_or_new(id), format) {
                (Err(BufferError::Damaged { .. }), Some(from)) => (cache.exclusive_new(id)?, from),
                (Err(damaged @ BufferError::Damaged { .. }), None) => {
                    if self.unread.get(id).is_none() {
                        self.unread.insert(id, damaged);
                    }
                    self.done.skipped_count += list.len() as u64;
                    return Ok(());
                }
                (read, _) => (read?.0, 0),
            },
        };
        if format.is_some() {
            self.unread.remove(id);
        }
        self.done.skipped_count += from as u64;
        let applied = window.apply(ops, &mut page, &list[from..]);
        self.done.add(applied.inspect_err(|error| self.engine.fail(&error.to_string()))?); // E1
        Ok(())
    }
}

/// Shows pages in their order to `visit`. Those that are to be read come in ahead of their turn (E7). `see` is told now
/// and then what part is done, and may end it.
pub(crate) fn in_order(
    cache: &Arc<Cache>,
    worker_count: u64,
    pages: &[(PageId, bool)],
    see: impl Fn(f64) -> Result<(), RecoveryError>,
    mut visit: impl FnMut(PageId) -> Result<(), RecoveryError>,
) -> Result<(), RecoveryError> {
    let mut soon = Soon::of(pages, cache, worker_count);
    let mut ahead = cache.read_wanted();
    let mut came_to = PageId(0); // Pages below have been read in.
    for (at, &(page, _)) in pages.iter().enumerate() {
        if page >= came_to {
            see(at as f64 / pages.len() as f64)?;
            soon.ask(cache, page);
            let count = run_length(&pages[at..], ahead.pages_max());
            ahead.run(page, count);
            came_to = PageId(page.0 + count.max(1));
        }
        visit(page)?;
    }
    Ok(())
}

/// The pages of a window that others may read ahead (E7).
struct Soon {
    /// Those that are to be read, by their ids.
    pages: Vec<PageId>,
    asked_count: usize,
    ahead_max: usize,
}

impl Soon {
    fn of(pages: &[(PageId, bool)], cache: &Cache, worker_count: u64) -> Soon {
        let ahead_max = AHEAD_PAGES.min(cache.frame_count() as usize / AHEAD_PART / worker_count as usize);
        let mut soon = Vec::new();
        if cache.reads_ahead() && ahead_max > 0 {
            soon.extend(pages.iter().filter(|(_, is_read)| *is_read).map(|(page, _)| *page));
        }
        Soon { pages: soon, asked_count: 0, ahead_max }
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

/// How many neighbours from the first page on have to be read: none or one if that is all.
fn run_length(pages: &[(PageId, bool)], pages_max: u64) -> u64 {
    let Some(&(first, _)) = pages.first() else { return 0 };
    let neighbours = (first.0..).zip(pages).take(pages_max as usize);
    neighbours.take_while(|&(no, &(page, is_read))| page.0 == no && is_read).count() as u64
}
