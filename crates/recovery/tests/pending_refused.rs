//! What an opening refuses is refused when redo is put off, too, and for the same reason.

mod counting;

use std::sync::Arc;

use counting::*;
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, Open, SimDisk};
use ledgerstone_log::{NewRecord, RecordKind};
use ledgerstone_page::{HEADER_BYTES, Lsn, PageId, Xid};
use ledgerstone_recovery::checkpoint;
use ledgerstone_txn::Durability;

const PAGE_BYTES: u64 = 4096;

fn killed() -> SimDisk {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, control) = create(&shared).unwrap();
    let add_all = |delta: i64| {
        let mut txn = engine.begin().unwrap();
        (1..=16).for_each(|no| add(&mut txn, no, 0, delta).unwrap());
        txn.commit(Durability::Sync).unwrap();
    };
    add_all(1);
    checkpoint(&engine, &control, false).unwrap();
    add_all(100);
    disk.after_kill()
}

/// A page at home that is younger than the log, which has lost its end (M5 in `miss.rs`).
fn with_a_page_of_lost_history() -> (SimDisk, Lsn) {
    let later = killed();
    let shared: Arc<dyn Disk> = Arc::new(later.clone());
    let (engine, _) = recover(&shared).unwrap();
    for _ in 0..4 {
        let mut txn = engine.begin().unwrap();
        add(&mut txn, 6, 0, 7000).unwrap();
        txn.commit(Durability::Sync).unwrap();
    }
    engine.cache.write_back_all().unwrap();
    let mut bytes = vec![0; PAGE_BYTES as usize];
    later.open("data", Open::READ).unwrap().read_at(6 * PAGE_BYTES, &mut bytes).unwrap();
    let lsn = engine.cache.shared(PageId(6)).unwrap().page_lsn();
    let disk = killed();
    disk.open("data", Open::EXISTING).unwrap().write_durable_at(6 * PAGE_BYTES, &bytes).unwrap();
    (disk, lsn)
}

#[test]
fn a_page_beyond_the_end_of_the_log_is_refused_at_once() {
    let (disk, _) = with_a_page_of_lost_history();
    let refused = repeat_history(&(Arc::new(disk) as Arc<dyn Disk>)).map(drop);
    assert!(format!("{refused:?}").contains("the log ends before it"), "{refused:?}");
}

#[test]
fn a_page_beyond_the_end_of_the_log_is_refused_when_it_comes_in() {
    let (disk, lsn) = with_a_page_of_lost_history();
    let ((engine, ..), pending) = repeat_later(&(Arc::new(disk) as Arc<dyn Disk>)).unwrap();
    while engine.log.durable_lsn() <= lsn {
        let mut txn = engine.begin().unwrap();
        add(&mut txn, 7, 0, 1).unwrap();
        txn.commit(Durability::Sync).unwrap();
    }
    let value = engine.cache.shared(PageId(6)).map(|page| page.words().u64(HEADER_BYTES));
    (0..pending.worker_count()).for_each(|no| pending.work(no));
    assert!(value.is_err(), "page 6 has {value:?}; failed: {:?}", engine.why_failed());
}

/// The log fails while changes are pending: whoever asks later is to be told of the log.
#[test]
fn why_it_failed_is_not_told_as_something_else() {
    let faulty = FaultDisk::new(Arc::new(killed()));
    let shared: Arc<dyn Disk> = Arc::new(faulty.clone());
    let ((engine, ..), pending) = repeat_later(&shared).unwrap();
    faulty.add(Fault::at(Call::Sync, 1, Harm::Fail(DiskErrorKind::Io(5))).on("log").from_then_on());
    let mut txn = engine.begin().unwrap();
    add(&mut txn, 7, 0, 1).unwrap();
    assert!(txn.commit(Durability::Sync).is_err());
    let before = engine.why_failed();
    (0..pending.worker_count()).for_each(|no| pending.work(no));
    assert_eq!(engine.why_failed(), before);
}

/// A record of a page that there cannot be, under a good checksum.
fn with_an_absurd_page() -> Arc<dyn Disk> {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, _control) = create(&shared).unwrap();
    let body = add_args(0, 1);
    let record = NewRecord {
        kind: RecordKind::Compensation,
        xid: Xid(0),
        prev_lsn: Lsn(0),
        op: ADD,
        flags: 0,
        page: Some((PageId((1 << 48) - 1), Lsn(8))),
        body: &[&body],
    };
    let mut claim = engine.log.claim(256).unwrap();
    let lsn = engine.log.append(&mut claim, &record);
    engine.log.give_back(claim);
    engine.log.flush_to(lsn).unwrap();
    Arc::new(disk.after_kill())
}

#[test]
fn an_absurd_page_in_the_log_is_an_error() {
    let refused = repeat_history(&with_an_absurd_page()).map(drop);
    assert!(format!("{refused:?}").contains("PageOutOfRange"), "{refused:?}");
}

fn killed_by_page() -> SimDisk {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, control) = create(&shared).unwrap();
    checkpoint(&engine, &control, false).unwrap();
    for _ in 0..2 {
        let mut txn = engine.begin().unwrap();
        (1..=16).for_each(|no| add_by(ADD_BY_PAGE, &mut txn, no, 0, 50).unwrap());
        txn.commit(Durability::Sync).unwrap();
    }
    disk.after_kill()
}

/// Code of the program's panics while it repeats a change, in a thread that asks for the page or reads ahead.
#[test]
fn a_change_that_panics_is_shown_to_nobody() {
    for way in 0..3 {
        let shared: Arc<dyn Disk> = Arc::new(killed_by_page());
        let ((engine, ..), pending) = repeat_later(&shared).unwrap();
        *WHEN_UNDONE.lock().unwrap() = Some(Box::new(|| panic!("planned")));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match way {
            0 => drop(engine.cache.shared(PageId(6))),
            1 => drop(engine.cache.read_wanted().run(PageId(6), 4)),
            _ => pending.work(0),
        }));
        assert!(panicked.is_err());
        for no in 1..=16 {
            if let Ok(page) = engine.cache.shared(PageId(no)) {
                assert_eq!(page.words().u64(HEADER_BYTES), 100, "way {way} page {no}");
            }
        }
        assert!(engine.is_failed() && engine.cache.wait_redone().is_err());
        eprintln!("way {way}: {:?}", engine.why_failed());
    }
}
