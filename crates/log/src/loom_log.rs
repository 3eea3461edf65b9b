//! Models under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-log --release --lib loom_log`.

use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::Ordering::{Acquire, Release, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::Arc;
use loom::thread;

use crate::group_commit::FlushState;
use crate::line::{Line, Look, Places};
use crate::meeting::Meeting;
use crate::own::{InHand, Intent};
use crate::record::{Encoded, NewRecord, RecordKind, decode_sealed};
use crate::ring;
use crate::seal::Seal;

const RECORD_BYTES: u64 = 24;

fn append(words: &[AtomicU64], tail: &AtomicU64, xid: u64, seal: &Seal) -> u64 {
    let (kind, none) = (RecordKind::End, Lsn(0));
    let record = NewRecord { kind, xid: Xid(xid), prev_lsn: none, op: OpId(0), flags: 0, page: None, body: &[] };
    let encoded = Encoded::new(&record);
    let lsn = tail.fetch_add(RECORD_BYTES, SeqCst);
    let crc = ring::copy_in(words, lsn, &encoded, encoded.crc());
    ring::publish(words, lsn, &encoded, seal, crc);
    lsn
}

/// A walk from `from` ends between records, and all it passes are whole.
fn walk_checked(words: &[AtomicU64], from: u64, tail: &AtomicU64, seal: &Seal) -> u64 {
    let (end, count) = ring::walk(words, from, tail.load(SeqCst), u64::MAX);
    assert_eq!(end - from, count * RECORD_BYTES);
    for no in 0..count {
        let lsn = from + no * RECORD_BYTES;
        let mut bytes = [0; RECORD_BYTES as usize];
        ring::copy_out(words, lsn, &mut bytes);
        decode_sealed(Lsn(lsn), &bytes, seal).unwrap();
    }
    end
}

#[test]
fn a_walk_sees_whole_records_only() {
    loom::model(|| {
        let seal = Seal::new([1; 16], 1);
        let shared = Arc::new(((0..8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>(), AtomicU64::new(4096)));
        let threads: Vec<_> = (1..3)
            .map(|xid| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || append(&shared.0, &shared.1, xid, &seal))
            })
            .collect();
        walk_checked(&shared.0, 4096, &shared.1, &seal);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(walk_checked(&shared.0, 4096, &shared.1, &seal), 4096 + 2 * RECORD_BYTES);
    });
}

#[derive(Default)]
struct Words {
    /// Where what is published ends.
    published: AtomicU64,
    flush: AtomicU64,
    flushing_to: AtomicU64,
    durable: AtomicU64,
    sleepers: [AtomicU64; 2],
    beds: [AtomicU32; 2],
}

impl Words {
    fn meeting(&self) -> Meeting<'_> {
        Meeting {
            flush: &self.flush,
            flushing_to: &self.flushing_to,
            durable: &self.durable,
            sleepers: &self.sleepers,
            beds: &self.beds,
        }
    }

    fn try_lead(&self, seen: FlushState) -> Option<Result<(), ()>> {
        let leading = self.meeting().begin(seen, SlotNo(0))?;
        let end = self.published.load(SeqCst);
        self.flushing_to.store(end, SeqCst);
        self.durable.store(end, SeqCst);
        self.meeting().end(leading);
        Some(Ok(()))
    }

    fn commit(&self) {
        let lsn = self.published.fetch_add(1, SeqCst);
        self.meeting().wait(lsn, |seen| self.try_lead(seen), || None::<()>).unwrap();
        assert!(self.durable.load(SeqCst) > lsn);
    }
}

/// Whoever waits is woken by the end of a flush, or leads one: a sleeper whom nobody wakes is a deadlock that loom
/// sees.
fn nobody_sleeps_for_ever(commits_of: &'static [usize], preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let words = Arc::new(Words::default());
        words.flushing_to.store(u64::MAX, SeqCst);
        let threads: Vec<_> = commits_of[1..]
            .iter()
            .map(|count| {
                let words = Arc::clone(&words);
                thread::spawn(move || (0..*count).for_each(|_| words.commit()))
            })
            .collect();
        (0..commits_of[0]).for_each(|_| words.commit());
        for thread in threads {
            thread.join().unwrap();
        }
        let all = commits_of.iter().sum::<usize>() as u64;
        assert_eq!((words.published.load(SeqCst), words.durable.load(SeqCst)), (all, all));
    });
}

#[test]
fn two_committers_never_sleep_for_ever() {
    nobody_sleeps_for_ever(&[2, 2], 3);
}

#[test]
fn three_committers_never_sleep_for_ever() {
    nobody_sleeps_for_ever(&[1, 1, 1], 2);
}

#[test]
fn three_committers_of_two_rounds_never_sleep_for_ever() {
    nobody_sleeps_for_ever(&[2, 1, 1], 1);
}

