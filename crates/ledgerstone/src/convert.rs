//! How the layers' errors become the one [`Error`]: space, deadlock and damage keep their meaning on the way up.

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::{DiskError, DiskErrorKind};
use ledgerstone_lock::LockError;
use ledgerstone_log::{ControlError, LogError};
use ledgerstone_recovery::RecoveryError;
use ledgerstone_region::RegionError;
use ledgerstone_space::SpaceError;
use ledgerstone_structures::TreeError;
use ledgerstone_txn::TxnError;

use crate::Error;

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Error {
        match error.kind {
            DiskErrorKind::NoSpace => Error::no_space(&error),
            DiskErrorKind::Permission | DiskErrorKind::ReadOnlyFs => Error::Permission { what: error.to_string() },
            DiskErrorKind::Crashed => Error::Failed { why: error.to_string() },
            _ => Error::Disk(error.to_string()),
        }
    }
}

impl From<RegionError> for Error {
    fn from(error: RegionError) -> Error {
        Error::Memory(error.to_string())
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Error {
        match error {
            LockError::Deadlock { .. } => Error::Deadlock { cycle: error.to_string() },
            LockError::Timeout { .. } | LockError::WouldBlock => Error::LockTimeout { what: error.to_string() },
            LockError::TableFull { .. } => Error::LockTableFull,
            _ => Error::Failed { why: error.to_string() },
        }
    }
}
