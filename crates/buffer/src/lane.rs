//! Lanes of the double-write area: who has which.
//!
//! N1. A lane is a thread's from one exchange on, which puts its slot into the lane's bits, until another takes it out.
//! N2. A lane is given back only after the data file's sync (D1 in `torn.rs`), also by who repairs after the death of
//!     its thread.

use crate::cache::Cache;
use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};

const LANE_BITS: u32 = 16;
const LANE_MASK: u64 = (1 << LANE_BITS) - 1;

fn owner_of(lanes: u64, lane: u32) -> Option<SlotNo> {
    ((lanes >> (lane * LANE_BITS) & LANE_MASK) as u16).checked_sub(1).map(SlotNo)
}

impl Cache {
    /// Takes a lane that nobody has.
    pub(crate) fn try_lane(&self) -> Option<u32> {
        let lanes = &self.pool.frames.control().lanes;
        let me = u64::from(self.pool.slot().0) + 1;
        let mut taken = lanes.load(Relaxed);
        loop {
            let lane = (0..self.double_write.lane_count()).find(|lane| owner_of(taken, *lane).is_none())?;
            // SeqCst: pairs with giving back; the area's bytes of the lane were last touched before that.
            match lanes.compare_exchange_weak(taken, taken | me << (lane * LANE_BITS), SeqCst, Relaxed) {
                Ok(_) => return Some(lane),
                Err(now) => taken = now,
            }
        }
    }

    pub(crate) fn give_lane_back(&self, lane: u32) {
        self.pool.frames.control().lanes.fetch_and(!(LANE_MASK << (lane * LANE_BITS)), SeqCst);
    }

    /// Who has which lane.
    pub(crate) fn lane_owners(&self) -> impl Iterator<Item = (u32, SlotNo)> {
        let lanes = self.pool.frames.control().lanes.load(SeqCst);
        (0..self.double_write.lane_count()).filter_map(move |lane| Some((lane, owner_of(lanes, lane)?)))
    }
}
