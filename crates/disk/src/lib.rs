//! Bytes that survive, and disks that fail on purpose.
//!
//! Everything that Ledgerstone keeps goes through the two traits of this crate. A [`Disk`] has files under names, and a
//! [`DiskFile`] has bytes at offsets. [`FileDisk`] is a directory of the operating system. `SimDisk` lives in memory
//! and loses its power on request. `FaultDisk` stands in front of another disk and fails at the n-th call. Both are
//! for tests, and behind the feature `simulated`. A [`Fence`] around a disk sees to it that nothing is written after
//! the lock is given back.
//!
//! What every implementation promises:
//!
//! - D1. Bytes are durable when [`DiskFile::sync`] has returned after the write, or when [`DiskFile::write_durable_at`]
//!   has returned. Of all other writes any subset survives, in pieces of 512 bytes. A piece that was written twice
//!   holds any one of its versions.
//! - D2. A length that was reached by a write, [`DiskFile::allocate`] or [`DiskFile::set_len`] is durable under the
//!   same rule.
//! - D3. A name (created, removed, renamed) is durable when [`Disk::sync_dir`] of its directory has returned. Until
//!   then each of these changes may be lost by itself. A rename is atomic: after a crash one of the two names is there.
//! - D4. A call that failed may have done a part of its work. What was durable before stays durable, except for the
//!   bytes that the call was to change.
//! - D5. Bytes inside the length that were never written read as zero.
//! - D6. Bytes that are read may have been written by a process that was killed before it synced them. They are lost
//!   with the power. After [`DiskFile::settle`], what is read is durable. After [`Disk::sync_dir`], the names that are
//!   found are durable.
//!
//! Paths are relative to the disk and use `/`. The root directory is `""`. This crate knows bytes and names. It knows
//! no pages and no log, and it never retries. It reports a failed sync, and the caller decides what to believe after
//! it.

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod aligned;
mod disk;
mod error;
#[cfg(any(test, feature = "simulated"))]
mod fault;
mod fence;
mod file;
mod file_disk;
mod file_lock;
mod held;
mod panics;
#[cfg(not(loom))]
mod raw;
mod read_only;
mod shown;
#[cfg(any(test, feature = "simulated"))]
mod sim;
mod sys;

pub use aligned::{ALIGNMENT_BYTES, AlignedBuf};
pub use disk::{Disk, DiskFile, DiskLock, Open};
pub use error::{DiskError, DiskErrorKind};
#[cfg(any(test, feature = "simulated"))]
pub use fault::{Call, Fault, FaultDisk, Harm, PLANNED_PANIC};
pub use fence::Fence;
pub use file::SyncMethod;
pub use file_disk::FileDisk;
#[cfg(not(loom))]
pub use raw::{Claim, Device, Flat, FlatFile, Format, RawBug, RawDisk};
pub use read_only::ReadOnlyDisk;
pub use shown::{Quoted, Readable, is_obeyed, quoted};
#[cfg(any(test, feature = "simulated"))]
pub use sim::{BLOCK_BYTES, Hook, PIECE_BYTES, SimCounters, SimDisk};
