//! A page that a thread was changing when it died, built again beside the living. It is what the data file has of it,
//! and the page's own records, as redo repeats them.
//!
//! B1. The log has all records of the page. Each was reserved under the page's exclusive latch. A holder that gave the
//!     latch back had published its records before. One that died with it had published a record, or the log's repair
//!     has put a void record in its place. That repair is over before this begins. The latch is the repairer's now, so
//!     no record of the page is added.
//! B2. So all of them begin below any tail that is seen after that repair, and the reading ends at such a tail,
//!     `until`. Below it the log has no hole, and none is ever waited for. The living have published what they had
//!     reserved there ([`Log::settle`]), once for all pages of a repair. If one of them dies before, that call says so,
//!     and the repair begins again with the log's. Whoever reserves later, reserves behind `until`.
//! B3. What is durable is read from the segments, the rest record by record. Nothing is flushed: behind `until` there
//!     may be a hole of who has died meanwhile, and a flush would wait for it.
//! B4. `from` is a tail that somebody saw before the page's first change, so it may lie within a void record
//!     ([`Log::first_record_from`]). That has nothing of the page.
//! B5. The log keeps what is behind `from`, since the frame says that it needs it. This ends only if the page goes
//!     home while it is built. Then the cache asks again, for less.
//! B6. Records that the page has are passed over. Of a group, all parts of the page are repeated or none (E1 in
//!     `redo.rs`). A record goes on from the very LSN that the page has, unless it formats the page. No record of a
//!     page is lost, so any other LSN is an error.
//!
//! Each page reads the log from its `from` on by itself. The dead held a few pages each, so this is read a few times.

use ledgerstone_buffer::{BufferError, ExclusivePage, Rebuild};
use ledgerstone_log::{Log, LogError, RecordView};
use ledgerstone_op::{PageMut, Registry};
use ledgerstone_page::{Lsn, OpId, PageId};

use crate::RecoveryError;
use crate::gathered::each_change;

/// Builds pages again for the cache's repair, after the log's for the same dead.
pub struct PageRebuild<'e> {
    ops: &'e Registry,
    log: &'e Log,
    until: Lsn,
}

impl<'e> PageRebuild<'e> {
    /// From a log that has no hole below `until`: what [`Log::settle`] has answered in the same repair (B2).
    #[must_use]
    pub fn new(ops: &'e Registry, log: &'e Log, until: Lsn) -> PageRebuild<'e> {
        PageRebuild { ops, log, until }
    }

    /// Shows all records between the two, in their order.
    fn each_record(
        &self,
        from: Lsn,
        mut see: impl FnMut(RecordView<'_>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let durable = self.log.durable_lsn().min(self.until);
        let mut at = durable; // Where a record begins, also if `from` is behind it.
        if from < durable {
            let mut scan = self.log.scan(self.log.first_record_from(from)?)?; // B4
            scan.set_limit(durable);
            while let Some(record) = scan.next_view()? {
                see(record)?;
            }
            at = at.max(scan.end());
        }
        while at < self.until {
            let record = self.log.read(at)?;
            at = record.end();
            if record.lsn() >= from {
                see(record.view())?;
            }
        }
        Ok(())
    }

    /// Repeats what the record did to the page, if the page lacks it.
    fn repeat(&self, page: &mut ExclusivePage<'_>, is_void: bool, record: RecordView<'_>) -> Result<(), Refused> {
        let (id, lsn, has) = (page.id(), record.lsn(), page.page_lsn());
        if has >= lsn {
            return Ok(()); // B6
        }
        let mut parts: Vec<(Lsn, OpId, Vec<u8>)> = Vec::new();
        each_change(record, |of, continues, op, args| {
            if of == id {
                parts.push((continues, op, args.to_vec()));
            }
        })?;
        let Some((continues, first, _)) = parts.first() else { return Ok(()) };
        let unknown = |source| RecoveryError::UnknownOperation { lsn, source };
        let formats = self.ops.get(*first).map_err(unknown)?.formats();
        if !formats && is_void && has == Lsn(0) {
            return Err(Refused::of(format!("the record at LSN {lsn} changes it, and none before it makes it")));
        }
        if !formats && has != *continues {
            return Err(Refused::of(format!("the record at LSN {lsn} continues {continues}, but it has {has}")));
        }
        page.begin_change_with(lsn, formats);
        for (_, op, args) in &parts {
            let operation = self.ops.get(*op).map_err(unknown)?;
            let redone = operation.redo(&mut PageMut::new(id, page.page_mut()), args);
            redone.map_err(|source| RecoveryError::Redo { lsn, page: id, source })?;
        }
        page.finish_change(lsn);
        Ok(())
    }
}

impl Rebuild for PageRebuild<'_> {
    fn rebuild(&self, page: &mut ExclusivePage<'_>, from: Lsn, is_void: bool) -> Result<(), BufferError> {
        let id = page.id();
        let built = self.each_record(from, |record| self.repeat(page, is_void, record));
        built.map_err(|Refused(what)| match self.log.oldest_lsn() {
            oldest if from < oldest => refused(id, &LogError::Recycled { lsn: from, oldest }.to_string()), // B5
            _ => refused(id, &what),
        })
    }
}

impl std::fmt::Debug for PageRebuild<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageRebuild").field("until", &self.until).finish_non_exhaustive()
    }
}

/// Why a page cannot be built again.
struct Refused(String);

impl Refused {
    fn of(what: String) -> Refused {
        Refused(what)
    }
}

impl<E: Into<RecoveryError>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused(error.into().to_string())
    }
}

fn refused(page: PageId, what: &str) -> BufferError {
    BufferError::NotRedone { page, what: format!("page {page} cannot be built again after a death: {what}") }
}
