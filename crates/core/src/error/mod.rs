//! One error type for all calls of the library.
//!
//! | kind | variants | what to do |
//! | --- | --- | --- |
//! | refusal | most | nothing has changed; the message says what to do |
//! | conflict | `Deadlock`, `LockRefused`, `LockTableFull`, `LockTimeout`, `SnapshotConflict`, `TableChanged` | the transaction was (or should be) rolled back; try it again ([`Error::is_retryable`]) |
//! | damage and device | `Corrupt`, `ControlFile`, `Disk` | restore, repair, look at the device |
//! | the program's own | `User` | whatever the program means by it |
//! | failed environment | `Failed` | every call says so until the environment is opened again |

mod convert;
mod methods;
mod parts;

use std::io;

use ledgerstone_disk::quoted;
use ledgerstone_page::{Lsn, TableId, Xid};
use thiserror::Error as ThisError;

pub use parts::{ConfigProblem, TypeMismatch};

/// What to do about an environment of an older version.
pub const DUMP_AND_LOAD: &str = "dump the environment with the version that wrote it, and load the dump with this one";

/// Why a call was refused or failed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The transaction was chosen to end a deadlock and has been rolled back. Run it again.
    #[error("deadlock, and this transaction was rolled back to end it: {cycle}")]
    Deadlock {
        /// Who waited for whom.
        cycle: String,
        /// The transactions in it, this one first: each waited for the next, and the last for the first.
        transactions: Box<[Xid]>,
    },
    /// A lock that another transaction holds was refused to avoid a deadlock (settings no-wait and wait-die). The
    /// transaction has been rolled back. Run it again.
    #[error("lock refused, and this transaction was rolled back: {what}")]
    LockRefused {
        /// Which lock, and who holds it.
        what: String,
        /// The table, if the lock is of one: `what` names it as far as its name is known.
        table: Option<TableId>,
        /// Who holds it, in ascending order; empty if that is not known.
        holders: Box<[Xid]>,
    },
    /// A lock was not granted in time. The transaction is still open: roll it back and run it again, or wait longer.
    #[error("lock not granted in time: {what}")]
    LockTimeout {
        /// Which lock, and who holds it.
        what: String,
        /// The table, if the lock is of one: `what` names it as far as its name is known.
        table: Option<TableId>,
        /// Who holds it, in ascending order; empty if that is not known.
        holders: Box<[Xid]>,
    },
    /// This process was forked from the one that opened the environment, and has its handles by inheritance only. They
    /// touch nothing, and dropping them does not either. The child may open the environment when the parent has closed
    /// it.
    #[error(
        "this process was forked from the one that opened the environment: open it here, when the other has closed it"
    )]
    Forked,
    /// The lock is held by a transaction from whose closure this call is made. Examples are `transact` in `transact`,
    /// and a transaction in `BytesTable::modify`. The lock cannot come free before the
    /// call returns, so the call is refused at once. Use the transaction that is running, or make the call after it.
    ///
    /// The same error is returned if a call would wait for another thread's call of its transaction, and that call
    /// waits for such a lock.
    #[error("lock held by the caller: {what}")]
    HeldByCaller {
        /// Which lock, and which transaction holds it.
        what: String,
        /// The table, if the lock is of one: `what` names it as far as its name is known.
        table: Option<TableId>,
    },
    /// Another transaction has changed the same record, and has committed after this transaction took its snapshot. The
    /// transaction is still open: roll it back and run it again.
    #[error("first committer wins: {what}")]
    SnapshotConflict {
        /// Which commit came first.
        what: String,
    },
    /// What the snapshot would have to show was dropped for lack of memory. Take a new snapshot; keep it for a shorter
    /// time, or open with a larger `version_store_bytes`.
    #[error(
        "the snapshot at LSN {snapshot} is too old (what it needs was dropped below LSN {floor}); take a new one, or raise version_store_bytes"
    )]
    SnapshotTooOld {
        /// The snapshot.
        snapshot: Lsn,
        /// Snapshots below it are too old.
        floor: Lsn,
    },
    /// All snapshot slots are in use.
    #[error("{0} snapshots are open, which is the most; close one, or raise transaction_count_max")]
    TooManySnapshots(u32),
    /// All locks are taken, and the transaction has been rolled back to give up its own. If it held at most half of
    /// them, run it again ([`Error::is_retryable`]). Otherwise it would need them again: make it smaller, lock its
    /// tables as wholes, or open with a larger `lock_count_max`.
    #[error(
        "the lock table is full, and this transaction was rolled back, which held {held} of {max} locks; {}",
        if held > &(max / 2) { "make it smaller, or raise lock_count_max" } else { "run it again" }
    )]
    LockTableFull {
        /// Locks that the transaction held.
        held: u64,
        /// Locks there are.
        max: u64,
    },
    /// The transaction was committed or rolled back before this call.
    #[error("the transaction has already ended")]
    Finished,
    /// The savepoint was released, forgotten by a rollback to an older one, is another transaction's, or lies outside
    /// the nested transaction that is running.
    #[error(
        "this savepoint is gone: it was released, or a rollback to an earlier savepoint removed it, or it belongs to an \
         outer or another transaction"
    )]
    NoSavepoint,
    /// A transaction is prepared under this global id and not yet decided.
    #[error("a transaction is already prepared as {id}: commit or abort it first, or use another id")]
    AlreadyPrepared {
        /// The global id.
        id: String,
    },
    /// No transaction is in doubt under this global id. It was decided, was never prepared, or is being decided just
    /// now.
    #[error("no transaction is in doubt as {id}")]
    NotPrepared {
        /// The global id.
        id: String,
    },
    /// A global id is empty or too long.
    #[error("global id of {len} bytes: 1 to {max} bytes are needed")]
    BadGlobalId {
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// All transaction slots are in use.
    #[error("{0} transactions are running, which is the most; end one, or raise transaction_count_max")]
    TooManyTransactions(u32),
    /// All thread slots are in use.
    #[error("{0} threads use the environment, which is the most; end one, or raise thread_count_max")]
    TooManyThreads(u32),
    /// A closure called back into the transaction that was calling it, through another table handle or iterator. Or the
    /// progress callback of a compaction asked for another compaction. Other threads get the same error when the
    /// closure keeps them waiting for a second. So does a call like a verification while too many others run inside
    /// the callbacks of such calls. So does a close that a waker or a keeper of the log asks for: it would wait for its
    /// own end.
    #[error(
        "busy: the closure of another call is still running, in this thread or another; collect the records first, or use \
         an owned iterator"
    )]
    Busy,
    /// The key is longer than a page of this environment allows.
    #[error("key of {len} bytes is too large; at most {max} bytes fit")]
    KeyTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The value is too long.
    #[error("value of {len} bytes is too large; at most {max} bytes fit")]
    ValueTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A table name is empty or too long.
    #[error("table name {} is not valid: 1 to 255 bytes are needed", quoted(.name))]
    BadTableName {
        /// The name.
        name: String,
    },
    /// No record begins at this LSN, or it cannot be read, or the feed has not come there yet. Use the position of a
    /// feed, the position of a commit that a feed has shown, or the LSN of a record. If the LSN was one of these, a
    /// segment of the log is missing or damaged, or the environment was restored to an earlier moment.
    #[error(
        "LSN {lsn} is not a position in this log: use the position of a feed, or of a commit that a feed has shown. If it \
         was one, a segment of the log is missing or damaged, or the environment was restored to an earlier moment"
    )]
    NotAPosition {
        /// Where.
        lsn: Lsn,
    },
    /// A named feed was forgotten while it was open: nothing keeps its position any more.
    #[error(
        "feed {} was forgotten: read on without acknowledging, or open the name anew to begin from now",
        quoted(.name)
    )]
    FeedForgotten {
        /// Its name.
        name: String,
    },
    /// The file of the positions of all named feeds would become longer than an open reads.
    #[error(
        "the names and positions of all feeds would take more than {bytes_max} bytes: forget a feed, or use shorter names"
    )]
    TooManyFeeds {
        /// The longest allowed.
        bytes_max: u64,
    },
    /// No table has that name.
    #[error("there is no table named {}", quoted(.0))]
    NoSuchTable(String),
    /// A table of that name exists already.
    #[error("a table named {} exists already", quoted(.0))]
    TableExists(String),
    /// The name of a user's structure was used as that of a table.
    #[error("{} is a structure, not a table", quoted(.name))]
    NotATable {
        /// The name.
        name: String,
    },
    /// The name of a table was used as that of a structure, or the structure is of another kind.
    #[error("{} is not a structure of this kind", quoted(.name))]
    NotAStructure {
        /// The name.
        name: String,
    },
    /// A user's structure was used in a transaction that reads without locks.
    #[error("structure {} keeps no versions: use it in a serializable transaction, not at {isolation}", quoted(.name))]
    StructureNeedsLocks {
        /// The structure's name.
        name: String,
        /// The transaction's level.
        isolation: crate::choice::Isolation,
    },
    /// A structure of the program's own asked for a change that cannot be logged. The record would be too long, or
    /// longer than what was claimed, or could not be undone where it is. Nothing has changed.
    #[error("a structure's change was refused: {what}")]
    OperationRefused {
        /// The operation that was to be logged, the first of a group's.
        op: ledgerstone_page::OpId,
        /// What is wrong.
        what: String,
    },
    /// Something that a program registers contradicts itself or the engine: an id below the users' range, or an id used
    /// twice.
    #[error("structure {} cannot be registered: {what}", quoted(.structure))]
    BadStructure {
        /// Its name.
        structure: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The table has an index of that name already.
    #[error("table {} has an index named {} already", quoted(.table), quoted(.index))]
    IndexExists {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The table has no index of that name.
    #[error("table {} has no index named {}", quoted(.table), quoted(.index))]
    NoSuchIndex {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// An index cannot be made so.
    #[error("no such index can be made: {what}")]
    BadIndex {
        /// What is wrong with it.
        what: String,
    },
    /// The catalog's entry of the table has no room for another index.
    #[error("the catalog has no room for another index of table {}: drop one, or use shorter names", quoted(.table))]
    TooManyIndexes {
        /// The table.
        table: String,
    },
    /// Another record has the same key in a unique index. Nothing has changed, and the transaction goes on.
    #[error(
        "unique index {} of table {} has the key {key} already: use another, or change that record first",
        quoted(.index), quoted(.table)
    )]
    IndexKeyExists {
        /// The table.
        table: Box<str>,
        /// The index.
        index: Box<str>,
        /// The index key as [`Error::KeyExists`] has it.
        key: Box<str>,
    },
    /// A record's entry in an index would be longer than a page of this environment allows. Nothing has changed.
    #[error(
        "the record's entry in index {} of table {} has {len} bytes; at most {max} bytes fit",
        quoted(.index), quoted(.table)
    )]
    IndexKeyTooLarge {
        /// The table.
        table: Box<str>,
        /// The index.
        index: Box<str>,
        /// Length of the entry in bytes: index key and primary key.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The index's function refuses the record. Nothing has changed.
    #[error("index {} of table {} refuses the record: {what}", quoted(.index), quoted(.table))]
    NotIndexable {
        /// The table.
        table: Box<str>,
        /// The index.
        index: Box<str>,
        /// Why.
        what: Box<str>,
    },
    /// The table has an index whose function this program has not registered: it can be read, but not changed.
    #[error(
        "index {} of table {} needs the function {}: register it with Options::index_extractor, or drop the index",
        quoted(.index), quoted(.table), quoted(.extractor)
    )]
    NoIndexExtractor {
        /// The table.
        table: Box<str>,
        /// The index.
        index: Box<str>,
        /// The function's name.
        extractor: Box<str>,
    },
    /// An index is not what its table says: its function gave other keys once, or a page is damaged.
    #[error(
        "index {} of table {} differs from the table: {what}; drop it and create it anew",
        quoted(.index), quoted(.table)
    )]
    IndexDiffers {
        /// The table.
        table: Box<str>,
        /// The index.
        index: Box<str>,
        /// The difference.
        what: Box<str>,
    },
    /// The table was filled by a sorted load since this transaction opened it, or indexes of it were created or
    /// dropped, or types given to it. Run the transaction again.
    #[error(
        "table {} was loaded anew, or given other indexes or types, since this transaction opened it; run it again",
        quoted(.table)
    )]
    TableChanged {
        /// The table.
        table: String,
    },
    /// Indexes cannot be created or dropped in a snapshot.
    #[error("indexes of table {} are created and dropped under locks: use a serializable transaction", quoted(.table))]
    IndexNeedsLocks {
        /// The table.
        table: String,
    },
    /// The key exists already (`insert_new`). Nothing has changed, and the transaction goes on.
    #[error("table {} has the key {key} already", quoted(.table))]
    KeyExists {
        /// The table.
        table: String,
        /// The key as text, by the type of the table's keys: `7`, `"apple"`, `("apple", 7)`. Bytes without a type are
        /// text in quotation marks if they can be, and hexadecimal digits (`0x00ff`) if not. A long key is cut.
        key: String,
    },
    /// Records that are loaded in order are not in order. Nothing is left of the load if the transaction is rolled
    /// back.
    #[error(
        "record {record} of a sorted load has the key {key}, which is not above {before}, the key before it; sort the \
         records by key, each key once"
    )]
    NotSorted {
        /// Which one, from 0.
        record: u64,
        /// Its key as text, as in [`Error::KeyExists`].
        key: Box<str>,
        /// The key of the record before it.
        before: Box<str>,
    },
    /// A sorted load into a table with records appends to them, and its first key is not above all of theirs. Nothing
    /// has changed.
    #[error(
        "a sorted load appends to table {}, whose last key is {last}, and cannot put the key {key} before it; \
         put such records without sorting, or load them into an empty table",
        quoted(.table)
    )]
    NotAtEnd {
        /// The table.
        table: Box<str>,
        /// The key that is refused, as text, as in [`Error::KeyExists`].
        key: Box<str>,
        /// The last key of the table.
        last: Box<str>,
    },
    /// A sorted load met an error in the middle of a record, or its transaction went back to a savepoint meanwhile.
    /// Roll the transaction back, or back to before the load.
    #[error(
        "this sorted load is incomplete: a record failed halfway, or a rollback took records back; roll back and load \
         again"
    )]
    LoadIncomplete,
    /// A table was empty when a sorted load began, and got records by another handle of the same transaction since.
    /// Nothing of the load is in the table.
    #[error(
        "table {} was given other records since its sorted load began: finish the load first, then put them",
        quoted(.table)
    )]
    LoadNotAlone {
        /// The table.
        table: String,
    },
    /// The table, or one of its indexes, was made with other types. Nothing has changed.
    #[error(transparent)]
    TableTypeMismatch(Box<TypeMismatch>),
    /// The name of a type cannot be kept in the catalog.
    #[error("the name of a type has 1 to {max} bytes, {} has {len}", quoted(.name))]
    BadTypeName {
        /// The beginning of the name.
        name: String,
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A key or a value has no encoding ([`AsKey::encode`](crate::typed::AsKey::encode)). Nothing has changed.
    #[error("{what} cannot be used with table {}: {source}", quoted(.table))]
    NotEncodable {
        /// The table.
        table: String,
        /// Which of the two: `key` or `value`.
        what: &'static str,
        /// What is wrong with it: an [`EncodeError`](crate::typed::EncodeError).
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The stored bytes are not a value of the type: they were written as byte strings, or are damaged.
    #[error("stored bytes of table {} are not a valid {what}", quoted(.table))]
    WrongType {
        /// The table.
        table: String,
        /// Key or value, and its type.
        what: String,
    },
    /// A setting is out of bounds or unknown.
    #[error("setting {name}: {what}")]
    Setting {
        /// Which.
        name: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// The settings file cannot be used. Nothing was opened.
    #[error("{path}: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    SettingsFile {
        /// The file.
        path: String,
        /// Everything that is wrong with it, line by line.
        problems: Vec<ConfigProblem>,
    },
    /// Something needs a part of this library that the program was built without. Nothing was changed.
    #[error(
        "{what} needs the feature {feature} of ledgerstone, which this program was built without: build it with the feature"
    )]
    NotBuilt {
        /// What needs it.
        what: String,
        /// The feature, as `Cargo.toml` names it.
        feature: &'static str,
    },
    /// The directory holds no environment.
    #[error("{path} is not a Ledgerstone environment: {why}")]
    NotAnEnvironment {
        /// The directory.
        path: String,
        /// What is missing.
        why: &'static str,
    },
    /// The control file is missing or cannot be used, although the environment is there. Nothing was changed.
    #[error(
        "the control file of {path} {what}; put it back, or make it anew from data and log: ledgerstone recover --rebuild-control DIR"
    )]
    ControlFile {
        /// The directory.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// LSNs have 48 bits, and the log has nearly used them up. Nothing was changed or lost, and reads go on.
    #[error("the log has used up its LSNs (it is at {at} of 2^48): dump the environment and load it into a new one")]
    LsnsUsedUp {
        /// Where the log is.
        at: Lsn,
    },
    /// The environment was written by a newer version of this software.
    #[error("{path} has format {found}; this version reads up to {supported}: use a newer version")]
    NewerFormat {
        /// The environment.
        path: String,
        /// Its format.
        found: u32,
        /// The newest that this version reads.
        supported: u32,
    },
    /// A file was written by an older version of this software. Nothing was changed.
    #[error("{path} has format {found}; this version reads {supported} only: {remedy}")]
    OlderFormat {
        /// The file.
        path: String,
        /// Its format.
        found: u32,
        /// The oldest that this version reads.
        supported: u32,
        /// What to do.
        remedy: &'static str,
    },
    /// The environment was created with another page size.
    #[error("the environment has pages of {found} bytes, not {asked}; open it without page_bytes")]
    WrongPageSize {
        /// Its page size.
        found: u32,
        /// What the caller set.
        asked: u32,
    },
    /// Another process, or another handle in this one, has the environment open.
    #[error("{path} is open already, in this or another process; close it there first")]
    AlreadyOpen {
        /// The environment.
        path: String,
    },
    /// Processes share the environment, and this one cannot join them, or cannot share it at all.
    #[error("cannot share the environment: {what}")]
    CannotShare {
        /// Why.
        what: String,
    },
    /// Another backup is being written into the same directory.
    #[error("another backup is being written into {path}; let it end first, or take this one into another directory")]
    BackupUnderWay {
        /// The directory.
        path: String,
    },
    /// A close was asked for while transactions run.
    #[error("{count} transactions are still open; end them before closing")]
    TransactionsOpen {
        /// How many.
        count: u32,
    },
    /// The environment was closed, but writes of other threads have not ended for a minute: the device has stalled. The
    /// lock is kept until these writes end, so that none of them can overwrite what a later open writes. Open the
    /// environment again when they have ended.
    #[error(
        "closed, but the device has not ended {count} writes for a minute: the lock is kept until they end; open the environment \
         again then, or end this process first"
    )]
    WritesInFlight {
        /// How many.
        count: u32,
    },
    /// Nothing can be written now, because there is no space left, or because the environment or the transaction only
    /// reads. Nothing was written, and reads go on.
    #[error("read-only: {why}")]
    ReadOnly {
        /// The reason, and what ends it.
        why: String,
        /// What the operating system said, if it was asked: [`io::ErrorKind::StorageFull`] without space.
        kind: Option<io::ErrorKind>,
    },
    /// The operating system refused access.
    #[error("permission denied: {what}")]
    Permission {
        /// File and operation.
        what: String,
        /// [`io::ErrorKind::PermissionDenied`], or [`io::ErrorKind::ReadOnlyFilesystem`].
        kind: io::ErrorKind,
    },
    /// The environment failed earlier and must be opened again.
    #[error("the environment has failed: {why}; open it again to recover")]
    Failed {
        /// What failed first.
        why: String,
    },
    /// Bytes on disk are not what they must be.
    #[error("damaged: {what}")]
    Corrupt {
        /// File, page, offset, LSN; expected and found.
        what: String,
    },
    /// A part of the log that was asked for was given up: a checkpoint needed it no more, and no pin or archive kept
    /// it.
    #[error("the log no longer holds LSN {lsn}, it begins at {oldest}: begin there, or read an archive or a backup")]
    LogGone {
        /// What was asked for.
        lsn: Lsn,
        /// Where the log begins now.
        oldest: Lsn,
    },
    /// The file or directory holds no backup.
    #[error("{path} is not a backup")]
    NotABackup {
        /// The file or directory.
        path: String,
    },
    /// A restore was to go where something is, or a backup into an environment.
    #[error("{path} is not empty: choose a new directory")]
    TargetNotEmpty {
        /// The directory.
        path: String,
    },
    /// A backup or an archive was to go into the environment's own directory.
    #[error(
        "{path} is in the directory of the environment, and would be lost with it: name a place outside {environment}"
    )]
    InsideEnvironment {
        /// Where it was to go.
        path: String,
        /// The environment's directory.
        environment: String,
    },
    /// The moment to restore lies outside of what backup and log hold.
    #[error("this moment cannot be restored: {what}")]
    MomentNotInBackup {
        /// Where it lies.
        what: String,
    },
    /// The lock file is missing. A process may have the environment open, if only to read, and without the file nothing
    /// would keep others out.
    #[error(
        "{path} is missing: a process may have the environment open, if only to read; make sure that none has, then make \
         an empty file of that name"
    )]
    LockFileMissing {
        /// The file.
        path: String,
    },
    /// A text to load is not a dump, or has something that cannot be loaded.
    #[error("line {line} of the dump: {what}")]
    BadDump {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The environment has no archive; or processes share it, and another one leads and keeps the archive.
    #[error(
        "there is no archive here: set archive_dir, or name its directory; of processes that share, the one that leads has it"
    )]
    NoArchive,
    /// The archive is of another environment, or of another life of this one (one of them was restored, or is a copy).
    #[error(
        "{path} is of another log: each environment, and each one that was restored, needs an archive directory of its own"
    )]
    ArchiveOfAnother {
        /// The file.
        path: String,
    },
    /// The program's progress callback has ended the call.
    #[error("cancelled")]
    Cancelled,
    /// The log or the catalog names an operation or a structure that this program has not registered.
    #[error("the log needs an extension that is not registered: {what}")]
    UnknownOperation {
        /// Operation and record.
        what: String,
    },
    /// A file could not be read or written. The message names the file and what was attempted. `source()` is an
    /// [`io::Error`] with the system's error number. There is no source if the kind says everything, as for a missing
    /// file.
    #[error(transparent)]
    Disk(io::Error),
    /// The memory for cache and tables could not be reserved.
    #[error("cannot reserve memory: {0}")]
    Memory(String),
    /// A closure of the program's has given up with a reason of its own, made by [`Error::user`]. Its transaction was
    /// rolled back.
    #[error(transparent)]
    User(Box<dyn std::error::Error + Send + Sync>),
    /// A background thread ended by a panic: a bug in this library.
    #[error("a background thread panicked: {0}")]
    Panicked(&'static str),
}
