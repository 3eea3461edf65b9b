//! One transaction: its chain of records, its claim on the log, and how it changes pages.
//!
//! ```text
//!             claim            update, group           commit
//!  begin ──► RUNNING ──────────────────────────────► COMMITTING ──► (slot free)
//!               │  abort, drop, error in undo = Failed
//!               ▼            (prepared, it ends only when told to: `prepare.rs`)
//!            ABORTING  read the chain backwards, write compensation records, then End
//! ```
//! X1. A page changes only in [`Txn::update`] and [`Txn::group`] (and in redo), through `Operation::redo`, after its
//!     record has its LSN and while the page is latched exclusively.
//! X2. The order is: mark (`first_lsn`, `rec_lsn`) from the tail, reserve, copy, apply, `page_lsn`. See T1.
//! X3. A compensation record says where the rollback goes on (`undo_next`), or which record it undoes, so that no undo
//!     is done twice.
//! X4. No latch is held in `claim`, `lock`, `commit` or `abort`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ledgerstone_buffer::ExclusivePage;
use ledgerstone_lock::{LockName, Mode, OwnerNo};
use ledgerstone_log::{Claim, HEADER_BYTES, PART_HEADER_BYTES, RecordKind};
use ledgerstone_op::{Operation, PageMut, Undo};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_region::{Share, SlotNo};

use crate::chain::{Chain, FLAG_OUT_OF_ORDER, FORWARD_BYTES_MAX};
use crate::locks::HeldTables;
use crate::savepoint::Marks;
use crate::version::{At, Before, Horizon, Opened, Times, Unseen, View, Who, Writer};
use crate::{Engine, EngineSettings, TxnError, VersionStore};

/// Bytes that a record costs beside its arguments: header, page part, `undo_next`, padding.
pub const RECORD_OVERHEAD_BYTES: usize = 64;

/// Room for the body of a group that is kept for the next transaction in the same memory.
const SCRATCH_KEPT_BYTES_MAX: usize = 16 << 10;

/// One page's share of a group.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Index into the group's list of latched pages.
    pub page: usize,
    /// The operation.
    pub op: OpId,
    /// Its arguments.
    pub args: &'a [u8],
}

/// What a compensation record says of the rollback.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Compensates {
    /// It goes on at this record: all behind it is undone.
    BackTo(Lsn),
    /// This record is undone, and nothing is said of others (B3 in `rollback.rs`).
    Only(Lsn),
}

/// What happens to a transaction after its locks are no longer needed; run before they are released.
type Hook = Box<dyn FnOnce(bool) + Send>;

/// A running transaction. Dropping it rolls it back.
pub struct Txn {
    pub(crate) engine: Share<Engine>,
    pub(crate) chain: Chain,
    pub(crate) depends: Lsn,
    pub(crate) tables: HeldTables,
    pub(crate) lock_timeout_ns: u64,
    /// The lock that it was refused last for the sake of others ([`Txn::gave_way_for`]).
    pub(crate) gave_way_for: Option<(LockName, Mode)>,
    /// While undoing one record: what the compensation record will say.
    pub(crate) compensating: Option<Compensates>,
    pub(crate) rolling_back: bool,
    /// A restart rolls it back.
    pub(crate) is_loser: bool,
    pub(crate) ended: bool,
    /// Both commit and abort can be had, and only on request (Y5 in `prepare.rs`).
    pub(crate) is_prepared: bool,
    pub(crate) nesting: u32,
    pub(crate) marks: Marks,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) writer: Writer,
    /// Its snapshot. It is closed when the transaction ends, or goes without an end.
    pub(crate) view: Option<Opened>,
    scratch: Vec<u8>,
    /// See [`Txn::set_near`].
    near: (PageId, PageId),
}

impl Txn {
    pub(crate) fn new(engine: Share<Engine>, no: u32, xid: Xid) -> Txn {
        let EngineSettings { lock_timeout_ns, escalate_after, .. } = engine.settings;
        Txn {
            engine,
            chain: Chain::new(no, xid),
            depends: Lsn::NONE,
            tables: HeldTables::new(escalate_after),
            lock_timeout_ns,
            gave_way_for: None,
            compensating: None,
            rolling_back: false,
            is_loser: false,
            ended: false,
            writer: Writer::default(),
            view: None,
            is_prepared: false,
            nesting: 0,
            marks: Marks::default(),
            hooks: Vec::new(),
            scratch: Vec::new(),
            near: (PageId::NONE, PageId::NONE),
        }
    }

