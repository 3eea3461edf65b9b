//! Models of the bits of free frames under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-buffer --release loom`.
//!
//! The planted bug must be found: with `--features planted-free-unlooked`, whoever clears a bit without cause does not
//! look again.

use crate::free::FreeBits;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use loom::sync::Arc;
use loom::thread;

/// Frame 0 of 65, so that there are two levels; 0: free, or who has it.
struct Frames {
    bits: FreeBits<Box<[AtomicU64]>>,
    owner: AtomicU32,
}

impl Frames {
    fn new() -> Arc<Frames> {
        let words = (0..FreeBits::<Box<[AtomicU64]>>::words_needed(65)).map(|_| AtomicU64::new(0)).collect();
        let frames = Frames { bits: FreeBits::over(words, 65), owner: AtomicU32::new(0) };
        frames.bits.set(0);
        Arc::new(frames)
    }

    /// As `Frames::take_free`.
    fn take(&self, me: u32) -> bool {
        while let Some(no) = self.bits.first() {
            if self.owner.compare_exchange(0, me, SeqCst, SeqCst).is_ok() {
                self.bits.clear(no);
                return true;
            }
            self.bits.clear_unless(no, || self.owner.load(SeqCst) == 0);
        }
        false
    }

    /// As `Frames::give_back`.
    fn give_back(&self) {
        self.owner.store(0, SeqCst);
        self.bits.set(0);
    }
}

#[test]
fn a_frame_that_is_given_back_is_found() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let frames = Frames::new();
        let other = {
            let frames = Arc::clone(&frames);
            thread::spawn(move || {
                if frames.take(1) {
                    frames.give_back();
                }
            })
        };
        if frames.take(2) {
            frames.give_back();
        }
        other.join().unwrap();
        assert!(frames.take(3), "the free frame is not found");
    });
}
