//! The registry's protocol under loom: one commit that throws its images away if nobody needs them, one snapshot that
//! is opened, one record. In one model the number of slots in use sinks meanwhile. All orders.
//!
//! The log's tail is a number that a commit raises by one; the record was 1 and becomes 2; the image is there or gone.
//! The orders that the engine has from elsewhere (the page's latch, the stamp before the locks go) are plain here: the
//! reader looks at the stamp as V2 says.

use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release, Ordering::SeqCst, fence,
};
use loom::sync::Arc;
use loom::thread;

use super::registry::{
    ByThread, NO_HORIZON, SnapshotSlot, close, is_none_open, lowest, lowest_position, oldest, order_close,
    take_snapshot, take_with_bound,
};
use crate::used::lower_below;

const OPEN: u64 = 0;
const COMMITTING: u64 = 1;
const STAMP: u64 = 2;

struct World {
    tail: AtomicU64,
    slot: SnapshotSlot,
    slots_used: AtomicU64,
    /// OPEN, COMMITTING, or STAMP + the commit's LSN.
    status: AtomicU64,
    /// 1 while the image is there.
    image: AtomicU64,
    /// 1 while the image is staged: there, and in no chain (Q3).
    staged: AtomicU64,
    /// 1 while it is in its chain.
    linked: AtomicU64,
    /// What the page says of the record.
    page: AtomicU64,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            tail: AtomicU64::new(10),
            slot: SnapshotSlot::default(),
            slots_used: AtomicU64::new(1),
            status: AtomicU64::new(OPEN),
            image: AtomicU64::new(1),
            staged: AtomicU64::new(0),
            linked: AtomicU64::new(0),
            page: AtomicU64::new(1),
        })
    }

    /// The slots that are in use.
    fn used(&self) -> impl Iterator<Item = &SnapshotSlot> {
        fence(SeqCst);
        [&self.slot].into_iter().take(self.slots_used.load(SeqCst) as usize)
    }

    /// Opens a snapshot: its LSN. `None` if the slot is held by the one that lowers the number of those in use.
    fn open(&self) -> Option<u64> {
        let bound = self.tail.load(SeqCst);
        let is_ours = take_with_bound(&self.slot, 0, &self.slots_used, bound);
        is_ours.then(|| take_snapshot(&self.slot, bound, || self.tail.load(SeqCst)))
    }

    fn lower(&self) {
        if self.slots_used.load(SeqCst) == 1 {
            lower_below(&self.slots_used, 0, &ByThread(&self.slot, SlotNo(0)), || (), || ());
        }
    }

    /// Commits the change of the record; the image goes by the rules.
    fn commit(&self, if_none_is_open: bool) {
        self.status.store(COMMITTING, SeqCst);
        fence(SeqCst);
        let lsn = self.tail.fetch_add(1, SeqCst);
        self.status.store(STAMP + lsn, SeqCst);
        let is_free = if if_none_is_open {
            is_none_open(self.used())
        } else {
            fence(SeqCst);
            let tail = self.tail.load(SeqCst);
            lsn < oldest(tail, self.used())
        };
        if is_free {
            self.image.store(0, SeqCst);
        }
    }

    /// Changes the record as a writer does that stages its image.
    fn update(&self) {
        self.staged.store(1, Release);
        self.tail.fetch_add(1, SeqCst);
        if !is_none_open(self.used()) {
            self.link();
        }
        self.page.store(2, Release); // As a page's latch does.
    }

    fn link(&self) {
        if self.staged.swap(0, AcqRel) == 1 {
            self.linked.store(1, Release);
        } else {
            // Whoever was first puts the image there before anybody believes the page.
            while self.linked.load(Acquire) == 0 {
                thread::yield_now();
            }
        }
    }

    /// Opens a snapshot, puts what is staged into its chain, and reads the record.
    fn read_staged(&self) {
        if self.open().is_none() {
            return;
        }
        if self.staged.load(Acquire) == 1 {
            self.link();
        }
        if self.page.load(Acquire) == 2 {
            assert_eq!(self.linked.load(Acquire), 1, "a change is seen, and its image is in no chain");
        }
    }

    /// Commits as a spilled writer does, whose images stay until the last snapshot is closed.
    fn commit_spilled(&self) {
        self.status.store(STAMP + 10, SeqCst);
        if is_none_open(self.used()) {
            self.image.store(0, SeqCst);
        }
    }

    /// Closes the last snapshot.
    fn close(&self) {
        close(&self.slot);
        order_close();
        if self.status.load(SeqCst) >= STAMP {
            self.image.store(0, SeqCst);
        }
    }

    /// Opens a snapshot and reads the record: what it is told, and what it should be told.
    fn read(&self) {
        let Some(lsn) = self.open() else { return };
        fence(SeqCst);
        let status = loop {
            let status = self.status.load(SeqCst);
            if status != COMMITTING {
                break status;
            }
            thread::yield_now();
        };
        let is_seen = status >= STAMP && status - STAMP < lsn;
        if !is_seen {
            assert_eq!(self.image.load(SeqCst), 1, "the image that a snapshot at {lsn} needs is gone");
        }
        // V2: what is not seen now is never seen.
        let later = self.status.load(SeqCst);
        assert!(later == COMMITTING || (later >= STAMP && later - STAMP < lsn) == is_seen, "{status} {later} at {lsn}");
    }
}

#[test]
fn loom_a_commit_that_finds_no_snapshot_open_drops_nothing_that_one_needs() {
    loom::model(|| {
        let world = World::new();
        let writer = Arc::clone(&world);
        let writing = thread::spawn(move || writer.commit(true));
        world.read();
        writing.join().unwrap();
    });
}

