//! Proving a backup before it is relied on: every frame, every page, every record.

use std::ops::ControlFlow;
use std::sync::Arc;

use ledgerstone_disk::{Disk, Open};
use ledgerstone_log::{Beginning, LogFiles, LogReader, RecordKind};
use ledgerstone_page::{Corrupt, Lsn, PageId, checksum, header};

use super::disk::{BackupDisk, BackupView, DATA};
use super::error::BackupError;

/// The content of a chain that was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Pages.
    pub page_count: u64,
    /// Records of the log.
    pub record_count: u64,
    /// Commits among them.
    pub commit_count: u64,
    /// Time of the first and the last commit behind the end of the full backup, in nanoseconds since 1970. 0 means that
    /// none has a time.
    pub commit_ns: (u64, u64),
}

/// Checks all of a chain. `progress` gets bytes done and bytes in all, and may stop it.
///
/// # Errors
/// The first thing that is wrong; [`BackupError::Cancelled`].
pub fn verify(
    disk: &Arc<BackupDisk>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Verified, BackupError> {
    let total: u64 = 2 * disk.chain().iter().map(|file| file.payload_bytes()).sum::<u64>();
    let mut done = 0;
    let mut tell = |done: u64| match progress(done.min(total), total) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(BackupError::Cancelled),
    };
    for file in disk.chain() {
        file.check_frames(&mut |bytes| {
            done += bytes;
            tell(done)
        })?;
    }
    let page_bytes = u64::from(disk.state().page_bytes);
    let each_page = &mut |count: u64| tell(done + count * page_bytes);
    let mut found = Verified { page_count: check_pages(disk, each_page)?, ..Verified::default() };
    done += found.page_count * page_bytes;
    let mut reader = log_reader(disk, disk.state().scan_lsn)?;
    while let Some(record) = reader.next()? {
        found.record_count += 1;
        if record.kind() == RecordKind::Commit {
            found.commit_count += 1;
            if let Some(ns) = record.view().commit_time_ns().filter(|_| record.lsn() >= disk.full_end()) {
                found.commit_ns.0 = if found.commit_ns.0 == 0 { ns } else { found.commit_ns.0.min(ns) };
                found.commit_ns.1 = found.commit_ns.1.max(ns);
            }
        }
        if found.record_count.is_multiple_of(4096) {
            tell(done + (record.lsn().0 - disk.state().scan_lsn.0))?;
        }
    }
    if reader.position() != disk.log_end() {
        let file = disk.chain().last().map_or(String::new(), |file| file.name().to_string());
        return Err(BackupError::LogEnds { file, found: reader.position(), expected: disk.log_end() });
    }
    Ok(found)
}

/// A reader of the log of a chain, from `from` on.
///
/// # Errors
/// The log begins later, or is damaged there.
pub fn log_reader(disk: &Arc<BackupDisk>, from: Lsn) -> Result<LogReader, BackupError> {
    let state = disk.state();
    let files = LogFiles {
        disk: Arc::new(BackupView(Arc::clone(disk))),
        environment: state.environment,
        segment_bytes: state.segment_bytes,
        known: Some(Beginning { lsn: state.scan_lsn, incarnation: state.scan_incarnation }),
        incarnation_max: state.incarnation_max,
        end: Some(disk.log_end()),
    };
    Ok(LogReader::of_files(files, from)?)
}

fn check_pages(
    disk: &Arc<BackupDisk>,
    each_page: &mut dyn FnMut(u64) -> Result<(), BackupError>,
) -> Result<u64, BackupError> {
    let data = BackupView(Arc::clone(disk)).open(DATA, Open::READ)?;
    let file = &disk.chain()[0];
    let mut page = vec![0; file.header.control.page_bytes as usize];
    let mut count = 0;
    for id in file.page_ids() {
        data.read_at(id * page.len() as u64, &mut page)?;
        let wrong = |corrupt| BackupError::Page { file: file.name().to_string(), corrupt };
        checksum::verify(&page, PageId(id)).map_err(wrong)?;
        let lsn = u64::from_le_bytes(std::array::from_fn(|i| page[header::PAGE_LSN + i]));
        if lsn >= disk.full_end().0 {
            // K2 was broken: what the page says happened is in no log.
            let at = header::PAGE_LSN as u64;
            return Err(wrong(
                Corrupt::new("page LSN: the log ends before it", at, disk.full_end().0, lsn).on(PageId(id)),
            ));
        }
        count += 1;
        each_page(count)?;
    }
    if count != file.end.stored_count {
        let file = file.name().to_string();
        return Err(BackupError::Damaged { file, offset: 0, what: "pages are missing" });
    }
    Ok(count)
}
