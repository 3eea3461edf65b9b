//! Models of a page entry under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-buffer --release loom`.
//!
//! One frame of two words goes from page A to page B while others read either without a latch. A page's words are its
//! number. Without [`fence_before_fill`] the first model fails at once.

use crate::FrameNo;
use crate::entry::{PageEntry, fence_before_fill};
use ledgerstone_region::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};
use ledgerstone_region::{SlotNo, Words, WordsMut};
use loom::sync::Arc;
use loom::thread;

const A: usize = 0;
const B: usize = 1;

struct Pages {
    entries: [PageEntry; 2],
    frame: [AtomicU64; 2],
    /// The free list of one frame.
    is_free: AtomicU32,
}

impl Pages {
    /// Page A is in the frame.
    fn new() -> Arc<Pages> {
        let pages = Pages {
            entries: [PageEntry::new(), PageEntry::new()],
            frame: [AtomicU64::new(A as u64), AtomicU64::new(A as u64)],
            is_free: AtomicU32::new(0),
        };
        pages.entries[A].set_frame(Some(FrameNo(0)));
        Arc::new(pages)
    }

    /// As `Cache::evict`.
    fn evict(&self, page: usize, slot: SlotNo) {
        let entry = &self.entries[page];
        if entry.latch.try_exclusive(slot) {
            if entry.frame().is_some() {
                entry.set_frame(None);
                entry.latch.unlatch_exclusive();
                self.is_free.store(1, Release);
            } else {
                entry.latch.unlatch_exclusive_unchanged();
            }
        }
    }

    /// As `Cache::load_latched`.
    fn load(&self, page: usize, slot: SlotNo) {
        let entry = &self.entries[page];
        if !entry.latch.try_exclusive(slot) {
            return;
        }
        if entry.frame().is_some() || self.is_free.load(Acquire) == 0 {
            return entry.latch.unlatch_exclusive_unchanged();
        }
        fence_before_fill();
        let mut words = WordsMut::new(&self.frame);
        words.put_u64(0, page as u64);
        words.put_u64(8, page as u64);
        entry.set_frame(Some(FrameNo(0)));
        entry.latch.unlatch_exclusive();
    }

    /// As `Cache::optimistic` with its check.
    fn read(&self, page: usize) {
        let entry = &self.entries[page];
        let Some(seen) = entry.latch.optimistic() else { return };
        if entry.frame_used().is_none() {
            return;
        }
        let words = Words::new(&self.frame);
        let found = (words.u64(0), words.u64(8));
        if entry.latch.is_still(seen) {
            assert_eq!(found, (page as u64, page as u64), "another page was read for page {page}");
        }
    }
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

#[test]
fn a_reader_never_takes_another_page_for_his() {
    model(|| {
        let pages = Pages::new();
        let evictor = {
            let pages = pages.clone();
            thread::spawn(move || pages.evict(A, SlotNo(1)))
        };
        let loader = {
            let pages = pages.clone();
            thread::spawn(move || pages.load(B, SlotNo(2)))
        };
        pages.read(A);
        pages.read(B);
        evictor.join().unwrap();
        loader.join().unwrap();
    });
}

#[test]
fn two_that_load_one_page_load_it_once() {
    model(|| {
        let pages = Pages::new();
        pages.evict(A, SlotNo(1));
        let before = pages.entries[B].latch.version();
        let other = {
            let pages = pages.clone();
            thread::spawn(move || pages.load(B, SlotNo(2)))
        };
        pages.load(B, SlotNo(1));
        other.join().unwrap();
        pages.read(B);
        assert!(pages.entries[B].frame().is_some());
        assert_eq!(pages.entries[B].latch.version().to_raw(), before.to_raw() + 1);
    });
}
