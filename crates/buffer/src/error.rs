//! What can go wrong with a page on its way in or out.

use ledgerstone_disk::DiskError;
use ledgerstone_log::LogError;
use ledgerstone_page::{Corrupt, Lsn, PageId};
use ledgerstone_region::{LatchTimeout, RegionError};

/// Why the cache refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The page was never written: it is past the end of the data file, or all zeros there.
    #[error("page {page} was never written")]
    NeverWritten {
        /// The page.
        page: PageId,
    },
    /// The page's bytes on the device are not what was written there.
    #[error("page {page} is damaged in {file} at byte {at}: {}", corrupt.fact())]
    Damaged {
        /// The page.
        page: PageId,
        /// The file it was read from.
        file: String,
        /// Where it begins there.
        at: u64,
        /// What was expected and what was found.
        corrupt: Corrupt,
    },
    /// The page id is beyond the page table.
    #[error("page {page} is beyond the page table of {max_pages} pages")]
    PageOutOfRange {
        /// The page.
        page: PageId,
        /// Pages the table was made for.
        max_pages: u64,
    },
    /// No frame became free in time, although no read and no write was under way: all frames are latched.
    #[error("no frame became free in {waited_ns} ns: {frames} frames, {dirty} dirty")]
    CacheFull {
        /// Frames the cache has.
        frames: u32,
        /// How many of them were dirty when the wait ended.
        dirty: u32,
        /// How long was waited.
        waited_ns: u64,
    },
    /// A page's latch was not given up in time.
    #[error("page {page}: {timeout}")]
    LatchTimeout {
        /// The page.
        page: PageId,
        /// Who holds the latch.
        timeout: LatchTimeout,
    },
    /// A write failed earlier. Nothing is read or written any more. Reopening recovers.
    #[error("the page cache failed: an earlier write of a page did not succeed")]
    Failed,
    /// The process that has made the region knows of changes that pages lack, and others do not.
    #[error("pages still lack changes from before the last restart; join when they have been made")]
    Pending,
    /// A page came in that lacks changes which the log has, and they could not be repeated. The environment has failed.
    #[error("{what}")]
    NotRedone {
        /// The page.
        page: PageId,
        /// Which record could not be repeated, and why.
        what: String,
    },
    /// The double-write area was made by a newer version of this software, or for another page size.
    #[error("double-write area {file}: {what} is {found}, expected {expected}")]
    DoubleWriteFormat {
        /// The file.
        file: String,
        /// The field of its header.
        what: &'static str,
        /// What this software expected.
        expected: u64,
        /// What the header says.
        found: u64,
    },
    /// The double-write file is missing: copies of pages that a crash may have torn are lost.
    #[error("{file} is missing: it holds copies of pages that a crash may have torn; put it back, or restore a backup")]
    DoubleWriteMissing {
        /// The file.
        file: String,
    },
    /// The double-write file is shorter than it was ever since it was made: copies of pages that a crash may have torn
    /// are lost.
    #[error(
        "{file} has {found} bytes instead of {expected}: it holds copies of pages that a crash may have torn; put it back, \
         or restore a backup"
    )]
    DoubleWriteShort {
        /// The file.
        file: String,
        /// Bytes that it must have, at least.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// The log ends before where it was durable when the double-write file was written last: pages may be at home whose
    /// log is lost. Nothing was written.
    #[error(
        "the log ends at LSN {end}, and {file} says that it was durable up to LSN {durable}: its end is damaged or an older \
         one; put the newest log files back, or restore from a backup"
    )]
    LogEndsEarly {
        /// The double-write file.
        file: String,
        /// Where the log was known to be durable.
        durable: Lsn,
        /// Where it ends.
        end: Lsn,
    },
    /// The configuration cannot work.
    #[error("{what} is {found}, allowed are {min} to {max}")]
    Config {
        /// The setting.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The smallest value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
    },
    /// The device refused or failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The log could not be made durable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The region has no room for the page table or the frames.
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl BufferError {
    /// Whether the page has no bytes to show, as opposed to bytes that are wrong.
    pub fn is_never_written(&self) -> bool {
        matches!(self, BufferError::NeverWritten { .. })
    }

    /// Whether the page cannot be read, and others perhaps can.
    pub fn is_of_one_page(&self) -> bool {
        use BufferError::{Damaged, Disk, NeverWritten, PageOutOfRange};
        matches!(self, NeverWritten { .. } | Damaged { .. } | PageOutOfRange { .. } | Disk(_))
    }
}
