//! The parts of an engine, put together.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use ledgerstone_buffer::{Cache, CacheConfig, Policy, TornPages, Tuning};
use ledgerstone_core::base::{Base, Sizes};
use ledgerstone_core::directory::{DATA, DOUBLE_WRITE, RESTORE, control_error, operations};
use ledgerstone_disk::{Disk, DiskFile, Fence};
use ledgerstone_log::{ControlFile, Delay, GroupCommit, Log, LogConfig};
use ledgerstone_page::{Lsn, Xid};
use ledgerstone_recovery::{Analysis, RecoveryReport};
use ledgerstone_region::{Mutex, NumberSet, Region, RegionError, SlotTable};
use ledgerstone_space::Space;
use ledgerstone_structures::{ToFree, Tree};
use ledgerstone_txn::{Engine, EngineParts, EngineSettings, Reason, StructureLatches, TxnTable, VersionStore};

use super::FILE;
use super::counts::Counts;
use super::handed_on::{check_program, hand_on, handed_on};
use crate::Error;
use crate::catalog::{CATALOG_ROOT, CATALOG_TABLE, Extensions, Known, News, TO_FREE_ROOT, TO_FREE_TABLE};
use crate::choice::{Locking, Replacement};
use crate::config::{Effective, Options};
use crate::environment::locking;
use crate::inner::{Among, Bell, Checkpoints, Inner, Place, Program, Rollbacks, Shares, Undecided, Workers};
use crate::keeper::{Keepers, Owner, Positions};

/// Log that is kept ready ahead of its end, once there was so much: overwriting is cheaper than making.
const SPARE_LOG_BYTES: u64 = 32 << 20;

/// Names in the region.
pub(in crate::environment) const CHECKPOINT_LATCH: &str = "environment.checkpoint";
pub(in crate::environment) const COMPACT_LATCH: &str = "environment.compact";
pub(in crate::environment) const WORKERS_LATCHES: &str = "environment.workers";

/// Keepers of the log of one program, among those that share an environment.
const SHARED_KEEPERS_MAX: usize = 64;

/// How an environment is opened.
pub(super) enum Home {
    /// By this process alone.
    Alone,
    /// By the first of those that share it.
    First(Place),
}

/// What the opening has found, and what it leaves for later.
pub(super) struct Begins<'a> {
    pub found: &'a Analysis,
    /// Transactions that are rolled back behind the opening.
    pub too_large: &'a NumberSet<Xid>,
    /// Threads that repeat changes behind it.
    pub redo_threads: u32,
    /// `None`: it will not be written.
    pub next_incarnation: Option<u64>,
}

/// The region, and what this process has there.
struct Places {
    region: Region,
    among: Option<Among>,
    slots: Arc<SlotTable>,
    counts: Counts,
}

/// The engine and what belongs to it, before anything is known of trees.
pub(super) struct Parts {
    pub engine: Arc<Engine>,
    pub data: Arc<dyn DiskFile>,
    among: Option<Among>,
}

impl Parts {
    /// The parts of an environment that this process opens first.
    pub(super) fn build(
        options: &Options,
        effective: &Effective,
        (disk, fence): (&Arc<dyn Disk>, &Arc<Fence>),
        control: &Arc<ControlFile>,
        begins: Begins<'_>,
        home: &Home,
    ) -> Result<Parts, Error> {
        let Begins { found, too_large, redo_threads, next_incarnation } = begins;
        let state = control.state();
        let counts = Counts::of(effective, found, too_large, redo_threads);
        let data = disk.open(DATA, FILE)?;
        let is_shared = cfg!(feature = "deaths") || matches!(home, Home::First(_));
        let bytes = counts.region_bytes((options, is_shared), effective, data.len()?, state.page_bytes);
        let among = match home {
            Home::First(place) => Some(place.create(disk, state.environment, bytes)?),
            Home::Alone => None,
        };
        let region = among.as_ref().map_or_else(|| region_of(bytes), |among| Ok(among.region.clone()))?;
        if among.is_some() {
            counts.hand_on(&region)?;
            hand_on(&region, effective, options)?;
        }
        let slots = Arc::new(slots_of(&region, among.as_ref(), counts)?);
        control.share(&region, &slots)?;
        let begins = LogBegins {
            end: found.end,
            incarnation: found.incarnation,
            incarnations: found.incarnations.clone(),
            next_incarnation,
        };
        let places = Places { region, among, slots, counts };
        Parts::place(options, effective, (disk, fence), control, (places, data), Some(begins))
    }

