//! One endless sequence of records.
//!
//! An [`Lsn`](ledgerstone_page::Lsn) is a byte position in a log that has no end; segments are windows on it. Threads
//! append to a buffer in the region without a lock, and one of those who wait for durability writes for all.
//!
//! ```text
//! claim ─► append: reserve (one atomic add), copy, publish ─► flush_to: lead or sleep ─► durable_lsn
//!   │                                                              │
//!   └ space in the buffer and in segments, before any latch        └ walk the published records, write their blocks
//! ```
//! - [`record`] and [`seal`] say what a record's bytes are; [`control`] what the control file's are.
//! - `ring` and `append` put records into the buffer; `flush`, `meeting` and [`group_commit`] bring them to the device,
//!   `line` is where those stand who wait for room.
//! - `segment` makes and recycles files, `read` and [`scan`] read them; `reader` is a cursor that goes both ways and
//!   waits, `pins` keep what it has yet to read, and `probe` finds a beginning anywhere.
//!
//! What holds throughout:
//!
//! - W1. Durable are always the first bytes of the log, up to `durable_lsn`, which is the end of a record.
//! - W2. A block is rewritten only with its durable bytes unchanged, one write of it at a time.
//! - W3. After a write or sync that failed nothing is written any more and nothing more is called durable.
//! - W4. Whatever is refused for want of space is refused before anything is written, and rollbacks find the space that
//!   was reserved for them.
//! - W5. No process-private mutex is held across anything that waits or does I/O.
//!
//! The log does not know what a record means: not which transaction is open, nor what a page is.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// A model compiles only what it needs.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod append;
#[cfg(not(loom))]
mod backwards;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
pub mod control;
mod error;
#[cfg(not(loom))]
mod flush;
#[cfg(not(loom))]
mod flusher;
#[cfg(not(loom))]
mod gate;
pub mod group_commit;
mod line;
#[cfg(not(loom))]
mod log;
#[cfg(all(loom, test))]
mod loom_log;
mod meeting;
#[cfg(not(loom))]
mod pins;
#[cfg(not(loom))]
mod print;
#[cfg(not(loom))]
mod probe;
#[cfg(not(loom))]
mod proof;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod reader;
pub mod record;
mod ring;
#[cfg(not(loom))]
pub mod scan;
pub mod seal;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod state;
#[cfg(not(loom))]
mod wakers;

#[cfg(not(loom))]
pub use crate::{
    append::Claim,
    backwards::Backwards,
    config::{LOG_BYTES_MAX, LogConfig},
    control::{CONTROL_PATH, CONTROL_SLOT_BYTES, CREATION_PATH, ControlFile, ControlSlot, ControlState},
    error::{ControlError, LogError, Malformed},
    group_commit::{Delay, GroupCommit},
    log::{Log, LogStat},
    pins::{LogPin, Pinned},
    print::{PrintArgs, print},
    probe::{Beginning, oldest_record},
    proof::LogProof,
    reader::{LogFiles, LogReader},
    record::{
        FIRST_LSN, GroupPart, HEADER_BYTES, LSN_END, LSN_LIMIT, NewRecord, PAGE_HEADER_BYTES, PART_HEADER_BYTES,
        RECORD_BYTES_MAX, Record, RecordKind, RecordView, decode, group_body,
    },
    scan::{LogScan, Watch},
    seal::Seal,
    segment::{LOG_DIR, check_segments, is_log_file, segment_name, segment_start, tidy_segments},
    wakers::WakerNo,
};

/// What tells an environment from every other: 16 random bytes.
pub type EnvironmentId = [u8; 16];
