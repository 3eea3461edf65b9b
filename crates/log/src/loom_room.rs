//! Models of room in the buffer and in the segments under loom, over the words that the log itself uses:
//! `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-log --release --lib loom_room`.
//!
//! A flush is a copy in small, of `Log::flush_for_space`: it passes the lengths of the records and moves the limit on.
//! A thread that sleeps for a limited time looks again at once, where a model says so. Elsewhere it sleeps until it is
//! woken, and a sleeper whom nobody wakes is a deadlock that loom sees.

use std::convert::Infallible;

use ledgerstone_region::atomic::Ordering::{Acquire, Release, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::{Latch, SlotNo};
use loom::sync::Arc;
use loom::thread;

use crate::line::{Line, Look, Places};
use crate::room::{Mine, Purpose, Refused, Room};

/// Bytes that may be claimed beyond what is durable.
const HALF: u64 = 64;
/// What one thread keeps, and what one keeps that may keep more (C5, C6 in `append.rs`).
const KEPT: u64 = 8;
const LONG_KEPT: u64 = 16;
const LONG_KEEPERS: u32 = 1;
/// The largest claim.
const LARGEST: u64 = HALF - KEPT - LONG_KEPT * LONG_KEEPERS as u64;
/// Ordinary claims leave an eighth of it.
const SEGMENT_BYTES: u64 = 64;

#[derive(Default)]
struct World {
    tail: AtomicU64,
    claim_head: AtomicU64,
    latch: Latch,
    reserved: AtomicU64,
    durable: AtomicU64,
    zeroed_limit: AtomicU64,
    prepared_end: AtomicU64,
    head_wants: AtomicU64,
    wanted: AtomicU64,
    head: AtomicU64,
    tickets: AtomicU64,
    slots_used: AtomicU32,
    beds: [AtomicU32; 1],
    places: [AtomicU64; 1],
    undo_sleepers: AtomicU32,
    undo_word: AtomicU32,
    long_keepers: AtomicU32,
    shares: [AtomicU64; 2],
    counts: [AtomicU32; 2],
    is_flushing: AtomicU32,
    /// The lengths of the records that are published, each at its place.
    ring: [AtomicU64; 6],
    /// Whether a sleep for a limited time ends by itself.
    times_out: bool,
}

impl Places for World {
    fn place(&self, slot: SlotNo) -> &AtomicU64 {
        &self.places[usize::from(slot.0)]
    }
}

impl World {
    fn new(times_out: bool, prepared_end: u64) -> Arc<World> {
        let world = World { times_out, ..World::default() };
        world.zeroed_limit.store(HALF, SeqCst);
        world.prepared_end.store(prepared_end, SeqCst);
        Arc::new(world)
    }

    fn room(&self) -> Room<'_> {
        Room {
            latch: &self.latch,
            claim_head: &self.claim_head,
            reserved: &self.reserved,
            durable: &self.durable,
            zeroed_limit: &self.zeroed_limit,
            prepared_end: &self.prepared_end,
            head_wants: &self.head_wants,
            undo_sleepers: &self.undo_sleepers,
            undo_word: &self.undo_word,
            long_keepers: &self.long_keepers,
            segment_bytes: SEGMENT_BYTES,
        }
    }

    fn line(&self) -> Line<'_> {
        Line {
            head: &self.head,
            tickets: &self.tickets,
            slots_used: &self.slots_used,
            wanted: &self.wanted,
            head_wants: &self.head_wants,
            beds: &self.beds,
            places: self,
        }
    }

    /// The shares of all threads of the model, in one: their sum is what counts.
    fn mine(&self) -> Mine<'_> {
        let (claimed, reserved) = (&self.shares[0], &self.shares[1]);
        Mine { slot: SlotNo(0), claimed, reserved, beside: &self.counts[0], keeps_more: &self.counts[1] }
    }

    fn try_claim(&self, bytes: u64, undo_bytes: u64, beside: u64, purpose: Purpose) -> Result<(), Refused> {
        self.room().try_claim(self.mine(), bytes, undo_bytes, beside, purpose, || ()).map(|_| ())
    }

    /// As `Log::claim`.
    fn claim(&self, bytes: u64) -> u64 {
        if self.try_claim(bytes, 0, self.wanted.load(SeqCst), Purpose::Ordinary).is_err() {
            let try_claim = || self.try_claim_slow(bytes, Purpose::Ordinary);
            let Ok(()) = self.line().stand(SlotNo(0), bytes, || Ok(()), try_claim, || self.look(bytes));
        }
        bytes
    }

    /// As `Log::claim_undo`.
    fn claim_undo(&self, bytes: u64) -> u64 {
        if self.try_claim(bytes, 0, 0, Purpose::Undo).is_err() {
            let try_claim = || self.try_claim_slow(bytes, Purpose::Undo);
            let Ok(()) = self.room().wait_beside(self.mine(), try_claim, || self.look(bytes));
        }
        bytes
    }

    /// As `Log::try_claim_slow`, where segments have room.
    fn try_claim_slow(&self, bytes: u64, purpose: Purpose) -> Result<bool, Infallible> {
        loop {
            match self.try_claim(bytes, 0, 0, purpose) {
                Ok(()) => return Ok(true),
                Err(Refused::Segments) => panic!("there are segments enough"),
                Err(Refused::Buffer) => {
                    if !self.flush() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// As `Log::look_for_room`.
    fn look(&self, bytes: u64) -> Look {
        let is_flushing = self.is_flushing.load(SeqCst) != 0;
        match self.room().look(bytes, self.has_to_flush(), is_flushing) {
            Look::Sleep(Some(_)) if self.times_out => {
                thread::yield_now();
                Look::Again
            }
            look => look,
        }
    }

    /// Bytes of the record that is published there; 0: none.
    fn published(&self, lsn: u64) -> u64 {
        self.ring[lsn as usize / 8].load(Acquire)
    }

    fn has_to_flush(&self) -> bool {
        let durable = self.durable.load(SeqCst);
        self.is_flushing.load(SeqCst) == 0 && self.tail.load(SeqCst) != durable && self.published(durable) != 0
    }

    /// As `Log::flush_for_space`.
    fn flush(&self) -> bool {
        if !self.has_to_flush() {
            return false;
        }
        if self.is_flushing.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
            let mut end = self.durable.load(SeqCst);
            while let bytes @ 1.. = self.published(end) {
                end += bytes;
            }
            self.durable.store(end, SeqCst);
            self.zeroed_limit.store(end + HALF, SeqCst);
            self.is_flushing.store(0, SeqCst);
            fence(SeqCst);
            self.line().wake_head(|_| true);
            self.room().wake_beside();
        }
        true
    }

    /// Appends a record within a claim (C1).
    fn append(&self, claim: &mut u64, bytes: u64) {
        *claim -= bytes;
        let lsn = self.tail.fetch_add(bytes, SeqCst);
        assert!(lsn + bytes <= self.zeroed_limit.load(SeqCst), "an append passes the limit of the buffer");
        self.ring[lsn as usize / 8].store(bytes, Release);
    }

    /// As `Log::give_back_all`.
    fn give_back(&self, claim: u64, undo_bytes: u64) {
        if self.room().give_back(self.mine(), claim, undo_bytes) {
            self.line().wake_head(|bytes| self.room().has_room(bytes) || self.has_to_flush());
            self.room().wake_beside();
        }
    }

    /// When all have ended: what is not appended was given back.
    fn check_end(&self) {
        let tail = self.tail.load(SeqCst);
        assert_eq!((self.claim_head.load(SeqCst), self.reserved.load(SeqCst)), (tail, 0));
        assert_eq!((self.shares[0].load(SeqCst), self.shares[1].load(SeqCst)), (tail, 0), "the shares say the same");
        assert_eq!((self.wanted.load(SeqCst), self.undo_sleepers.load(SeqCst)), (0, 0));
    }
}

fn spawn<T: 'static>(world: &Arc<World>, run: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || run(&world))
}

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(f);
}

