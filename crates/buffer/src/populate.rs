//! Memory for frames, taken from the system ahead of their first use.
//!
//! A frame that is used for the first time costs a fault, in which the system fills a huge page with zeros. The page
//! writer has such faults instead of the thread that wants the frame. A quarter of what is in use is taken ahead, up to
//! a bound. So a small environment stays small. Who limits a program's memory by a control group has to leave room for
//! the whole cache. Beyond the limit the system kills the program, whether memory is taken ahead or used.

use crate::cache::Cache;
use crate::frame::GROUP_FRAMES;
use crate::frame_no::FrameNo;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Bytes that are taken ahead at most.
const AHEAD_BYTES_MAX: u64 = 8 << 20;

impl Cache {
    /// A frame was taken from the free list. Frames come from there group by group, the first time.
    #[inline]
    pub(crate) fn frame_is_taken(&self, frame: FrameNo) {
        let group = u64::from(frame.0 / GROUP_FRAMES);
        let ahead = (group / 4).min(AHEAD_BYTES_MAX / (u64::from(GROUP_FRAMES) * self.page_bytes as u64));
        let wanted = &self.pool.frames.control().groups_wanted;
        // The next call comes when half of it is used up.
        if ahead > 0 && group + ahead / 2 >= wanted.load(Relaxed) {
            let groups = group + 1 + ahead;
            if wanted.fetch_max(groups, Release) < groups {
                self.call_writer();
            }
        }
    }

    /// Takes the memory that is wanted. Only the page writer does.
    pub(crate) fn populate_ahead(&self, is_stopped: &AtomicBool) {
        let control = self.pool.frames.control();
        let mut there = control.groups_there.load(Relaxed);
        while there < control.groups_wanted.load(Acquire) && !is_stopped.load(Relaxed) {
            self.pool.frames.populate(there);
            there += 1;
            control.groups_there.store(there, Relaxed);
        }
    }
}
