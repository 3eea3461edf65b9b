//! A record of the log as users see it, and what they choose records by.
//!
//! What a record says does not change from version to version; kinds and operations are added. The bytes are in
//! `docs/format/log.md`.

use ledgerstone_region::ByNumber;
use std::fmt;
use std::sync::Arc;

use ledgerstone_log::{Record, RecordKind};
use ledgerstone_op::Registry;
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_txn::Engine;

use ledgerstone_core::Error;

/// Who knows what arguments mean.
#[derive(Clone)]
pub(crate) enum Operations {
    Of(Arc<Engine>),
    Own(Arc<Registry>),
}

impl Operations {
    /// Refuses what belongs to the process that this one was forked from.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        match self {
            Operations::Of(engine) => Ok(engine.check_process()?),
            Operations::Own(_) => Ok(()),
        }
    }

    /// Runs `f`, a call of the engine's code, if there is an engine.
    pub(crate) fn in_a_call<T>(&self, f: impl FnOnce() -> T) -> T {
        match self {
            Operations::Of(engine) => engine.in_a_call(f),
            Operations::Own(_) => f(),
        }
    }

    fn registry(&self) -> &Registry {
        match self {
            Operations::Of(engine) => &engine.ops,
            Operations::Own(registry) => registry,
        }
    }
}

/// One record.
#[derive(Clone)]
pub struct LogRecord {
    record: Record,
    operations: Operations,
}

/// One change of one page: an update, a compensation, or a part of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogChange<'a> {
    /// The page.
    pub page: PageId,
    /// The LSN that the page had before.
    pub prev_page_lsn: Lsn,
    /// The operation.
    pub op: OpId,
    /// Its arguments.
    pub args: &'a [u8],
}

impl LogRecord {
    pub(crate) fn new(record: Record, operations: Operations) -> LogRecord {
        LogRecord { record, operations }
    }

    /// Where it begins.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.record.lsn()
    }

    /// Where the next one begins.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.record.end()
    }

    /// Its purpose.
    #[must_use]
    pub fn kind(&self) -> RecordKind {
        self.record.kind()
    }

    /// Its transaction. `Xid(0)` if it belongs to none.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.record.view().xid()
    }

    /// The previous record of the transaction. `Lsn(0)` if it is the first.
    #[must_use]
    pub fn prev_lsn(&self) -> Lsn {
        self.record.view().prev_lsn()
    }

    /// For a compensation, and for the end of a nested top action: where the rollback goes on. Otherwise `Lsn(0)`.
    #[must_use]
    pub fn undo_next(&self) -> Lsn {
        self.record.view().undo_next()
    }

    /// For a commit: when it was appended, in nanoseconds since 1970 by the machine's clock.
    #[must_use]
    pub fn commit_time_ns(&self) -> Option<u64> {
        self.record.view().commit_time_ns()
    }

    /// The body of a record that changes no page. Its meaning depends on the kind.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.record.view().body()
    }

    /// Header, body and padding, as they are in the log.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.record.bytes()
    }

    /// The changes of pages, in the order in which they are made. Empty for records that change no page.
    pub fn changes(&self) -> impl Iterator<Item = LogChange<'_>> {
        let view = self.record.view();
        let own = view.kind().has_page().then(|| LogChange {
            page: view.page(),
            prev_page_lsn: view.prev_page_lsn(),
            op: view.op(),
            args: view.args(),
        });
        own.into_iter().chain(view.parts().filter_map(Result::ok).map(|part| LogChange {
            page: part.page,
            prev_page_lsn: part.prev_page_lsn,
            op: part.op,
            args: part.args,
        }))
    }

    /// The root page of the table that a change belongs to, if its arguments name it.
    #[must_use]
    pub fn root_of(&self, change: &LogChange<'_>) -> Option<PageId> {
        self.operations.registry().get(change.op).ok()?.root(change.args)
    }

    /// The record for people: a line, and one more for each part of a group. Arguments of operations that this program
    /// does not have are shown as hexadecimal digits.
    #[must_use]
    pub fn print(&self) -> String {
        let args = |op: OpId, args: &[u8]| {
            let operation = self.operations.registry().get(op).ok()?;
            Some(format!("({}) {}", operation.name(), operation.print(args)))
        };
        ledgerstone_log::print(self.record.view(), &args)
    }
}

impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.print())
    }
}

impl fmt::Debug for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.print())
    }
}

/// Which records a reader shows. The default is all. Conditions are joined by "and".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFilter {
    xid: Option<Xid>,
    page: Option<PageId>,
    root: Option<PageId>,
    kinds: Vec<RecordKind>,
    from: Option<Lsn>,
    below: Option<Lsn>,
}

impl LogFilter {
    /// Only records of this transaction.
    #[must_use]
    pub fn transaction(mut self, xid: Xid) -> LogFilter {
        self.xid = Some(xid);
        self
    }

    /// Only records that change this page.
    #[must_use]
    pub fn page(mut self, page: PageId) -> LogFilter {
        self.page = Some(page);
        self
    }

    /// Only records that change a page of the table with this root page.
    ///
    /// Most records name their root. For the others the reader remembers which pages it has met under which root, so
    /// that the first of them may be missed when reading begins in the middle.
    #[must_use]
    pub fn root(mut self, root: PageId) -> LogFilter {
        self.root = Some(root);
        self
    }

    /// Only records of this kind. Call it again for more kinds.
    #[must_use]
    pub fn kind(mut self, kind: RecordKind) -> LogFilter {
        self.kinds.push(kind);
        self
    }

    /// Only records that begin at `from` or later.
    #[must_use]
    pub fn from(mut self, from: Lsn) -> LogFilter {
        self.from = Some(from);
        self
    }

    /// Only records that begin below `end`.
    #[must_use]
    pub fn below(mut self, end: Lsn) -> LogFilter {
        self.below = Some(end);
        self
    }

    /// Whether nothing at or behind `lsn` can pass.
    pub(crate) fn ends_before(&self, lsn: Lsn) -> bool {
        self.below.is_some_and(|below| lsn >= below)
    }

    /// Whether nothing that begins below `lsn` can pass.
    pub(crate) fn begins_at_or_behind(&self, lsn: Lsn) -> bool {
        self.from.is_some_and(|from| lsn <= from)
    }

    pub(crate) fn passes(&self, record: &LogRecord, roots: &mut ByNumber<PageId, PageId>) -> bool {
        let mut is_of_root = self.root.is_none();
        if let Some(wanted) = self.root {
            for change in record.changes() {
                let root = match record.root_of(&change) {
                    Some(root) => {
                        roots.insert(change.page, root);
                        Some(root)
                    }
                    None => roots.get(change.page).copied(),
                };
                is_of_root |= root == Some(wanted) || change.page == wanted;
            }
        }
        is_of_root
            && self.xid.is_none_or(|xid| record.xid() == xid)
            && self.page.is_none_or(|page| record.changes().any(|change| change.page == page))
            && (self.kinds.is_empty() || self.kinds.contains(&record.kind()))
            && self.from.is_none_or(|from| record.lsn() >= from)
            && self.below.is_none_or(|below| record.lsn() < below)
    }
}