/// C5. The holder appends within its claim and does nothing any more, not even when the other waits.
#[test]
fn the_largest_claim_does_not_wait_for_what_a_thread_keeps() {
    model(3, || {
        let world = World::new(true, 1 << 20);
        let keeper = spawn(&world, |world| {
            let mut claim = world.claim(24 + KEPT);
            world.append(&mut claim, 24);
            claim
        });
        let claim = world.claim(LARGEST);
        world.give_back(claim, 0);
        world.give_back(keeper.join().unwrap(), 0);
        world.check_end();
    });
}

/// C6. Two ask at once whether they may keep more, and whoever may keeps it: the largest claim has room all the same.
#[test]
fn no_more_threads_keep_more_than_the_largest_claim_leaves_room_for() {
    model(2, || {
        let world = World::new(true, 1 << 20);
        let keepers = [(); 2].map(|()| {
            spawn(&world, |world| {
                world.room().may_keep_more(world.mine(), LONG_KEEPERS).then(|| {
                    assert!(world.long_keepers.load(SeqCst) <= LONG_KEEPERS);
                    world.claim(LONG_KEPT)
                })
            })
        });
        let claim = world.claim(LARGEST);
        let kept = keepers.map(|keeper| keeper.join().unwrap());
        assert_eq!(kept.iter().flatten().sum::<u64>(), LONG_KEPT, "one of the two may");
        world.give_back(claim, 0);
        kept.into_iter().flatten().for_each(|claim| {
            world.give_back(claim, 0);
            world.room().end_keeping_more(world.mine());
        });
        assert!(world.room().may_keep_more(world.mine(), LONG_KEEPERS), "and another afterwards");
        world.check_end();
    });
}

/// R2 of `room.rs`: nobody is left to sleep, for however short a time, by a thread that gives its rest back.
fn whoever_waits_is_woken(claim: fn(&World) -> u64) {
    model(3, move || {
        let world = World::new(false, 1 << 20);
        let gives_back = spawn(&world, |world| {
            let mut claim = world.claim(16);
            world.append(&mut claim, 8);
            world.give_back(claim, 0);
        });
        let claim = claim(&world);
        world.give_back(claim, 0);
        gives_back.join().unwrap();
        world.check_end();
    });
}

#[test]
fn the_head_of_the_line_is_woken_by_what_is_given_back() {
    whoever_waits_is_woken(|world| world.claim(HALF));
}

#[test]
fn a_rollback_is_woken_by_what_is_given_back() {
    whoever_waits_is_woken(|world| world.claim_undo(HALF));
}

/// C2. A transaction that has reserved its rollback finds room for it in the segments, whatever others take and give.
#[test]
fn a_rollback_finds_the_room_that_it_has_reserved() {
    model(2, || {
        let world = World::new(false, 40);
        let gives_back = spawn(&world, |world| {
            if world.try_claim(16, 0, 0, Purpose::Ordinary).is_ok() {
                world.give_back(16, 0);
            }
        });
        let takes = spawn(&world, |world| if world.try_claim(16, 0, 0, Purpose::Ordinary).is_ok() { 16 } else { 0 });
        if world.try_claim(8, 8, 0, Purpose::Ordinary).is_ok() {
            assert_eq!(world.try_claim(8, 0, 0, Purpose::Undo), Ok(()), "though it was reserved");
            world.give_back(8 + 8, 8);
        }
        gives_back.join().unwrap();
        world.give_back(takes.join().unwrap(), 0);
        world.check_end();
    });
}
