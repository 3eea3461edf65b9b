//! One endless sequence of records.
//!
//! An [`Lsn`](ledgerstone_page::Lsn) is a byte position in a log that has no end. Segments are windows on it. Threads
//! append to a buffer in the region without a lock. One of the threads that wait for durability writes for all of them.
//!
//! ```text
//! claim ─► append: reserve (one atomic add), copy, publish ─► flush_to: lead or sleep ─► durable_lsn
//!   │                                                              │
//!   └ space in the buffer and in segments, before any latch        └ walk the published records, write their blocks
//! ```
//! - [`record`] and [`seal`] define the bytes of a record. [`control`] defines those of the control file.
//! - `ring` and `append` put records into the buffer. `flush`, `meeting` and [`group_commit`] bring them to the device.
//!   `room` counts the room for them, and `line` is where threads wait for it.
//! - `segment` makes and recycles files. `read` and [`scan`] read them. `reader` is a cursor that goes both ways and
//!   waits, `pins` keep what it has yet to read, and `probe` finds a beginning anywhere.
//!
//! These rules hold throughout:
//!
//! - W1. The durable part is always the first bytes of the log, up to `durable_lsn`, which is the end of a record.
//! - W2. A block is rewritten only with its durable bytes unchanged, and by one write at a time.
//! - W3. After a failed write or sync, nothing more is written and nothing more is called durable.
//! - W4. A call that is refused for lack of space is refused before anything is written. Rollbacks find the space that
//!   was reserved for them.
//! - W5. No mutex of the process is held across anything that waits or does I/O.
//!
//! The log does not know what a record means. It does not know which transaction is open, or what a page is.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// A model compiles only what it needs.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod ahead;
#[cfg(not(loom))]
mod append;
#[cfg(not(loom))]
mod backwards;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
mod control_words;
#[cfg(all(feature = "deaths", not(loom), not(miri)))]
mod deaths;
mod error;
#[cfg(not(loom))]
mod flush;
#[cfg(not(loom))]
mod flusher;
#[cfg(not(loom))]
mod gate;
mod giving_up;
pub mod group_commit;
#[cfg(not(loom))]
mod handle_table;
mod line;
#[cfg(not(loom))]
mod log;
#[cfg(all(loom, test))]
mod loom_giving_up;
#[cfg(all(loom, test))]
mod loom_log;
#[cfg(all(loom, test))]
mod loom_room;
mod meeting;
#[cfg(not(loom))]
mod notifier;
mod own;
#[cfg(not(loom))]
mod pins;
#[cfg(not(loom))]
mod places;
#[cfg(not(loom))]
mod planted;
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
#[cfg(not(loom))]
mod repair;
mod ring;
mod room;
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
    append::{Claim, LONG_KEPT_UNDO_BYTES},
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
    seal::{INCARNATION_MAX, Seal},
    segment::{LOG_DIR, check_segments, is_log_file, segment_name, segment_start, tidy_segments},
    wakers::WakerNo,
};

#[cfg(all(feature = "deaths", not(loom)))]
pub use crate::planted::Part as RepairPart;

/// The name of an environment, different from all others: 16 random bytes.
pub type EnvironmentId = [u8; 16];
