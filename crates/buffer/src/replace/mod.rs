//! Which frame to evict next.
//!
//! A policy learns of use in one way only. Each page has a *referenced* mark, which a reader sets if it is not set, and
//! which the policy clears when it passes. So a hit costs one load. What a policy does with the marks is its own
//! decision.
//!
//! Every policy must promise the following, and the suite at the end of this file checks it:
//!
//! P1. `next` offers only frames that hold a page.
//! P2. If any frame holds a page, repeated calls of `next` offer one within two rounds of the frames, referenced or
//!     not. In the end they offer every frame that stays unreferenced.
//! P3. A frame that was referenced since the policy last passed is not offered before the policy has passed it once
//!     more.
//! P4. `preview` changes nothing, and shows frames that `next` would offer soon.
//! P5. All state is atomics. Any number of threads call at once, and no call waits.
//!
//! A policy does not know whether a frame is dirty, latched or in use. The cache tries what is offered, and asks again.

mod clock;
mod lru;

pub use clock::Clock;
pub use lru::Lru;

use crate::frame_no::FrameNo;
use ledgerstone_region::{Region, RegionError};

/// The policies that come with the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Second chance: a hand passes the frames and takes the first that was not used since it came by.
    #[default]
    Clock,
    /// Least recently used, by stamps given when the referenced mark is seen.
    Lru,
}

impl Policy {
    pub(crate) fn make(self, region: &Region, frame_count: u32) -> Result<Box<dyn Replacement>, RegionError> {
        Ok(match self {
            Policy::Clock => Box::new(Clock::new(region)?),
            Policy::Lru => Box::new(Lru::new(region, frame_count)?),
        })
    }

    /// Bytes of region that the policy keeps for each frame.
    pub(crate) const fn frame_bytes(self) -> u64 {
        match self {
            Policy::Clock => 0,
            Policy::Lru => 8,
        }
    }
}

/// The frames as a policy sees them.
pub trait Marks {
    /// How many frames there are. They are numbered from 0.
    fn count(&self) -> u32;
    /// Whether a page is in the frame.
    fn is_occupied(&self, frame: FrameNo) -> bool;
    /// Whether the frame's page was used since the mark was last taken.
    fn is_referenced(&self, frame: FrameNo) -> bool;
    /// Takes the mark away, and says whether it was there.
    fn take_referenced(&self, frame: FrameNo) -> bool;
}

/// Chooses frames to evict. The module says what an implementation promises.
pub trait Replacement: Send + Sync {
    /// For messages and statistics.
    fn name(&self) -> &'static str;
    /// A page has come into the frame.
    fn loaded(&self, frame: FrameNo);
    /// The next frame worth evicting. `None` only if no frame holds a page, or other threads empty them meanwhile.
    fn next(&self, marks: &dyn Marks) -> Option<FrameNo>;
    /// Shows up to `count` frames that are likely to be offered soon, so that they can be written ahead of need.
    fn preview(&self, marks: &dyn Marks, count: u32, show: &mut dyn FnMut(FrameNo));
}

#[cfg(test)]
mod conformance {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    struct TestMarks(RefCell<Vec<(bool, bool)>>);

    impl Marks for TestMarks {
        fn count(&self) -> u32 {
            self.0.borrow().len() as u32
        }
        fn is_occupied(&self, frame: FrameNo) -> bool {
            self.0.borrow()[frame.0 as usize].0
        }
        fn is_referenced(&self, frame: FrameNo) -> bool {
            self.0.borrow()[frame.0 as usize].1
        }
        fn take_referenced(&self, frame: FrameNo) -> bool {
            std::mem::take(&mut self.0.borrow_mut()[frame.0 as usize].1)
        }
    }

    fn each_policy(frames: u32, test: impl Fn(&dyn Replacement, &TestMarks)) {
        for policy in [Policy::Clock, Policy::Lru] {
            let region = Region::anonymous(1 << 20).unwrap();
            let made = policy.make(&region, frames).unwrap();
            let marks = TestMarks(RefCell::new(vec![(false, false); frames as usize]));
            test(&*made, &marks);
        }
    }

    fn fill(policy: &dyn Replacement, marks: &TestMarks, frame: u32, referenced: bool) {
        marks.0.borrow_mut()[frame as usize] = (true, referenced);
        policy.loaded(FrameNo(frame));
    }

    #[test]
    fn an_empty_cache_offers_nothing() {
        each_policy(10, |policy, marks| assert_eq!(policy.next(marks), None, "{}", policy.name()));
    }

    #[test]
    fn only_occupied_frames_are_offered() {
        each_policy(50, |policy, marks| {
            fill(policy, marks, 7, false);
            fill(policy, marks, 33, true);
            for _ in 0..10 {
                let offered = policy.next(marks).unwrap();
                assert!(marks.is_occupied(offered), "{} offered {offered:?}", policy.name());
            }
        });
    }

    #[test]
    fn somebody_is_found_when_all_are_referenced() {
        each_policy(50, |policy, marks| {
            for frame in 0..50 {
                fill(policy, marks, frame, true);
            }
            assert!(policy.next(marks).is_some(), "{}", policy.name());
        });
    }

    #[test]
    fn every_unreferenced_frame_is_offered_in_the_end() {
        each_policy(100, |policy, marks| {
            for frame in 0..100 {
                fill(policy, marks, frame, false);
            }
            let mut offered = BTreeSet::new();
            for _ in 0..1000 {
                offered.insert(policy.next(marks).unwrap().0);
            }
            assert_eq!(offered.len(), 100, "{}", policy.name());
        });
    }

    #[test]
    fn a_page_in_use_outlives_those_that_are_not() {
        each_policy(64, |policy, marks| {
            for frame in 0..64 {
                fill(policy, marks, frame, false);
            }
            for _ in 0..63 {
                marks.0.borrow_mut()[5].1 = true;
                let victim = policy.next(marks).unwrap();
                assert_ne!(victim, FrameNo(5), "{}", policy.name());
                marks.0.borrow_mut()[victim.0 as usize] = (false, false);
            }
        });
    }

    #[test]
    fn a_preview_changes_nothing_and_shows_what_comes() {
        each_policy(40, |policy, marks| {
            for frame in 0..40 {
                fill(policy, marks, frame, frame % 3 == 0);
            }
            let before = marks.0.borrow().clone();
            let mut shown = Vec::new();
            policy.preview(marks, 40, &mut |frame| shown.push(frame));
            assert_eq!(*marks.0.borrow(), before, "{}", policy.name());
            let next = policy.next(marks).unwrap();
            assert!(shown.contains(&next), "{}: {next:?} was not in {shown:?}", policy.name());
        });
    }
}
