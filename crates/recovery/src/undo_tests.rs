//! Undo out of order, over several restarts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::Watch;
use ledgerstone_page::PageId;
use ledgerstone_region::NumberSet;
use ledgerstone_txn::RECORD_OVERHEAD_BYTES;

use crate::undo::{Undo, adopt};
use crate::undo_window::Window;

#[path = "../tests/counting/mod.rs"]
mod counting;

use counting::{ADD_BY_PAGE, WHEN_UNDONE, add_args, add_by, create, recover, repeat_history, values};

/// A3 in `txn/src/later.rs`. A rollback that goes on beside others for long gives back the room that its records have
/// taken, one by one.
#[test]
fn a_loser_that_is_rolled_back_later_gives_back_what_its_records_take() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    let mut lsns = Vec::new();
    for page in 1..=4 {
        add_by(ADD_BY_PAGE, &mut txn, page, 0, 5).unwrap();
        lsns.push(txn.last_lsn());
    }
    engine.log.flush().unwrap();
    sim.crash_now();
    drop((txn, engine));

    let disk: Arc<dyn Disk> = Arc::new(sim.after_crash(1));
    let (engine, _, found) = repeat_history(&disk).unwrap();
    let (xid, loser) = found.losers.first().unwrap();
    let mut txn = engine.adopt(xid, loser.first, loser.last).unwrap();
    txn.begin_undo();
    assert!(txn.keep_for_later(&[], &NumberSet::default(), loser.to_undo.undo_bytes));
    let mut reserved = txn.reserved_for_undo();
    assert!(reserved > loser.to_undo.undo_bytes);
    for page in (1..=4).rev() {
        txn.undo_in_place(lsns[page - 1], (ADD_BY_PAGE, PageId(page as u64)), &add_args(0, 5), None).unwrap();
        let left = txn.reserved_for_undo();
        assert!(left < reserved, "{left} bytes are reserved after page {page}, {reserved} were before");
        reserved = left;
    }
    assert!(reserved <= 4 * RECORD_OVERHEAD_BYTES as u64, "{reserved} bytes are left of it");
    txn.leave();
}

/// U3. A restart with much room undoes the two oldest changes and crashes; one with room for a single change undoes the
/// newest one and crashes. What that says of how far all is undone must not hide from the next one what the first has
/// undone.
#[test]
fn what_was_undone_out_of_order_is_remembered_over_a_restart_with_less_room() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    let mut lsns = Vec::new();
    for page in 1..=4 {
        add_by(ADD_BY_PAGE, &mut txn, page, 0, 5).unwrap();
        lsns.push(txn.last_lsn());
    }
    engine.log.flush().unwrap();
    sim.crash_now();
    drop((txn, engine));

    let sim = sim.after_crash(1);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, _, found) = repeat_history(&disk).unwrap();
    let (xid, loser) = found.losers.first().unwrap();
    let mut txn = engine.adopt(xid, loser.first, loser.last).unwrap();
    txn.begin_undo();
    for page in 1..=2 {
        txn.undo_in_place(lsns[page - 1], (ADD_BY_PAGE, PageId(page as u64)), &add_args(0, 5), None).unwrap();
    }
    engine.log.flush().unwrap();
    sim.crash_now();
    drop((txn, engine));

    let sim = sim.after_crash(2);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, _, found) = repeat_history(&disk).unwrap();
    let (log, crashing) = (Arc::clone(&engine.log), sim.clone());
    *WHEN_UNDONE.lock().unwrap() = Some(Box::new(move || {
        log.flush().unwrap();
        crashing.crash_now();
    }));
    // In memory it may go on, or not.
    let (losers, window) = (adopt(&engine, &found.losers).unwrap(), Window::for_log(&disk, 1 << 20).full_after(1));
    let _ = Undo::of(&engine, losers, window, &Watch::default(), &AtomicU64::new(0)).run();
    assert!(WHEN_UNDONE.lock().unwrap().is_none() && sim.is_crashed());
    drop(engine);

    let disk: Arc<dyn Disk> = Arc::new(sim.after_crash(3));
    let (engine, _) = recover(&disk).unwrap();
    let wrong: Vec<_> = values(&engine).into_iter().enumerate().filter(|(_, value)| *value != 0).collect();
    assert!(wrong.is_empty(), "counters that are not as before, with their values: {wrong:?}");
}
