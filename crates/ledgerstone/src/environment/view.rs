//! An environment as another simulated process has it: what is in the region, in a view of its own, and all else anew.
//!
//! E1. A view that goes, or is closed, ends nothing for others: the engine goes on, and no checkpoint is taken.
//! E2. It has no background threads. Its bell wakes the housekeeper of the process that has opened the environment, and
//!     so do its log and its cache with their threads.
//! E3. It learns from others what they do to tables (`catalog/news.rs`). How far the ends of a tree are dead it
//!     remembers for itself (E6 in `btree/edges.rs` of `structures`), since its slots are no members'. So a queue is
//!     used by one process.
//! E4. It has no keepers of the log. Others see its log pins (`log/handle_table.rs`).
//! E5. Transactions in doubt are in the lists of the processes that have prepared them, or have found them. A global id
//!     is refused whichever process has it.
//! E6. What is known of the control file is in the region (`log/control_words.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire};
use std::sync::{Arc, OnceLock};

use ledgerstone_core::base::Base;
use ledgerstone_core::directory::{DATA, DOUBLE_WRITE, operations};
use ledgerstone_disk::{Disk, DiskError, DiskLock, Fence};
use ledgerstone_log::ControlFile;
use ledgerstone_region::Mutex;
use ledgerstone_space::Space;
use ledgerstone_txn::OwnParts;

use super::open::{CHECKPOINT_LATCH, COMPACT_LATCH, FILE, Opening, WORKERS_LATCHES, trees};
use super::{Clones, Environment};
use crate::Error;
use crate::catalog::{Known, News};
use crate::inner::{Bell, Checkpoints, Handles, Inner, Program, Rollbacks, Undecided, Workers};
use crate::keeper::{Keepers, Owner, Positions};

impl Environment {
    /// The environment as another simulated process has it, on the same disk, as that process has opened it.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// It has another lock manager than the default, or was opened for reading, or is being rolled back since a
    /// restart. The disk's.
    #[doc(hidden)]
    pub fn view(&self, disk: &Arc<dyn Disk>) -> Result<Environment, Error> {
        let from = &**self.inner();
        let (base, old) = (&from.base, &from.engine);
        if from.is_read_only || old.locks.as_table().is_none() {
            return Err(Error::read_only("there is no view of such an environment"));
        }
        if from.rollbacks.progress().transaction_count > 0 || old.cache.has_pending() {
            return Err(Error::Busy);
        }
        let (disk, fence) = Fence::around(disk, Box::new(LockOfAnother));
        let data = disk.open(DATA, FILE)?;
        let extensions = from.program.extensions.clone();
        let engine = old.view(OwnParts {
            disk: Arc::clone(&disk),
            data: Arc::clone(&data),
            double_write: disk.open(DOUBLE_WRITE, FILE)?,
            ops: operations(&extensions)?,
            fence: Arc::clone(&fence),
        })?;
        let opening = Opening(Some(Arc::clone(&engine)));
        let region = engine.region.clone();
        let space = Space::join(&engine, data)?;
        let (catalog, to_free) = trees(&engine, &space, &extensions);
        let (state, keepers) = (base.control.state(), Keepers::default());
        let owner = Owner { environment: state.environment, life: state.life };
        let (log, bytes_max) = (&engine.log, base.sizes.feed_log_bytes_max);
        let positions = Positions::open(&*disk, (log, &keepers), bytes_max, owner, state.has_feeds, &region)?;
        let news = News::place(&region, engine.slots.process())?;
        let known = Known::new(&engine.slots, &news);
        let base = Base {
            directory: base.directory.clone(),
            catalog,
            control: Arc::new(ControlFile::join(&*disk, &engine.region, &engine.slots)?),
            checkpoint_latch: region.place(CHECKPOINT_LATCH, 1, 8)?,
            keepers,
            positions,
            is_read_only: false,
            sizes: base.sizes,
            disk,
            engine,
        };
        let last = AtomicU64::new(from.checkpoints.last.load(Acquire));
        let inner = Inner {
            base: Arc::new(base),
            fence,
            space,
            to_free,
            known,
            news,
            sharing: None,
            in_doubt: Undecided::default(),
            rollbacks: Rollbacks::of(Vec::new()),
            pending: Mutex::new(None),
            program: Program {
                layouts: extensions.layouts()?,
                extractors: from.program.extractors.clone(),
                extensions,
            },
            effective: from.effective.clone(),
            durability: from.durability,
            report: from.report.clone(),
            compact_latch: region.place(COMPACT_LATCH, 1, 8)?,
            workers: Workers {
                latch: region.place(WORKERS_LATCHES, from.workers.latch.len() as u64, 8)?,
                all: OnceLock::new(),
                makers: Vec::new(),
            },
            checkpoints: Checkpoints { last, ..Checkpoints::default() },
            bell: Arc::new(Bell::place(&region)?),
            is_closed: AtomicBool::new(false),
        };
        opening.succeeded();
        let inner = Arc::new(inner);
        inner.mend_after_panics();
        Ok(Environment { inner: Arc::new(Clones::of(Arc::new(Handles::of_view(inner)))) })
    }

    /// Ends the background threads, for a look at what is left when nobody does anything.
    #[doc(hidden)]
    pub fn end_background(&self) {
        self.inner.handles.end_background();
    }

    /// Whether a cut of the data file is half done.
    #[must_use]
    #[doc(hidden)]
    pub fn is_half_cut(&self) -> bool {
        self.inner().space.is_half_cut()
    }

    /// Asserts that nobody has left anything: so it is when nobody does anything, also in the background.
    ///
    /// # Panics
    /// Somebody has.
    #[doc(hidden)]
    pub fn assert_nothing_left(&self) {
        let env = self.inner();
        env.engine.assert_nothing_left();
        let latches = [&env.checkpoint_latch, &env.compact_latch, &env.workers.latch];
        assert!(latches.iter().all(|latches| latches.iter().all(|latch| latch.is_free())), "a latch is held");
        assert!(env.space.may_grow() && !env.space.is_half_cut(), "the data file is being made longer or shorter");
        assert_eq!(env.in_doubt.count(), 0, "transactions are in doubt");
    }
}

/// The process that has opened the environment has the lock.
struct LockOfAnother;

impl DiskLock for LockOfAnother {
    fn name(&self) -> &str {
        "the lock of another process"
    }

    fn is_in_place(&self) -> Result<bool, DiskError> {
        Ok(true)
    }
}
