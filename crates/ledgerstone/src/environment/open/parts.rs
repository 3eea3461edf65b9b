//! The parts of an engine, put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use ledgerstone_buffer::{Cache, CacheConfig, Policy, TornPages, Tuning};
use ledgerstone_core::base::{Base, Sizes};
use ledgerstone_core::directory::{DATA, DOUBLE_WRITE, RESTORE, operations};
use ledgerstone_disk::{Disk, DiskFile, Fence};
use ledgerstone_log::{Beginning, ControlFile, Delay, GroupCommit, Log, LogConfig};
use ledgerstone_page::Xid;
use ledgerstone_recovery::{Analysis, RecoveryReport};
use ledgerstone_region::{Mutex, NumberSet, Region, RegionError, SlotTable};
use ledgerstone_space::Space;
use ledgerstone_structures::{ToFree, Tree};
use ledgerstone_txn::{Engine, EngineParts, EngineSettings, OWN_SLOT_COUNT, StructureLatches, TxnTable, VersionStore};

use super::FILE;
use super::put_off::locks_needed;
use crate::Error;
use crate::catalog::{CATALOG_ROOT, CATALOG_TABLE, Extensions, Known, TO_FREE_ROOT, TO_FREE_TABLE};
use crate::choice::{Locking, Replacement};
use crate::config::{Effective, Options};
use crate::environment::locking;
use crate::inner::{Bell, Checkpoints, Inner, Program, Rollbacks, Undecided, Workers};
use crate::keeper::{Keepers, Owner, Positions, kept_log};

/// Log that is kept ready ahead of its end, once there was so much: overwriting is cheaper than making.
const SPARE_LOG_BYTES: u64 = 32 << 20;

/// The log's flusher and the page writer flush the log, and so each has a slot.
const FLUSHING_THREADS: u32 = 2;

/// Names in the region.
pub(in crate::environment) const CHECKPOINT_LATCH: &str = "environment.checkpoint";
pub(in crate::environment) const COMPACT_LATCH: &str = "environment.compact";
pub(in crate::environment) const WORKERS_LATCHES: &str = "environment.workers";

/// The engine and what belongs to it, before anything is known of trees.
pub(super) struct Parts {
    pub engine: Arc<Engine>,
    pub data: Arc<dyn DiskFile>,
}

impl Parts {
    pub(super) fn build(
        options: &Options,
        effective: &Effective,
        (disk, fence): (&Arc<dyn Disk>, &Arc<Fence>),
        control: &Arc<ControlFile>,
        (found, too_large): (&Analysis, &NumberSet<Xid>),
        redo_threads: u32,
        next_incarnation: Option<u64>,
    ) -> Result<Parts, Error> {
        let state = control.state();
        // The losers of a crash need a slot each, however few there may be afterwards. The prepared, and those that are
        // rolled back later, keep theirs and their locks, and leave the others what was asked for. The library's own
        // transactions have theirs.
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let kept_count = count(found.in_doubt.len() + too_large.len());
        let users_count = effective.transaction_count_max.max(count(found.losers.len())).saturating_add(kept_count);
        let slot_count = users_count.saturating_add(OWN_SLOT_COUNT);
        let kept_locks = count(found.in_doubt.values().map(|kept| kept.record.locks.len()).sum());
        let later_locks = count(locks_needed(&found.losers, too_large));
        let lock_count_max = effective.lock_count_max.saturating_add(kept_locks).saturating_add(later_locks);
        let lock_config = locking::config(effective, slot_count, lock_count_max);
        // Each transaction may have one, and ranges that read committed one each.
        let snapshot_count_max = slot_count.saturating_mul(2);
        // Who rolls them back, and who reads pages ahead for that.
        let later_threads = if too_large.is_empty() { 0 } else { 1 + ledgerstone_recovery::UNDO_READERS };
        let own_threads = later_threads + redo_threads + FLUSHING_THREADS;
        let thread_count_max = effective.thread_count_max.saturating_add(own_threads);
        let data = disk.open(DATA, FILE)?;
        let parts_bytes = [
            Cache::table_bytes(data.len()?, state.page_bytes, effective.page_count_max),
            effective.cache_bytes,
            effective.cache_bytes / 16,
            effective.log_buffer_bytes,
            lock_config.region_bytes() * (1 + u64::from(options.own_locking.is_some())),
            u64::from(slot_count) * 1024,
            u64::from(thread_count_max) * 256, // A few lines each, of several crates.
            VersionStore::region_bytes(effective.version_store_bytes, snapshot_count_max),
            8 << 20,
        ];
        let region = region_of(parts_bytes.into_iter().fold(0, u64::saturating_add))?;
        let slots = Arc::new(SlotTable::place(&region, thread_count_max)?);
        control.share(&region, &slots)?;
        // Makes the names in the environment's directory durable, too (O6).
        let log = Log::open(LogConfig {
            slots: Some(Arc::clone(&slots)),
            segment_bytes: state.segment_bytes,
            buffer_bytes: effective.log_buffer_bytes,
            kept_claim_count: slot_count,
            group: group_commit(effective),
            async_delay_ns: effective.async_delay_ms.saturating_mul(1_000_000),
            spare_segments: (SPARE_LOG_BYTES / state.segment_bytes).clamp(2, 8),
            end: found.end,
            incarnation: found.incarnation,
            incarnations: found.incarnations.clone(),
            next_incarnation,
            is_read_only: options.read_only,
            control: Some(Arc::clone(control)),
            ..LogConfig::new(Arc::clone(disk), region.clone(), state.environment)
        })?;
        // An environment that only reads writes no page, and makes no room for copies of one.
        let torn_pages = if options.read_only { TornPages::DeviceAtomic } else { TornPages::DoubleWrite };
        let cache = Cache::with_tuning(
            CacheConfig {
                region: region.clone(),
                slots: Arc::clone(&slots),
                data: Arc::clone(&data),
                double_write: disk.open(DOUBLE_WRITE, FILE)?,
                log: Arc::clone(&log) as _,
                page_bytes: state.page_bytes,
                cache_bytes: effective.cache_bytes,
                max_pages: effective.page_count_max,
                policy: match effective.replacement {
                    Replacement::Clock => Policy::Clock,
                    Replacement::Lru => Policy::Lru,
                },
            },
            Tuning { torn_pages, ..Tuning::default() },
        )?;
        let locks = locking::make(&region, &slots, effective.locking, lock_config, options.own_locking.as_ref())?;
        let table = TxnTable::place(&region, users_count)?;
        let versions = VersionStore::place(&region, &log, &slots, effective.version_store_bytes, snapshot_count_max)?;
        let structure_latches = StructureLatches::place(&region)?;
        let engine = Engine::new(EngineParts {
            structure_latches,
            region,
            slots,
            log,
            cache,
            locks,
            ops: operations(&options.extensions)?,
            table,
            versions,
            settings: EngineSettings {
                lock_timeout_ns: effective.lock_timeout_ms.saturating_mul(1_000_000),
                escalate_after: effective.escalate_after,
                locks_pages: effective.locking == Locking::Pages,
            },
            fence: Arc::clone(fence),
        });
        Ok(Parts { engine, data })
    }

