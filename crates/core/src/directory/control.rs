//! What the control file of a directory says, or must say (B1 to B3 in `environment/rebuild.rs` of the library).

use std::sync::Arc;

use ledgerstone_disk::{Disk, Open};
use ledgerstone_log::{
    ControlFile, ControlState, FIRST_LSN, LOG_DIR, LogScan, RecordKind, RecordView, is_log_file, oldest_record,
    segment_start,
};
use ledgerstone_page::Lsn;
use ledgerstone_recovery::CheckpointRecord;
use ledgerstone_space::FileHeader;

use super::refuse_cut_restore;
use crate::Error;
use crate::keeper::FEEDS;

/// B3.
const INCARNATIONS_PASSED: u64 = 512;

/// What the control file of this directory says, or must say if it cannot be used. Changes nothing.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// A failure of the disk, or damage.
pub fn state_of(disk: &Arc<dyn Disk>) -> Result<ControlState, Error> {
    match ControlFile::open_read_only(&**disk) {
        Ok(control) => Ok(control.state()),
        Err(error) => {
            refuse_cut_restore(disk)?;
            control_of(disk).map_err(|_| error.into())
        }
    }
}

/// What the control file of this directory must say (B1). Changes nothing.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// A failure of the disk, or damage.
pub fn control_of(disk: &Arc<dyn Disk>) -> Result<ControlState, Error> {
    refuse_cut_restore(disk)?; // B2
    let lacks = |what: &str| Error::Corrupt {
        what: format!("the control file cannot be made anew: {what}; restore from a backup"),
    };
    let data = disk.open("data", Open::READ)?;
    let header = FileHeader::read(&*data)?.ok_or_else(|| lacks("page 0 of data is damaged"))?;
    let segment_bytes = segment_bytes(disk)?.ok_or_else(|| lacks("there is no whole segment of the log"))?;
    let told = |record: RecordView<'_>| CheckpointRecord::decode(record.body()).map(|said| said.scan_incarnation);
    let (begin, incarnation_max) = oldest_record(disk, header.environment, segment_bytes, &told)?
        .ok_or_else(|| lacks("the log has no record of this environment"))?;
    let mut state = ControlState::new(header.environment, header.page_bytes, segment_bytes);
    let mut scan = LogScan::new(Arc::clone(disk), header.environment, segment_bytes, begin.lsn, begin.incarnation)?
        .settled()?
        .with_incarnation_max(incarnation_max + INCARNATIONS_PASSED);
    let mut newest = None;
    while let Some(record) = scan.next_view()? {
        if record.kind() == RecordKind::Checkpoint {
            newest = CheckpointRecord::decode(record.body()).map(|said| (record.lsn(), said));
        }
    }
    match newest {
        Some((lsn, said)) if said.scan_lsn >= begin.lsn => said.tell(lsn, &mut state),
        // No checkpoint was ever taken.
        None if begin.lsn == FIRST_LSN => {}
        _ => return Err(lacks("the log has no checkpoint from which on it is whole")),
    }
    state.incarnation_max = scan.incarnation() + INCARNATIONS_PASSED;
    state.durable_lsn = scan.end();
    state.newest_segment = newest_segment(disk)?;
    state.has_feeds = disk.exists(FEEDS)?;
    state.is_unlocked = true; // Nobody knows. The next open asks for no more than that.
    Ok(state)
}

/// The newest segment that there is, whether anything is in it or not.
fn newest_segment(disk: &Arc<dyn Disk>) -> Result<Lsn, Error> {
    let starts = disk.list(LOG_DIR)?.iter().filter_map(|name| segment_start(name)).max();
    Ok(Lsn(starts.unwrap_or(0)))
}

/// All segments have the same length, a power of two. One that was cut is shorter.
fn segment_bytes(disk: &Arc<dyn Disk>) -> Result<Option<u64>, Error> {
    let mut longest = 0;
    let names = if disk.exists(LOG_DIR)? { disk.list(LOG_DIR)? } else { Vec::new() };
    for name in names.iter().filter(|name| is_log_file(name) && name.ends_with(".seg")) {
        longest = longest.max(disk.open(&format!("{LOG_DIR}/{name}"), Open::READ)?.len()?);
    }
    Ok((longest.is_power_of_two() && longest >= 4096).then_some(longest))
}
