//! Analysis: one pass over the log from the last checkpoint's scan LSN to its end.
//!
//! It finds where the valid log ends and who was open there. Losers need no table in the checkpoint record: the scan
//! begins at or below the first record of every transaction that was open at the checkpoint (T1 in `txn/table.rs`), so
//! each loser's whole chain lies in what is read.
//!
//! N1. A transaction is a loser if it has a record and neither `Commit` nor `End` follows.
//! N2. A nested top action is open if its `NtaBegin` has no `NtaEnd`; the outermost open one is kept.

use std::collections::BTreeMap;

use ledgerstone_log::{LogScan, RecordKind};
use ledgerstone_page::{Lsn, Xid};

use crate::RecoveryError;

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

/// What the analysis found.
#[derive(Debug, Clone, Default)]
pub struct Analysis {
    /// Where the valid log ends: the next record goes here.
    pub end: Lsn,
    /// The incarnation in force at the end.
    pub incarnation: u64,
    /// The incarnations met, each with its first LSN.
    pub incarnations: Vec<(Lsn, u64)>,
    /// Open transactions (N1).
    pub losers: BTreeMap<Xid, Loser>,
    /// Largest transaction id met.
    pub max_xid: Xid,
    /// Records read.
    pub record_count: u64,
    /// Commit records read.
    pub winner_count: u64,
    /// True if the log ends with the checkpoint of an orderly close.
    pub ends_with_checkpoint: bool,
}

/// Reads `scan` to its end.
///
/// # Errors
/// The log cannot be read, or is damaged below an LSN that a later record calls durable.
pub fn analyse(mut scan: LogScan) -> Result<Analysis, RecoveryError> {
    let mut found = Analysis::default();
    while let Some(record) = scan.next_view()? {
        found.record_count += 1;
        found.ends_with_checkpoint = record.kind() == RecordKind::Checkpoint;
        let xid = record.xid();
        if xid == Xid(0) {
            continue;
        }
        found.max_xid = found.max_xid.max(xid);
        if matches!(record.kind(), RecordKind::Commit | RecordKind::End) {
            found.losers.remove(&xid);
            found.winner_count += u64::from(record.kind() == RecordKind::Commit);
            continue;
        }
        let loser = found.losers.entry(xid).or_insert_with(|| Loser { first: record.lsn(), ..Loser::default() });
        loser.last = record.lsn();
        match record.kind() {
            RecordKind::NtaBegin => loser.open_nested.push(record.lsn()),
            RecordKind::NtaEnd => {
                loser.open_nested.pop();
            }
            _ => {}
        }
    }
    found.incarnations = scan.incarnations().to_vec();
    found.end = scan.end();
    found.incarnation = scan.incarnation();
    Ok(found)
}
