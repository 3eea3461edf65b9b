//! What a log has in its region, for the process that opens it and for those that join.

use std::sync::Arc;

use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};
use ledgerstone_region::{Handle, RegionError, SlotTable, shared};

use crate::config::LogConfig;
use crate::error::LogError;
use crate::handle_table::{HANDLES_MAX, HandleWords};
use crate::log::OWN_SLOTS;
use crate::own::Own;
use crate::seal::Seal;
use crate::segment::BLOCK_BYTES;
use crate::state::LogState;

shared! {
    /// What the opening of the log has found and begun. Stored once, before anybody joins.
    pub(crate) struct Opened {
        /// Behind the record that begins the incarnation.
        pub begun: AtomicU64,
        /// The incarnation in force from there on.
        pub incarnation: AtomicU64,
        /// Settings that all who join have to have.
        segment_bytes: AtomicU64,
        kept_claim_count: AtomicU64,
        /// The newest incarnations, each with the LSN from which it is in force, ascending.
        era_count: AtomicU64,
        zeroes: [AtomicU64; 3],
        eras: [[AtomicU64; 2]; ERAS_MAX],
    } size 1024
}

/// More are there only after as many crashes without a checkpoint. What lies below is tried under all of them.
const ERAS_MAX: usize = 60;

impl Opened {
    /// What the opening has found and begun. Nobody joins before it has ended.
    pub fn fill(&self, begun: u64, eras: &[(u64, Seal)], incarnation: u64, config: (u64, u32)) {
        self.begun.store(begun, Relaxed);
        self.incarnation.store(incarnation, Relaxed);
        self.segment_bytes.store(config.0, Relaxed);
        self.kept_claim_count.store(u64::from(config.1), Relaxed);
        let newest = &eras[eras.len().saturating_sub(ERAS_MAX)..];
        for ([from, number], (at, seal)) in self.eras.iter().zip(newest) {
            from.store(*at, Relaxed);
            number.store(seal.incarnation(), Relaxed);
        }
        self.era_count.store(newest.len() as u64, Relaxed);
    }

    /// The incarnations, as [`Opened::fill`] was told. Whoever joins has been let in since.
    pub fn eras(&self) -> impl Iterator<Item = (u64, u64)> {
        let count = self.era_count.load(Relaxed) as usize;
        self.eras.iter().take(count).map(|[from, number]| (from.load(Relaxed), number.load(Relaxed)))
    }

    /// Refuses settings by which this process would take more room than the others leave, or look for other files.
    pub fn check(&self, config: &LogConfig) -> Result<(), LogError> {
        let must = "what the process has that made the region";
        let settings = [
            ("segment_bytes", config.segment_bytes, &self.segment_bytes),
            ("kept_claim_count", u64::from(config.kept_claim_count), &self.kept_claim_count),
        ];
        match settings.into_iter().find(|(_, value, there)| *value != there.load(Relaxed)) {
            Some((name, value, _)) => Err(LogError::Setting { name, value, must }),
            None => Ok(()),
        }
    }
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
