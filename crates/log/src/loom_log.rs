//! Models under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-log --release --lib loom_log`.

use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_region::atomic::Ordering::{Acquire, Release, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::Arc;
use loom::thread;

use crate::group_commit::FlushState;
use crate::line::{Line, Look};
use crate::meeting::Meeting;
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
    failed: AtomicU64,
    sleepers: [AtomicU32; 2],
    beds: [AtomicU32; 2],
}

impl Words {
    fn meeting(&self) -> Meeting<'_> {
        Meeting {
            flush: &self.flush,
            flushing_to: &self.flushing_to,
            durable: &self.durable,
            failed: &self.failed,
            sleepers: &self.sleepers,
            beds: &self.beds,
        }
    }

    fn try_lead(&self, seen: FlushState) -> Option<Result<(), ()>> {
        let leading = self.meeting().begin(seen)?;
        let end = self.published.load(SeqCst);
        self.flushing_to.store(end, SeqCst);
        self.durable.store(end, SeqCst);
        self.meeting().end(leading);
        Some(Ok(()))
    }

    fn commit(&self) {
        let lsn = self.published.fetch_add(1, SeqCst);
        self.meeting().wait(lsn, |seen| self.try_lead(seen), || ()).unwrap();
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

/// Room that is claimed from one end and freed at the other, with the line before it.
struct Room {
    claimed: AtomicU64,
    limit: AtomicU64,
    next: AtomicU32,
    turn: AtomicU32,
    wanted: AtomicU64,
    head_wants: AtomicU64,
    beds: [AtomicU32; 2],
    failed: AtomicU32,
}

impl Room {
    fn new(limit: u64) -> Room {
        let [next, turn, failed] = [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)];
        let [claimed, wanted, head_wants] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
        let beds = Default::default();
        Room { claimed, limit: AtomicU64::new(limit), next, turn, wanted, head_wants, beds, failed }
    }

    fn line(&self) -> Line<'_> {
        Line {
            next: &self.next,
            turn: &self.turn,
            wanted: &self.wanted,
            head_wants: &self.head_wants,
            beds: &self.beds,
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
    fn claim(&self, bytes: u64) {
        if self.try_claim(bytes, self.wanted.load(SeqCst)) {
            return;
        }
        let try_claim = || if self.is_failed() { Err(()) } else { Ok(self.try_claim(bytes, 0)) };
        let look = || if self.has_room(bytes) || self.is_failed() { Look::Again } else { Look::Sleep(None) };
        // Refused after a failure only.
        let _ = self.line().stand(bytes, || self.is_failed(), try_claim, look);
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
            .map(|bytes| {
                let room = Arc::clone(&room);
                thread::spawn(move || room.claim(*bytes))
            })
            .collect();
        pieces.iter().for_each(|bytes| room.free(*bytes));
        for thread in threads {
            thread.join().unwrap();
        }
        let all = claims.iter().sum::<u64>();
        assert_eq!((room.claimed.load(SeqCst), room.wanted.load(SeqCst)), (all, 0));
        assert_eq!(room.next.load(SeqCst), room.turn.load(SeqCst));
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
    all_in_line_are_served(&[1, 1, 1], &[1, 2], 2);
}

/// Claimers who find no room leave when the log fails, whoever of them sees it first: nobody sleeps on.
fn all_leave_after_a_failure(count: usize, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let room = Arc::new(Room::new(0));
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let room = Arc::clone(&room);
                thread::spawn(move || room.claim(1))
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
    all_leave_after_a_failure(3, 2);
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