    #[allow(clippy::too_many_arguments)] // One caller each for create and recover; a struct would only rename them.
    pub(super) fn into_inner(
        self,
        options: &Options,
        effective: Effective,
        disk: Arc<dyn Disk>,
        fence: Arc<Fence>,
        space: Arc<Space>,
        catalog: Tree,
        to_free: Arc<ToFree>,
        control: Arc<ControlFile>,
        report: RecoveryReport,
        (in_doubt, rollbacks): (Undecided, Rollbacks),
    ) -> Result<Inner, Error> {
        let region = self.engine.region.clone();
        let state = control.state();
        let owner = Owner { environment: state.environment, life: state.life };
        let (log, keepers) = (&self.engine.log, Keepers::default());
        let bytes_max = effective.feed_log_bytes_max;
        let positions = Positions::open(&*disk, (log, &keepers), bytes_max, owner, state.has_feeds)?;
        let is_restored = AtomicBool::new(disk.exists(RESTORE)?);
        // An environment that only reads gives nothing up.
        let makers = if options.read_only { Vec::new() } else { options.keepers() };
        let known = Beginning { lsn: state.scan_lsn, incarnation: state.scan_incarnation };
        let mut workers = Vec::new();
        for make in makers {
            let keeper = make(kept_log(log, owner, known))?;
            keepers.add(log, Arc::clone(&keeper));
            workers.push(keeper);
        }
        if !options.read_only && !self.engine.locks.isolates() && !state.is_unlocked {
            control.change(|state| state.is_unlocked = true)?; // Before the first transaction of the program's.
        }
        let known = Known::new(&self.engine.slots);
        let checkpoints = Checkpoints { is_restored, ..Checkpoints::default() };
        let (extensions, extractors) = (options.extensions.clone(), options.extractors.clone());
        let base = Base {
            disk,
            directory: options.directory.clone(),
            engine: self.engine,
            catalog,
            control,
            checkpoint_latch: region.place(CHECKPOINT_LATCH, 1, 8)?,
            keepers,
            positions,
            is_read_only: options.read_only,
            sizes: Sizes {
                cache_bytes: effective.cache_bytes,
                log_segment_bytes: effective.log_segment_bytes,
                feed_log_bytes_max: effective.feed_log_bytes_max,
            },
        };
        Ok(Inner {
            base: Arc::new(base),
            fence,
            workers: Workers { latch: region.place(WORKERS_LATCHES, workers.len().max(1) as u64, 8)?, all: workers },
            compact_latch: region.place(COMPACT_LATCH, 1, 8)?,
            bell: Arc::new(Bell::place(&region)?),
            space,
            to_free,
            known,
            in_doubt,
            rollbacks,
            pending: Mutex::new(None),
            program: Program { layouts: options.extensions.layouts()?, extensions, extractors },
            durability: effective.durability,
            drops: AtomicU64::new(0),
            effective,
            report,
            checkpoints,
            is_closed: AtomicBool::new(false),
        })
    }
}

fn region_of(bytes: u64) -> Result<Region, RegionError> {
    #[cfg(feature = "deaths")]
    return Region::shared(bytes);
    #[cfg(not(feature = "deaths"))]
    Region::anonymous(bytes)
}

/// LIBTP's thresholds (4.2).
fn group_commit(effective: &Effective) -> GroupCommit {
    GroupCommit {
        group_count_min: effective.commit_group_min,
        wait_percent: effective.commit_wait_percent,
        log_delay_bytes: effective.commit_log_delay_bytes,
        delay: match effective.commit_delay_us {
            0 => Delay::Adaptive,
            us => Delay::AtMost { ns: us.saturating_mul(1000) },
        },
    }
}

pub(in crate::environment) fn trees(
    engine: &Arc<Engine>,
    space: &Arc<Space>,
    extensions: &Extensions,
) -> (Tree, Arc<ToFree>) {
    let to_free = ToFree::new(engine, space, TO_FREE_TABLE, TO_FREE_ROOT);
    let to_free = Arc::new(to_free.with_structures(Arc::new(extensions.clone())));
    let catalog = Tree::new(engine, space, &to_free, CATALOG_TABLE, CATALOG_ROOT).logging_whole_values(true);
    ledgerstone_structures::register_undos(engine, space, &to_free);
    extensions.register_undos(engine);
    (catalog, to_free)
}
