//! What can go wrong in a transaction.

use ledgerstone_buffer::BufferError;
use ledgerstone_lock::{LockError, LockName, Mode};
use ledgerstone_log::LogError;
use ledgerstone_op::{OpError, UnknownOperation};
use ledgerstone_page::{Corrupt, Lsn, OpId, Xid};
use thiserror::Error;

/// Why a call on a transaction was refused or failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TxnError {
    /// Every slot of the transaction table is taken. End a transaction, or open the environment with more slots.
    #[error("all {slots} transaction slots are in use; end a transaction first")]
    TooManyTransactions {
        /// Slots there are.
        slots: u32,
    },
    /// Every slot that is kept for the library's own transactions has been taken for long.
    #[error("all {slots} slots of the library's own transactions are in use; end a long call such as a verification")]
    OwnSlotsTaken {
        /// Slots there are.
        slots: u32,
    },
    /// The prepare record of a transaction whose process has died cannot be understood.
    #[error("the prepare record at LSN {lsn} of a transaction whose process has died is damaged: {what}")]
    OrphanPrepare {
        /// Of the record.
        lsn: Lsn,
        /// What is wrong.
        what: &'static str,
    },
    /// Every slot for a snapshot is taken.
    #[error("all {slots} snapshot slots are in use; close a snapshot first")]
    TooManySnapshots {
        /// Slots there are.
        slots: u32,
    },
    /// What the snapshot would see was dropped for lack of memory.
    #[error(
        "the snapshot at LSN {snapshot} is too old: what it needs was dropped below LSN {floor}; take a new one, or raise version_store_bytes"
    )]
    SnapshotTooOld {
        /// The snapshot.
        snapshot: Lsn,
        /// Snapshots below it are too old.
        floor: Lsn,
    },
    /// Another transaction has changed the same record, and has committed after this transaction took its snapshot.
    #[error(
        "a record was changed at LSN {newer}, after this transaction's snapshot at LSN {snapshot}; run the transaction again"
    )]
    SnapshotConflict {
        /// The snapshot.
        snapshot: Lsn,
        /// The commit that came first.
        newer: Lsn,
    },
    /// More threads use the environment than it has slots for.
    #[error("{slots} threads use the environment, which is the most")]
    TooManyThreads {
        /// Slots there are.
        slots: u32,
    },
    /// The lock is held by a transaction from whose closure this call is made. It cannot come free before this call
    /// returns.
    #[error(
        "transaction {xid} holds {name}, and this call, which wants it {mode}, is made inside that transaction's closure. \
         It would wait for ever: use transaction {xid}, or make the call after it ends"
    )]
    HeldByCaller {
        /// The lock.
        name: LockName,
        /// The mode that was asked for.
        mode: Mode,
        /// The transaction that holds it.
        xid: Xid,
    },
    /// This process was forked from the one that opened the environment.
    #[error(
        "this process was forked from the one that opened the environment: open it here, when the other has closed it"
    )]
    Forked,
    /// A method of a user's structure panicked, where no caller could be told.
    #[error("structure {structure:?} panicked in {method}")]
    Panicked {
        /// Its name.
        structure: &'static str,
        /// Which method.
        method: &'static str,
    },
    /// The environment failed earlier. Nothing is certain until it is opened again.
    #[error("the environment has failed ({why}); reopen it to recover")]
    Failed {
        /// What failed first.
        why: String,
    },
    /// A claim was too small for the records written under it. This is a bug of the structure that claimed.
    #[error("log record of {needed} bytes exceeds the {left} bytes left of the claim (operation {op})")]
    ClaimTooSmall {
        /// Bytes the record needs.
        needed: u64,
        /// Bytes the claim still holds.
        left: u64,
        /// Operation that was to be logged.
        op: OpId,
    },
    /// The record would be longer than any record of the log, or its compensation would. Nothing has changed. Change
    /// less at once.
    #[error("operation {op} needs a log record of {needed} bytes, and at most {most} bytes fit: change less at once")]
    RecordTooLong {
        /// Operation that was to be logged, the first of a group's.
        op: OpId,
        /// Bytes the record needs.
        needed: u64,
        /// The most it may need.
        most: u64,
    },
    /// The log names an operation that needs a logical undo, and none is registered.
    #[error(
        "operation {op} at LSN {lsn} needs a logical undo that is not registered; open with the extension that wrote it"
    )]
    NoLogicalUndo {
        /// The operation.
        op: OpId,
        /// Its record.
        lsn: Lsn,
    },
    /// A nested top action may only hold operations that can be undone on their page.
    #[error("operation {op} has a logical undo and cannot run inside a nested top action")]
    LogicalInNestedTop {
        /// The operation.
        op: OpId,
    },
    /// The savepoint belongs to another transaction, was released, or was forgotten by a rollback to an older one.
    #[error("transaction {xid} has no such savepoint: it was released, or a rollback went back to before it")]
    NoSavepoint {
        /// The transaction.
        xid: Xid,
    },
    /// The global id of a two-phase commit is empty or too long.
    #[error("global id of {len} bytes: 1 to {max} bytes are needed")]
    GlobalId {
        /// Its bytes.
        len: usize,
        /// The most.
        max: usize,
    },
    /// Prepare was called inside a nested top action, which is neither done nor undone yet.
    #[error("transaction {xid} cannot be prepared inside a nested top action")]
    PreparedInNestedTop {
        /// The transaction.
        xid: Xid,
    },
    /// A record in the chain of a transaction is not what the chain needs.
    #[error("record at LSN {lsn} does not belong to transaction {xid}")]
    BrokenChain {
        /// The record.
        lsn: Lsn,
        /// The transaction.
        xid: Xid,
    },
    /// The log refused or failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The page cache refused or failed.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A lock was refused: deadlock, time-out, table full.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// An operation refused its page or arguments.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The log or a caller names an operation that is not registered.
    #[error(transparent)]
    UnknownOperation(#[from] UnknownOperation),
    /// A page's bytes break an invariant of its layout.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The thread has the latch of a structure's instance, and asks for one more: a bug of the structure.
    #[error("this thread has the latch of a structure already; give it back before the next is taken")]
    StructureLatchHeld,
    /// A structure's own failure during a logical undo, in words.
    #[error("undo by {structure} failed: {what}")]
    Structure {
        /// Which structure.
        structure: &'static str,
        /// What it said.
        what: String,
    },
}