/// The leader dies before or behind what it has made durable, and another takes its lead over: whoever sleeps is woken,
/// and nobody leads beside it.
#[test]
fn a_dead_leaders_flush_is_ended_for_it() {
    for has_written in [false, true] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let words = Arc::new(Words::default());
            words.flushing_to.store(u64::MAX, SeqCst);
            let leading = words.meeting().begin(FlushState(0), SlotNo(1)).unwrap();
            let commits = Arc::clone(&words);
            let committer = thread::spawn(move || commits.commit());
            if has_written {
                let end = words.published.load(SeqCst);
                words.flushing_to.store(end, SeqCst);
                words.durable.store(end, SeqCst);
            }
            // It is dead from here on.
            assert_eq!(leading.leader(), Some(SlotNo(1)));
            let taken = words.meeting().take_over(leading, SlotNo(2)).unwrap();
            assert!(words.meeting().take_over(leading, SlotNo(3)).is_none(), "once");
            words.meeting().end(taken);
            committer.join().unwrap();
            assert_eq!(words.durable.load(SeqCst), 1);
        });
    }
}

/// One thread appends while a repairer looks for the hole of another, which has died when it had reserved and not yet
/// said where. The hole is found, and no record of the living is taken for one (P2 in `repair.rs`).
#[test]
fn a_hole_is_filled_and_no_record_of_the_living() {
    let seal = Seal::new([1; 16], 1);
    loom::model(move || {
        let words = || (0..8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let shared = Arc::new((words(), AtomicU64::new(4096), words()));
        let living = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let hand = hand_of(&shared.2);
                let encoded = Encoded::new(&RECORD);
                let lsn = hand.reserve(&shared.1, RECORD_BYTES);
                let crc = ring::copy_in(&shared.0, lsn, &encoded, encoded.crc());
                ring::publish(&shared.0, lsn, &encoded, &seal, crc);
                hand.end();
                lsn
            })
        };
        shared.1.fetch_add(RECORD_BYTES, SeqCst); // The dead's.
        let tail = shared.1.load(SeqCst);
        let hand = hand_of(&shared.2);
        loop {
            match hand.seen() {
                Some(Intent::Announced) => thread::yield_now(),
                Some(Intent::Placed { lsn, .. }) if lsn < tail => thread::yield_now(),
                _ => break,
            }
        }
        let (at, _) = ring::walk(&shared.0, 4096, tail, u64::MAX);
        assert!(at < tail, "there is a hole");
        assert_eq!(ring::zeroes(&shared.0, at, tail), at + RECORD_BYTES, "of one record");
        let lsn = living.join().unwrap();
        assert_ne!(at, lsn, "which is the dead's");
    });
}

const RECORD: NewRecord<'_> =
    NewRecord { kind: RecordKind::End, xid: Xid(7), prev_lsn: Lsn(0), op: OpId(0), flags: 0, page: None, body: &[] };

fn hand_of(words: &[AtomicU64]) -> InHand<'_> {
    InHand { intent: &words[0], appended: &words[1], will_be: &words[2] }
}

/// Room that is claimed from one end and freed at the other, with the line before it.
struct Room {
    claimed: AtomicU64,
    limit: AtomicU64,
    head: AtomicU64,
    tickets: AtomicU64,
    slots_used: AtomicU32,
    wanted: AtomicU64,
    head_wants: AtomicU64,
    beds: [AtomicU32; 3],
    places: [AtomicU64; 3],
    failed: AtomicU32,
}

impl Places for Room {
    fn place(&self, slot: SlotNo) -> &AtomicU64 {
        &self.places[usize::from(slot.0)]
    }
}

impl Room {
    fn new(limit: u64) -> Room {
        let [slots_used, failed] = [AtomicU32::new(0), AtomicU32::new(0)];
        let [claimed, head, tickets, wanted, head_wants] = std::array::from_fn(|_| AtomicU64::new(0));
        let (beds, places, limit) = (Default::default(), Default::default(), AtomicU64::new(limit));
        Room { claimed, limit, head, tickets, slots_used, wanted, head_wants, beds, places, failed }
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

    fn try_claim(&self, bytes: u64, beside: u64) -> bool {
        let mut claimed = self.claimed.load(SeqCst);
        while claimed + bytes + beside <= self.limit.load(SeqCst) {
            match self.claimed.compare_exchange(claimed, claimed + bytes, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => claimed = now,
            }
        }
        false
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.claimed.load(SeqCst) + bytes <= self.limit.load(SeqCst)
    }

    /// As the log claims: past the line if that leaves room for its head.
    fn claim(&self, slot: u16, bytes: u64) {
        if self.try_claim(bytes, self.wanted.load(SeqCst)) {
            return;
        }
        let try_claim = || if self.is_failed() { Err(()) } else { Ok(self.try_claim(bytes, 0)) };
        let look = || if self.has_room(bytes) || self.is_failed() { Look::Again } else { Look::Sleep(None) };
        // Refused after a failure only.
        let check = || if self.is_failed() { Err(()) } else { Ok(()) };
        let _ = self.line().stand(SlotNo(slot), bytes, check, try_claim, look);
    }

    fn is_failed(&self) -> bool {
        self.failed.load(Acquire) != 0
    }

    fn fail(&self) {
        self.failed.store(1, SeqCst);
        self.line().wake_all();
    }

    fn free(&self, bytes: u64) {
        self.limit.fetch_add(bytes, SeqCst);
        fence(SeqCst);
        self.line().wake_head(|wants| self.has_room(wants));
    }
}

/// `claims` in threads of their own while the room comes in pieces: all are served, and nobody sleeps for ever.
fn all_in_line_are_served(claims: &'static [u64], pieces: &'static [u64], preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let room = Arc::new(Room::new(0));
        let threads: Vec<_> = claims
            .iter()
            .zip(0..)
            .map(|(bytes, slot)| {
                let room = Arc::clone(&room);
                thread::spawn(move || room.claim(slot, *bytes))
            })
            .collect();
        pieces.iter().for_each(|bytes| room.free(*bytes));
        for thread in threads {
            thread.join().unwrap();
        }
        let all = claims.iter().sum::<u64>();
        assert_eq!((room.claimed.load(SeqCst), room.wanted.load(SeqCst)), (all, 0));
        assert_eq!(room.line().head(), None);
    });
}

