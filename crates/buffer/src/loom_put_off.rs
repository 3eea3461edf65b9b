//! Models of changes that are pending under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-buffer --release
//! loom_put_off`.
//!
//! Entries, latches and what is put off are the cache's own. A copy in small are `Cache::load_into` and the eviction,
//! since a cache needs a region and a disk. So is the list of changes, which is recovery's: its accesses are as there.
//!
//! A page is two words at home and in its frame. Its change raises both from 1 to 2.

use crate::FrameNo;
use crate::entry::{PageEntry, fence_before_fill};
use crate::put_off::PutOff;
use ledgerstone_region::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Release, SeqCst},
};
use ledgerstone_region::{SlotNo, Words, WordsMut};
use loom::sync::Arc;
use loom::thread;

const PAGES: usize = 2;
const OLD: u64 = 1;
const NEW: u64 = 2;

/// As `recovery::Pending`: what is left, by page. A page counts as having some while its word is not 0.
struct Changes([AtomicU32; PAGES]);

impl Changes {
    fn has(&self, page: usize) -> bool {
        self.0[page].load(Acquire) != 0
    }

    fn forget(&self, page: usize) {
        self.0[page].store(0, Release);
    }
}

struct World {
    entries: [PageEntry; PAGES],
    frames: [[AtomicU64; 2]; PAGES],
    /// The data file.
    homes: [[AtomicU64; 2]; PAGES],
    put_off: PutOff<Changes>,
    /// Who redoes has this for itself.
    changes: std::sync::Arc<Changes>,
    /// Workers that have not come to their end.
    working_count: AtomicU32,
}

fn words(value: u64) -> [AtomicU64; 2] {
    [AtomicU64::new(value), AtomicU64::new(value)]
}

fn copy(from: &[AtomicU64; 2], to: &[AtomicU64; 2]) {
    let (from, mut to) = (Words::new(from), WordsMut::new(to));
    [0, 8].into_iter().for_each(|at| to.put_u64(at, from.u64(at)));
}

fn read(words: &[AtomicU64; 2]) -> (u64, u64) {
    let words = Words::new(words);
    (words.u64(0), words.u64(8))
}

impl World {
    /// Each of the first pages has a change that is pending.
    fn new(changed_count: usize, worker_count: u32) -> Arc<World> {
        let left = |page: usize| AtomicU32::new(u32::from(page < changed_count));
        let changes = std::sync::Arc::new(Changes([left(0), left(1)]));
        let world = World {
            entries: [PageEntry::new(), PageEntry::new()],
            frames: [words(0), words(0)],
            homes: [words(OLD), words(OLD)],
            put_off: PutOff::nothing(),
            changes: std::sync::Arc::clone(&changes),
            working_count: AtomicU32::new(worker_count),
        };
        world.put_off.set(changes);
        Arc::new(world)
    }

    /// As `Cache::exclusive_or_new`: the page is in its frame then, and latched exclusively.
    fn latch(&self, page: usize, slot: SlotNo) {
        let entry = &self.entries[page];
        entry.latch.exclusive(slot).unwrap();
        if entry.frame().is_none() {
            self.load_into(page, slot);
        }
    }

    /// As `Cache::load_into`.
    fn load_into(&self, page: usize, slot: SlotNo) {
        let pending = self.put_off.get().filter(|changes| changes.has(page));
        fence_before_fill();
        copy(&self.homes[page], &self.frames[page]);
        let entry = &self.entries[page];
        entry.set_frame(Some(FrameNo(page as u32)));
        let Some(changes) = pending else { return };
        if cfg!(feature = "planted-let-go-unredone") {
            entry.latch.unlatch_exclusive();
            entry.latch.exclusive(slot).unwrap();
        }
        let mut words = WordsMut::new(&self.frames[page]);
        [0, 8].into_iter().for_each(|at| words.put_u64(at, words.as_words().u64(at) + 1));
        changes.forget(page);
    }

    /// The page goes home from its frame, as a write-back and an eviction do together.
    fn evict(&self, page: usize, slot: SlotNo) {
        let entry = &self.entries[page];
        entry.latch.exclusive(slot).unwrap();
        if entry.frame().is_some() {
            copy(&self.frames[page], &self.homes[page]);
            entry.set_frame(None);
        }
        entry.latch.unlatch_exclusive();
    }

    /// As a worker of recovery: brings in a page that has changes left. The last worker says that nothing is pending.
    fn work(&self, page: usize, slot: SlotNo, evicts: bool) {
        if self.changes.has(page) {
            self.latch(page, slot);
            self.entries[page].latch.unlatch_exclusive();
        }
        if evicts {
            self.evict(page, slot);
        }
        if self.working_count.fetch_sub(1, SeqCst) == 1 {
            self.put_off.clear();
        }
    }

    /// As `Cache::optimistic`, which ends with a latch if the page is not there. It uses `frame()`, not `frame_used()`:
    /// loom may order the mark "referenced", an atomic `fetch_or`, behind a plain store of the entry that it has not
    /// read. The language does not allow that: such an access always acts on the newest value.
    fn see(&self, page: usize, slot: SlotNo) {
        let entry = &self.entries[page];
        if let Some(seen) = entry.latch.optimistic()
            && entry.frame().is_some()
        {
            let found = read(&self.frames[page]);
            if entry.latch.is_still(seen) {
                assert_eq!(found, (NEW, NEW), "a page is seen without its change, or with too many");
                return;
            }
        }
        self.latch(page, slot);
        assert_eq!(read(&self.frames[page]), (NEW, NEW), "a page has come in without its change, or with too many");
        entry.latch.unlatch_exclusive();
    }

    /// As `Cache::wait_redone`.
    fn wait_redone(&self) {
        while self.put_off.is_there() {
            self.put_off.wait_within(u64::MAX);
        }
    }

    /// What a checkpoint finds that has waited: all of these pages are changed, in memory or at home.
    fn check_redone(&self, count: usize) {
        for page in 0..count {
            assert!(!self.changes.has(page), "a change is left");
            let place = if self.entries[page].frame().is_some() { &self.frames } else { &self.homes };
            assert_eq!(read(&place[page]), (NEW, NEW));
        }
    }
}

fn spawn(world: &Arc<World>, run: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// A worker and a reader meet at a page that nobody has brought in.
#[test]
fn a_page_comes_in_once_with_its_change_whoever_comes_first() {
    model(|| {
        let world = World::new(1, 1);
        let worker = spawn(&world, |world| world.work(0, SlotNo(1), false));
        world.see(0, SlotNo(2));
        world.see(0, SlotNo(2));
        worker.join().unwrap();
        world.check_redone(1);
    });
}

/// The page leaves memory as soon as it has its change, and the word says perhaps that nothing is pending (O2).
#[test]
fn a_page_that_was_changed_and_has_left_comes_in_as_it_went() {
    model(|| {
        let world = World::new(1, 1);
        let worker = spawn(&world, |world| world.work(0, SlotNo(1), true));
        world.see(0, SlotNo(2));
        worker.join().unwrap();
        world.see(0, SlotNo(2));
    });
}

/// P2 in `pending.rs`, and whoever waits is woken.
#[test]
fn a_thread_that_waits_finds_all_changes_made() {
    model(|| {
        let world = World::new(2, 2);
        let workers = [0, 1].map(|page| spawn(&world, move |world| world.work(page, SlotNo(page as u16 + 1), false)));
        world.wait_redone();
        world.check_redone(2);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
