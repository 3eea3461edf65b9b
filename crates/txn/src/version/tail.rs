//! Images of commits are written over while readers, which hold nothing, may be reading them: how these find out.
//!
//! ```text
//!  writing over, under the latch                   reading an image at position P
//!  1 floor := above its commit, if it is needed    1 the words
//!  2 tail := above P                               2 fence (acquire), then the tail
//!  3 fence (release)                                 at or below P: the words are the image's
//!  4 the words                                     3 else: the floor, after an acquire fence: raised if it was needed
//! ```
//! T1. If 1 on the right saw a word of 4 on the left, the two fences pair, and 2 sees the tail that was stored before.
//!     It may be another that stored it: then the latch brought it to the writer.
//! T2. A reader that sees the new tail at 2, and passes an acquire fence, sees the floor.
//!
//! Checked under loom: `loom_tail.rs`.

use ledgerstone_region::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// What lies below `position` is nobody's from now on (2).
pub(super) fn pass(tail: &AtomicU64, position: u64) {
    tail.store(position, SeqCst);
}

/// To be passed by a writer that is about to write where images may have been (3).
#[inline]
pub(super) fn fence_before_writing() {
    if !cfg!(feature = "planted-tail-unfenced") {
        fence(Release);
    }
}

/// Whether what was read at a position was the image that was put there.
#[inline]
pub(super) fn is_there(tail: &AtomicU64, position: u64) -> bool {
    fence(Acquire);
    tail.load(Relaxed) <= position // The fence is what counts.
}
