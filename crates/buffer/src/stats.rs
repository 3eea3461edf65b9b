//! What the cache counted. Hits are not counted: a counter would cost more than the hit.

use crate::cache::Cache;
use crate::replace::Policy;
use std::sync::atomic::Ordering::Relaxed;

/// Counts since the cache was made, and its sizes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Frames in all.
    pub frame_count: u32,
    /// Frames that hold no page.
    pub free_frame_count: u32,
    /// Frames whose page differs from the data file.
    pub dirty_frame_count: u32,
    /// Bytes of frames and their descriptors: the cache's limit.
    pub frame_bytes: u64,
    /// Bytes of the page table that can have been touched. Not part of the limit.
    pub page_table_bytes: u64,
    /// Pages asked for that were not in memory.
    pub miss_count: u64,
    /// Pages read from the data file.
    pub read_count: u64,
    /// Pages written to the data file.
    pub write_count: u64,
    /// Bytes written to the double-write area: copies of pages, and their marks.
    pub double_write_bytes: u64,
    /// Batches they were written in, each with its own syncs.
    pub write_batch_count: u64,
    /// Batches written by a thread that needed a frame, because none was clean.
    pub foreground_batch_count: u64,
    /// Pages that lost their frame to another.
    pub eviction_count: u64,
    /// Times a thread slept because every frame was taken.
    pub frame_wait_count: u64,
}

impl Cache {
    /// The counts so far, and how full the cache is. Looks at every descriptor.
    pub fn stats(&self) -> CacheStats {
        let control = self.pool.frames.control();
        CacheStats {
            frame_count: self.pool.frames.count(),
            free_frame_count: self.pool.frames.count_free(),
            dirty_frame_count: self.pool.frames.count_dirty(),
            frame_bytes: self.pool.frames.bytes() + u64::from(self.pool.frames.count()) * Policy::Lru.frame_bytes(),
            page_table_bytes: self.page_table_bytes(),
            miss_count: control.misses.load(Relaxed),
            read_count: control.reads.load(Relaxed),
            write_count: control.writes.load(Relaxed),
            double_write_bytes: control.double_write_bytes.load(Relaxed),
            write_batch_count: control.write_batches.load(Relaxed),
            foreground_batch_count: control.foreground_batches.load(Relaxed),
            eviction_count: control.evictions.load(Relaxed),
            frame_wait_count: control.frame_waits.load(Relaxed),
        }
    }
}