#[test]
fn loom_the_oldest_snapshot_is_at_or_below_every_open_one() {
    loom::model(|| {
        let world = World::new();
        let writer = Arc::clone(&world);
        let writing = thread::spawn(move || writer.commit(false));
        world.read();
        writing.join().unwrap();
    });
}

#[test]
fn loom_a_staged_image_is_in_its_chain_before_a_snapshot_sees_the_change() {
    loom::model(|| {
        let world = World::new();
        let writer = Arc::clone(&world);
        let writing = thread::spawn(move || writer.update());
        world.read_staged();
        writing.join().unwrap();
    });
}

#[test]
fn loom_what_a_commit_leaves_to_the_last_snapshot_is_found_by_its_closer() {
    loom::model(|| {
        let world = World::new();
        world.slot.lsn.store(11, SeqCst);
        let writer = Arc::clone(&world);
        let writing = thread::spawn(move || writer.commit_spilled());
        world.close();
        writing.join().unwrap();
        assert_eq!(world.image.load(SeqCst), 0, "each has left it to the other");
    });
}

#[test]
fn loom_a_snapshot_is_seen_while_the_number_of_slots_in_use_sinks() {
    loom::model(|| {
        let world = World::new();
        let [reader, writer, lowers] = [&world, &world, &world].map(Arc::clone);
        // This thread only waits, so that each of them can be the first without being put before another.
        let lowering = thread::spawn(move || lowers.lower());
        let reading = thread::spawn(move || reader.read());
        let writing = thread::spawn(move || writer.commit(true));
        for thread in [lowering, reading, writing] {
            thread.join().unwrap();
        }
    });
}

/// A snapshot without a horizon is closed, and one with a horizon is opened in its slot (Q5).
#[test]
fn loom_what_is_looked_for_in_a_slot_is_the_last_snapshots_or_not_known() {
    loom::model(|| {
        let world = World::new();
        world.slot.lsn.store(10, SeqCst);
        world.slot.horizon.store(NO_HORIZON, SeqCst);
        let reader = Arc::clone(&world);
        let reading = thread::spawn(move || {
            close(&reader.slot);
            let lsn = reader.open().expect("nobody else takes it");
            reader.slot.horizon.store(10, Release);
            lsn
        });
        world.tail.fetch_add(1, SeqCst);
        fence(SeqCst);
        let tail = world.tail.load(SeqCst);
        let low = lowest(tail, world.used(), |slot| &slot.horizon);
        let lsn = reading.join().unwrap();
        assert!(low <= 10 || low <= lsn, "{low} is taken for settled, and a snapshot has 10 and is at {lsn}");
    });
}

/// So many images are kept in a model.
const IMAGES: usize = 2;

/// Images of commits that are kept one behind the other, at positions from 1 on (K3 in `kept.rs`).
struct Kept {
    world: Arc<World>,
    head: AtomicU64,
    /// The commits, by position.
    commits: [AtomicU64; IMAGES + 1],
}

/// An open snapshot and the position that it has taken.
struct Opened {
    lsn: u64,
    position: u64,
}

impl Kept {
    fn new() -> Arc<Kept> {
        let commits = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
        let world = World::new();
        world.slots_used.store(0, SeqCst);
        Arc::new(Kept { world, head: AtomicU64::new(1), commits })
    }

    /// Commits, and keeps an image.
    fn keep(&self) {
        let lsn = self.world.tail.fetch_add(1, SeqCst);
        let position = self.head.load(SeqCst);
        self.commits[position as usize].store(lsn, SeqCst);
        self.head.store(position + 1, SeqCst);
    }

    /// As `VersionStore::place`, by one who finds the slot free.
    fn open(&self) -> Option<Opened> {
        let position = self.head.load(SeqCst);
        let (world, slot) = (&self.world, &self.world.slot);
        let bound = world.tail.load(SeqCst);
        if !take_with_bound(slot, 0, &world.slots_used, bound) {
            return None;
        }
        slot.position.store(position, Release);
        let lsn = take_snapshot(slot, bound, || world.tail.load(SeqCst));
        Some(Opened { lsn, position })
    }

    /// No image below `position` is asked for by this snapshot.
    fn check_unneeded(&self, opened: &Opened, position: u64, what: &str) {
        for at in 1..position {
            let commit = self.commits[at as usize].load(SeqCst);
            assert!(commit < opened.lsn, "{what} {position}: {commit} is kept at {at}, and not seen at {}", opened.lsn);
        }
    }
}

/// Two open snapshots in one slot, one after the other if they do not meet, while images come. What is said to be asked
/// for by nobody, the last of them does not ask for, though the slot may have had another's position (Q5).
#[test]
fn loom_nobody_takes_away_what_an_open_snapshot_asks_for() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let kept = Kept::new();
        let [keeper, first, looks] = [&kept, &kept, &kept].map(Arc::clone);
        let keeping = thread::spawn(move || (0..IMAGES).for_each(|_| keeper.keep()));
        let first = thread::spawn(move || {
            if first.open().is_some() {
                close(&first.world.slot);
            }
        });
        let looking = thread::spawn(move || lowest_position(|| looks.head.load(SeqCst), || looks.world.used()));
        let opened = kept.open();
        keeping.join().unwrap();
        first.join().unwrap();
        let low = looking.join().unwrap();
        if let Some(opened) = opened {
            kept.check_unneeded(&opened, opened.position, "its own position"); // K3
            kept.check_unneeded(&opened, low, "the lowest position");
        }
    });
}