#[test]
fn two_claimers_of_room_that_comes_at_once_are_served() {
    all_in_line_are_served(&[1, 1], &[2], 3);
}

#[test]
fn a_large_claimer_beside_a_small_one_is_served() {
    all_in_line_are_served(&[2, 1], &[1, 2], 3);
}

#[test]
fn three_claimers_are_served_as_room_comes() {
    all_in_line_are_served(&[1, 1, 1], &[1, 2], 1);
}

/// Claimers who find no room leave when the log fails, whoever of them sees it first: nobody sleeps on.
fn all_leave_after_a_failure(count: u16, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let room = Arc::new(Room::new(0));
        let threads: Vec<_> = (0..count)
            .map(|slot| {
                let room = Arc::clone(&room);
                thread::spawn(move || room.claim(slot, 1))
            })
            .collect();
        room.fail();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(room.claimed.load(SeqCst), 0);
    });
}

#[test]
fn two_claimers_leave_after_a_failure() {
    all_leave_after_a_failure(2, 3);
}

#[test]
fn three_claimers_leave_after_a_failure() {
    all_leave_after_a_failure(3, 1);
}

/// The head leaves while a repairer takes back the place of one behind it, which has died: nobody names the dead.
#[test]
fn nobody_names_a_head_that_is_dead() {
    loom::model(|| {
        let room = Arc::new(Room::new(0));
        let dead = SlotNo(1);
        room.slots_used.store(2, SeqCst);
        room.places.iter().zip([1, 2]).for_each(|(place, ticket)| place.store(ticket, SeqCst));
        room.head.store(1, SeqCst);
        let leaves = {
            let room = Arc::clone(&room);
            thread::spawn(move || room.line().leave(SlotNo(0)))
        };
        room.place(dead).store(0, SeqCst);
        let wait = |is_done: &dyn Fn() -> bool| {
            while !is_done() {
                thread::yield_now();
            }
            Ok::<(), ()>(())
        };
        room.line().mend(|slot| slot == dead, wait).unwrap();
        leaves.join().unwrap();
        assert_eq!(room.line().head(), None);
    });
}

/// A ring of one record's length and a word, which held a record a round before.
struct History {
    ring: Vec<AtomicU64>,
    zero_begun: AtomicU64,
    zeroed_limit: AtomicU64,
}

const RING_BYTES: u64 = 32;

/// A reader of history copies a record while its place is zeroed and another is put there: what it believes is what was
/// there (B4). Without the fence in `ring::zero` it believes zeros, without the one in `ring::copy_in` a part of the
/// next record; the features that plant these bugs show it.
#[test]
fn what_a_reader_of_history_believes_was_there() {
    loom::model(|| {
        let seal = Seal::new([1; 16], 1);
        let words = || (0..RING_BYTES / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let history = Arc::new(History {
            ring: words(),
            zero_begun: AtomicU64::new(4096 + RING_BYTES),
            zeroed_limit: AtomicU64::new(4096 + RING_BYTES),
        });
        let old = 4096;
        assert_eq!(append(&history.ring, &AtomicU64::new(old), 1, &seal), old);
        let copy = || {
            let mut bytes = [0; RECORD_BYTES as usize];
            ring::copy_out(&history.ring, old, &mut bytes);
            bytes
        };
        let before = copy();

        let flusher = {
            let history = Arc::clone(&history);
            thread::spawn(move || {
                let (from, to) = (old + RING_BYTES, old + RING_BYTES + RECORD_BYTES);
                history.zero_begun.store(to, SeqCst);
                ring::zero(&history.ring, from, to);
                history.zeroed_limit.store(to, Release);
            })
        };
        let appender = {
            let history = Arc::clone(&history);
            thread::spawn(move || {
                if history.zeroed_limit.load(Acquire) > old + RING_BYTES {
                    append(&history.ring, &AtomicU64::new(old + RING_BYTES), 2, &seal);
                }
            })
        };
        let found = copy();
        fence(Acquire); // B4, as the readers do.
        if history.zero_begun.load(SeqCst) <= old + RING_BYTES {
            assert_eq!(found, before);
        }
        flusher.join().unwrap();
        appender.join().unwrap();
    });
}
