//! The registry's protocol under loom: one commit that throws its images away if nobody needs them, one snapshot that
//! is opened, one record. All orders.
//!
//! The log's tail is a number that a commit raises by one; the record was 1 and becomes 2; the image is there or gone.
//! The orders that the engine has from elsewhere (the page's latch, the stamp before the locks go) are plain here: the
//! reader looks at the stamp as V2 says.

use ledgerstone_region::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release, Ordering::SeqCst, fence,
};
use loom::sync::Arc;
use loom::thread;

use super::registry::{SnapshotSlot, close, is_none_open, oldest, order_close, publish_bound, take_snapshot};

const OPEN: u64 = 0;
const COMMITTING: u64 = 1;
const STAMP: u64 = 2;

struct World {
    tail: AtomicU64,
    slot: SnapshotSlot,
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
            status: AtomicU64::new(OPEN),
            image: AtomicU64::new(1),
            staged: AtomicU64::new(0),
            linked: AtomicU64::new(0),
            page: AtomicU64::new(1),
        })
    }

    /// Commits the change of the record; the image goes by the rules.
    fn commit(&self, if_none_is_open: bool) {
        self.status.store(COMMITTING, SeqCst);
        fence(SeqCst);
        let lsn = self.tail.fetch_add(1, SeqCst);
        self.status.store(STAMP + lsn, SeqCst);
        let is_free = if if_none_is_open {
            is_none_open([&self.slot].into_iter())
        } else {
            fence(SeqCst);
            let tail = self.tail.load(SeqCst);
            lsn < oldest(tail, [&self.slot].into_iter())
        };
        if is_free {
            self.image.store(0, SeqCst);
        }
    }

    /// Changes the record as a writer does that stages its image.
    fn update(&self) {
        self.staged.store(1, Release);
        self.tail.fetch_add(1, SeqCst);
        if !is_none_open([&self.slot].into_iter()) {
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
        let tail = || self.tail.load(SeqCst);
        publish_bound(&self.slot, tail);
        take_snapshot(&self.slot, tail);
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
        if is_none_open([&self.slot].into_iter()) {
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
        let tail = || self.tail.load(SeqCst);
        publish_bound(&self.slot, tail);
        let lsn = take_snapshot(&self.slot, tail);
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
