//! Redo on first touch: whoever asks for a page gets it with all of its changes, in whatever way it comes in.

mod counting;

use std::sync::Arc;

use counting::*;
use ledgerstone_buffer::BufferError;
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, Open, SimDisk};
use ledgerstone_page::{HEADER_BYTES, OpId, PageId};
use ledgerstone_recovery::{RecoveryError, checkpoint};
use ledgerstone_region::sync;
use ledgerstone_txn::{Durability, Engine, Part};

const PAGE_BYTES: u64 = 4096;
/// Pages with changes: fewer than there are frames, so that none is at home with what the log adds.
const CHANGED: u64 = 16;

/// A disk as a kill leaves it: page `n` has `n` at home, and the log adds 100 to each.
fn killed() -> SimDisk {
    killed_by(ADD)
}

fn killed_by(op: OpId) -> SimDisk {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, control) = create(&shared).unwrap();
    let add_all = |delta: fn(u64) -> i64| {
        let mut txn = engine.begin().unwrap();
        (1..=CHANGED).for_each(|no| add_by(op, &mut txn, no, 0, delta(no)).unwrap());
        txn.commit(Durability::Sync).unwrap();
    };
    add_all(|no| no as i64);
    checkpoint(&engine, &control, false).unwrap();
    add_all(|_| 60);
    add_all(|_| 40);
    disk.after_kill()
}

fn opened(disk: &SimDisk) -> (Repeated, Arc<ledgerstone_recovery::Pending>) {
    repeat_later(&(Arc::new(disk.clone()) as Arc<dyn Disk>)).unwrap()
}

fn value(engine: &Engine, no: u64) -> i64 {
    engine.cache.shared(PageId(no)).unwrap().words().u64(HEADER_BYTES) as i64
}

fn damage(disk: &SimDisk, no: u64) {
    let data = disk.open("data", Open::EXISTING).unwrap();
    data.write_durable_at(no * PAGE_BYTES + 512, &[1; 512]).unwrap();
}

#[test]
fn a_page_has_its_changes_however_it_comes_in() {
    type ComeIn = fn(&Arc<ledgerstone_buffer::Cache>, PageId);
    let ways: [ComeIn; 6] = [
        |cache, page| drop(cache.shared(page).unwrap()),
        |cache, page| drop(cache.exclusive(page).unwrap()),
        |cache, page| drop(cache.try_exclusive(page).unwrap().unwrap()),
        |cache, page| assert_eq!(cache.optimistic(page).unwrap().id(), page),
        |cache, page| drop(cache.exclusive_new(page).unwrap()), // Formatted by nobody in the end.
        |cache, page| assert_eq!(cache.read_wanted().run(page, 1), 1),
    ];
    for (no, come_in) in ways.into_iter().enumerate() {
        let ((engine, ..), pending) = opened(&killed());
        for page in [7, 3, 15, 16, 8] {
            come_in(&engine.cache, PageId(page));
            assert_eq!(engine.cache.optimistic_if_here(PageId(page)).unwrap().words().u64(HEADER_BYTES), page + 100);
        }
        assert_eq!(pending.redone().applied_count, 10, "way {no}");
        // The rest comes in when nobody asks.
        (0..pending.worker_count()).for_each(|worker| pending.work(worker));
        assert_eq!(pending.redone().applied_count, 2 * CHANGED, "way {no}");
        assert!(!engine.cache.has_pending());
        (1..=CHANGED).for_each(|page| assert_eq!(value(&engine, page), page as i64 + 100, "way {no}"));
    }
}

#[test]
fn runs_and_readers_bring_changes_along() {
    let ((engine, ..), pending) = opened(&killed());
    engine.cache.allow_readers();
    assert!(engine.cache.read_wanted().run(PageId(1), 4) > 0);
    engine.cache.read_soon(&[PageId(10), PageId(11), PageId(14)]);
    (1..=CHANGED).rev().for_each(|page| assert_eq!(value(&engine, page), page as i64 + 100));
    assert_eq!(pending.redone().applied_count, 2 * CHANGED);
    engine.cache.stop_readers();
}

