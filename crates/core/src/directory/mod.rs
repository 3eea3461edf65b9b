//! A directory that nobody has open: whether it is an environment, who has it, and what its control file says.

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskErrorKind, DiskLock};
use ledgerstone_log::{
    CONTROL_PATH, ControlError, ControlFile, ControlState, EnvironmentId, FIRST_LSN, INCARNATION_MAX, LOG_BYTES_MAX,
    LOG_DIR,
};
use ledgerstone_op::Registry;
use ledgerstone_region::sync;

use crate::Error;
use crate::catalog::Extensions;

mod control;
mod files;
mod outside;
mod place;
mod sharing;

pub use control::{control_of, state_of};
pub use files::{DATA, DOUBLE_WRITE, LOCK, RESTORE, SHARING};
pub use outside::check_is_outside;
pub use place::{disk_in, disk_to_fill, overwrite_device};
pub use sharing::{await_turn, is_shared, lock_to_share, region_there, say_region};

/// The smallest page and the largest.
pub const PAGE_BYTES: (u64, u64) = (4096, 32768);
/// The smallest segment of a log and the largest.
pub const LOG_SEGMENT_BYTES: (u64, u64) = (64 << 10, LOG_BYTES_MAX);

/// Refuses a control file whose checksum is right and whose contents cannot be: nothing may be computed from them.
///
/// # Errors
/// [`Error::ControlFile`].
pub fn check_control(disk: &dyn Disk, state: &ControlState) -> Result<(), Error> {
    let lsn_max = 1 << 48;
    let is_size = |bytes: u64, (min, max): (u64, u64)| bytes.is_power_of_two() && (min..=max).contains(&bytes);
    let checks = [
        (is_size(u64::from(state.page_bytes), PAGE_BYTES), "page_bytes", u64::from(state.page_bytes)),
        (is_size(state.segment_bytes, LOG_SEGMENT_BYTES), "segment_bytes", state.segment_bytes),
        (state.scan_lsn >= FIRST_LSN && state.scan_lsn.0 < lsn_max, "scan_lsn", state.scan_lsn.0),
        (state.scan_lsn.0.is_multiple_of(8), "scan_lsn", state.scan_lsn.0),
        (state.checkpoint_lsn.0 == 0 || state.checkpoint_lsn >= state.scan_lsn, "scan_lsn", state.scan_lsn.0),
        (state.redo_lsn.0.is_multiple_of(8) && state.redo_lsn <= state.checkpoint_lsn, "redo_lsn", state.redo_lsn.0),
        (state.redo_lsn.0 == 0 || state.redo_lsn >= state.scan_lsn, "redo_lsn", state.redo_lsn.0),
        (state.checkpoint_lsn.0 < lsn_max, "checkpoint_lsn", state.checkpoint_lsn.0),
        (state.incarnation_max <= INCARNATION_MAX, "incarnation_max", state.incarnation_max),
        (state.scan_incarnation <= state.incarnation_max, "scan_incarnation", state.scan_incarnation),
        (state.newest_segment.0 & (state.segment_bytes.max(1) - 1) == 0, "newest_segment", state.newest_segment.0),
        (state.newest_segment.0 < lsn_max, "newest_segment", state.newest_segment.0),
    ];
    match checks.iter().find(|(holds, ..)| !holds) {
        Some((_, field, found)) => {
            Err(Error::ControlFile { path: disk.describe(), what: format!("cannot be right: {field} is {found}") })
        }
        None => Ok(()),
    }
}

/// A file named control with nothing of ours beside it is somebody else's.
pub fn control_error(disk: &Arc<dyn Disk>, error: ControlError) -> Error {
    let is_ours = || Ok::<_, Error>(disk.exists(DATA)? || disk.exists(LOG_DIR)?);
    match (error, is_ours()) {
        (ControlError::NotAnEnvironment { .. }, Ok(false)) => Error::NotAnEnvironment {
            path: disk.describe(),
            why: "it has a file named control that is not ours; choose another directory",
        },
        (error, _) => error.into(),
    }
}

/// Refuses what an unfinished restore has left: files of the old life. Without the control file of the new one, they
/// are not an environment.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// A failure of the disk, or damage.
pub fn refuse_cut_restore(disk: &Arc<dyn Disk>) -> Result<(), Error> {
    if disk.exists(RESTORE)? {
        let why = "a restore into it was cut short; empty the directory, and restore again";
        return Err(Error::NotAnEnvironment { path: disk.describe(), why });
    }
    Ok(())
}

/// Takes the lock of an environment (O3 in `environment/open/mod.rs` of the library), for this process alone.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::AlreadyOpen`], also if processes share it. A failure of the disk, or damage.
pub fn take_lock(disk: &Arc<dyn Disk>) -> Result<Box<dyn DiskLock>, Error> {
    let lock = take_turn(disk)?;
    if is_shared(disk)? {
        return Err(Error::AlreadyOpen { path: disk.describe() });
    }
    Ok(lock)
}

/// Takes the lock of an environment, whether others share it or not.
fn take_turn(disk: &Arc<dyn Disk>) -> Result<Box<dyn DiskLock>, Error> {
    // Whoever has it open may have lost the name of what it has locked, and those who only read leave no other trace.
    // In this order: a creation makes the lock file before `control`.
    if disk.exists(CONTROL_PATH)? && !disk.exists(LOCK)? {
        return Err(match ControlFile::open_read_only(&**disk) {
            Ok(_) | Err(ControlError::Corrupt { .. }) => {
                Error::LockFileMissing { path: format!("{}/{LOCK}", disk.describe()) }
            }
            Err(error) => control_error(disk, error), // Somebody else's file.
        });
    }
    disk.lock(LOCK).map_err(|error| {
        if error.kind == DiskErrorKind::Locked { Error::AlreadyOpen { path: disk.describe() } } else { error.into() }
    })
}

/// All operations of this version and of the program's structures.
///
/// # Errors
/// [`Error::BadStructure`], [`Error::UnknownOperation`].
pub fn operations(extensions: &Extensions) -> Result<Registry, Error> {
    let mut ops = Registry::new();
    ledgerstone_space::register(&mut ops).map_err(|e| Error::UnknownOperation { what: e.to_string() })?;
    ledgerstone_structures::register(&mut ops).map_err(|e| Error::UnknownOperation { what: e.to_string() })?;
    extensions.register_operations(&mut ops)?;
    Ok(ops)
}

/// A random id.
pub fn new_id() -> EnvironmentId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&sync::random_u64().to_le_bytes());
    id[8..].copy_from_slice(&sync::random_u64().to_le_bytes());
    id
}
