//! The files of an archive: written all or nothing, and read with suspicion.

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskErrorKind, DiskFile, Open};
use ledgerstone_log::{LOG_DIR, LogFiles, segment_name};
use ledgerstone_page::Lsn;
use ledgerstone_page::planted::{self, Bug};

use super::Owner;
use super::format::{MAGIC, OWNER_MAGIC, Sum, refuse_other_format};
use crate::Error;

const OWNER: &str = "owner";
/// No owner or sum of any format is longer.
const SMALL_BYTES_MAX: u64 = 4096;
/// Read at once of a file in the archive.
pub(super) const PIECE_BYTES: u64 = 1 << 20;

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
    write(disk, "", OWNER, &owner.encode()).inspect_err(|_| {
        let _ = disk.remove(OWNER); // A5. What cannot be removed says the same.
    })
}

fn read_owner(disk: &dyn Disk) -> Result<Option<Owner>, Error> {
    let file = match disk.open(OWNER, Open::READ) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let bytes = read_small(&*file)?;
    refuse_other_format(&bytes, OWNER_MAGIC, || format!("{}/{OWNER}", disk.describe()))?;
    match bytes.first_chunk().and_then(Owner::decode) {
        Some(owner) => Ok(Some(owner)),
        // Its name came when it was whole.
        None => Err(Error::Corrupt {
            what: format!("{}/{OWNER} is damaged: it says whose archive this is", disk.describe()),
        }),
    }
}

/// The first bytes of a file, as many as one of ours can have.
fn read_small(file: &dyn DiskFile) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; file.len()?.min(SMALL_BYTES_MAX) as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
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

/// What is wrong with the bytes of a segment.
pub(super) fn problem_of(
    disk: &dyn Disk,
    sum: &Sum,
    tell: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<Option<String>, Error> {
    let file = match disk.open(&path(sum.start, "seg"), Open::READ) {
        Err(error) if error.is_not_found() => return Ok(Some("the file is missing".into())),
        other => other?,
    };
    let (bytes, mut at, mut crc) = (sum.end - sum.start, 0, 0);
    let mut buffer = vec![0; PIECE_BYTES.min(bytes) as usize];
    while at < bytes {
        let piece = &mut buffer[..PIECE_BYTES.min(bytes - at) as usize];
        match file.read_at(at, piece) {
            Err(error) if error.kind == DiskErrorKind::ShortRead => return Ok(Some("the file is too short".into())),
            other => other?,
        }
        crc = crc32c::crc32c_append(crc, piece);
        at += piece.len() as u64;
        tell(at)?;
    }
    Ok((crc != sum.crc).then(|| format!("its checksum is {crc:#010x}, expected {:#010x}", sum.crc)))
}

pub(super) fn path(start: u64, ending: &str) -> String {
    let name = segment_name(start);
    format!("{LOG_DIR}/{}.{ending}", name.trim_end_matches(".seg"))
}

pub(super) fn read_sum(disk: &dyn Disk, start: u64) -> Result<Option<Sum>, Error> {
    let file = match disk.open(&path(start, "sum"), Open::READ) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let bytes = read_small(&*file)?;
    refuse_other_format(&bytes, MAGIC, || format!("{}/{}", disk.describe(), path(start, "sum")))?;
    Ok(bytes.first_chunk().and_then(Sum::decode).filter(|sum| sum.start == start))
}

/// Where the segments begin that a sum is there for, whole or not.
pub(super) fn starts(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    if !disk.exists(LOG_DIR)? {
        return Ok(Vec::new());
    }
    let digits = |name: &String| u64::from_str_radix(name.strip_suffix(".sum")?, 16).ok();
    let mut starts: Vec<u64> = disk.list(LOG_DIR)?.iter().filter_map(digits).collect();
    starts.sort_unstable();
    Ok(starts)
}

/// All whole sums of an archive, by LSN.
pub(super) fn sums(disk: &dyn Disk) -> Result<Vec<Sum>, Error> {
    let mut sums = Vec::new();
    for start in starts(disk)? {
        sums.extend(read_sum(disk, start)?);
    }
    Ok(sums)
}

/// The newest run of an archive without a gap, as a log of files; `None` if there is no archive.
pub(crate) fn files_of(disk: &Arc<dyn Disk>) -> Result<Option<LogFiles>, Error> {
    let sums = sums(&**disk)?;
    // A record that is cut off at the end of the newest segment is not a part of it.
    Ok(sums.last().map(|last| LogFiles {
        disk: Arc::clone(disk),
        environment: last.owner.environment,
        segment_bytes: last.segment_bytes,
        known: None,
        incarnation_max: last.incarnation,
        end: Some(Lsn(last.resume.min(last.end))),
    }))
}
