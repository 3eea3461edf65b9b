//! How the layers' errors become the one [`Error`]: space, deadlock and damage keep their meaning on the way up.

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::{DiskError, DiskErrorKind};
use ledgerstone_lock::LockError;
use ledgerstone_log::{ControlError, LogError};
use ledgerstone_recovery::RecoveryError;
use ledgerstone_recovery::backup::BackupError;
use ledgerstone_region::RegionError;
use ledgerstone_sort::SortError;
use ledgerstone_space::SpaceError;
use ledgerstone_structures::TreeError;
use ledgerstone_txn::TxnError;

use crate::Error;
use crate::error::DUMP_AND_LOAD;

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Error {
        match error.kind {
            DiskErrorKind::Crashed | DiskErrorKind::Closed => Error::Failed { why: error.to_string() },
            kind => {
                let number = if let DiskErrorKind::Io(number) = kind { Some(number) } else { None };
                Error::of_kind(kind.io_kind(), number, error.to_string())
            }
        }
    }
}

impl From<SortError> for Error {
    fn from(error: SortError) -> Error {
        match error {
            SortError::Disk(error) => error.into(),
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<RegionError> for Error {
    fn from(error: RegionError) -> Error {
        match error {
            RegionError::Forked => Error::Forked,
            RegionError::NoThreadSlot { count } => Error::TooManyThreads(count),
            error => Error::Memory(error.to_string()),
        }
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Error {
        let what = error.to_string();
        match error {
            LockError::Deadlock { cycle, .. } => {
                Error::Deadlock { cycle: what, transactions: cycle.iter().map(|edge| edge.xid).collect() }
            }
            LockError::Refused { name, holders, .. } => {
                Error::LockRefused { what, table: Some(name.table_id()), holders: holders.into() }
            }
            LockError::Timeout { name, holders, .. } => {
                // The error says itself that the time has run out.
                let what = what.trim_start_matches("timed out waiting for ").to_owned();
                Error::LockTimeout { what, table: Some(name.table_id()), holders: holders.into() }
            }
            LockError::WouldBlock => Error::LockTimeout { what, table: None, holders: Box::default() },
            LockError::TableFull { locks_max } => Error::LockTableFull { held: 0, max: locks_max.into() },
            _ => Error::Failed { why: what },
        }
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        if let LogError::LsnsUsedUp { at } = error {
            return Error::LsnsUsedUp { at };
        }
        if error.is_no_space() {
            return Error::no_space(&error);
        }
        match error {
            LogError::Control(error) => error.into(),
            LogError::Disk(error) => error.into(),
            LogError::Failed { .. } | LogError::Closed => Error::Failed { why: error.to_string() },
            LogError::Stopped => Error::Cancelled,
            LogError::Recycled { lsn, oldest } => Error::LogGone { lsn, oldest },
            LogError::Setting { name, .. } => Error::Setting { name: name.into(), what: error.to_string() },
            LogError::Region(error) => error.into(),
            LogError::ClaimTooLarge { .. } => {
                Error::Setting { name: "log_buffer_bytes".into(), what: error.to_string() }
            }
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Error {
        match error {
            ControlError::NotAnEnvironment { path } => {
                Error::ControlFile { path, what: "is missing, or a file of something else".into() }
            }
            ControlError::Corrupt { ref path, .. } => {
                Error::ControlFile { path: path.clone(), what: format!("cannot be used: {error}") }
            }
            ControlError::NewerFormat { path, found, supported } => Error::NewerFormat { path, found, supported },
            ControlError::Disk(error) => error.into(),
            ControlError::Region(error) => error.into(),
            ControlError::Failed { .. } => Error::Failed { why: error.to_string() },
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<BufferError> for Error {
    fn from(error: BufferError) -> Error {
        match error {
            BufferError::Disk(error) => error.into(),
            BufferError::Log(error) => error.into(),
            BufferError::Region(error) => error.into(),
            BufferError::Failed => Error::Failed { why: error.to_string() },
            BufferError::Config { what, .. } => Error::Setting { name: what.into(), what: error.to_string() },
            BufferError::CacheFull { .. } => {
                Error::Setting { name: "cache_bytes".into(), what: format!("{error}; a larger cache is needed") }
            }
            BufferError::PageOutOfRange { .. } => {
                Error::Setting { name: "page_count_max".into(), what: error.to_string() }
            }
            BufferError::DoubleWriteFormat { file, what: "version", expected, found } => newer(file, found, expected),
            BufferError::LatchTimeout { .. } => {
                Error::LockTimeout { what: error.to_string(), table: None, holders: Box::default() }
            }
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<SpaceError> for Error {
    fn from(error: SpaceError) -> Error {
        match error {
            SpaceError::NoSpace { .. } => Error::no_space(&error),
            SpaceError::OlderFormat { file: path, found, supported } => {
                Error::OlderFormat { path, found, supported, remedy: DUMP_AND_LOAD }
            }
            SpaceError::NewerFormat { file, found, supported } => newer(file, found.into(), supported.into()),
            SpaceError::Disk(error) => error.into(),
            SpaceError::Buffer(error) => error.into(),
            SpaceError::Txn(error) => error.into(),
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<TxnError> for Error {
    fn from(error: TxnError) -> Error {
        match error {
            TxnError::TooManyTransactions { slots } => Error::TooManyTransactions(slots),
            TxnError::TooManyThreads { slots } => Error::TooManyThreads(slots),
            TxnError::Failed { why } => Error::Failed { why },
            TxnError::NoSavepoint { .. } => Error::NoSavepoint,
            TxnError::GlobalId { len, max } => Error::BadGlobalId { len, max },
            TxnError::PreparedInNestedTop { .. } | TxnError::OwnSlotsTaken { .. } => Error::Busy,
            TxnError::TooManySnapshots { slots } => Error::TooManySnapshots(slots),
            TxnError::SnapshotTooOld { snapshot, floor } => Error::SnapshotTooOld { snapshot, floor },
            TxnError::Panicked { structure, .. } => Error::Panicked(structure),
            TxnError::Forked => Error::Forked,
            TxnError::HeldByCaller { name, .. } => {
                Error::HeldByCaller { what: error.to_string(), table: Some(name.table_id()) }
            }
            TxnError::SnapshotConflict { .. } => Error::SnapshotConflict { what: error.to_string() },
            TxnError::Log(error) => error.into(),
            TxnError::Buffer(error) => error.into(),
            TxnError::Lock(error) => error.into(),
            TxnError::RecordTooLong { op, .. }
            | TxnError::ClaimTooSmall { op, .. }
            | TxnError::LogicalInNestedTop { op } => Error::OperationRefused { op, what: error.to_string() },
            TxnError::UnknownOperation(_) | TxnError::NoLogicalUndo { .. } => {
                Error::UnknownOperation { what: error.to_string() }
            }
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Error {
        match error {
            TreeError::KeyTooLarge { len, max } => Error::KeyTooLarge { len, max },
            TreeError::ValueTooLarge { len, max } => Error::ValueTooLarge { len, max },
            TreeError::Txn(error) => error.into(),
            TreeError::Stopped => Error::Cancelled,
            TreeError::Buffer(error) => error.into(),
            TreeError::Space(error) => error.into(),
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<RecoveryError> for Error {
    fn from(error: RecoveryError) -> Error {
        match error {
            RecoveryError::Log(error) => error.into(),
            RecoveryError::Control(error) => error.into(),
            RecoveryError::Buffer(error) => error.into(),
            RecoveryError::Disk(error) => error.into(),
            RecoveryError::Sort(error) => error.into(),
            RecoveryError::Space(error) => error.into(),
            RecoveryError::Txn(error) => error.into(),
            RecoveryError::UnknownOperation { .. } => Error::UnknownOperation { what: error.to_string() },
            RecoveryError::WorkerPanicked(which) => Error::Panicked(which),
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

impl From<BackupError> for Error {
    fn from(error: BackupError) -> Error {
        match error {
            BackupError::NotABackup { file } => Error::NotABackup { path: file },
            BackupError::NewerFormat { file, found, supported } => Error::NewerFormat { path: file, found, supported },
            BackupError::Cancelled => Error::Cancelled,
            BackupError::Write(error) => match error.downcast::<DiskError>() {
                Ok(error) => error.into(),
                // It is the backup that has no space then, not the environment.
                Err(error) => Error::Disk(std::io::Error::new(error.kind(), format!("write the backup: {error}"))),
            },
            BackupError::Buffer(error) => error.into(),
            BackupError::Log(error) => error.into(),
            BackupError::Disk(error) => error.into(),
            _ => Error::Corrupt { what: error.to_string() },
        }
    }
}

fn newer(path: String, found: u64, supported: u64) -> Error {
    let number = |format| u32::try_from(format).unwrap_or(u32::MAX);
    Error::NewerFormat { path, found: number(found), supported: number(supported) }
}

#[cfg(test)]
mod tests {
    use ledgerstone_page::Xid;

    use super::*;

    #[test]
    fn what_was_asked_for_wrongly_is_no_damage() {
        let nested = Error::from(TxnError::PreparedInNestedTop { xid: Xid(7) });
        assert!(matches!(nested, Error::Busy), "{nested:?}");
        let long = Error::from(TxnError::GlobalId { len: 99, max: 64 });
        assert!(matches!(long, Error::BadGlobalId { len: 99, max: 64 }), "{long:?}");
    }
}