/// Many threads touch pages in many orders, while the workers go on.
#[test]
fn everybody_may_touch_pages_at_once() {
    for round in 0..20 {
        let ((engine, ..), pending) = opened(&killed());
        std::thread::scope(|scope| {
            for worker in 0..pending.worker_count() {
                let pending = &pending;
                scope.spawn(move || pending.work(worker));
            }
            for thread in 0..3 {
                let engine = &engine;
                scope.spawn(move || {
                    for n in 0..CHANGED {
                        let page = 1 + (n * (7 + 4 * thread) + round) % CHANGED;
                        assert_eq!(value(engine, page), page as i64 + 100);
                    }
                });
            }
        });
        assert_eq!(pending.redone().applied_count, 2 * CHANGED);
        assert!(!engine.cache.has_pending());
    }
}

#[test]
fn checkpoints_and_copies_wait_until_nothing_is_pending() {
    let disk = killed();
    let ((engine, control, _), pending) = opened(&disk);
    assert_eq!(value(&engine, 5), 105);
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| checkpoint(&engine, &control, false).unwrap());
        let copied = scope.spawn(|| {
            let mut bytes = vec![0; PAGE_BYTES as usize];
            engine.cache.copy_page(PageId(9), &mut bytes).unwrap();
            i64::from_le_bytes(bytes[HEADER_BYTES..][..8].try_into().unwrap())
        });
        std::thread::yield_now();
        assert!(!taken.is_finished() && !copied.is_finished());
        (0..pending.worker_count()).for_each(|worker| pending.work(worker));
        assert_eq!(copied.join().unwrap(), 109);
        assert!(taken.join().unwrap().scan_lsn > control.state().mark_lsn);
    });
    drop(engine);
    let shared: Arc<dyn Disk> = Arc::new(disk.after_kill());
    let ((engine, ..), redone) = repeat_gathered(&shared, ledgerstone_recovery::Gathered::beside(0, 2)).unwrap();
    assert_eq!(redone.applied_count, 0, "the checkpoint has all of it");
    (1..=CHANGED).for_each(|page| assert_eq!(value(&engine, page), page as i64 + 100));
}

#[test]
fn what_could_not_be_read_stays_pending() {
    let faulty = FaultDisk::new(Arc::new(killed()));
    let shared: Arc<dyn Disk> = Arc::new(faulty.clone());
    let ((engine, ..), pending) = repeat_later(&shared).unwrap();
    faulty.add(Fault::at(Call::Read, 1, Harm::Fail(DiskErrorKind::Io(5))).on("data"));
    assert!(matches!(engine.cache.shared(PageId(6)), Err(BufferError::Disk(_))));
    assert_eq!(pending.redone().applied_count, 0);
    assert_eq!(value(&engine, 6), 106);
    assert!(!engine.is_failed());
}

#[test]
fn a_damaged_page_is_told_to_who_touches_it_and_fails_the_environment_in_the_background() {
    let disk = killed();
    damage(&disk, 6);
    let ((engine, control, _), pending) = opened(&disk);
    for _ in 0..2 {
        assert!(matches!(engine.cache.shared(PageId(6)), Err(BufferError::Damaged { page: PageId(6), .. })));
        assert!(matches!(engine.cache.exclusive_new(PageId(6)), Err(BufferError::Damaged { .. })));
    }
    assert_eq!(value(&engine, 7), 107);
    assert!(!engine.is_failed());
    (0..pending.worker_count()).for_each(|worker| pending.work(worker));
    assert!(engine.is_failed() && engine.why_failed().contains("page 6 is damaged"), "{}", engine.why_failed());
    let refused = checkpoint(&engine, &control, false);
    assert!(matches!(refused, Err(RecoveryError::Buffer(BufferError::Failed))), "{refused:?}");
}

#[test]
fn a_damaged_page_that_is_formatted_later_is_made_anew() {
    let disk = killed();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, ..) = repeat_history(&shared).unwrap();
    let mut txn = engine.begin().unwrap();
    txn.claim(256).unwrap();
    let mut page = engine.cache.exclusive(PageId(6)).unwrap();
    txn.group(&mut [&mut page], &[Part { page: 0, op: FORMAT, args: &[] }]).unwrap();
    drop(page);
    add(&mut txn, 6, 0, 8).unwrap();
    txn.commit(Durability::Sync).unwrap();
    drop(engine);
    let disk = disk.after_kill();
    damage(&disk, 6);
    let ((engine, ..), _) = opened(&disk);
    assert_eq!(engine.cache.read_wanted().run(PageId(6), 1), 0, "it has no bytes to read");
    assert_eq!(value(&engine, 6), 8);
}

