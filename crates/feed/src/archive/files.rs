//! The files of an archive, read with suspicion.

use std::sync::Arc;

use ledgerstone_core::Error;
use ledgerstone_core::keeper::Owner;
use ledgerstone_disk::{Disk, DiskErrorKind, DiskFile, Open};
use ledgerstone_log::{LOG_DIR, LogFiles, segment_name};
use ledgerstone_page::Lsn;

use super::format::{MAGIC, OWNER_MAGIC, Sum, decode_owner, refuse_other_format};

/// The file that says whose archive it is.
pub const OWNER: &str = "owner";
/// No owner or sum of any format is longer.
const SMALL_BYTES_MAX: u64 = 4096;
/// Read at once of a file in the archive.
pub const PIECE_BYTES: u64 = 1 << 20;

/// Whose archive it is, if that is said.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::Corrupt`], or a failure of the disk.
pub fn read_owner(disk: &dyn Disk) -> Result<Option<Owner>, Error> {
    let file = match disk.open(OWNER, Open::READ) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let bytes = read_small(&*file)?;
    refuse_other_format(&bytes, OWNER_MAGIC, || format!("{}/{OWNER}", disk.describe()))?;
    match bytes.first_chunk().and_then(decode_owner) {
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

/// What is wrong with the bytes of a segment.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::OlderFormat`], [`Error::NewerFormat`], or a failure of the disk.
pub fn problem_of(
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

/// The name of a file of the segment that begins there.
#[must_use]
pub fn path(start: u64, ending: &str) -> String {
    let name = segment_name(start);
    format!("{LOG_DIR}/{}.{ending}", name.trim_end_matches(".seg"))
}

/// The sum of the segment that begins there; none if there is none, or it is damaged.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::OlderFormat`], [`Error::NewerFormat`], or a failure of the disk.
pub fn read_sum(disk: &dyn Disk, start: u64) -> Result<Option<Sum>, Error> {
    let file = match disk.open(&path(start, "sum"), Open::READ) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let bytes = read_small(&*file)?;
    refuse_other_format(&bytes, MAGIC, || format!("{}/{}", disk.describe(), path(start, "sum")))?;
    Ok(bytes.first_chunk().and_then(Sum::decode).filter(|sum| sum.start == start))
}

/// Where the segments begin that a sum is there for, whole or not.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::OlderFormat`], [`Error::NewerFormat`], or a failure of the disk.
pub fn starts(disk: &dyn Disk) -> Result<Vec<u64>, Error> {
    if !disk.exists(LOG_DIR)? {
        return Ok(Vec::new());
    }
    let digits = |name: &String| u64::from_str_radix(name.strip_suffix(".sum")?, 16).ok();
    let mut starts: Vec<u64> = disk.list(LOG_DIR)?.iter().filter_map(digits).collect();
    starts.sort_unstable();
    Ok(starts)
}

/// All whole sums of an archive, by LSN.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::OlderFormat`], [`Error::NewerFormat`], or a failure of the disk.
pub fn sums(disk: &dyn Disk) -> Result<Vec<Sum>, Error> {
    let mut sums = Vec::new();
    for start in starts(disk)? {
        sums.extend(read_sum(disk, start)?);
    }
    Ok(sums)
}

/// The newest run of an archive without a gap, as a log of files; `None` if there is no archive.
///
/// Waits for the disk: see [what blocks](crate#what-blocks).
///
/// # Errors
/// [`Error::OlderFormat`], [`Error::NewerFormat`], or a failure of the disk.
pub fn files_of(disk: &Arc<dyn Disk>) -> Result<Option<LogFiles>, Error> {
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
