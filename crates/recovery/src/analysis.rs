//! Analysis: one pass over the log from the last checkpoint's scan LSN to its end.
//!
//! It finds where the valid log ends and who was open there. Losers need no table in the checkpoint record. The scan
//! begins at or below the first record of every transaction that was open at the checkpoint (T1 in `txn/table.rs`). So
//! each loser's whole chain lies in what is read.
//!
//! N1. A transaction is a loser if it has a record and neither `Commit` nor `End` follows.
//!     A loser that was prepared, and had not begun to abort, is in doubt: it is kept for a decision from outside.
//! N2. A nested top action is open if its `NtaBegin` has no `NtaEnd`; the outermost open one is kept.
//! N3. A truncation of the data file ends the history of the pages behind its new end. Earlier records of these pages
//!     are void, and later ones begin with a format (`space/shrink.rs`). Redo has to know before it begins. A
//!     truncation below the LSN that redo begins at had been finished by then (H4 there), and the file has grown since
//!     as it should.
//! N4. Groups are never undone. A load or a new index writes hardly anything else, gigabytes of them. Undo need not
//!     read them once more, backwards. Where many follow each other in a loser's chain, what lies before them is noted.
//! N5. How much a loser has to undo, and in which trees, is told by its updates outside of nested top actions. Ended
//!     ones are never undone, and open ones are undone on their pages, before anything else.

use ledgerstone_log::{LogScan, RecordKind, RecordView};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_region::{ByNumber, NumberSet};
use ledgerstone_txn::{PrepareRecord, RECORD_OVERHEAD_BYTES};

use crate::RecoveryError;
use crate::gathered::Gathered;

/// Says in which tree an update changed a record, by its root; `None` if it changed something else.
pub type TreeOf<'t> = &'t dyn Fn(OpId, &[u8]) -> Option<PageId>;

/// So many groups are passed over together. Fewer are read, so that the notes stay few.
const GROUPS_MIN: u64 = 64;

/// A transaction that was open at the crash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loser {
    /// Its first record in the scan.
    pub first: Lsn,
    /// Its newest record.
    pub last: Lsn,
    /// Begins of its open nested top actions, outermost first.
    pub open_nested: Vec<Lsn>,
    /// Where many groups follow each other, the last of them, and the record before the first (N4).
    pub group_runs: ByNumber<Lsn, Lsn>,
    /// What its rollback has to do.
    pub to_undo: ToUndo,
    /// The groups that its newest records are.
    groups: Groups,
}

/// What the rollback of a loser has to do, as far as its records tell (N5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToUndo {
    /// Updates.
    pub update_count: u64,
    /// Those among them that were undone before the crash.
    pub undone_count: u64,
    /// Bytes of the log that a rollback reads: updates, and the records that say that they are undone.
    pub bytes: u64,
    /// Bytes of log that undoing the updates takes which are not undone, at most.
    pub undo_bytes: u64,
    /// The trees of the updates, by their roots, but for the newest one.
    earlier_trees: NumberSet<PageId>,
    newest_tree: Option<PageId>,
    /// Something else was changed, too.
    has_others: bool,
}

impl ToUndo {
    fn note_update(&mut self, record: RecordView<'_>, tree: Option<PageId>) {
        self.update_count += 1;
        self.bytes += record.bytes().len() as u64;
        self.undo_bytes += (record.args().len() + RECORD_OVERHEAD_BYTES) as u64;
        if tree.is_none() {
            self.has_others = true;
        } else if tree != self.newest_tree {
            // Most transactions change one tree, and take no memory for others.
            self.earlier_trees.extend(self.newest_tree);
            self.newest_tree = tree;
        }
    }

    fn note_undone(&mut self, record: RecordView<'_>) {
        self.undone_count += 1;
        self.bytes += record.bytes().len() as u64;
        // Never more than was counted for the update: what undoes it has no longer arguments.
        let took = (record.args().len() + RECORD_OVERHEAD_BYTES) as u64;
        self.undo_bytes = self.undo_bytes.saturating_sub(took);
    }

    /// The roots of all trees of the updates. `None` if there are updates of something else.
    #[must_use]
    pub fn trees(&self) -> Option<NumberSet<PageId>> {
        (!self.has_others).then(|| self.earlier_trees.iter().chain(self.newest_tree).collect())
    }
}

/// Groups of one transaction with nothing else between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Groups {
    count: u64,
    /// The transaction's record before the first.
    before: Lsn,
    last: Lsn,
}

impl Loser {
    /// N4.
    fn note_group(&mut self, record: RecordView<'_>) {
        if self.groups.count == 0 {
            self.groups.before = record.prev_lsn();
        }
        self.groups.count += 1;
        self.groups.last = record.lsn();
    }

    fn end_groups(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        if groups.count >= GROUPS_MIN {
            self.group_runs.insert(groups.last, groups.before);
        }
    }
}

