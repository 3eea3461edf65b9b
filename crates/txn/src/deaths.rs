//! An engine as the threads of another simulated process have it, and what a death must not leave.

use std::sync::Arc;

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::{Disk, DiskFile, Fence};
use ledgerstone_op::Registry;
use ledgerstone_region::{Dead, RegionError, SlotTable};

use crate::{Engine, EngineParts, Reason, StructureLatches, TxnError};

/// What a process has of its own, beside its view of the region.
pub struct OwnParts {
    /// As the process has opened it.
    pub disk: Arc<dyn Disk>,
    /// The data file.
    pub data: Arc<dyn DiskFile>,
    /// The double-write file.
    pub double_write: Arc<dyn DiskFile>,
    /// All operations that the log may name.
    pub ops: Registry,
    /// Around `disk`.
    pub fence: Arc<Fence>,
}

impl Engine {
    /// The same engine in another view of its region, for another simulated process. Logical undos are not registered
    /// there yet.
    ///
    /// # Errors
    /// There is no address space, or the locks are not those of `ledgerstone_lock::LockTable`.
    pub fn view(&self, own: OwnParts) -> Result<Arc<Engine>, TxnError> {
        let OwnParts { disk, data, double_write, ops, fence } = own;
        let region = self.region.view().map_err(BufferError::from)?;
        let slots = Arc::new(SlotTable::place(&region, self.slots.max_threads()).map_err(BufferError::from)?);
        let log = self.log.attach(&region, Arc::clone(&slots), disk, None)?;
        let other =
            RegionError::Differs { name: "locks", found: "of another manager".into(), expected: "a lock table".into() };
        let locks = self.locks.as_table().ok_or(other).and_then(|locks| locks.view(&region, &slots));
        let versions = self.versions.view(&region, &log, &slots).map_err(BufferError::from)?;
        Ok(Engine::new(EngineParts {
            cache: self.cache.attach_on(&region, Arc::clone(&slots), Arc::clone(&log) as _, data, double_write)?,
            locks: Arc::new(locks.map_err(BufferError::from)?),
            table: self.table.view(&region).map_err(BufferError::from)?,
            versions,
            structure_latches: StructureLatches::place(&region).map_err(BufferError::from)?,
            reason: Reason::place(&region).map_err(BufferError::from)?,
            region,
            slots,
            log,
            ops,
            settings: self.settings,
            fence,
        }))
    }

    /// Asserts that nobody has left anything: so it is when nobody does anything, and no transaction is in doubt. The
    /// log's flusher does not run.
    ///
    /// # Panics
    /// Somebody has.
    pub fn assert_nothing_left(&self) {
        assert!(!self.is_failed(), "{}", self.why_failed());
        assert!(Dead::of(&self.slots).is_none(), "the dead have slots");
        assert_eq!(self.table.active_count(), 0, "transactions are open");
        assert!(!self.has_orphans(), "orphans, or what was inherited of them");
        assert!(self.are_structure_latches_free(), "a latch of a structure is held");
        if let Some(locks) = self.locks.as_table() {
            locks.assert_nothing_left();
        }
        self.versions.assert_nothing_left();
        assert_eq!(self.cache.left_over(), None);
        assert_eq!(self.log.left_over(), None);
    }
}
