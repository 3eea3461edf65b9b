//! What can go wrong, told apart by what the caller can do about it.

use crate::{Lba, Pba, Xid};

/// An error of the flash device, the translation layer or a transaction on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The simulated power is off. Nothing works until it is restored and the device is mounted again.
    #[error("power is off: restore it and mount the device again")]
    PowerCut,
    /// No free page is left and nothing can be collected: end transactions or discard pages, then try again.
    #[error("device is full: {live_pages} of {data_pages} pages hold live data; discard pages or end transactions")]
    Full {
        /// Pages that hold data which must be kept.
        live_pages: u64,
        /// Pages that can hold data at all.
        data_pages: u64,
    },
    /// The logical page lies outside the device.
    #[error("logical page {lba} does not exist: the device has {count}")]
    UnknownPage {
        /// The page asked for.
        lba: Lba,
        /// How many logical pages there are.
        count: u32,
    },
    /// The transaction is not running (never begun, or already ended).
    #[error("transaction {0} is not running")]
    UnknownTransaction(Xid),
    /// Another running transaction has written this page: wait for it to end.
    #[error("logical page {lba} is being changed by transaction {holder}: wait until it ends")]
    Conflict {
        /// The page asked for.
        lba: Lba,
        /// Who has written it.
        holder: Xid,
    },
    /// No protocol has this name.
    #[error("no protocol {0:?}: take CFC, AFC, SCC, BPCC, WAL, CFC_ex or AFC_ex")]
    UnknownProtocol(String),
    /// A change of part of a page under a protocol that locks whole pages.
    #[error("this protocol changes whole pages: write the page, or open the device with WAL, CFC_ex or AFC_ex")]
    RecordsUnsupported,
    /// More bytes than a page holds.
    #[error("{len} bytes do not fit into a page of {max}")]
    TooLong {
        /// What was given.
        len: usize,
        /// What fits.
        max: usize,
    },
    /// A page could not be read, even with error correction.
    #[error("flash page {0} is unreadable: more bit errors than its code corrects")]
    Unreadable(Pba),
    /// The device reported that a program failed. The block is going bad.
    #[error("programming flash page {0} failed: its block is worn out")]
    ProgramFailed(Pba),
    /// The device reported that an erase failed. The block is bad.
    #[error("erasing block {0} failed: it is worn out")]
    EraseFailed(u32),
    /// A page was programmed more often than the device allows between two erases.
    #[error("flash page {pba} was programmed {limit} times since its erase, the device's limit")]
    ProgramLimit {
        /// The page.
        pba: Pba,
        /// How many programs the device allows.
        limit: u8,
    },
    /// Pages of a block were programmed out of order on a device that forbids it.
    #[error("flash page {0} was programmed out of order within its block")]
    OutOfOrder(Pba),
    /// A flash page or block outside the device was named.
    #[error("flash page {pba} is outside the device of {count} pages")]
    OutOfRange {
        /// The page.
        pba: u64,
        /// How many there are.
        count: u64,
    },
    /// The geometry makes no usable device.
    #[error("unusable geometry: {0}")]
    Geometry(String),
    /// An image or device of another kind, version or geometry than asked for.
    #[error("not a device for this program: {field} is {found}, expected {expected}")]
    Mismatch {
        /// What differs.
        field: &'static str,
        /// What the program needs.
        expected: String,
        /// What the device says.
        found: String,
    },
    /// Something on flash contradicts itself.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// A line of a trace cannot be understood.
    #[error("trace line {line}: {reason}")]
    Trace {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused.
    #[error("{context}: {source}")]
    Io {
        /// What was tried.
        context: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// The result of everything here that touches the device.
pub type Result<T, E = FlashError> = std::result::Result<T, E>;
