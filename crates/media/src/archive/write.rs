//! The files of an archive, written all or nothing.

use ledgerstone_core::Error;
use ledgerstone_core::keeper::Owner;
use ledgerstone_disk::{Disk, Open};
use ledgerstone_feed::archive::{OWNER, encode_owner, path, read_owner, sums};
use ledgerstone_page::planted::{self, Bug};

/// Makes the archive this owner's, unless it is another's (A3).
pub(super) fn claim(disk: &dyn Disk, owner: Owner) -> Result<(), Error> {
    if planted::is_on(Bug::ArchiveOfAnybody) {
        return Ok(());
    }
    let refuse = |path: &str| Err(Error::ArchiveOfAnother { path: format!("{}/{path}", disk.describe()) });
    if let Some(there) = read_owner(disk)? {
        return if there == owner { Ok(()) } else { refuse(OWNER) };
    }
    // It was lost: the segments say it too.
    if let Some(sum) = sums(disk)?.iter().find(|sum| sum.owner != owner) {
        return refuse(&path(sum.start, "seg"));
    }
    write(disk, "", OWNER, &encode_owner(&owner)).inspect_err(|_| {
        let _ = disk.remove(OWNER); // A5. What cannot be removed says the same.
    })
}

/// Writes a file of `dir` durably, all or nothing.
pub(super) fn write(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> Result<(), Error> {
    let part = format!("{path}.part");
    if disk.exists(&part)? {
        disk.remove(&part)?;
    }
    let file = disk.open(&part, Open::CREATE_NEW)?;
    file.write_at(0, bytes)?;
    file.sync()?;
    disk.rename(&part, path)?;
    sync_names(disk, dir)
}

pub(super) fn sync_names(disk: &dyn Disk, dir: &str) -> Result<(), Error> {
    if dir.is_empty() && planted::is_on(Bug::ArchiveNamesLost) {
        return Ok(());
    }
    Ok(disk.sync_dir(dir)?)
}