/// A transaction that waits for its commit or abort from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubt {
    /// Its first record in the scan.
    pub first: Lsn,
    /// Its newest record, which is the Prepare record.
    pub last: Lsn,
    /// Its content.
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
    pub losers: ByNumber<Xid, Loser>,
    /// Prepared transactions, to be kept.
    pub in_doubt: ByNumber<Xid, InDoubt>,
    /// Where redo begins, and the incarnation in force there.
    pub redo_from: (Lsn, u64),
    /// Truncations of the data file that redo meets, each with the first page that went (N3).
    pub truncations: Vec<(Lsn, PageId)>,
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
    /// The analysis of an environment that is just being made: a log that ends at `end`, and no open transaction.
    #[must_use]
    pub fn of_new(end: Lsn, incarnation: u64) -> Analysis {
        Analysis { end, incarnation, ..Analysis::default() }
    }

    /// Pages that the data file may keep before redo begins. None if it was not truncated. Redo brings back, whole,
    /// what later records put behind them.
    #[must_use]
    pub fn page_count_max(&self) -> Option<u64> {
        self.truncations.iter().map(|&(_, first)| first.0).min()
    }

    /// The incarnation in force at `lsn`; the first one that was met, for what lies before.
    #[must_use]
    pub fn incarnation_at(&self, lsn: Lsn) -> u64 {
        let in_force = self.incarnations.iter().rev().find(|(from, _)| *from <= lsn).or(self.incarnations.first());
        in_force.map_or(0, |&(_, incarnation)| incarnation)
    }

    /// True if a record at `lsn` tells of a page that a later truncation took.
    #[must_use]
    pub fn is_over(&self, lsn: Lsn, page: PageId) -> bool {
        self.truncations.iter().any(|&(at, first)| lsn < at && page >= first)
    }
}

/// Transactions that have begun and not ended, where the scan stands. Mostly those that began last are few and have the
/// next record, so these are looked through first.
#[derive(Default)]
struct Open {
    newest: Vec<(Xid, Loser)>,
    others: ByNumber<Xid, Loser>,
}

impl Open {
    const NEWEST: usize = 8;

    fn get_or_insert(&mut self, xid: Xid, lsn: Lsn) -> &mut Loser {
        let begun = || Loser { first: lsn, ..Loser::default() };
        if let Some(at) = self.newest.iter().rposition(|(of, _)| *of == xid) {
            return &mut self.newest[at].1;
        }
        if self.others.contains(xid) {
            return self.others.get_or_insert_with(xid, begun);
        }
        if self.newest.len() == Open::NEWEST {
            let (oldest, loser) = self.newest.remove(0);
            self.others.insert(oldest, loser);
        }
        self.newest.push((xid, begun()));
        let last = self.newest.len() - 1;
        &mut self.newest[last].1
    }

    fn remove(&mut self, xid: Xid) {
        match self.newest.iter().rposition(|(of, _)| *of == xid) {
            Some(at) => drop(self.newest.swap_remove(at)),
            None => drop(self.others.remove(xid)),
        }
    }

    fn all(self) -> ByNumber<Xid, Loser> {
        let mut all = self.others;
        all.extend(self.newest);
        all
    }
}

/// Reads `scan` to its end. What records below `redo_from` did is in the data file. What the others did is put into
/// `gathered`, as far as there is room. `tree_of` knows the operations of trees.
///
/// # Errors
/// The log cannot be read, or is damaged below an LSN that a later record calls durable.
pub fn analyse(
    mut scan: LogScan,
    redo_from: Lsn,
    tree_of: TreeOf<'_>,
    gathered: &mut Gathered,
) -> Result<Analysis, RecoveryError> {
    let mut found = Analysis::default();
    let mut open = Open::default();
    while let Some(record) = scan.next_view()? {
        found.record_count += 1;
        found.ends_with_checkpoint = record.kind() == RecordKind::Checkpoint;
        if record.lsn() >= redo_from {
            found.truncations.extend(record.truncated_from().map(|first| (record.lsn(), first)));
            gathered.take(record)?;
        }
        let xid = record.xid();
        if xid == Xid(0) {
            continue;
        }
        found.max_xid = found.max_xid.max(xid);
        if matches!(record.kind(), RecordKind::Commit | RecordKind::End) {
            open.remove(xid);
            found.in_doubt.remove(xid);
            found.winner_count += u64::from(record.kind() == RecordKind::Commit);
            continue;
        }
        let loser = open.get_or_insert(xid, record.lsn());
        loser.last = record.lsn();
        match record.kind() {
            RecordKind::Group => loser.note_group(record),
            _ => loser.end_groups(),
        }
        // Whatever follows a Prepare record is the beginning of a rollback, or its end.
        if !found.in_doubt.is_empty() {
            found.in_doubt.remove(xid);
        }
        match record.kind() {
            RecordKind::NtaBegin => loser.open_nested.push(record.lsn()),
            RecordKind::NtaEnd => {
                loser.open_nested.pop();
            }
            RecordKind::Update if loser.open_nested.is_empty() => {
                loser.to_undo.note_update(record, tree_of(record.op(), record.args()));
            }
            RecordKind::Compensation if loser.open_nested.is_empty() => loser.to_undo.note_undone(record),
            RecordKind::Prepare if !planted::is_on(Bug::PreparedIsForgotten) => {
                let lsn = record.lsn();
                let said = PrepareRecord::decode(record.body()).map_err(|what| RecoveryError::Prepare { lsn, what })?;
                found.in_doubt.insert(xid, InDoubt { first: loser.first, last: lsn, record: said });
            }
            _ => {}
        }
    }
    found.losers = open.all();
    found.losers.retain(|xid, _| !found.in_doubt.contains(xid));
    found.losers.values_mut().for_each(Loser::end_groups);
    found.incarnations = scan.incarnations().to_vec();
    found.end = scan.end();
    let first = found.incarnations.first().map_or(Lsn(0), |&(from, _)| from);
    found.redo_from = (first.max(redo_from), found.incarnation_at(redo_from));
    found.incarnation = scan.incarnation();
    Ok(found)
}
