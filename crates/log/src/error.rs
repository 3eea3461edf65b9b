//! What the log refuses, and how it fails.

use std::sync::Arc;

use ledgerstone_disk::DiskError;
use ledgerstone_page::Lsn;
use ledgerstone_region::RegionError;

/// Why a call on the log was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// There is no room on the device for another segment. Nothing was written, and the call may be made again.
    #[error("no space for the log: {needed} more bytes are needed beyond {prepared_end}")]
    NoSpace {
        /// What was asked for.
        needed: u64,
        /// Where the prepared segments end.
        prepared_end: Lsn,
    },
    /// LSNs have 48 bits, and the log has come near their end. Nothing was written. Rollbacks and checkpoints go on.
    #[error("the log is at LSN {at}, and LSNs end at 2^48: what is left is kept for rollbacks and checkpoints")]
    LsnsUsedUp {
        /// Where the prepared segments end.
        at: Lsn,
    },
    /// A claim that the log buffer can never hold. Split it.
    #[error("a claim of {bytes} bytes exceeds what the log buffer can hold at once, {bytes_max}")]
    ClaimTooLarge {
        /// What was asked for.
        bytes: u64,
        /// What may be asked for.
        bytes_max: u64,
    },
    /// A write or a sync of the log failed, or [`crate::Log::fail`] was called. The error stays until the environment
    /// is opened again.
    #[error("the log has failed{}", cause.as_ref().map(|c| format!(": {c}")).unwrap_or_default())]
    Failed {
        /// The first failure of the device, if that was it.
        cause: Option<Arc<DiskError>>,
    },
    /// This handle of the log has left it ([`crate::Log::leave`]). Others go on.
    #[error("the log was closed here")]
    Closed,
    /// The watcher of the reading has stopped it ([`crate::Watch::stop`]).
    #[error("stopped")]
    Stopped,
    /// A file of the log could not be read, made or renamed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No record begins at this LSN, or its bytes are damaged.
    #[error("no valid record at LSN {lsn}: {why}")]
    Invalid {
        /// Where it should begin.
        lsn: Lsn,
        /// What is wrong with the bytes.
        why: Malformed,
    },
    /// The log is damaged below an LSN that a later record calls durable.
    #[error(
        "the log is damaged at LSN {lsn} ({why}), but the record at {witness} says that it was durable up to {durable}"
    )]
    Corrupt {
        /// The first record that is not valid.
        lsn: Lsn,
        /// What is wrong with it.
        why: Malformed,
        /// A valid record behind it.
        witness: Lsn,
        /// The durable LSN that the witness carries.
        durable: Lsn,
    },
    /// The segment that should hold this LSN is not there.
    #[error("the log has no segment for LSN {lsn}: put {path} back, or restore from a backup")]
    MissingSegment {
        /// What was to be read.
        lsn: Lsn,
        /// The file's name.
        path: String,
    },
    /// A segment's file lacks bytes: segments get their names whole.
    #[error(
        "the log's segment {path} has {found} bytes of {expected}: put the whole file back, or restore from a backup"
    )]
    ShortSegment {
        /// The file's name.
        path: String,
        /// Its length.
        found: u64,
        /// The length of every segment.
        expected: u64,
    },
    /// The control file could not be changed, which names the newest segment.
    #[error(transparent)]
    Control(ControlError),
    /// The record was given up by a checkpoint, its segment is used again.
    #[error("the log no longer holds LSN {lsn}, it begins at {oldest}")]
    Recycled {
        /// What was to be read.
        lsn: Lsn,
        /// The oldest LSN that is kept.
        oldest: Lsn,
    },
    /// A setting that cannot work.
    #[error("log setting {name} is {value}, it must be {must}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// What it was set to.
        value: u64,
        /// What is allowed.
        must: &'static str,
    },
    /// The region has no room for the log, or all thread slots are taken by other threads
    /// ([`crate::LogConfig::slots`]).
    #[error("the log: {0}")]
    Region(#[from] RegionError),
}

impl From<ControlError> for LogError {
    fn from(error: ControlError) -> LogError {
        match error {
            ControlError::Disk(error) => LogError::Disk(error),
            ControlError::Region(error) => LogError::Region(error),
            error => LogError::Control(error),
        }
    }
}

impl LogError {
    /// Space was refused before anything was written.
    pub fn is_no_space(&self) -> bool {
        match self {
            LogError::NoSpace { .. } | LogError::LsnsUsedUp { .. } => true,
            LogError::Disk(error) => error.is_no_space(),
            _ => false,
        }
    }

    /// The log has failed for good.
    pub fn is_failed(&self) -> bool {
        matches!(self, LogError::Failed { .. })
    }

    /// The simulated power is off.
    pub fn is_crashed(&self) -> bool {
        match self {
            LogError::Failed { cause } => cause.as_ref().is_some_and(|c| c.is_crashed()),
            LogError::Disk(error) => error.is_crashed(),
            _ => false,
        }
    }
}

/// Why bytes are not a valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Zeros: nothing was ever written here.
    #[error("nothing was written here")]
    Empty,
    /// The bytes end before the record does.
    #[error("{have} bytes of a record of {needed}")]
    Short {
        /// Length of the record, or of a header.
        needed: u64,
        /// Bytes there are.
        have: u64,
    },
    /// The length is impossible for its kind.
    #[error("impossible record length {bytes}")]
    Length {
        /// What the header says.
        bytes: u64,
    },
    /// No such kind of record.
    #[error("unknown record kind {kind}")]
    Kind {
        /// What the header says.
        kind: u8,
    },
    /// The checksum is not that of these bytes at this LSN in this incarnation of this environment.
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Computed.
        expected: u32,
        /// Stored.
        found: u32,
    },
    /// A part of a group leaves the record, or its zero field is not zero.
    #[error("malformed group part at byte {offset}")]
    Part {
        /// Where in the body the part begins.
        offset: u64,
    },
    /// The incarnation record does not raise the incarnation.
    #[error("incarnation {found} does not follow {current}")]
    Incarnation {
        /// In force before.
        current: u64,
        /// In the record.
        found: u64,
    },
    /// The file that should hold the bytes is not there, or ends before them.
    #[error("no segment holds these bytes")]
    NoFile,
}

/// Why the control file cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no control file, or the file is something else.
    #[error("{path} is not the control file of an environment")]
    NotAnEnvironment {
        /// The disk and the file.
        path: String,
    },
    /// An environment is there already.
    #[error("{path} exists already")]
    Exists {
        /// The disk and the file.
        path: String,
    },
    /// Written by a later version.
    #[error("{path} has format {found}, this version knows formats up to {supported}")]
    NewerFormat {
        /// The disk and the file.
        path: String,
        /// What the file says.
        found: u32,
        /// What this version reads.
        supported: u32,
    },
    /// Both slots are damaged.
    #[error("both slots are damaged (checksums {found:#010x?}, expected {expected:#010x?})")]
    Corrupt {
        /// The disk and the file.
        path: String,
        /// Stored checksums.
        found: [u32; 2],
        /// Computed checksums.
        expected: [u32; 2],
    },
    /// An earlier write of the file failed, so its content is not known.
    #[error("an earlier write of {path} failed")]
    Failed {
        /// The disk and the file.
        path: String,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The region has no room for what processes share of the file, or the thread has no slot there.
    #[error("the control file: {0}")]
    Region(#[from] RegionError),
}
