//! Clock, or second chance: a hand goes round the frames; a referenced frame loses its mark and is spared once.
//!
//! The hand is one counter that threads add to, so that each looks at other frames.

use super::{Marks, Replacement};
use crate::frame_no::FrameNo;
use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};
use ledgerstone_region::{Handle, Region, RegionError};

/// See the module.
pub struct Clock {
    /// Steps made since the beginning; the hand stands at its remainder by the count of frames. Relaxed: it orders
    /// nothing.
    hand: Handle<[AtomicU64]>,
}

impl Clock {
    /// A clock with its hand at frame 0.
    pub fn new(region: &Region) -> Result<Clock, RegionError> {
        Ok(Clock { hand: region.place("cache.clock", 1, 64)? })
    }
}

impl Replacement for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn loaded(&self, _: FrameNo) {}

    fn next(&self, marks: &dyn Marks) -> Option<FrameNo> {
        let count = u64::from(marks.count());
        for _ in 0..2 * count + 1 {
            let frame = FrameNo((self.hand[0].fetch_add(1, Relaxed) % count) as u32);
            if marks.is_occupied(frame) && !marks.take_referenced(frame) {
                return Some(frame);
            }
        }
        None
    }

    fn preview(&self, marks: &dyn Marks, count: u32, show: &mut dyn FnMut(FrameNo)) {
        let frame_count = u64::from(marks.count());
        let hand = self.hand[0].load(Relaxed);
        let mut left = count;
        for step in 0..frame_count {
            if left == 0 {
                break;
            }
            let frame = FrameNo(((hand + step) % frame_count) as u32);
            if marks.is_occupied(frame) && !marks.is_referenced(frame) {
                show(frame);
                left -= 1;
            }
        }
    }
}
