//! Analysis: one pass over the log from the last checkpoint's scan LSN to its end.
//!
//! It finds where the valid log ends and who was open there. Losers need no table in the checkpoint record: the scan
//! begins at or below the first record of every transaction that was open at the checkpoint (T1 in `txn/table.rs`), so
//! each loser's whole chain lies in what is read.
//!
//! N1. A transaction is a loser if it has a record and neither `Commit` nor `End` follows.
//!     A loser that was prepared, and had not begun to abort, is in doubt: it is kept for a decision from outside.
//! N2. A nested top action is open if its `NtaBegin` has no `NtaEnd`; the outermost open one is kept.
//! N3. A truncation of the data file ends the history of the pages behind its new end: what stands before it in the log is
//!     over for them, and what follows begins with a format (`space/shrink.rs`). Redo has to know before it begins.
//! N4. The pages that redo will want are noted, for it to read ahead: those in the data file of which the first record in the scan
//!     does not say that they had never been written.

use std::collections::BTreeMap;

use ledgerstone_log::{LogScan, RecordKind};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, Xid};
use ledgerstone_txn::PrepareRecord;

use crate::RecoveryError;
use crate::touched::Touched;

/// A transaction that was open at the crash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loser {
    /// Its first record in the scan.
    pub first: Lsn,
    /// Its newest record.
    pub last: Lsn,
    /// Begins of its open nested top actions, outermost first.
    pub open_nested: Vec<Lsn>,
}

/// A transaction that waits for its commit or abort from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubt {
    /// Its first record in the scan.
    pub first: Lsn,
    /// Its newest record, which is the Prepare record.
    pub last: Lsn,
    /// What that says.
    pub record: PrepareRecord,
}

/// What the analysis found.
#[derive(Debug, Clone, Default)]
pub struct Analysis {
    /// Where the valid log ends: the next record goes here.
    pub end: Lsn,
    /// The incarnation in force at the end.
    pub incarnation: u64,
    /// The incarnations met, each with its first LSN.
    pub incarnations: Vec<(Lsn, u64)>,
    /// Open transactions (N1), to be rolled back.
    pub losers: BTreeMap<Xid, Loser>,
    /// Prepared transactions, to be kept.
    pub in_doubt: BTreeMap<Xid, InDoubt>,
    /// Truncations of the data file, each with the first page that went (N3).
    pub truncations: Vec<(Lsn, PageId)>,
    /// Pages of the data file that redo will read (N4).
    pub(crate) touched: Touched,
    /// Largest transaction id met.
    pub max_xid: Xid,
    /// Records read.
    pub record_count: u64,
    /// Commit records read.
    pub winner_count: u64,
    /// True if the log ends with the checkpoint of an orderly close.
    pub ends_with_checkpoint: bool,
}

impl Analysis {
    /// What stands for the analysis of an environment that is just being made: a log that ends at `end`, nobody open.
    #[must_use]
    pub fn of_new(end: Lsn, incarnation: u64) -> Analysis {
        Analysis { end, incarnation, ..Analysis::default() }
    }

    /// Pages that the data file may keep before redo begins; none if it was not truncated. What later records put behind
    /// them comes back by redo, whole.
    #[must_use]
    pub fn page_count_max(&self) -> Option<u64> {
        self.truncations.iter().map(|&(_, first)| first.0).min()
    }

    /// True if a record at `lsn` tells of a page that a later truncation took.
    #[must_use]
    pub fn is_over(&self, lsn: Lsn, page: PageId) -> bool {
        self.truncations.iter().any(|&(at, first)| lsn < at && page >= first)
    }
}

/// Reads `scan` to its end. `page_count` is how many pages the data file has.
///
/// # Errors
/// The log cannot be read, or is damaged below an LSN that a later record calls durable.
pub fn analyse(mut scan: LogScan, page_count: u64) -> Result<Analysis, RecoveryError> {
    let mut found = Analysis { touched: Touched::of(page_count), ..Analysis::default() };
    while let Some(record) = scan.next_view()? {
        found.record_count += 1;
        found.ends_with_checkpoint = record.kind() == RecordKind::Checkpoint;
        match record.kind() {
            RecordKind::Update | RecordKind::Compensation => found.touched.note(record.page(), record.prev_page_lsn()),
            RecordKind::Group => {
                // A part that cannot be read is redo's to report.
                record.parts().map_while(Result::ok).for_each(|part| found.touched.note(part.page, part.prev_page_lsn));
            }
            _ => {}
        }
        found.truncations.extend(record.truncated_from().map(|first| (record.lsn(), first)));
        let xid = record.xid();
        if xid == Xid(0) {
            continue;
        }
        found.max_xid = found.max_xid.max(xid);
        if matches!(record.kind(), RecordKind::Commit | RecordKind::End) {
            found.losers.remove(&xid);
            found.in_doubt.remove(&xid);
            found.winner_count += u64::from(record.kind() == RecordKind::Commit);
            continue;
        }
        let loser = found.losers.entry(xid).or_insert_with(|| Loser { first: record.lsn(), ..Loser::default() });
        loser.last = record.lsn();
        // Whatever follows a Prepare record is the beginning of a rollback, or its end.
        found.in_doubt.remove(&xid);
        match record.kind() {
            RecordKind::NtaBegin => loser.open_nested.push(record.lsn()),
            RecordKind::NtaEnd => {
                loser.open_nested.pop();
            }
            RecordKind::Prepare if !planted::is_on(Bug::PreparedIsForgotten) => {
                let lsn = record.lsn();
                let said = PrepareRecord::decode(record.body()).map_err(|what| RecoveryError::Prepare { lsn, what })?;
                found.in_doubt.insert(xid, InDoubt { first: loser.first, last: lsn, record: said });
            }
            _ => {}
        }
    }
    found.losers.retain(|xid, _| !found.in_doubt.contains_key(xid));
    found.incarnations = scan.incarnations().to_vec();
    found.end = scan.end();
    found.incarnation = scan.incarnation();
    Ok(found)
}
