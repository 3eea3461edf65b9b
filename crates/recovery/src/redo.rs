//! Redo: history repeated, page by page, by several workers.
//!
//! A page's records are redone in LSN order by one worker; pages are dealt out by their id. Every worker reads the
//! whole log for itself and picks its pages, so that workers share nothing but the cache: no queues, no hand-over, and
//! reading is cheap beside applying.
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

use std::sync::Arc;

use ledgerstone_buffer::BufferError;
use ledgerstone_log::{LogScan, RecordKind};
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

/// Repeats history up to the end that the analysis found, with `worker_count` workers. For each worker, `scan` makes a
/// reader that begins at [`Analysis::redo_from`]. If the analysis found truncations, the data file has at most
/// [`Analysis::page_count_max`] pages when this is called.
///
/// # Errors
/// The log or a page cannot be read. An operation is unknown, or refuses because page and log contradict each other.
pub fn redo(
    engine: &Arc<Engine>,
    found: &Arc<Analysis>,
    worker_count: u64,
    scan: impl Fn() -> Result<LogScan, RecoveryError>,
) -> Result<Redone, RecoveryError> {
    planted::begin_windows();
    let worker_count = worker_count.max(1);
    let mut workers = Vec::new();
    for no in 1..worker_count {
        let (engine, found, scan) = (Arc::clone(engine), Arc::clone(found), scan()?);
        workers.push(sync::spawn("redo", move || Worker::new(&engine, &found, no, worker_count).run(scan)));
    }
    let first = Worker::new(engine, found, 0, worker_count).run(scan()?);
    // All workers are joined before any error is returned: none may outlive recovery.
    let panicked = || Err(RecoveryError::WorkerPanicked("worker of redo"));
    let others: Vec<_> = workers.into_iter().map(|w| w.join().unwrap_or_else(|_| panicked())).collect();
    let mut all = first?;
    for other in others {
        let other = other?;
        all.applied_count += other.applied_count;
        all.skipped_count += other.skipped_count;
    }
    Ok(all)
}

/// Neighbours go to one worker in runs of so many pages, so that each reads and writes sequentially: a power of two.
const RUN_PAGES: u64 = 64;
/// Memory of the windows of all workers.
const WINDOWS_BYTES: usize = 32 << 20;

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
    /// A window of so many bytes. The memory is there when it is used.
    fn of(bytes_max: usize) -> Window {
        Window { changes: Vec::with_capacity(bytes_max / size_of::<Change>()), args: Vec::with_capacity(bytes_max) }
    }

    fn push(&mut self, page: PageId, lsn: Lsn, wants: Lsn, op: OpId, args: &[u8]) {
        let (at, len) = (self.args.len() as u32, args.len() as u32);
        self.args.extend_from_slice(args);
        self.changes.push(Change { page, lsn, wants, at, len, op });
    }

    fn bytes(&self) -> usize {
        self.args.len() + self.changes.len() * size_of::<Change>()
    }

    fn args_of(&self, change: &Change) -> &[u8] {
        &self.args[change.at as usize..][..change.len as usize]
    }
}

struct Worker<'e> {
    engine: &'e Arc<Engine>,
    found: &'e Analysis,
    no: u64,
    worker_count: u64,
    window: Window,
    done: Redone,
    /// Pages that could not be read, and that no record has formatted since (E2).
    unread: ByNumber<PageId, BufferError>,
}

impl<'e> Worker<'e> {
    fn new(engine: &'e Arc<Engine>, found: &'e Analysis, no: u64, worker_count: u64) -> Worker<'e> {
        Worker {
            engine,
            found,
            no,
            worker_count,
            window: Window::default(),
            done: Redone::default(),
            unread: ByNumber::new(),
        }
    }

    fn run(mut self, mut scan: LogScan) -> Result<Redone, RecoveryError> {
        let bytes_max = WINDOWS_BYTES / self.worker_count as usize;
        let all = self.found.end.0.saturating_sub(self.found.redo_from.0.0) as usize;
        self.window = Window::of(bytes_max.min(all));
        while let Some(record) = scan.next_view()? {
            if record.lsn() >= self.found.end {
                break;
            }
            match record.kind() {
                RecordKind::Update | RecordKind::Compensation => {
                    let (page, wants) = (record.page(), record.prev_page_lsn());
                    self.take(page, record.lsn(), wants, record.op(), record.args());
                }
                RecordKind::Group => {
                    for part in record.parts() {
                        let lsn = record.lsn();
                        let part = part.map_err(|source| RecoveryError::Record { lsn, source })?;
                        self.take(part.page, lsn, part.prev_page_lsn, part.op, part.args);
                    }
                }
                _ => {}
            }
            if self.window.bytes() >= bytes_max || planted::fills_window(self.window.changes.len()) {
                self.redo_window()?;
            }
        }
        self.redo_window()?;
        match self.unread.into_iter().next() {
            Some((_, damaged)) => Err(damaged.into()),
            None => Ok(self.done),
        }
    }

    /// Puts a change into the window, if the page is this worker's and the change is not void.
    fn take(&mut self, page: PageId, lsn: Lsn, wants: Lsn, op: OpId, args: &[u8]) {
        if page.0 / RUN_PAGES % self.worker_count != self.no {
            return;
        }
        match self.found.is_over(lsn, page) {
            true => self.done.skipped_count += 1, // E4
            false => self.window.push(page, lsn, wants, op, args),
        }
    }

    /// E5.
    fn redo_window(&mut self) -> Result<(), RecoveryError> {
        let mut window = std::mem::take(&mut self.window);
        window.changes.sort_unstable_by_key(|change| (change.page, change.lsn, change.at));
        let mut ahead = self.engine.cache.read_wanted();
        let mut came_to = PageId(0); // Pages below have been read in.
        let mut left = &window.changes[..];
        while let Some(first) = left.first() {
            if first.page >= came_to {
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
            let redone =
                operation(ops, lsn, part.op)?.redo(&mut PageMut::new(id, page.page_mut()), window.args_of(part));
            redone.map_err(|source| RecoveryError::Redo { lsn, page: id, source })?;
        }
        page.finish_change(lsn);
        self.done.applied_count += parts.len() as u64;
        Ok(())
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
