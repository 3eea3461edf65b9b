//! What a log has in its region, for the process that opens it and for those that join.

use std::sync::Arc;

use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::{Handle, RegionError, SlotTable, shared};

use crate::config::LogConfig;
use crate::handle_table::{HANDLES_MAX, HandleWords};
use crate::log::OWN_SLOTS;
use crate::own::Own;
use crate::segment::BLOCK_BYTES;
use crate::state::LogState;

shared! {
    /// What the opening of the log has found and begun. Stored once, before anybody joins.
    pub(crate) struct Opened {
        /// Behind the record that begins the incarnation.
        pub begun: AtomicU64,
        /// The incarnation in force from there on.
        pub incarnation: AtomicU64,
        pub zeroes: [AtomicU64; 6],
    } size 64
}

pub(crate) struct Places {
    pub state: Handle<LogState>,
    pub ring: Handle<[AtomicU64]>,
    pub slots: Arc<SlotTable>,
    pub own: Handle<[Own]>,
    pub handles: Handle<[HandleWords]>,
    pub opened: Handle<Opened>,
}

impl Places {
    pub fn of(config: &LogConfig) -> Result<Places, RegionError> {
        let region = &config.region;
        let slots = config.slots.clone().map_or_else(|| SlotTable::place(region, OWN_SLOTS).map(Arc::new), Ok)?;
        Ok(Places {
            state: region.place_one("log.state", 128)?,
            ring: region.place("log.ring", config.buffer_bytes / 8, BLOCK_BYTES)?,
            own: region.place("log.own", u64::from(slots.count()), 64)?,
            handles: region.place("log.handles", HANDLES_MAX, 64)?,
            opened: region.place_one("log.opened", 64)?,
            slots,
        })
    }
}
