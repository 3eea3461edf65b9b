//! Commit: append, release locks early, then wait as long as the durability says.
//!
//! ```text
//!  claim ─► Commit record ─► hooks ─► locks released, LSN left in their buckets ─► slot free ─► wait (Sync)
//! ```
//! C1. Locks are released when the commit record is in the log buffer (early lock release, design 4). A transaction
//!     that then takes one of them learns this commit's LSN. It does not call itself durable before that LSN is.
//! C2. A reader is a commit too. It ends only when what it read is durable, or it passes the LSN on.
//! C3. The versions are stamped before the locks are released, so the next owner of a lock sees the stamp.

use ledgerstone_lock::OwnerNo;
use ledgerstone_log::{HEADER_BYTES, RecordKind};
use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_region::sync;

use crate::{Txn, TxnError, state};

/// A commit record: its header, the durable LSN and the time.
const COMMIT_RECORD_BYTES: usize = HEADER_BYTES + 16;

/// When a commit returns, measured by what a crash could still undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Durable on return.
    #[default]
    Sync,
    /// Returns at once. The flush is under way, and the ticket resolves when the commit is durable.
    Pipelined,
    /// Returns at once. The commit is durable within the flusher's delay.
    Async,
    /// Returns at once. The commit is durable when something else flushes the log.
    Volatile,
}

/// A commit that has its place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// LSN of the commit record, or none for a transaction that wrote nothing.
    pub lsn: Lsn,
    /// Everything that this transaction wrote or read is durable once the log is durable past this LSN. None means that
    /// it is durable now.
    pub depends: Lsn,
}

impl Txn {
    /// Commits the transaction.
    ///
    /// # Errors
    /// There is no space for the commit record, and the transaction is rolled back. Or the log failed: then the
    /// environment has failed, and it is unknown whether a restart will find the commit.
    pub fn commit(mut self, durability: Durability) -> Result<Committed, TxnError> {
        self.commit_in_place(durability)
    }

    /// Commits the transaction for a caller that drops it afterwards: if this fails, the drop rolls it back.
    ///
    /// # Errors
    /// As [`Txn::commit`].
    #[inline]
    pub fn commit_in_place(&mut self, durability: Durability) -> Result<Committed, TxnError> {
        self.engine.check()?;
        self.ending(|txn| match txn.chain.last_lsn {
            Lsn(0) => txn.commit_reader(durability),
            _ => txn.commit_writer(durability),
        })
    }

    #[inline(never)]
    fn commit_writer(&mut self, durability: Durability) -> Result<Committed, TxnError> {
        self.claim_last(COMMIT_RECORD_BYTES)?;
        self.slot().enter(state::COMMITTING);
        let durable = self.engine.log.durable_lsn().0.to_le_bytes();
        let time_ns = sync::unix_time_ns().to_le_bytes();
        self.engine.versions.begin_commit(&self.writer);
        let appended = self.chain.append_plain(&self.engine, RecordKind::Commit, &[&durable, &time_ns]);
        let lsn = match appended {
            Ok(lsn) => lsn,
            Err(error) => {
                self.engine.versions.take_back_commit(&self.writer);
                return Err(error);
            }
        };
        // C3
        if !self.writer.is_empty() {
            self.engine.versions.end_commit(&mut self.writer, lsn);
        }
        self.end(true, Some(lsn));
        // C1: an LSN met in a lock bucket is below our own, so waiting for our own is enough.
        let depends = lsn.max(self.depends);
        self.wait(durability, depends)?;
        Ok(Committed { lsn, depends })
    }

    #[inline]
    fn commit_reader(&mut self, durability: Durability) -> Result<Committed, TxnError> {
        self.end(true, None);
        let depends = self.depends;
        let is_durable = depends == Lsn(0) || self.engine.log.durable_lsn() > depends;
        if is_durable || planted::is_on(Bug::ReaderUnwaited) {
            return Ok(Committed { lsn: Lsn(0), depends: Lsn(0) });
        }
        self.wait(durability, depends)?;
        Ok(Committed { lsn: Lsn(0), depends })
    }

    fn wait(&self, durability: Durability, lsn: Lsn) -> Result<(), TxnError> {
        match durability {
            Durability::Sync => self.engine.log.flush_to(lsn)?,
            Durability::Pipelined => self.engine.log.request_flush(lsn),
            Durability::Async => self.engine.log.request_flush_soon(lsn),
            Durability::Volatile => {}
        }
        Ok(())
    }

    /// Ends the transaction in this process and in the region: hooks, locks, slot.
    #[inline]
    pub(crate) fn end(&mut self, committed: bool, commit_lsn: Option<Lsn>) {
        self.ended = true;
        if !self.writer.is_empty() {
            // Rolled back: the pages are what they were. Before the locks go, so that the next to change them comes
            // after.
            self.engine.versions.end_abort(&mut self.writer);
        }
        self.run_hooks(committed);
        let engine = &*self.engine;
        engine.locks.unlock_all(OwnerNo(self.chain.no), commit_lsn);
        self.chain.end(engine);
        if let Some(opened) = self.view.take() {
            engine.versions.close(opened);
        }
        engine.table.free(self.chain.no);
    }
}
