//! Least recently used, as well as the referenced marks tell.
//!
//! Each frame has a stamp. A window of frames goes round. Within it, the marks that are seen become new stamps, and
//! the frame with the oldest stamp is offered. That frame is stamped too, so that a frame that could not be taken does
//! not come again at once. A true list would make every hit write shared memory.

use super::{Marks, Replacement};
use crate::frame_no::FrameNo;
use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed};
use ledgerstone_region::{Handle, Region, RegionError};

/// Frames that are compared with each other at a time.
const WINDOW: u64 = 32;

/// See the module.
pub struct Lru {
    /// Where the window begins, and the time. Relaxed, as all here: a stamp that is seen late costs a worse choice
    /// only.
    control: Handle<[AtomicU64]>,
    stamps: Handle<[AtomicU64]>,
}

impl Lru {
    /// A policy for `frame_count` frames, all of them equally old.
    pub fn new(region: &Region, frame_count: u32) -> Result<Lru, RegionError> {
        Ok(Lru {
            control: region.place("cache.lru", 2, 64)?,
            stamps: region.place("cache.lru_stamps", u64::from(frame_count), 64)?,
        })
    }

    fn stamp(&self, frame: FrameNo) {
        let now = self.control[1].fetch_add(1, Relaxed) + 1;
        self.stamps[frame.0 as usize].store(now, Relaxed);
    }
}

impl Replacement for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn loaded(&self, frame: FrameNo) {
        self.stamp(frame);
    }

    fn next(&self, marks: &dyn Marks) -> Option<FrameNo> {
        let count = u64::from(marks.count());
        let window = WINDOW.min(count);
        for round in 0..2 * count.div_ceil(window) + 1 {
            let from = self.control[0].fetch_add(window, Relaxed);
            let oldest = (0..window)
                .map(|step| FrameNo(((from + step) % count) as u32))
                .filter(|&frame| marks.is_occupied(frame))
                .filter(|&frame| {
                    let was_used = marks.take_referenced(frame);
                    if was_used {
                        self.stamp(frame);
                    }
                    !was_used || round > count.div_ceil(window)
                })
                .min_by_key(|frame| (self.stamps[frame.0 as usize].load(Relaxed), frame.0));
            if let Some(frame) = oldest {
                self.stamp(frame);
                return Some(frame);
            }
        }
        None
    }

    fn preview(&self, marks: &dyn Marks, count: u32, show: &mut dyn FnMut(FrameNo)) {
        let frame_count = u64::from(marks.count());
        let from = self.control[0].load(Relaxed);
        let reach = (u64::from(count) * 4).clamp(WINDOW, frame_count.max(WINDOW)).min(frame_count);
        let mut soon: Vec<(u64, u32)> = (0..reach)
            .map(|step| ((from + step) % frame_count) as u32)
            .filter(|&frame| marks.is_occupied(FrameNo(frame)) && !marks.is_referenced(FrameNo(frame)))
            .map(|frame| (self.stamps[frame as usize].load(Relaxed), frame))
            .collect();
        soon.sort_unstable();
        for (_, frame) in soon.into_iter().take(count as usize) {
            show(FrameNo(frame));
        }
    }
}
