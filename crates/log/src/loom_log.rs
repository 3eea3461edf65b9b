//! Models under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-log --release --lib loom_log`.

use ledgerstone_page::{Lsn, OpId, Xid};
use ledgerstone_region::atomic::Ordering::SeqCst;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64};
use loom::sync::Arc;
use loom::thread;

use crate::group_commit::FlushState;
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
    ring::copy_in(words, lsn, &encoded, &[]);
    ring::publish(words, lsn, &encoded, seal);
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

/// Whoever waits is woken by the end of a flush, or leads one: a sleeper whom nobody wakes is a deadlock that loom sees.
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
