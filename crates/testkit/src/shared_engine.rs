//! An engine in a region that simulated processes share, each with a view of its own.

use std::sync::Arc;

use ledgerstone_buffer::BufferError;
use ledgerstone_disk::{Disk, DiskFile, Open};
use ledgerstone_log::{LogConfig, LogError};
use ledgerstone_op::Registry;
use ledgerstone_region::Region;
use ledgerstone_txn::{Engine, OwnParts};

use crate::EngineKit;

/// An engine as one process has it.
#[derive(Clone)]
pub struct SharedEngine {
    /// The engine.
    pub engine: Arc<Engine>,
    disk: Arc<dyn Disk>,
}

impl EngineKit {
    /// As [`EngineKit::engine`], in a region of which there can be views.
    ///
    /// # Errors
    /// The log or a file cannot be opened.
    ///
    /// # Panics
    /// The memory for it cannot be had.
    pub fn shared_engine<E>(
        &self,
        disk: &Arc<dyn Disk>,
        data: &Arc<dyn DiskFile>,
        ops: Registry,
        log: impl FnOnce(LogConfig) -> LogConfig,
    ) -> Result<SharedEngine, E>
    where
        E: From<LogError> + From<BufferError>,
    {
        let region = Region::shared(self.region_bytes()).expect("memory for a test");
        let engine = self.engine_in::<E>(region, disk, data, ops, log)?;
        Ok(SharedEngine { engine, disk: Arc::clone(disk) })
    }
}

impl SharedEngine {
    /// The engine as another process has it, with files opened by itself. Logical undos are not registered there yet.
    ///
    /// # Panics
    /// There is no address space.
    #[must_use]
    pub fn view(&self, ops: Registry) -> SharedEngine {
        let file = |name| self.disk.open(name, Open::CREATE).expect("it is there");
        let disk = Arc::clone(&self.disk);
        let (data, double_write) = (file("data"), file("double_write"));
        let own = OwnParts { disk: Arc::clone(&disk), data, double_write, ops, fence: Arc::default() };
        SharedEngine { engine: self.engine.view(own).expect("a view of the region"), disk }
    }
}
