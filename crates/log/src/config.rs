//! Settings of a log.

use std::sync::Arc;

use ledgerstone_disk::Disk;
use ledgerstone_page::Lsn;
use ledgerstone_region::{Region, SlotTable};

use crate::EnvironmentId;
use crate::control::ControlFile;
use crate::error::LogError;
use crate::group_commit::GroupCommit;
use crate::record::FIRST_LSN;

/// The largest segment, and the largest buffer, in bytes.
pub const LOG_BYTES_MAX: u64 = 1 << 30;

/// All rests of claims that are kept take no more than this part of the buffer, and none of them more than so many
/// bytes: enough for several small records.
const KEPT_PART: u64 = 16;
const KEPT_BYTES_MAX: u64 = 1024;
/// Of the buffer, for all that keep more together, and for one of them (C6 in `append.rs`).
const LONG_KEPT_ALL_PART: u64 = 32;
const LONG_KEPT_PART: u64 = 64;
const LONG_KEPT_BYTES_MAX: u64 = 4096;
/// Room for rollbacks that one of those keeps at most that may keep more, see [`crate::Log::may_keep_more`].
pub const LONG_KEPT_UNDO_BYTES: u64 = 4096;

/// What [`crate::Log::open`] needs to know. [`LogConfig::new`] has the defaults for an empty log.
#[derive(Clone)]
pub struct LogConfig {
    /// Where the segments are, under `log/`.
    pub disk: Arc<dyn Disk>,
    /// Where the buffer is.
    pub region: Region,
    /// The slots of the threads that use the log, in the same region. A thread takes one at its first claim, and when
    /// it waits for a flush. `None`: the log makes a table of its own, for 256 threads.
    pub slots: Option<Arc<SlotTable>>,
    /// The environment, sealed into every record.
    pub env_id: EnvironmentId,
    /// Bytes of a segment: a power of two from 16 KiB to 1 GiB. Fixed when the environment is made. 16 MiB.
    pub segment_bytes: u64,
    /// Bytes of the buffer: a power of two from 16 KiB to 1 GiB. Half of it is for records that are not durable yet, so
    /// the longest record is half of it, the other half for reading recent ones back. 8 MiB.
    pub buffer_bytes: u64,
    /// Claims of which a rest may be kept at once, see [`crate::Log::kept_claim_bytes`]. 0.
    pub kept_claim_count: u32,
    /// When a leader flushes.
    pub group: GroupCommit,
    /// How long the flusher thread leaves an `Async` commit undurable. 10 ms.
    pub async_delay_ns: u64,
    /// Prepared segments that are kept ahead of the tail, from recycled ones. 2.
    pub spare_segments: u64,
    /// Where the valid log ends: [`crate::LogScan::end`]. The first LSN of an empty log. All below is called durable,
    /// so the scan was [`crate::LogScan::settled`].
    pub end: Lsn,
    /// The incarnation in force there: [`crate::LogScan::incarnation`].
    pub incarnation: u64,
    /// The incarnations below `end`, as far as they are known, each with the LSN from which it is in force:
    /// [`crate::LogScan::incarnations`]. May be empty. Records from below are then tried under all older incarnations.
    pub incarnations: Vec<(Lsn, u64)>,
    /// The incarnation to begin: an `Incarnation` record is the first one appended. Recovery has made it durable as
    /// `incarnation_max` of the control file before. `None` only for an environment that has just been made, or is only
    /// read.
    pub next_incarnation: Option<u64>,
    /// Only to be read: nothing is made, removed or named.
    pub is_read_only: bool,
    /// Where the newest segment is named before it is written to. `None` for logs that are never recovered.
    pub control: Option<Arc<ControlFile>>,
}

impl LogConfig {
    /// The defaults, for the empty log of a new environment.
    pub fn new(disk: Arc<dyn Disk>, region: Region, env_id: EnvironmentId) -> LogConfig {
        LogConfig {
            disk,
            region,
            slots: None,
            env_id,
            segment_bytes: 16 << 20,
            buffer_bytes: 8 << 20,
            kept_claim_count: 0,
            group: GroupCommit::default(),
            async_delay_ns: 10_000_000,
            spare_segments: 2,
            end: FIRST_LSN,
            incarnation: 1,
            incarnations: Vec::new(),
            next_incarnation: None,
            is_read_only: false,
            control: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        const SIZE: &str = "a power of two from 16 KiB to 1 GiB";
        let is_size = |bytes: u64| bytes.is_power_of_two() && (16 << 10..=LOG_BYTES_MAX).contains(&bytes);
        let refuse = |name, value, must| Err(LogError::Setting { name, value, must });
        if !is_size(self.segment_bytes) {
            return refuse("segment_bytes", self.segment_bytes, SIZE);
        }
        if !is_size(self.buffer_bytes) {
            return refuse("buffer_bytes", self.buffer_bytes, SIZE);
        }
        if self.end < FIRST_LSN || !self.end.0.is_multiple_of(8) {
            return refuse("end", self.end.0, "a multiple of 8 not below the first LSN");
        }
        if self.next_incarnation.is_some_and(|next| next <= self.incarnation) {
            return refuse("next_incarnation", self.next_incarnation.unwrap_or(0), "above the one in force");
        }
        Ok(())
    }

    /// Most that one claim can be for: half of the buffer waits for the device, less all that may be kept (C5 in
    /// `append.rs`). A larger one could never be granted.
    pub(crate) fn claim_bytes_max(&self) -> u64 {
        let kept = self.kept_claim_bytes() * u64::from(self.kept_claim_count);
        self.buffer_bytes / 2 - kept - self.long_kept_bytes() * u64::from(self.long_keeper_count())
    }

    pub(crate) fn kept_claim_bytes(&self) -> u64 {
        let each = (self.buffer_bytes / KEPT_PART).checked_div(u64::from(self.kept_claim_count)).unwrap_or(0);
        (each / 8 * 8).min(KEPT_BYTES_MAX)
    }

    /// What one of those keeps that may keep more (C6 in `append.rs`).
    pub(crate) fn long_kept_bytes(&self) -> u64 {
        (self.buffer_bytes / LONG_KEPT_PART / 8 * 8).min(LONG_KEPT_BYTES_MAX)
    }

    /// How many may keep more. What they keep for rollbacks is an eighth of a segment at most. 0 where nobody keeps
    /// anything.
    pub(crate) fn long_keeper_count(&self) -> u32 {
        if self.kept_claim_count == 0 {
            return 0;
        }
        let in_buffer = self.buffer_bytes / LONG_KEPT_ALL_PART / self.long_kept_bytes().max(1);
        let in_segment = self.segment_bytes / 8 / LONG_KEPT_UNDO_BYTES;
        in_buffer.min(in_segment) as u32
    }
}
