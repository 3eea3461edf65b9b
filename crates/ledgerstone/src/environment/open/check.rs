//! What is refused before anything is written (O8).

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_disk::DiskFile;
use ledgerstone_log::ControlState;
use ledgerstone_recovery::{Analysis, InDoubt};
use ledgerstone_space::FileHeader;
use ledgerstone_structures::{Direction, Tree};
use ledgerstone_txn::{Durability, Engine, Locked};

use crate::Error;
use crate::catalog::{Entry, Extensions, StructureId, check_format, unknown};
use crate::choice::Locking;
use crate::config::Effective;
use crate::inner::printable;
use ledgerstone_core::typed::byte_count;

/// Refuses a data file of another environment, or one that is older than the checkpoint that the control file names
/// (O8). One whose first page cannot be read is not refused here.
pub(super) fn check_data(data: &dyn DiskFile, state: &ControlState) -> Result<(), Error> {
    let Some(header) = FileHeader::read(data)? else { return Ok(()) };
    if header.environment != state.environment {
        let what = "data and control are of different environments: put back the one that is not this one's; if that is control, \
                    ledgerstone recover --rebuild-control DIR can make it anew";
        return Err(Error::Corrupt { what: what.into() });
    }
    if header.lsn < state.mark_lsn {
        let (found, mark) = (header.lsn, state.mark_lsn);
        let what = format!(
            "data is an older file than control and log: its page 0 has LSN {found}, the last checkpoint left {mark}; put the \
             newest data file back, or restore from a backup"
        );
        return Err(Error::Corrupt { what });
    }
    Ok(())
}

/// Refuses a data file that is shorter than when the last checkpoint was taken, unless the log cuts it.
pub(super) fn check_length(data: &dyn DiskFile, state: &ControlState, found: &Analysis) -> Result<(), Error> {
    let expected = state.page_count.min(found.page_count_max().unwrap_or(u64::MAX)) * u64::from(state.page_bytes);
    let there = data.len()?;
    if there < expected {
        let what = format!(
            "data has {}, and had {expected} at the last checkpoint: put the whole file back, or restore from a backup",
            byte_count(there)
        );
        return Err(Error::Corrupt { what });
    }
    Ok(())
}

/// A transaction in doubt that has locked keys keeps out nobody who locks pages, and the other way round. One that was
/// prepared without locks keeps nobody out at all. Without locks nobody expects to be kept out.
pub(super) fn refuse_other_locks(effective: &Effective, found: &Analysis) -> Result<(), Error> {
    let is_other = |kept: &&InDoubt| match effective.locking {
        Locking::Hierarchical => kept.record.locked != Locked::Keys,
        Locking::Pages => kept.record.locked != Locked::Pages,
        Locking::None => false,
    };
    match found.in_doubt.values().find(is_other) {
        Some(kept) => {
            let id = printable(&kept.record.global_id);
            let before = match kept.record.locked {
                Locked::Keys => "hierarchical",
                Locked::Pages => "pages",
                Locked::Nothing => "none",
            };
            let what = format!(
                "transaction {id} was prepared with \"{before}\" and is in doubt: open with that and decide it"
            );
            Err(Error::Setting { name: "locking".into(), what })
        }
        None => Ok(()),
    }
}

/// What the data holds can be read only by a version that knows its format, and verified and freed only by a program
/// that knows it.
pub(super) fn refuse_unknown_structures(
    engine: &Arc<Engine>,
    catalog: &Tree,
    extensions: &Extensions,
) -> Result<(), Error> {
    let mut txn = engine.begin()?;
    let mut scan = catalog.scan_unlocked(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some((name, value)) = scan.next(&mut txn)? {
        let name = || String::from_utf8_lossy(name);
        check_format(&name(), value)?;
        if let Some(structure) = Entry::structure_of(value).map(StructureId)
            && extensions.get(structure).is_none()
        {
            return Err(unknown(&name(), structure));
        }
    }
    txn.commit(Durability::Volatile)?;
    Ok(())
}
