//! The control file made anew from data and log, which hold all that it says.
//!
//! B1. Page 0 of the data file says whose environment it is, the log's newest checkpoint record where recovery begins
//!     (`CheckpointRecord` in recovery). All that a checkpoint relies on is durable before its record is, so the newest
//!     one will do even if no control file ever named it.
//! B2. A control file that can be used is not replaced. Nor is one that knows of log that is not there: then the log is
//!     damaged, and a control file that knows less would hide it. Nor while a restore is not at its end (R1 there):
//!     what there is says that it is the old life.
//! B3. Incarnations that were given out and left no record are passed over by going on far behind the newest that did.

use std::path::Path;
use std::sync::Arc;

use ledgerstone_core::directory::{RESTORE, check_control, control_of, disk_in, refuse_cut_restore, take_lock};
use ledgerstone_disk::{Disk, Open};
use ledgerstone_log::{CONTROL_PATH, ControlFile, LOG_DIR, check_segments};
use ledgerstone_space::FileHeader;

use crate::{Environment, Error};

impl Environment {
    /// Makes the control file of directory `path` anew, from data and log. For an environment that has lost it, or
    /// whose control file is damaged or belongs to another environment. The next open recovers as after a crash.
    /// `false` means that the existing control file can be used, and that nothing was changed.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotAnEnvironment`] if there is no data file, or a restore there was cut short. [`Error::Corrupt`] if
    /// page 0 or the log is damaged. [`Error::AlreadyOpen`], or a failure of the disk.
    pub fn rebuild_control(path: impl AsRef<Path>) -> Result<bool, Error> {
        Environment::rebuild_control_on(disk_in(path)?)
    }

    /// The same on any [`Disk`].
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::rebuild_control`].
    pub fn rebuild_control_on(disk: Arc<dyn Disk>) -> Result<bool, Error> {
        if !disk.exists("data")? {
            refuse_cut_restore(&disk)?;
            return Err(Error::NotAnEnvironment { path: disk.describe(), why: "it has no data file" });
        }
        let _lock = take_lock(&disk)?;
        if is_restored(&disk)? {
            return Ok(false);
        }
        let state = control_of(&disk)?;
        if disk.exists(CONTROL_PATH)?
            && let Ok(old) = ControlFile::open_read_only(&*disk)
            && old.state().environment == state.environment
            && check_control(&*disk, &old.state()).is_ok()
        {
            let old = old.state();
            let missing = check_segments(&disk, &old);
            if missing.is_ok() && old.durable_lsn <= state.durable_lsn && old.checkpoint_lsn <= state.checkpoint_lsn {
                return Ok(false);
            }
            // One that names an older checkpoint is an older file, unless it knows of newer log (B2).
            let knows_more = old.durable_lsn > state.durable_lsn || old.newest_segment > state.newest_segment;
            if knows_more || old.checkpoint_lsn >= state.checkpoint_lsn {
                missing?;
                let (known, end) = (old.durable_lsn.max(old.checkpoint_lsn), state.durable_lsn);
                let what = format!(
                    "the control file knows of log at LSN {known}, and the log ends at {end}: it is the log that is damaged"
                );
                return Err(Error::Corrupt { what });
            }
        }
        // B1 speaks of what a power failure leaves: the names of the segments, too.
        disk.sync_dir(LOG_DIR)?;
        disk.sync_dir("")?;
        ControlFile::replace(&*disk, state)?;
        Ok(true)
    }

    /// Whether the environment in directory `path` was closed in order, so that opening it to read writes nothing.
    /// Opens nothing, and waits for nobody. False while a process has it open to write.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::damaged_control_slot`].
    pub fn was_closed(path: impl AsRef<Path>) -> Result<bool, Error> {
        Ok(ControlFile::open_read_only(&*disk_in(path)?)?.state().is_clean)
    }

    /// The slot (0 or 1) of the control file in directory `path` that cannot be read. It is damaged, or was being
    /// written when the power failed. The other slot is whole, and the next checkpoint makes both whole. Opens nothing.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::ControlFile`] if neither is whole. [`Error::NewerFormat`], or a failure of the disk.
    pub fn damaged_control_slot(path: impl AsRef<Path>) -> Result<Option<u64>, Error> {
        Ok(ControlFile::open_read_only(&*disk_in(path)?)?.damaged_slot())
    }
}

/// Whether a restore has come to its end here and was not opened yet, and its control file can be used.
fn is_restored(disk: &Arc<dyn Disk>) -> Result<bool, Error> {
    if !disk.exists(RESTORE)? {
        return Ok(false);
    }
    let Ok(control) = ControlFile::open_read_only(&**disk) else { return Ok(false) };
    let state = control.state();
    let header = FileHeader::read(&*disk.open("data", Open::READ)?)?;
    Ok(header.is_none_or(|header| header.environment == state.environment) && check_control(&**disk, &state).is_ok())
}