    /// The parts of an environment that others have open, its settings, and its control file.
    pub(super) fn join(
        options: &Options,
        (disk, fence): (&Arc<dyn Disk>, &Arc<Fence>),
        among: Among,
    ) -> Result<(Parts, Effective, Arc<ControlFile>), Error> {
        let region = among.region.clone();
        check_program(&region, options)?;
        let counts = Counts::handed_on(&region)?;
        let slots = Arc::new(slots_of(&region, Some(&among), counts)?);
        let control = ControlFile::join(&**disk, &region, &slots).map_err(|error| control_error(disk, error))?;
        let control = Arc::new(control);
        let state = control.state();
        let own = options.effective(Some((state.page_bytes, state.segment_bytes)))?;
        let effective = own.over_handed_on(&handed_on(&region)?)?;
        let data = disk.open(DATA, FILE)?;
        let places = Places { region, among: Some(among), slots, counts };
        let parts = Parts::place(options, &effective, (disk, fence), &control, (places, data), None)?;
        Ok((parts, effective, control))
    }

    fn place(
        options: &Options,
        effective: &Effective,
        (disk, fence): (&Arc<dyn Disk>, &Arc<Fence>),
        control: &Arc<ControlFile>,
        (Places { region, among, slots, counts }, data): (Places, Arc<dyn DiskFile>),
        begins: Option<LogBegins>,
    ) -> Result<Parts, Error> {
        let state = control.state();
        let slot_count = counts.slot_count();
        let lock_config = locking::config(effective, slot_count, counts.locks);
        let snapshot_count_max = counts.snapshot_count();
        let log = LogConfig {
            slots: Some(Arc::clone(&slots)),
            segment_bytes: state.segment_bytes,
            buffer_bytes: effective.log_buffer_bytes,
            kept_claim_count: slot_count,
            group: group_commit(effective),
            async_delay_ns: effective.async_delay_ms.saturating_mul(1_000_000),
            spare_segments: (SPARE_LOG_BYTES / state.segment_bytes).clamp(2, 8),
            is_read_only: options.read_only,
            control: Some(Arc::clone(control)),
            ..LogConfig::new(Arc::clone(disk), region.clone(), state.environment)
        };
        // To open it makes the names in the environment's directory durable, too (O6).
        let log = match begins {
            Some(LogBegins { end, incarnation, incarnations, next_incarnation }) => {
                Log::open(LogConfig { end, incarnation, incarnations, next_incarnation, ..log })?
            }
            None => Log::join(log)?,
        };
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
        let table = TxnTable::place(&region, counts.users)?;
        let versions = VersionStore::place(&region, &log, &slots, effective.version_store_bytes, snapshot_count_max)?;
        let structure_latches = StructureLatches::place(&region)?;
        let engine = Engine::new(EngineParts {
            structure_latches,
            reason: Reason::place(&region)?,
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
        Ok(Parts { engine, data, among })
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
        let is_first = region.is_made_here();
        let (log, keepers) = (&self.engine.log, Keepers::default());
        let bytes_max = effective.feed_log_bytes_max;
        let positions = Positions::open(&*disk, (log, &keepers), bytes_max, owner, state.has_feeds, &region)?;
        let is_restored = AtomicBool::new(disk.exists(RESTORE)?);
        if is_first && !options.read_only && !self.engine.locks.isolates() && !state.is_unlocked {
            control.change(|state| state.is_unlocked = true)?; // Before the first transaction of the program's.
        }
        let news = News::place(&region, self.engine.slots.process())?;
        let known = Known::new(&self.engine.slots, &news);
        // Those that come later go on where the others are.
        let last = AtomicU64::new(if is_first { 0 } else { state.checkpoint_lsn.0 });
        let checkpoints = Checkpoints { is_restored, last, ..Checkpoints::default() };
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
        let makers = options.keepers();
        let worker_latches = match self.among {
            Some(_) if makers.len() > SHARED_KEEPERS_MAX => {
                let what =
                    format!("this program has {} keepers of the log, and {SHARED_KEEPERS_MAX} can be", makers.len());
                return Err(Error::CannotShare { what });
            }
            Some(_) => SHARED_KEEPERS_MAX,
            None => makers.len().max(1),
        };
        let sharing = self.among.map(|among| Shares::of(among, &region)).transpose()?;
        Ok(Inner {
            base: Arc::new(base),
            fence,
            workers: Workers {
                all: OnceLock::new(),
                makers,
                latch: region.place(WORKERS_LATCHES, worker_latches as u64, 8)?,
            },
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
            news,
            sharing,
            effective,
            report,
            checkpoints,
            is_closed: AtomicBool::new(false),
        })
    }
}

/// Where the log goes on.
struct LogBegins {
    end: Lsn,
    incarnation: u64,
    incarnations: Vec<(Lsn, u64)>,
    next_incarnation: Option<u64>,
}

fn slots_of(region: &Region, among: Option<&Among>, counts: Counts) -> Result<SlotTable, RegionError> {
    match among {
        Some(among) => SlotTable::place_among(Arc::clone(&among.members), region, counts.threads),
        None => SlotTable::place(region, counts.threads),
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