#[test]
fn an_older_page_fails_the_environment_and_is_shown_to_nobody() {
    let old = killed();
    let before = {
        let mut bytes = vec![0; PAGE_BYTES as usize];
        old.open("data", Open::READ).unwrap().read_at(6 * PAGE_BYTES, &mut bytes).unwrap();
        bytes
    };
    let shared: Arc<dyn Disk> = Arc::new(old.clone());
    let (engine, control) = recover(&shared).unwrap();
    let mut txn = engine.begin().unwrap();
    add(&mut txn, 6, 0, 1).unwrap();
    txn.commit(Durability::Sync).unwrap();
    drop((engine, control));
    let disk = old.after_kill();
    disk.open("data", Open::EXISTING).unwrap().write_durable_at(6 * PAGE_BYTES, &before).unwrap();
    let ((engine, ..), _) = opened(&disk);
    for _ in 0..2 {
        let refused = engine.cache.shared(PageId(6)).map(drop);
        assert!(matches!(refused, Err(BufferError::NotRedone { page: PageId(6), .. })), "{refused:?}");
    }
    assert!(engine.why_failed().contains("older version of the page"), "{}", engine.why_failed());
    assert!(engine.cache.optimistic_if_here(PageId(6)).is_none());
    assert!(matches!(engine.cache.wait_redone(), Err(BufferError::Failed)));
}

/// The image may be older than the changes that are pending: they would be lost under it.
#[test]
fn no_page_is_put_back_while_redo_is_pending() {
    let disk = killed();
    let mut home = vec![0; PAGE_BYTES as usize];
    disk.open("data", Open::READ).unwrap().read_at(6 * PAGE_BYTES, &mut home).unwrap();
    damage(&disk, 6);
    sync::Scheduler::run(1, || {
        let ((engine, ..), pending) = opened(&disk);
        let worker = sync::spawn("worker", move || {
            sync::sleep_ns(1_000_000_000);
            (0..pending.worker_count()).for_each(|worker| pending.work(worker));
        });
        let refused = engine.cache.put_back(PageId(6), &home);
        assert!(matches!(refused, Err(BufferError::Failed)), "{refused:?}");
        worker.join().unwrap();
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// What programs may do for a while is no reason to fail.
#[test]
fn a_worker_tries_again_when_others_hold_all_frames() {
    sync::Scheduler::run(1, || {
        let ((engine, ..), pending) = opened(&killed());
        let held = (CHANGED + 1..).map(PageId).take(20).map(|page| engine.cache.exclusive(page).unwrap());
        let held = held.collect::<Vec<_>>();
        let worker = sync::spawn("worker", {
            let pending = Arc::clone(&pending);
            move || (0..pending.worker_count()).for_each(|worker| pending.work(worker))
        });
        sync::sleep_ns(60_000_000_000); // Longer than anybody waits for a frame.
        assert!(engine.cache.has_pending());
        drop(held);
        worker.join().unwrap();
        assert!(!engine.is_failed() && !engine.cache.has_pending(), "{}", engine.why_failed());
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}

#[test]
fn a_worker_tries_again_when_another_holds_the_page_for_long() {
    sync::Scheduler::run(1, || {
        let ((engine, ..), pending) = opened(&killed_by(ADD_BY_PAGE));
        // In the midst of repeating its changes.
        *WHEN_UNDONE.lock().unwrap() = Some(Box::new(|| sync::sleep_ns(5 * ledgerstone_region::LATCH_TIMEOUT_NS)));
        let holder = sync::spawn("holder", {
            let engine = Arc::clone(&engine);
            move || drop(engine.cache.shared(PageId(6)).unwrap())
        });
        sync::sleep_ns(1_000_000_000);
        (0..pending.worker_count()).for_each(|worker| pending.work(worker));
        holder.join().unwrap();
        assert!(!engine.is_failed() && !engine.cache.has_pending(), "{}", engine.why_failed());
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
}
