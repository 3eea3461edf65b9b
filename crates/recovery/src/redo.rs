//! Redo: history repeated, page by page, by several workers.
//!
//! A page's records are redone in LSN order by one worker; pages are dealt out by their id. Every worker reads the whole
//! log for itself and picks its pages, so that workers share nothing but the cache: no queues, no hand-over, and reading
//! is cheap beside applying.
//!
//! E1. A record is applied to a page if the page's LSN is below the record's. All parts of a group that touch a page are
//!     applied together or not at all.
//! E2. Redo of a page reads only that page; an operation that formats it does not even read it from disk.
//! E3. `rec_lsn` of a page redone is its record's own LSN: the checkpoint that ends recovery then keeps what is needed.
//! E4. A record that a later truncation of the data file has made void for a page is passed over (N3 in `analysis.rs`).
//! E5. Before it begins, each worker reads in the pages of its share that the log tells of, neighbours in one read, as far as
//!     frames are free. One by one, each would wait for the disk at its first record.
//! E6. A record goes on from the LSN that the page had before. A page at home with a smaller one is an older version of
//!     itself, and lacks changes that are not in what is read: redo refuses it, as nothing would make it whole.

use std::sync::Arc;

use ledgerstone_buffer::{Cache, ExclusivePage};
use ledgerstone_log::{LogScan, RecordKind, RecordView};
use ledgerstone_op::{PageMut, Registry};
use ledgerstone_page::{Lsn, OpId, PageId};
use ledgerstone_region::sync;
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

/// Repeats history from where `scan` begins up to the end that the analysis found, with `worker_count` workers; `scan` makes a
/// reader for each. If the analysis found truncations, the data file has no more than
/// [`Analysis::page_count_max`] pages when this is called.
///
/// # Errors
/// The log or a page cannot be read; an operation is unknown or refuses (page and log contradict each other).
pub fn redo(
    engine: &Arc<Engine>,
    found: &Arc<Analysis>,
    worker_count: u64,
    scan: impl Fn() -> Result<LogScan, RecoveryError>,
) -> Result<Redone, RecoveryError> {
    let worker_count = worker_count.max(1);
    let mut workers = Vec::new();
    for no in 1..worker_count {
        let (engine, found, scan) = (Arc::clone(engine), Arc::clone(found), scan()?);
        workers.push(sync::spawn("redo", move || {
            Worker { engine: &engine, found: &found, no, worker_count, done: Redone::default() }.run(scan)
        }));
    }
    let first = Worker { engine, found, no: 0, worker_count, done: Redone::default() }.run(scan()?);
    // All workers are joined before any error is returned: none may outlive recovery.
    let others: Vec<_> = workers.into_iter().map(|w| w.join().unwrap_or(Err(RecoveryError::WorkerPanicked))).collect();
    let mut all = first?;
    for other in others {
        let other = other?;
        all.applied_count += other.applied_count;
        all.skipped_count += other.skipped_count;
    }
    Ok(all)
}

struct Worker<'e> {
    engine: &'e Arc<Engine>,
    found: &'e Analysis,
    no: u64,
    worker_count: u64,
    done: Redone,
}

impl Worker<'_> {
    fn run(mut self, mut scan: LogScan) -> Result<Redone, RecoveryError> {
        let mut ahead = self.engine.cache.read_ahead(); // E5
        for (first, count) in self.found.touched.runs(|group| self.owns_group(group)) {
            ahead.run(first, count);
        }
        while let Some(record) = scan.next_view()? {
            if record.lsn() >= self.found.end {
                break;
            }
            match record.kind() {
                RecordKind::Update | RecordKind::Compensation if self.owns(record.page()) => {
                    let part = (record.op(), record.args());
                    self.redo_parts(record.lsn(), record.page(), record.prev_page_lsn(), &[part])?;
                }
                RecordKind::Group => self.redo_group(record)?,
                _ => {}
            }
        }
        Ok(self.done)
    }

    fn owns(&self, page: PageId) -> bool {
        // Neighbours go to one worker in runs of 16, so that each reads and writes sequentially.
        self.owns_group(page.0 >> 4)
    }

    fn owns_group(&self, group: u64) -> bool {
        group % self.worker_count == self.no
    }

    fn redo_group(&mut self, record: RecordView<'_>) -> Result<(), RecoveryError> {
        let lsn = record.lsn();
        let parts: Vec<_> =
            record.parts().collect::<Result<_, _>>().map_err(|source| RecoveryError::Record { lsn, source })?;
        let mut seen: Vec<PageId> = Vec::with_capacity(parts.len());
        for part in &parts {
            if seen.contains(&part.page) || !self.owns(part.page) {
                continue;
            }
            seen.push(part.page);
            let of_page: Vec<_> = parts.iter().filter(|p| p.page == part.page).map(|p| (p.op, p.args)).collect();
            self.redo_parts(lsn, part.page, part.prev_page_lsn, &of_page)?;
        }
        Ok(())
    }

    fn redo_parts(&mut self, lsn: Lsn, id: PageId, wants: Lsn, parts: &[(OpId, &[u8])]) -> Result<(), RecoveryError> {
        if self.found.is_over(lsn, id) {
            self.done.skipped_count += parts.len() as u64; // E4
            return Ok(());
        }
        let cache = &self.engine.cache;
        let mut page = latch(cache, &self.engine.ops, lsn, id, parts)?;
        if page.page_lsn() >= lsn {
            self.done.skipped_count += parts.len() as u64; // E1
            return Ok(());
        }
        if page.page_lsn() < wants && !formats(&self.engine.ops, lsn, parts)? {
            return Err(RecoveryError::OldPage { page: id, has: page.page_lsn(), lsn, wants }); // E6
        }
        page.begin_change(lsn); // E3
        for &(op, args) in parts {
            let operation =
                self.engine.ops.get(op).map_err(|source| RecoveryError::UnknownOperation { lsn, source })?;
            operation.redo(&mut PageMut::new(id, page.page_mut()), args).map_err(|source| RecoveryError::Redo {
                lsn,
                page: id,
                source,
            })?;
        }
        page.finish_change(lsn);
        self.done.applied_count += parts.len() as u64;
        Ok(())
    }
}

/// Whether the first part makes the page anew (E2).
fn formats(ops: &Registry, lsn: Lsn, parts: &[(OpId, &[u8])]) -> Result<bool, RecoveryError> {
    let Some(&(op, _)) = parts.first() else { return Ok(false) };
    Ok(ops.get(op).map_err(|source| RecoveryError::UnknownOperation { lsn, source })?.formats())
}

/// Latches the page of a record, reading it unless the record formats it (E2).
fn latch<'c>(
    cache: &'c Cache,
    ops: &Registry,
    lsn: Lsn,
    id: PageId,
    parts: &[(OpId, &[u8])],
) -> Result<ExclusivePage<'c>, RecoveryError> {
    if formats(ops, lsn, parts)? { Ok(cache.exclusive_new(id)?) } else { Ok(cache.exclusive_or_new(id)?.0) }
}
