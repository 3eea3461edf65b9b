//! What a cache is made of, and its settings.

use crate::replace::Policy;
use crate::table::FIRST_ENTRIES_MIN;
use crate::write_ahead::WriteAhead;
use ledgerstone_disk::DiskFile;
use ledgerstone_region::{Region, SlotTable};
use std::sync::Arc;

/// How pages that a power cut tore are made whole again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TornPages {
    /// Every batch goes to the double-write area first.
    #[default]
    DoubleWrite,
    /// The device writes a page whole or not at all, and the user vouches for it.
    DeviceAtomic,
}

/// Settings that rarely need another value.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The protection against torn pages.
    pub torn_pages: TornPages,
    /// The most pages written in one batch. Small caches use fewer.
    pub batch_pages_max: u32,
    /// Frames that the background writer keeps clean ahead of the policy, in parts of the cache: 16 is a sixteenth.
    pub clean_reserve_part: u32,
    /// The page table has room for so many pages from the beginning, at least, where so many are allowed. A page behind
    /// them takes some instructions more to be found.
    pub table_pages_min: u64,
    /// How long a thread waits for a frame before it gets `CacheFull`. Time in which the device is at work does not
    /// count.
    pub full_wait_ns_max: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            torn_pages: TornPages::DoubleWrite,
            batch_pages_max: 64,
            clean_reserve_part: 16,
            table_pages_min: FIRST_ENTRIES_MIN,
            full_wait_ns_max: 10_000_000_000,
        }
    }
}

/// The parts of a cache.
pub struct CacheConfig {
    /// Where page table, descriptors and frames live.
    pub region: Region,
    /// The slots of the threads that latch pages.
    pub slots: Arc<SlotTable>,
    /// The data file. Page n is at n * `page_bytes`.
    pub data: Arc<dyn DiskFile>,
    /// The file of the double-write area. It may be empty.
    pub double_write: Arc<dyn DiskFile>,
    /// The log that goes first.
    pub log: Arc<dyn WriteAhead>,
    /// Bytes of a page: a power of two from 4096 to 32768.
    pub page_bytes: u32,
    /// The limit for frames and descriptors together.
    pub cache_bytes: u64,
    /// Page ids below this can be used. The page table takes 16 bytes of address space a page, as pages are used:
    /// [`Cache::table_bytes`](crate::Cache::table_bytes) of it in the region. In one that other processes can have, all
    /// of it is there, in [`Cache::reserved_table_bytes`](crate::Cache::reserved_table_bytes) more.
    pub max_pages: u64,
    /// Which frame to take next.
    pub policy: Policy,
}