    /// The same for a transaction that has ended: it is another from here on, in memory that is there.
    #[inline]
    pub(crate) fn renew(&mut self, no: u32, xid: Xid, lock_timeout_ns: u64) {
        debug_assert!(self.writer.is_empty() && self.hooks.is_empty() && self.view.is_none() && self.nesting == 0);
        self.chain.renew(&self.engine, no, xid);
        self.depends = Lsn::NONE;
        self.tables.clear();
        self.lock_timeout_ns = lock_timeout_ns;
        self.gave_way_for = None;
        self.compensating = None;
        self.rolling_back = false;
        self.is_loser = false;
        self.ended = false;
        self.near = (PageId::NONE, PageId::NONE);
        self.marks.clear();
        if self.scratch.capacity() > SCRATCH_KEPT_BYTES_MAX {
            self.scratch = Vec::new();
        }
    }

    pub(crate) fn adopted(engine: Share<Engine>, no: u32, xid: Xid, first: Lsn, last: Lsn) -> Txn {
        let mut txn = Txn::new(engine, no, xid);
        txn.chain.first_lsn = first;
        txn.chain.last_lsn = last;
        txn
    }

    /// The engine this transaction runs in.
    #[must_use]
    #[inline]
    pub fn engine(&self) -> &Arc<Engine> {
        self.engine.arc()
    }

    /// The share of the engine that it holds a clone of.
    #[must_use]
    pub fn engine_share(&self) -> &Share<Engine> {
        &self.engine
    }

