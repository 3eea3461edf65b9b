//! Log, cache, locks and transactions put together on one disk.
//!
//! The library puts them together in `environment/open`, with catalog, space and recovery around; tests of single
//! layers want less of that, and sizes so small that their limits are met.

use std::sync::Arc;

use ledgerstone_buffer::{BufferError, Cache, CacheConfig, Policy, Tuning};
use ledgerstone_disk::{Disk, DiskError, DiskFile, Open};
use ledgerstone_lock::{LockConfig, LockTable};
use ledgerstone_log::{Log, LogConfig, LogError};
use ledgerstone_op::Registry;
use ledgerstone_region::{Members, Region, SlotTable};
use ledgerstone_txn::{
    Engine, EngineParts, EngineSettings, OWN_SLOT_COUNT, Reason, StructureLatches, TxnTable, VersionStore,
};

/// Threads at once.
const THREADS: u32 = 64;
/// Bytes of memory that a frame takes beside its page, at most.
const FRAME_BYTES: u64 = 200;

/// An engine to be: what tests choose. Everything else is small.
#[derive(Debug, Clone)]
pub struct EngineKit {
    /// Who the environment is.
    pub env: [u8; 16],
    /// Size of a page in bytes.
    pub page_bytes: u32,
    /// Pages in memory.
    pub frame_count: u64,
    /// Pages that the data file may have.
    pub page_count_max: u64,
    /// Pages that the page table has room for from the beginning.
    pub table_pages_min: u64,
    /// Size of a segment of the log in bytes.
    pub segment_bytes: u64,
    /// Size of the log buffer in bytes.
    pub log_buffer_bytes: u64,
    /// Transactions at once.
    pub transaction_count: u32,
    /// Locks of all of them.
    pub lock_count: u32,
    /// How data and double-write file are opened.
    pub open: Open,
    /// Settings of transactions.
    pub settings: EngineSettings,
}

impl EngineKit {
    /// A small engine for the environment of that name.
    #[must_use]
    pub fn new(env: [u8; 16]) -> EngineKit {
        EngineKit {
            env,
            page_bytes: 4096,
            frame_count: 64,
            page_count_max: 1 << 20,
            table_pages_min: Tuning::default().table_pages_min,
            segment_bytes: 1 << 20,
            log_buffer_bytes: 256 << 10,
            transaction_count: 16,
            lock_count: 1024,
            open: Open::CREATE,
            settings: EngineSettings { lock_timeout_ns: 1_000_000_000, escalate_after: 1000, locks_pages: false },
        }
    }

    /// The data file, as the engine has it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn data(&self, disk: &Arc<dyn Disk>) -> Result<Arc<dyn DiskFile>, DiskError> {
        disk.open("data", self.open)
    }

    /// An engine with these operations over `data`, its log and its double-write file on `disk`. `log` says where the
    /// log goes on.
    ///
    /// # Errors
    /// The log or a file cannot be opened.
    ///
    /// # Panics
    /// The memory for it cannot be had.
    pub fn engine<E>(
        &self,
        disk: &Arc<dyn Disk>,
        data: &Arc<dyn DiskFile>,
        ops: Registry,
        log: impl FnOnce(LogConfig) -> LogConfig,
    ) -> Result<Arc<Engine>, E>
    where
        E: From<LogError> + From<BufferError>,
    {
        let region = Region::anonymous(self.region_bytes()).expect("memory for a test");
        self.engine_in::<E>(region, disk, data, ops, log)
    }

    fn cache_bytes(&self) -> u64 {
        self.frame_count * (u64::from(self.page_bytes) + FRAME_BYTES)
    }

    /// Bytes of a region for it.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        let (page_bytes, pages) = (self.page_bytes, self.page_count_max);
        let table = Cache::table_bytes(0, page_bytes, pages) + Cache::reserved_table_bytes(0, page_bytes, pages);
        (16 << 20) + table + 2 * (self.cache_bytes() + self.log_buffer_bytes) + 256 * u64::from(self.lock_count)
    }

    /// The engine of a region that real processes share: made if the region was made here, and joined otherwise.
    ///
    /// # Errors
    /// The log or a file cannot be opened.
    ///
    /// # Panics
    /// The region has no room for it, or has another engine.
    pub fn engine_among<E>(
        &self,
        (region, members): (Region, Arc<Members>),
        disk: &Arc<dyn Disk>,
        data: &Arc<dyn DiskFile>,
        ops: Registry,
    ) -> Result<Arc<Engine>, E>
    where
        E: From<LogError> + From<BufferError>,
    {
        let slots = SlotTable::place_among(members, &region, THREADS).expect("memory for thread slots");
        self.engine_of::<E>((region, Arc::new(slots)), disk, data, ops, |log| log)
    }

    pub(crate) fn engine_in<E>(
        &self,
        region: Region,
        disk: &Arc<dyn Disk>,
        data: &Arc<dyn DiskFile>,
        ops: Registry,
        log: impl FnOnce(LogConfig) -> LogConfig,
    ) -> Result<Arc<Engine>, E>
    where
        E: From<LogError> + From<BufferError>,
    {
        let slots = Arc::new(SlotTable::place(&region, THREADS).expect("memory for thread slots"));
        self.engine_of::<E>((region, slots), disk, data, ops, log)
    }

    fn engine_of<E>(
        &self,
        (region, slots): (Region, Arc<SlotTable>),
        disk: &Arc<dyn Disk>,
        data: &Arc<dyn DiskFile>,
        ops: Registry,
        log: impl FnOnce(LogConfig) -> LogConfig,
    ) -> Result<Arc<Engine>, E>
    where
        E: From<LogError> + From<BufferError>,
    {
        let config = LogConfig {
            slots: Some(Arc::clone(&slots)),
            segment_bytes: self.segment_bytes,
            buffer_bytes: self.log_buffer_bytes,
            ..LogConfig::new(Arc::clone(disk), region.clone(), self.env)
        };
        let log = if region.is_made_here() { Log::open(log(config))? } else { Log::join(config)? };
        let cache = CacheConfig {
            region: region.clone(),
            slots: Arc::clone(&slots),
            data: Arc::clone(data),
            double_write: disk.open("double_write", self.open).map_err(LogError::from)?,
            log: Arc::clone(&log) as _,
            page_bytes: self.page_bytes,
            cache_bytes: self.cache_bytes(),
            max_pages: self.page_count_max,
            policy: Policy::Clock,
        };
        let tuning = Tuning { table_pages_min: self.table_pages_min, ..Tuning::default() };
        let cache = Cache::with_tuning(cache, tuning)?;
        let count = self.transaction_count;
        let owners = count + OWN_SLOT_COUNT;
        let locks = LockConfig {
            owners,
            locks_max: self.lock_count,
            buckets: self.lock_count.next_power_of_two().min(4096),
            ..LockConfig::default()
        };
        Ok(Engine::new(EngineParts {
            locks: Arc::new(LockTable::place(&region, &slots, locks).expect("memory for locks")),
            table: TxnTable::place(&region, count).expect("memory for transactions"),
            versions: VersionStore::place(&region, &log, &slots, 1 << 20, 64).expect("memory for versions"),
            structure_latches: StructureLatches::place(&region).expect("memory for latches"),
            reason: Reason::place(&region).expect("memory for a reason"),
            region,
            slots,
            log,
            cache,
            ops,
            settings: self.settings,
            fence: Arc::default(),
        }))
    }
}