    /// Its id, unique for the life of the environment.
    #[inline]
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.chain.xid
    }

    /// Says that this transaction changes where things are and not what they are, as a compaction does. Its records get
    /// [`FLAG_UPKEEP`](crate::FLAG_UPKEEP).
    pub fn mark_upkeep(&mut self) {
        self.chain.mark_upkeep();
    }

    /// Its number in the transaction table, which is its name in the lock manager.
    #[inline]
    #[must_use]
    pub fn owner(&self) -> OwnerNo {
        OwnerNo(self.chain.no)
    }

    /// Its newest record, or none.
    #[must_use]
    pub fn last_lsn(&self) -> Lsn {
        self.chain.last_lsn
    }

    /// An LSN at or a little before its first record, or none if it has written nothing.
    #[must_use]
    pub fn first_lsn(&self) -> Lsn {
        self.chain.first_lsn
    }

    /// True while it undoes: updates become compensation records and no locks are taken.
    #[must_use]
    pub fn is_rolling_back(&self) -> bool {
        self.rolling_back
    }

    /// Sets how long this transaction waits for a lock, in nanoseconds.
    pub fn set_lock_timeout_ns(&mut self, ns: u64) {
        self.lock_timeout_ns = ns;
    }

    /// Runs `hook` when the transaction ends, before its locks are released. The argument of `hook` is true after a
    /// commit. A panic of it ends there: the transaction has ended already, and gives its locks back.
    pub fn on_end(&mut self, hook: impl FnOnce(bool) + Send + 'static) {
        self.hooks.push(Box::new(hook));
    }

    /// Claims room in the log for the next updates and groups, and room in the log's files to undo them.
    ///
    /// `bytes` covers arguments and [`RECORD_OVERHEAD_BYTES`] for each update and each part. The rest of an earlier
    /// claim is given back. May wait for the log to be flushed: hold no latch.
    ///
    /// # Errors
    /// No space left on the device (nothing has changed), a claim larger than the log buffer, a failed environment.
    pub fn claim(&mut self, bytes: usize) -> Result<(), TxnError> {
        self.engine.check()?;
        self.engine.versions.drop_spilled_images(&mut self.writer);
        if self.rolling_back || self.is_prepared {
            return self.chain.claim_undo(&self.engine, bytes);
        }
        self.chain.claim(&self.engine, bytes)
    }

    /// As [`Txn::claim`], for the record that ends the transaction. The room for the commit of a prepared one is
    /// reserved (Y1 in `prepare.rs`).
    pub(crate) fn claim_last(&mut self, bytes: usize) -> Result<(), TxnError> {
        self.engine.versions.drop_spilled_images(&mut self.writer);
        if self.is_prepared {
            return self.chain.claim_undo(&self.engine, bytes);
        }
        self.chain.claim_last(&self.engine, bytes)
    }

    /// Logs one undoable update of a latched page and applies it. During a rollback, it logs a compensation record.
    ///
    /// # Errors
    /// The claim is too small, or the operation is unknown. Nothing has changed then. If an operation refuses arguments
    /// that its structure has checked, the environment fails, because the log already holds the record.
    pub fn update(&mut self, page: &mut ExclusivePage<'_>, op: OpId, args: &[u8]) -> Result<Lsn, TxnError> {
        let (engine, chain) = (&*self.engine, &mut self.chain);
        let operation = engine.ops.get(op)?;
        if self.nesting > 0 && !self.rolling_back && matches!(operation.undo(args), Undo::Logical) {
            return Err(TxnError::LogicalInNestedTop { op });
        }
        let place = Some((page.id(), page.page_lsn()));
        let next = self.compensating.map(|what| match what {
            Compensates::BackTo(lsn) => (lsn.0.to_le_bytes(), 0),
            Compensates::Only(lsn) => (lsn.0.to_le_bytes(), FLAG_OUT_OF_ORDER),
        });
        let lsn = match &next {
            None => {
                let body = [args];
                let record = chain.record(RecordKind::Update, op, place, &body);
                chain.prepare(engine, &record)?;
                page.begin_change(engine.log.tail());
                chain.append(engine, &record)?
            }
            Some((next, flags)) => {
                let body = [&next[..], args];
                let mut record = chain.record(RecordKind::Compensation, op, place, &body);
                record.flags |= flags;
                chain.prepare(engine, &record)?;
                page.begin_change(engine.log.tail());
                chain.append(engine, &record)?
            }
        };
        match self.compensating.take() {
            Some(Compensates::BackTo(next)) => engine.table.slot(chain.no).undo_next.store(next.0, Relaxed),
            Some(Compensates::Only(_)) => {}
            None => chain.count_undo(args.len()),
        }
        engine.versions.before_change(&mut self.writer);
        apply(engine, page, operation, args, lsn)?;
        Ok(lsn)
    }

    /// Logs a change of several latched pages as one record and applies it. The record is redone whole or not at all,
    /// and never undone. It is a nested top action in one record.
    ///
    /// # Errors
    /// As [`Txn::update`].
    ///
    /// # Panics
    /// If a part names a page that is not in `pages`: a bug of the structure.
    pub fn group(&mut self, pages: &mut [&mut ExclusivePage<'_>], parts: &[Part<'_>]) -> Result<Lsn, TxnError> {
        let (engine, chain) = (&*self.engine, &mut self.chain);
        for part in parts {
            assert!(part.page < pages.len(), "group part names page {} of {}", part.page, pages.len());
            engine.ops.get(part.op)?;
        }
        check_group(parts)?;
        self.scratch.clear();
        ledgerstone_log::group_body(
            &mut self.scratch,
            parts.iter().map(|p| (pages[p.page].id(), p.op, pages[p.page].page_lsn(), p.args)),
        );
        let body = [&self.scratch[..]];
        let record = chain.record(RecordKind::Group, OpId(0), None, &body);
        chain.prepare(engine, &record)?;
        begin_changes(engine, pages, parts);
        let lsn = chain.append(engine, &record)?;
        engine.versions.before_change(&mut self.writer);
        apply_parts(engine, pages, parts, lsn)?;
        Ok(lsn)
    }

    /// Runs `f` as a nested top action (Lemon 4.3): its updates stay even if this transaction aborts afterwards.
    ///
    /// If `f` fails or panics, its own updates are undone on their pages and its error is returned. A crash inside
    /// undoes them too. Updates inside need an undo that works on the page.
    ///
    /// # Errors
    /// What `f` returns. Or there is no space in the log, which is found before `f` is called.
    pub fn nested_top<T, E: From<TxnError>>(&mut self, f: impl FnOnce(&mut Txn) -> Result<T, E>) -> Result<T, E> {
        let before = self.chain.last_lsn;
        // Room for the end is reserved before anything is done: whatever has filled the log by then, what was done
        // stays done. A rollback has its room.
        let end_bytes = if self.rolling_back || self.is_prepared { 0 } else { 2 * RECORD_OVERHEAD_BYTES as u64 };
        self.chain.expect_more(end_bytes);
        if let Err(error) = self.claim(2 * RECORD_OVERHEAD_BYTES) {
            self.chain.expect_less(end_bytes);
            return Err(error.into());
        }
        let begin = self.chain.append_plain(&self.engine, RecordKind::NtaBegin, &[])?;
        let marks = self.marks.count();
        self.set_nesting(self.nesting + 1);
        let result = catch_unwind(AssertUnwindSafe(|| f(self))).map_err(|panic| self.engine.keep_panic(panic));
        self.nesting -= 1; // The slot says so when the log does: until then the top action is open.
        self.marks.truncate(marks);
        let undone = if matches!(result, Ok(Ok(_))) { Ok(()) } else { self.undo_back_to(begin) };
        let ended = undone.and_then(|()| self.end_nested(before, end_bytes));
        match result {
            Ok(done) => {
                ended?;
                done
            }
            // Whatever else went wrong has failed the environment, and every later call says so.
            Err(panic) => panic.go_on(),
        }
    }

    /// The end of a nested top action, with where a rollback goes on.
    fn end_nested(&mut self, before: Lsn, end_bytes: u64) -> Result<(), TxnError> {
        self.chain.claim_undo(&self.engine, 2 * RECORD_OVERHEAD_BYTES)?;
        let before = if planted::is_on(Bug::TopActionTakenBack) { self.chain.last_lsn } else { before };
        self.chain.append_plain(&self.engine, RecordKind::NtaEnd, &[&before.0.to_le_bytes()])?;
        self.set_nesting(self.nesting);
        self.chain.set_undo_needed(&self.engine, self.chain.undo_needed() - end_bytes);
        Ok(())
    }

    /// Runs `f` as one step: if `f` fails or panics, what it did is undone, and the transaction goes on. Hold no latch.
    ///
    /// # Errors
    /// What `f` returns. If the rollback fails, the environment has failed.
    pub fn in_one_step<T, E: From<TxnError>>(&mut self, f: impl FnOnce(&mut Txn) -> Result<T, E>) -> Result<T, E> {
        let before = self.savepoint();
        let done = catch_unwind(AssertUnwindSafe(|| f(self))).map_err(|panic| self.engine.keep_panic(panic));
        let taken_back = if matches!(done, Ok(Ok(_))) { Ok(()) } else { self.rollback_to(before) };
        let released = self.release_savepoint(before);
        match done {
            Ok(done) => {
                taken_back?;
                released?;
                done
            }
            // Whatever else went wrong has failed the environment, and every later call says so.
            Err(panic) => panic.go_on(),
        }
    }

    fn set_nesting(&mut self, nesting: u32) {
        self.nesting = nesting;
        self.slot().nesting.store(nesting, Relaxed);
    }

    pub(crate) fn slot(&self) -> &crate::TxnSlot {
        self.engine.table.slot(self.chain.no)
    }

    /// Gives back what is left of the claim, if it is more than [`ledgerstone_log::Log::kept_claim_bytes`]. Call it
    /// when an operation of a structure is over. A transaction that waits for its program must not hold room that
    /// others wait for.
    #[inline]
    pub fn keep_claim(&mut self) {
        self.chain.keep_claim(&self.engine);
    }

    /// Gives back all that is left of the claim.
    #[inline]
    pub fn release_claim(&mut self) {
        self.chain.release_claim(&self.engine);
    }

    /// Notes what a record was before this transaction changes it, for the readers of snapshots. A structure calls it
    /// before the update, for each record that changes, with the record's page latched exclusively. `space` is the root
    /// page of the structure. Only the first change of a record stores anything. Not to be called during a rollback.
    #[inline]
    pub fn note(&mut self, space: PageId, key: &[u8], before: Before<'_>) {
        self.note_times(space, key, before, Times::Any);
    }

    /// The same for a record that is not there, not even deleted: this transaction has noted nothing of it.
    #[inline]
    pub fn note_new(&mut self, space: PageId, key: &[u8]) {
        self.note_times(space, key, Before::Absent, Times::First);
    }

    #[inline]
    fn note_times(&mut self, space: PageId, key: &[u8], before: Before<'_>, times: Times) {
        if !self.rolling_back {
            let who = Who { slot: self.chain.no, xid: self.chain.xid, first_lsn: self.chain.first_lsn };
            self.engine.versions.note(&mut self.writer, who, space, key, before, times);
        }
    }

    /// Remembers, for a structure with this root page, that the next change will perhaps be on `page`. It is remembered
    /// for the last structure that asked, until the transaction ends or goes back to a savepoint. So no page was given
    /// to another structure meanwhile. `PageId::NONE` forgets it.
    #[inline]
    pub fn set_near(&mut self, root: PageId, page: PageId) {
        self.near = (root, page);
    }

    /// The page that was remembered for this structure. What it is now, a look at it under its latch says.
    #[inline]
    #[must_use]
    pub fn near(&self, root: PageId) -> Option<PageId> {
        let (of, page) = self.near;
        (of == root && page != PageId::NONE).then_some(page)
    }

    /// Opens a snapshot of everything committed until now. The caller keeps it open.
    ///
    /// # Errors
    /// All snapshot slots are taken. Too many threads.
    pub fn open_view(&self, horizon: Horizon) -> Result<View, TxnError> {
        let engine = &*self.engine;
        let thread = engine.thread()?;
        VersionStore::open_view(engine.version_share(thread), &engine.table, thread, self.chain.xid, horizon)
    }

    /// Makes everything this transaction reads come from one snapshot, taken now, which stays open until it ends.
    /// `thread` is the caller's slot.
    ///
    /// # Errors
    /// All snapshot slots are taken.
    pub fn set_snapshot(&mut self, thread: SlotNo) -> Result<(), TxnError> {
        let engine = &*self.engine;
        engine.in_a_call(|| {
            let opened = engine.versions.open(&engine.table, thread, self.chain.xid, Horizon::Marks)?;
            if let Some(before) = self.view.replace(opened) {
                engine.versions.close(before);
            }
            Ok(())
        })
    }

    /// Closes its snapshot, if it has one.
    #[inline]
    pub(crate) fn close_snapshot(&mut self) {
        if let Some(opened) = self.view.take() {
            self.engine.versions.close(opened);
        }
    }

    /// Its snapshot, if it has one.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> Option<At> {
        self.view.as_ref().map(|opened| opened.at)
    }

    /// Looks in the version store for a record of a page that was read before (V3). The result is the record's state at
    /// a snapshot, with this transaction's own changes.
    #[inline]
    pub fn look(&self, at: At, space: PageId, key: &[u8], image: &mut crate::Image) -> crate::Look {
        self.engine.versions.look(at, self.writer.name(), space, key, image)
    }

    /// The spilled writers that a snapshot does not see, without this transaction. Those are left out that are known
    /// not to have changed the tree of this root (of no page: any tree). Their changes to a page that was read before
    /// have to be undone with the log.
    #[inline]
    #[must_use]
    pub fn unseen(&self, at: At, root: PageId) -> Unseen {
        self.engine.versions.unseen(at, self.chain.xid, root)
    }

    /// Notes that this transaction depends on commits below `lsn`. It is not durable before they are.
    #[inline]
    pub fn depend_on_commits_below(&mut self, lsn: Lsn) {
        let last = Lsn(lsn.0.saturating_sub(1));
        if last > self.depends && lsn > self.engine.log.begun_lsn() {
            self.depends = last;
        }
    }

    /// Checks that the first committer wins. Refuses if a commit that this transaction's snapshot does not see has
    /// changed the record. This transaction has locked the record.
    ///
    /// # Errors
    /// [`TxnError::SnapshotConflict`]. [`TxnError::SnapshotTooOld`] if that cannot be known any more.
    pub fn check_first(&self, space: PageId, key: &[u8]) -> Result<(), TxnError> {
        let Some(at) = self.snapshot() else { return Ok(()) };
        let versions = &self.engine.versions;
        let newer = versions.newest_commit(at, space, key).max(versions.newest_spilled_commit()); // L4
        versions.check(at)?;
        if newer >= at.lsn && !planted::is_on(Bug::LastCommitterWins) {
            return Err(TxnError::SnapshotConflict { snapshot: at.lsn, newer });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn run_hooks(&mut self, committed: bool) {
        if self.hooks.is_empty() {
            return;
        }
        for hook in self.hooks.drain(..) {
            self.engine.unless_it_panics(|| hook(committed));
        }
    }
}

impl Engine {
    /// A group that belongs to no transaction. It is redone, and that is all. For housekeeping on which nothing
    /// depends.
    ///
    /// `claim` comes from [`ledgerstone_log::Log::claim_upkeep`], which does not queue for room. So a caller that holds
    /// another claim may call this.
    ///
    /// # Errors
    /// As [`Txn::group`].
    pub fn group_alone(
        &self,
        claim: Claim,
        pages: &mut [&mut ExclusivePage<'_>],
        parts: &[Part<'_>],
    ) -> Result<Lsn, TxnError> {
        let mut claim = claim;
        if let Err(error) = check_group(parts) {
            self.log.give_back(claim);
            return Err(error);
        }
        let mut body = Vec::new();
        ledgerstone_log::group_body(
            &mut body,
            parts.iter().map(|p| (pages[p.page].id(), p.op, pages[p.page].page_lsn(), p.args)),
        );
        let body = [&body[..]];
        let record = Chain::new(0, Xid::NONE).record(RecordKind::Group, OpId(0), None, &body);
        let needed = record.len_bytes() as u64;
        if claim.left() < needed {
            let error = TxnError::ClaimTooSmall { needed, left: claim.left(), op: OpId(0) };
            self.log.give_back(claim);
            return Err(error);
        }
        begin_changes(self, pages, parts);
        let lsn = self.log.append(&mut claim, &record);
        self.log.give_back(claim);
        apply_parts(self, pages, parts, lsn)?;
        Ok(lsn)
    }
}

/// Refuses a group that no record holds.
fn check_group(parts: &[Part<'_>]) -> Result<(), TxnError> {
    let of_parts = parts.iter().map(|part| PART_HEADER_BYTES + part.args.len().next_multiple_of(8));
    let (needed, most) = ((HEADER_BYTES + of_parts.sum::<usize>()) as u64, FORWARD_BYTES_MAX);
    let op = parts.first().map_or(OpId(0), |part| part.op);
    if needed > most { Err(TxnError::RecordTooLong { op, needed, most }) } else { Ok(()) }
}

fn begin_changes(engine: &Engine, pages: &mut [&mut ExclusivePage<'_>], parts: &[Part<'_>]) {
    for (no, page) in pages.iter_mut().enumerate() {
        let first = parts.iter().find(|part| part.page == no).and_then(|part| engine.ops.get(part.op).ok());
        // Redo would leave it with its old LSN, and refuse its next record.
        debug_assert!(first.is_some(), "a group changes nothing on {}", page.id());
        page.begin_change_with(engine.log.tail(), first.is_some_and(|op| op.formats()));
    }
}

fn apply_parts(
    engine: &Engine,
    pages: &mut [&mut ExclusivePage<'_>],
    parts: &[Part<'_>],
    lsn: Lsn,
) -> Result<(), TxnError> {
    for part in parts {
        redo(engine, pages[part.page], engine.ops.get(part.op)?, part.args)?;
    }
    // Afterwards, since several parts may be of one page.
    for page in pages.iter_mut() {
        page.finish_change(lsn);
    }
    Ok(())
}

/// Applies an operation whose record is in the log, and which is all that the record holds of the page.
#[inline]
fn apply(
    engine: &Engine,
    page: &mut ExclusivePage<'_>,
    operation: &dyn Operation,
    args: &[u8],
    lsn: Lsn,
) -> Result<(), TxnError> {
    redo(engine, page, operation, args)?;
    page.finish_change(lsn);
    Ok(())
}

#[inline]
fn redo(engine: &Engine, page: &mut ExclusivePage<'_>, operation: &dyn Operation, args: &[u8]) -> Result<(), TxnError> {
    let id = page.id();
    let panicked = Panicked { engine, operation };
    let done = operation.redo(&mut PageMut::new(id, page.page_mut()), args);
    std::mem::forget(panicked);
    if let Err(error) = done {
        // The record is in the log and the page is not what it says: only a restart knows better.
        engine.fail(&format!("operation {} on page {id} failed after it was logged: {error}", operation.name()));
        return Err(error.into());
    }
    Ok(())
}

/// Dropped when an operation panics: its record is in the log and the page is half of what it says.
struct Panicked<'e> {
    engine: &'e Engine,
    operation: &'e dyn Operation,
}

impl Drop for Panicked<'_> {
    fn drop(&mut self) {
        self.engine.fail(&format!("operation {} panicked after it was logged", self.operation.name()));
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if self.is_prepared {
            return; // Y5
        }
        if self.engine.is_inherited() {
            return; // The parent's; its mutexes may be held by threads that are not here.
        }
        if std::thread::panicking() && !self.ended {
            self.engine.after_panic(false); // It is rolled back unless that would wait for this thread itself.
        }
        if self.is_loser && !self.ended {
            // Records that are undone out of their order would be undone again (B3): the next restart knows them.
            self.engine.fail("a rollback that nobody else can finish ended early: open again");
            return;
        }
        if !self.ended && self.engine.thread().is_err() {
            self.engine.fail("a transaction was dropped in a thread that has no slot, and cannot be rolled back there");
        }
        if !self.ended && !self.engine.is_failed() {
            // An error here has failed the environment already; a restart undoes the rest.
            let _ = self.roll_back_all();
        }
        if !self.ended {
            self.run_hooks(false);
        }
        self.close_snapshot();
        self.chain.keep_nothing(&self.engine);
    }
}
