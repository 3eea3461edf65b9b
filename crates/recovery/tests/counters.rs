//! Log, cache, transactions and recovery together, without any tree: counters on pages, Lemon's increment (4.4).

mod counting;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use counting::{
    ADD, ADD_SOMEWHERE, ADD_UNLESS_REFUSED, COUNTERS, FORMAT, IS_REFUSED, LOCKED_BY_UNDO, PAGES, SIGN, add, add_args,
    add_by, create, recover, repeat_gathered, repeat_history, repeat_in, values,
};
use ledgerstone_buffer::BufferError;
use ledgerstone_disk::{Call, Disk, Fault, FaultDisk, Harm, Open, SimDisk};
use ledgerstone_lock::Mode;
use ledgerstone_log::ControlFile;
use ledgerstone_page::{OpId, PageId, TableId, Xid};
use ledgerstone_recovery::{Gathered, RecoveryError, checkpoint};
use ledgerstone_region::{Random, Share, sync};
use ledgerstone_txn::{Durability, Engine, Horizon, KeyLock, Part, Txn, TxnError};

/// Runs random transactions, two at a time, until an error; returns what the counters must be: `(surely, perhaps)`.
fn work(engine: &Arc<Engine>, control: &ControlFile, seed: u64, model: &mut Vec<i64>) -> Option<Vec<i64>> {
    let mut random = Random::new(seed);
    let mut open: Vec<(Txn, Vec<(usize, i64)>)> = Vec::new();
    for _ in 0..120 {
        while open.len() < 2 {
            match engine.begin() {
                Ok(txn) => open.push((txn, Vec::new())),
                Err(_) => return None,
            }
        }
        let which = random.below(2) as usize;
        match random.below(12) {
            0 => {
                let (txn, done) = open.swap_remove(which);
                let mut after = model.clone();
                done.iter().for_each(|&(at, delta)| after[at] += delta);
                let durability = if random.below(2) == 0 { Durability::Sync } else { Durability::Volatile };
                if txn.commit(durability).is_err() {
                    return Some(after);
                }
                *model = after;
            }
            1 => {
                if open.swap_remove(which).0.abort().is_err() {
                    return None;
                }
            }
            2 if random.below(4) == 0 => {
                if checkpoint(engine, control, false).is_err() {
                    return None;
                }
            }
            3 => {
                // A nested top action stays whatever becomes of the transaction around it.
                let (page, counter) = (1 + random.below(PAGES), random.below(COUNTERS as u64) as usize);
                let txn = &mut open[which].0;
                let fails = random.below(3) == 0;
                let nested = txn.nested_top(|txn| {
                    add(txn, page, counter, 1000)?;
                    add(txn, page, counter, 1000)?;
                    if fails { Err(TxnError::TooManyTransactions { slots: 0 }) } else { Ok(()) }
                });
                // Kept apart in the model: nested work is invisible to it, so it is taken back at once.
                if nested.is_ok() && add(txn, page, counter, -2000).is_err() {
                    return None;
                }
                if nested.is_ok() {
                    // The undo of the subtraction would bring it back. The transaction must not abort, so this is
                    // counted as its own effect only if it commits. It is simplest to say so in the model.
                    let at = (page as usize - 1) * COUNTERS + counter;
                    open[which].1.push((at, -2000));
                    model[at] += 2000;
                }
            }
            _ => {
                let (page, counter) = (1 + random.below(PAGES), random.below(COUNTERS as u64) as usize);
                let delta = random.below(100) as i64 - 50;
                let (txn, done) = &mut open[which];
                if add(txn, page, counter, delta).is_err() {
                    return None;
                }
                done.push(((page as usize - 1) * COUNTERS + counter, delta));
            }
        }
    }
    None
}

/// Adds 5 and 7 to one counter of page 1 in one group, the 7 by `second_op`.
fn add_twice(txn: &mut Txn, second_op: OpId) {
    txn.claim(1024).unwrap();
    let engine = Arc::clone(txn.engine());
    let mut page = engine.cache.exclusive(PageId(1)).unwrap();
    let (first, second) = (add_args(0, 5), add_args(0, 7));
    let parts = [Part { page: 0, op: ADD, args: &first }, Part { page: 0, op: second_op, args: &second }];
    txn.group(&mut [&mut page], &parts).unwrap();
}

#[test]
fn a_group_may_change_one_page_by_several_parts() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    add_twice(&mut txn, ADD);
    txn.abort().unwrap();
    assert_eq!(values(&engine)[0], 12, "a group stays");
    engine.log.flush().unwrap();
    drop(engine);
    let (engine, _) = recover(&disk).unwrap();
    assert_eq!(values(&engine)[0], 12, "and is redone whole, once");
}

/// A program that cannot redo a part of a group is followed by one that can. The page has all of the group or nothing.
#[test]
fn a_page_that_redo_has_half_changed_does_not_go_home() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    add_twice(&mut txn, ADD_UNLESS_REFUSED);
    txn.commit(Durability::Sync).unwrap();
    drop(engine);
    IS_REFUSED.store(true, SeqCst);
    let mut kept = None;
    let refused = repeat_in(&mut kept, &disk, Gathered::beside(0, 2)).map(drop);
    assert!(matches!(refused, Err(RecoveryError::Redo { page: PageId(1), .. })), "{refused:?}");
    let engine = kept.unwrap();
    assert!(matches!(engine.cache.write_back_all(), Err(BufferError::Failed)));
    drop(engine);
    IS_REFUSED.store(false, SeqCst);
    let (engine, _) = recover(&disk).unwrap();
    assert_eq!(values(&engine)[0], 12);
}

#[test]
fn a_damaged_page_is_passed_over_until_a_record_formats_it() {
    for is_formatted in [true, false] {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let (engine, control) = create(&disk).unwrap();
        let mut txn = engine.begin().unwrap();
        add(&mut txn, 1, 0, 5).unwrap();
        add(&mut txn, 2, 0, 6).unwrap();
        checkpoint(&engine, &control, false).unwrap();
        add(&mut txn, 1, 0, 7).unwrap();
        if is_formatted {
            txn.claim(256).unwrap();
            let mut page = engine.cache.exclusive(PageId(1)).unwrap();
            txn.group(&mut [&mut page], &[Part { page: 0, op: FORMAT, args: &[] }]).unwrap();
            drop(page);
            add(&mut txn, 1, 0, 8).unwrap();
        }
        txn.commit(Durability::Sync).unwrap();
        drop(engine);
        // As a power cut leaves it that tears a write without a copy.
        disk.open("data", Open::EXISTING).unwrap().write_durable_at(4096 + 512, &[1; 512]).unwrap();
        disk.open("double_write", Open::EXISTING).unwrap().write_durable_at(32768 + 4096, &[0; 1 << 20]).unwrap();
        match recover(&disk) {
            Ok((engine, _)) => {
                assert!(is_formatted, "a damaged page was taken for a whole one");
                assert_eq!((values(&engine)[0], values(&engine)[COUNTERS]), (8, 6));
            }
            Err(RecoveryError::Buffer(BufferError::Damaged { page, .. })) => {
                assert!(!is_formatted && page == PageId(1), "{page} is damaged");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn going_back_and_forth_reserves_no_more_log_than_it_writes() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    let savepoint = txn.savepoint();
    let (used, tail) = (sim.used_bytes(), engine.log.tail().0);
    for _ in 0..500 {
        for n in 0..40 {
            add(&mut txn, 1, n % COUNTERS, 1).unwrap();
        }
        txn.rollback_to(savepoint).unwrap();
    }
    assert_eq!(values(&engine)[0], 0);
    let (files, log) = (sim.used_bytes() - used, engine.log.tail().0 - tail);
    assert!(files <= log + 8 * (64 << 10), "{files} bytes of files for {log} bytes of log");
    add(&mut txn, 1, 0, 1).unwrap();
    txn.commit(Durability::Sync).unwrap();
    drop(engine);
    let (engine, _) = recover(&disk).unwrap();
    assert_eq!(values(&engine)[0], 1);
}

#[test]
fn a_nested_top_action_is_not_gone_back_to_from_inside() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    let outer = txn.savepoint();
    txn.nested_top(|txn| {
        assert!(matches!(txn.rollback_to(outer), Err(TxnError::NoSavepoint { .. })));
        let inner = txn.savepoint();
        add(txn, 1, 0, 5)?;
        txn.rollback_to(inner)?;
        add(txn, 1, 0, 7)
    })
    .unwrap();
    txn.rollback_to(outer).unwrap();
    assert_eq!(values(&engine)[0], 7, "what the nested top action did stays");
}

/// A rollback takes no locks. What it asked for all the same is not held when the transaction goes on.
#[test]
fn an_undo_that_asks_for_a_lock_holds_none_afterwards() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    let savepoint = txn.savepoint();
    add_by(ADD_SOMEWHERE, &mut txn, SIGN + 1, 0, 5).unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(txn.table_mode(LOCKED_BY_UNDO), None);
    assert!(!txn.covers(LOCKED_BY_UNDO, Mode::X));
    let mut other = engine.begin().unwrap();
    assert!(other.try_lock_table(LOCKED_BY_UNDO, Mode::X).unwrap());
    assert!(!txn.try_lock_table(LOCKED_BY_UNDO, Mode::IS).unwrap(), "another has it");
}

/// What a transaction has waited for counts as what it has at once: its table, its key, and the commit before it.
#[test]
fn a_lock_that_was_waited_for_is_noted_as_any_other() {
    const TABLE: TableId = TableId(9);
    type Lock = fn(&mut Txn, Mode) -> Result<(), TxnError>;
    let whole: Lock = |txn, mode| txn.lock_table(TABLE, mode);
    let key: Lock = |txn, mode| txn.lock_key(TABLE, KeyLock::Key(1), mode);
    // The intention is there, or comes with the lock.
    for (lock, is_known, count, held) in
        [(whole, false, 1, Mode::S), (key, false, 2, Mode::IS), (key, true, 2, Mode::IS)]
    {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let (engine, _) = create(&disk).unwrap();
        let mut holder = engine.begin().unwrap();
        lock(&mut holder, Mode::X).unwrap();
        add(&mut holder, 1, 0, 1).unwrap();
        let (there, waits) = (Arc::clone(&engine), engine.locks.stats().waits);
        let waiter = sync::spawn("waiter", move || {
            let mut txn = there.begin().unwrap();
            if is_known {
                txn.lock_table(TABLE, Mode::IS).unwrap();
            }
            lock(&mut txn, Mode::S).unwrap();
            (txn.lock_count(), txn.table_mode(TABLE), txn.commit(Durability::Volatile).unwrap().depends)
        });
        while engine.locks.stats().waits == waits {
            sync::sleep_ns(100_000);
        }
        let lsn = holder.commit(Durability::Volatile).unwrap().lsn;
        assert_eq!(waiter.join().unwrap(), (count, Some(held), lsn), "{held}, {is_known}");
    }
}

/// Room for the end of a nested top action is reserved before it begins: whatever fills the log inside, what it did
/// stays done.
#[test]
fn a_nested_top_action_that_finds_the_log_full_ends_all_the_same() {
    for fails in [false, true] {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (engine, _) = create(&disk).unwrap();
        sim.no_space_after(sim.used_bytes());
        let mut txn = engine.begin().unwrap();
        add(&mut txn, 1, 1, 1).unwrap();
        let (mut count, mut claims) = (0, Vec::new());
        let done = txn.nested_top(|txn| {
            while add(txn, 1, 0, 1).is_ok() {
                count += 1;
            }
            txn.release_claim();
            for bytes in [1024, 8] {
                while let Ok(claim) = engine.log.claim(bytes) {
                    claims.push(claim);
                }
            }
            if fails { Err(TxnError::TooManyTransactions { slots: 0 }) } else { Ok(()) }
        });
        match (done, fails) {
            (Ok(()), false) | (Err(TxnError::TooManyTransactions { .. }), true) => {}
            (other, _) => panic!("fails: {fails}: {other:?}"),
        }
        assert!(count > 100, "{count}");
        claims.drain(..).for_each(|claim| engine.log.give_back(claim));
        txn.abort().unwrap();
        let stays = if fails { 0 } else { count };
        assert_eq!(values(&engine)[..2], [stays, 0], "fails: {fails}");
        engine.log.flush().unwrap();
        drop(engine);
        let (engine, _) = recover(&disk).unwrap();
        assert_eq!(values(&engine)[..2], [stays, 0], "fails: {fails}, restarted");
    }
}

/// Counters move to another page in two parts, and power is lost between them. Somebody else's undo, of a record that
/// is newer than the first part, looks for its counter where it was.
#[test]
fn an_open_nested_top_action_is_undone_before_what_walks_through_it() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, _) = create(&disk).unwrap();
    let (mut mover, mut writer) = (engine.begin().unwrap(), engine.begin().unwrap());
    let moved = mover.nested_top(|mover| {
        add(mover, SIGN, 0, 1)?;
        mover.nested_top(|mover| add(mover, 1, 3, 0))?; // One that has ended inside leaves this one open.
        add_by(ADD_SOMEWHERE, &mut writer, SIGN + 1, 0, 5)?; // Who has found the page before.
        engine.log.flush()?;
        sim.crash_now();
        add(mover, SIGN + 2, 0, 5)?;
        add(mover, SIGN + 1, 0, -5)
    });
    assert!(moved.is_ok(), "in memory nothing tells of the crash: {moved:?}");
    drop((mover, writer, engine));
    let disk: Arc<dyn Disk> = Arc::new(sim.after_crash(1));
    let (engine, _) = recover(&disk).unwrap();
    let wrong: Vec<_> = values(&engine).into_iter().enumerate().filter(|(_, value)| *value != 0).collect();
    assert!(wrong.is_empty(), "counters that are not as before, with their values: {wrong:?}");
}

/// A load is gigabytes of groups: they stay, and undo does not read them once more.
#[test]
fn undo_passes_over_many_groups() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    let groups = |txn: &mut Txn, count: usize| {
        for _ in 0..count {
            txn.claim(256).unwrap();
            let mut page = engine.cache.exclusive(PageId(2)).unwrap();
            txn.group(&mut [&mut page], &[Part { page: 0, op: ADD, args: &add_args(0, 1) }]).unwrap();
        }
    };
    let mut expected = values(&engine);
    groups(&mut txn, 300);
    for round in 0..3 {
        add(&mut txn, 1, round, 5).unwrap();
        groups(&mut txn, 10); // Few of them are read as ever.
        add(&mut txn, 1, round, 7).unwrap();
        groups(&mut txn, 300);
        expected[COUNTERS] += 310;
    }
    expected[COUNTERS] += 300;
    engine.log.flush().unwrap();
    drop((txn, engine));
    let (engine, _, found) = repeat_history(&disk).unwrap();
    let losers = ledgerstone_recovery::adopt(&engine, &found.losers).unwrap();
    let visited = ledgerstone_recovery::undo(&engine, losers, &disk, &ledgerstone_log::Watch::default());
    assert_eq!(values(&engine), expected);
    assert_eq!(visited.unwrap(), 3 * (1 + 1 + 10 + 1) + 1, "the last of many groups, and all else");
}

/// N5. Ended nested top actions stay, and what was taken back to a savepoint is done.
#[test]
fn the_analysis_counts_what_a_rollback_has_to_do() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let mut txn = engine.begin().unwrap();
    (0..5).for_each(|counter| add(&mut txn, 1, counter, 1).unwrap());
    let before = txn.last_lsn();
    add(&mut txn, 2, 0, 1).unwrap();
    txn.undo_back_to(before).unwrap();
    txn.nested_top(|txn| add(txn, 3, 0, 1)).unwrap();
    engine.log.flush().unwrap();
    drop((txn, engine));
    let (_, _, found) = repeat_history(&disk).unwrap();
    let to_undo = &found.losers.first().unwrap().1.to_undo;
    assert_eq!((to_undo.update_count, to_undo.undone_count), (6, 1));
    assert!(to_undo.bytes > 7 * to_undo.undo_bytes / 10);
    assert!((5 * 64..6 * 64).contains(&to_undo.undo_bytes) && to_undo.undo_bytes.is_multiple_of(5), "five are left");
    assert_eq!(to_undo.trees(), None, "counters are no trees");
}

/// A checkpoint that is taken before they are at home keeps what another redo of them needs.
#[test]
fn pages_are_dirty_from_the_first_record_on_that_redo_repeats() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, control) = create(&disk).unwrap();
    checkpoint(&engine, &control, false).unwrap();
    let first = engine.log.tail();
    let mut txn = engine.begin().unwrap();
    (1..=3).for_each(|page| add(&mut txn, page, 0, 5).unwrap());
    txn.commit(Durability::Sync).unwrap();
    drop(engine);
    let (engine, ..) = repeat_history(&disk).unwrap();
    assert_eq!(engine.cache.dirty_low(), Some(first));
}

#[test]
fn redo_reads_again_what_the_analysis_had_no_room_for() {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, control) = create(&shared).unwrap();
    work(&engine, &control, 7, &mut vec![0; PAGES as usize * COUNTERS]);
    engine.log.flush().unwrap();
    let mut of_all = None;
    for room in [1 << 20, 4000, 600, 0] {
        for worker_count in [1, 2, 5] {
            let shared: Arc<dyn Disk> = Arc::new(disk.after_kill());
            let ((engine, ..), redone) = repeat_gathered(&shared, Gathered::of(room, worker_count)).unwrap();
            assert!(redone.applied_count > 20, "{redone:?}");
            let found = (values(&engine), redone);
            assert_eq!(&found, of_all.get_or_insert_with(|| found.clone()), "{room} bytes, {worker_count} workers");
        }
    }
}

/// Wherever the room ends, the rest is read under the incarnation in force there.
#[test]
fn redo_reads_the_rest_from_any_record_on() {
    let mut disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    drop(create(&shared).unwrap());
    let mut expected = Vec::new();
    for life in 0..4 {
        disk = disk.after_kill();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (engine, ..) = repeat_history(&shared).unwrap();
        let mut txn = engine.begin().unwrap();
        (0..5).for_each(|n| add(&mut txn, 1 + (n * 7 + life) % PAGES, 0, 1 + life as i64).unwrap());
        txn.commit(Durability::Sync).unwrap();
        expected = values(&engine);
    }
    let all = repeat_gathered(&(Arc::new(disk.after_kill()) as Arc<dyn Disk>), Gathered::of(1 << 20, 1)).unwrap().1;
    for room in (0..6000).step_by(16) {
        let shared: Arc<dyn Disk> = Arc::new(disk.after_kill());
        let ((engine, ..), redone) = repeat_gathered(&shared, Gathered::of(room, 1)).unwrap();
        assert_eq!((values(&engine), redone), (expected.clone(), all), "room for {room} bytes");
    }
}

/// The log has a page whole only if a record formats it. What redo has changed otherwise needs its copy as ever.
#[test]
fn a_page_that_redo_has_changed_goes_home_with_a_copy() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, control) = create(&disk).unwrap();
    checkpoint(&engine, &control, false).unwrap();
    let mut txn = engine.begin().unwrap();
    add(&mut txn, 1, 0, 5).unwrap();
    txn.commit(Durability::Sync).unwrap();
    drop(engine);
    let (engine, ..) = repeat_history(&disk).unwrap();
    engine.cache.write_back_all().unwrap();
    let home = engine.cache.read_page_direct(PageId(1)).unwrap();
    let area = disk.open("double_write", Open::READ).unwrap();
    let mut slots = vec![0; area.len().unwrap() as usize];
    area.read_at(0, &mut slots).unwrap();
    assert!(slots.chunks(4096).any(|slot| *slot == home));
}

/// The analysis has seen the log to its end. A read that goes wrong later must not pass for an earlier end.
#[test]
fn redo_does_not_take_a_read_gone_wrong_for_the_end_of_the_log() {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, control) = create(&shared).unwrap();
    work(&engine, &control, 7, &mut vec![0; PAGES as usize * COUNTERS]);
    engine.log.flush().unwrap();
    let expected = values(&engine);
    let repeat = |room: usize, fault: Fault| {
        let faulty = FaultDisk::new(Arc::new(disk.after_kill()));
        faulty.add(fault.on("log/"));
        let shared: Arc<dyn Disk> = Arc::new(faulty.clone());
        let repeated = repeat_gathered(&shared, Gathered::of(room, 1));
        (repeated.map(|((engine, ..), _)| values(&engine)), faulty.hits())
    };
    let reads = |room| repeat(room, Fault::at(Call::Read, 1, Harm::Lie).from_then_on()).1;
    let (once, twice) = (reads(1 << 20), reads(0));
    assert!(once < twice, "{once} {twice}");
    let mut told = 0;
    for nth in once + 1..=twice {
        for bit in (0..64 << 13).step_by(4099) {
            let fault = Fault::at(Call::Read, nth, Harm::FlipBit(bit));
            let found = repeat(0, fault.clone()).0.unwrap_or_else(|error| panic!("bit {bit} of read {nth}: {error}"));
            assert_eq!(found, expected, "bit {bit} of read {nth}, misread once");
            match repeat(0, fault.from_then_on()).0 {
                Ok(found) => assert_eq!(found, expected, "bit {bit} of read {nth}, misread always"),
                Err(_) => told += 1,
            }
        }
    }
    assert!(told > 10, "{told}, reads {once} {twice}");
}

/// The same for the last record, which no later one vouches for, and for damage that stays.
#[test]
fn redo_does_not_end_before_the_end_that_the_analysis_has_found() {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (engine, control) = create(&shared).unwrap();
    work(&engine, &control, 7, &mut vec![0; PAGES as usize * COUNTERS]);
    engine.log.flush().unwrap();
    let last = engine.log.tail().0 - 8;
    let repeat = |room: usize, nth: u64| {
        let left = disk.after_kill();
        let segment = left.open(&format!("log/{:016x}.seg", last & !0xFFFF), Open::EXISTING).unwrap();
        let faulty = FaultDisk::new(Arc::new(left.clone())).telling(move || {
            let mut byte = [0];
            segment.read_at(last & 0xFFFF, &mut byte).unwrap();
            segment.write_at(last & 0xFFFF, &[!byte[0]]).unwrap();
        });
        faulty.add(Fault::at(Call::Read, nth, Harm::Lie).on("log/").from_then_on());
        let shared: Arc<dyn Disk> = Arc::new(faulty.clone());
        (repeat_gathered(&shared, Gathered::of(room, 1)).map(drop), faulty.hits())
    };
    // All was gathered, and read before anything is damaged.
    let once = (1..).find(|nth| repeat(1 << 20, *nth).1 == 0).unwrap();
    assert!(matches!(repeat(0, once), (Err(_), 1..)), "redo ended early without a word");
}

#[test]
fn aborts_and_commits_interleave_on_the_same_counters() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, control) = create(&disk).unwrap();
    let mut model = vec![0; PAGES as usize * COUNTERS];
    for seed in 0..20 {
        work(&engine, &control, seed, &mut model);
        let wrong: Vec<_> = values(&engine).into_iter().zip(&model).enumerate().filter(|(_, (a, b))| a != *b).collect();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
    engine.log.flush().unwrap(); // The last of them were volatile.
    drop(engine);
    let (engine, _) = recover(&disk).unwrap();
    assert_eq!(values(&engine), model);
}

#[test]
fn durable_commits_survive_a_crash_at_any_write() {
    let base = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(base.snapshot());
    drop(create(&shared).unwrap());
    let mut crashed = 0;
    for seed in 0..300u64 {
        let sim = Arc::new(SimDisk::new());
        let disk: Arc<dyn Disk> = Arc::clone(&sim) as _;
        let (engine, control) = create(&disk).unwrap();
        let mut model = vec![0; PAGES as usize * COUNTERS];
        sim.crash_at(sim.counters().mutations + seed % 60);
        // Only what is volatile may be lost, so here every commit is followed by a durable one when it matters.
        let perhaps = work_all_sync(&engine, &control, seed, &mut model);
        crashed += u64::from(sim.is_crashed());
        sim.crash_now();
        drop(engine);
        let mut sim = sim.after_crash(seed);
        // Recovery itself is cut short, twice.
        for again in 0..2 {
            let crashing = Arc::new(sim.snapshot());
            crashing.crash_at(seed % 13 + again);
            let disk: Arc<dyn Disk> = Arc::clone(&crashing) as _;
            drop(recover(&disk));
            crashing.crash_now();
            sim = crashing.after_crash(seed + again);
        }
        let disk: Arc<dyn Disk> = Arc::new(sim);
        let (engine, _) = recover(&disk).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let found = values(&engine);
        assert!(found == model || perhaps.as_ref() == Some(&found), "seed {seed}");
    }
    assert!(crashed > 200, "only {crashed} rounds crashed");
}

fn work_all_sync(engine: &Arc<Engine>, control: &ControlFile, seed: u64, model: &mut Vec<i64>) -> Option<Vec<i64>> {
    let mut random = Random::new(seed);
    for round in 0..40 {
        let Ok(mut txn) = engine.begin() else { return None };
        let mut after = model.clone();
        for _ in 0..1 + random.below(8) {
            let (page, counter) = (1 + random.below(PAGES), random.below(COUNTERS as u64) as usize);
            if add(&mut txn, page, counter, 1).is_err() {
                return None;
            }
            after[(page as usize - 1) * COUNTERS + counter] += 1;
        }
        if random.below(4) == 0 {
            if txn.abort().is_err() {
                return None;
            }
            continue;
        }
        if txn.commit(Durability::Sync).is_err() {
            return Some(after);
        }
        *model = after;
        if round % 10 == 9 && checkpoint(engine, control, false).is_err() {
            return None;
        }
    }
    None
}

/// C5 in `log/append.rs`: what is kept spares the next call its claim. It is used by nobody who has not asked.
#[test]
fn a_rest_of_a_claim_is_kept_for_the_next_call_that_asks() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let (kept, claimed) = (engine.log.kept_claim_bytes(), || engine.log.stat().claimed_bytes);
    for ends_well in [true, false] {
        let mut txn = engine.begin().unwrap();
        add(&mut txn, 1, 1, 1).unwrap();
        txn.keep_claim();
        let (rest, tail) = (claimed(), engine.log.tail().0);
        assert!((256..kept).contains(&rest), "{rest} of {kept}");
        let mut page = engine.cache.exclusive(PageId(1)).unwrap();
        let unasked = txn.update(&mut page, ADD, &add_args(0, 1));
        assert!(matches!(unasked, Err(TxnError::ClaimTooSmall { left: 0, .. })), "{unasked:?}");
        drop(page);
        add(&mut txn, 1, 1, 1).unwrap();
        txn.keep_claim();
        assert_eq!(claimed(), rest - (engine.log.tail().0 - tail), "the second call has claimed nothing");
        txn.claim(3 * kept as usize).unwrap();
        txn.keep_claim();
        assert_eq!(claimed(), 0, "more than may be kept goes back");
        txn.claim(8).unwrap();
        assert_eq!(claimed(), kept);
        txn.release_claim();
        assert_eq!(claimed(), 0);
        add(&mut txn, 1, 1, 1).unwrap();
        txn.keep_claim();
        assert_ne!(claimed(), 0);
        if ends_well { txn.commit(Durability::Volatile).map(drop) } else { txn.abort() }.unwrap();
        assert_eq!(claimed(), 0, "the end gives all back");
    }
    assert_eq!(values(&engine)[1], 3);
}

/// C6 in `log/append.rs`: a thread that commits one small transaction after the other keeps room for the next. It goes
/// back with the memory of the last one, and when that is prepared, and when it was a large one.
#[test]
fn who_keeps_more_keeps_it_for_the_next_transaction_and_no_longer() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, _) = create(&disk).unwrap();
    let share = Share::new(Arc::clone(&engine));
    let thread = engine.thread().unwrap();
    let claimed = || engine.log.stat().claimed_bytes;
    let add_and_commit = |txn: &mut Txn| {
        add(txn, 1, 0, 1).unwrap();
        txn.keep_claim();
        txn.commit_in_place(Durability::Volatile).unwrap();
    };
    // How many may keep more now.
    let leave = || {
        let count: u32 = (0..1000).map(|_| u32::from(engine.log.may_keep_more())).sum();
        (0..count).for_each(|_| engine.log.end_keeping_more());
        count
    };
    let all = leave();
    for last in ["commit", "rollback", "prepare", "much", "no space"] {
        assert_eq!(leave(), all, "before {last}: nobody keeps more");
        let mut txn = Engine::begin_aged(&share, Xid::NONE).unwrap();
        add_and_commit(&mut txn);
        assert_eq!(claimed(), 0, "the first in this memory keeps nothing");
        Engine::begin_again(&mut txn, thread, Xid::NONE).unwrap();
        add_and_commit(&mut txn);
        let (kept, tail) = (claimed(), engine.log.tail().0);
        assert!((1..=engine.log.long_kept_bytes()).contains(&kept), "{last}: {kept}");
        Engine::begin_again(&mut txn, thread, Xid::NONE).unwrap();
        add_and_commit(&mut txn);
        assert_eq!(claimed(), kept - (engine.log.tail().0 - tail), "{last}: the next has claimed nothing");

        Engine::begin_again(&mut txn, thread, Xid::NONE).unwrap();
        match last {
            "commit" => add_and_commit(&mut txn),
            "rollback" => {
                add(&mut txn, 1, 0, 1).unwrap();
                txn.abort().unwrap();
                assert_eq!(claimed(), 0);
                continue;
            }
            "prepare" => {
                add(&mut txn, 1, 0, 1).unwrap();
                txn.prepare(b"transfer").unwrap();
                assert_eq!(claimed(), 0, "one in doubt may be so for ever");
                txn.commit_prepared().unwrap();
                assert_eq!(claimed(), 0);
                continue;
            }
            "much" => {
                for _ in 0..100 {
                    add(&mut txn, 1, 0, 1).unwrap();
                }
                txn.commit_in_place(Durability::Volatile).unwrap();
                assert_eq!(claimed(), 0, "what it kept for a long rollback goes back");
            }
            _ => {
                // The last bytes of the log: what is asked for beyond need is not missed.
                sim.no_space_after(sim.used_bytes());
                let mut count = 0;
                while add(&mut txn, 1, 0, 1).is_ok() {
                    txn.commit_in_place(Durability::Volatile).unwrap();
                    Engine::begin_again(&mut txn, thread, Xid::NONE).unwrap();
                    count += 1;
                }
                assert!(count > 10, "{count}");
                // Some of it was kept, so it was refused only when there was less than it needed.
                assert!(engine.log.claim(512).is_err(), "it was refused room that was there");
                sim.space_for_all();
                txn.abort().unwrap();
                continue;
            }
        }
        drop(txn);
        assert_eq!(claimed(), 0, "{last}: nothing stays without its memory");
    }
    assert!(all > 0 && leave() == all, "{all}: others may keep more again");
}

/// However transactions end, and whatever they were refused, nothing of the log's room stays with them.
#[test]
fn no_room_of_the_log_stays_with_transactions_that_have_ended() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let (engine, control) = create(&disk).unwrap();
    let mut random = Random::new(7);
    let (share, thread) = (Share::new(Arc::clone(&engine)), engine.thread().unwrap());
    // The memory of transactions that have committed, for the next.
    let mut spare: Vec<Txn> = Vec::new();
    let (mut refused_count, mut again_count) = (0, 0);
    for round in 0..3_000 {
        match round % 100 {
            50 => sim.no_space_after(sim.used_bytes()),
            99 => {
                sim.space_for_all();
                checkpoint(&engine, &control, false).unwrap();
            }
            _ => {}
        }
        let mut begin = || match spare.pop() {
            Some(mut txn) => {
                Engine::begin_again(&mut txn, thread, Xid::NONE).unwrap();
                again_count += 1;
                txn
            }
            None => Engine::begin_aged(&share, Xid::NONE).unwrap(),
        };
        let mut open: Vec<Txn> = (0..3).map(|_| begin()).collect();
        for step in 0..random.below(40) {
            let txn = &mut open[random.below(3) as usize];
            let (page, delta) = (1 + random.below(PAGES), random.below(9) as i64);
            let give_up = || Err(TxnError::TooManyTransactions { slots: 0 });
            let done = match random.below(8) {
                0 => txn.nested_top(|txn| add(txn, page, 0, delta)),
                1 => txn.nested_top(|txn| add(txn, page, 0, delta).and_then(|()| give_up())),
                2 => txn.in_one_step(|txn| add(txn, page, 1, delta).and_then(|()| give_up())),
                3 => txn.claim(random.below(6_000) as usize),
                4 => {
                    let panics = |txn: &mut Txn| -> Result<(), TxnError> {
                        add(txn, page, 2, delta)?;
                        std::panic::resume_unwind(Box::new(()));
                    };
                    let caught = std::panic::AssertUnwindSafe(|| txn.in_one_step(panics));
                    std::panic::catch_unwind(caught).unwrap_or(Ok(()))
                }
                _ => add(txn, page, 3, delta),
            };
            refused_count += u32::from(matches!(done, Err(TxnError::Log(_))));
            if step % 2 == 0 {
                txn.keep_claim();
            }
        }
        for (no, mut txn) in open.into_iter().enumerate() {
            match random.below(5) {
                0 => drop(txn.commit(Durability::Volatile)),
                1 | 3 if round % 2 == 0 => {
                    if txn.commit_in_place(Durability::Volatile).is_ok() {
                        spare.push(txn);
                    }
                }
                1 => txn.abort().unwrap(),
                2 => drop(txn),
                kind => {
                    let id = format!("{round} {no}");
                    if txn.prepare(id.as_bytes()).is_ok() {
                        if kind == 3 { txn.commit_prepared().map(drop) } else { txn.abort_prepared() }.unwrap();
                    }
                }
            }
        }
        let kept_max = spare.len() as u64 * engine.log.long_kept_bytes();
        assert!(engine.log.stat().claimed_bytes <= kept_max, "round {round}");
        if round % 10 == 9 {
            spare.clear();
            assert_eq!(engine.log.stat().claimed_bytes, 0, "round {round}");
        }
        assert!(!engine.is_failed(), "round {round}");
    }
    assert!(refused_count > 100 && again_count > 100, "{refused_count}, {again_count}");
    // What stayed reserved would be released of nothing, or refuse this on a full disk.
    checkpoint(&engine, &control, false).unwrap();
    let files = |used: u64| (sim.used_bytes() - used) / (64 << 10);
    let (used, tail) = (sim.used_bytes(), engine.log.tail().0);
    let mut txn = engine.begin().unwrap();
    while engine.log.tail().0 - tail < 256 << 10 {
        add(&mut txn, 1, 0, 1).unwrap();
    }
    txn.abort().unwrap();
    assert!(files(used) < 20, "{} segments for half a megabyte", files(used));
}

/// A snapshot is closed when its transaction takes another, and however the transaction goes.
#[test]
fn no_snapshot_stays_open_when_its_transaction_has_gone() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let thread = engine.thread().unwrap();
    let open_count = || engine.versions.open_snapshots().len();
    for last in ["commit", "rollback", "drop", "prepare", "failed"] {
        let mut txn = engine.begin().unwrap();
        txn.set_snapshot(thread).unwrap();
        txn.set_snapshot(thread).unwrap();
        assert_eq!(open_count(), 1, "{last}: the first is closed");
        add(&mut txn, 1, 0, 1).unwrap();
        match last {
            "commit" => drop(txn.commit(Durability::Volatile).unwrap()),
            "rollback" => txn.abort().unwrap(),
            "drop" => drop(txn),
            "prepare" => {
                txn.prepare(b"transfer").unwrap();
                assert_eq!(open_count(), 0, "one in doubt may be so for ever");
                txn.commit_prepared().unwrap();
            }
            _ => {
                engine.fail("by the test");
                drop(txn);
            }
        }
        assert_eq!(open_count(), 0, "{last}");
    }
}

/// V6: `settled` goes by the snapshots that have a horizon, and by none that has not.
#[test]
fn snapshots_without_a_horizon_hold_back_no_pages() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let (engine, _) = create(&disk).unwrap();
    let thread = engine.thread().unwrap();
    let add_and_commit = || {
        let mut txn = engine.begin().unwrap();
        add(&mut txn, 1, 0, 1).unwrap();
        txn.commit(Durability::Volatile).unwrap();
        engine.log.tail()
    };
    let mut old = engine.begin().unwrap();
    let view = old.open_view(Horizon::None).unwrap();
    let tail = add_and_commit();
    let mut new = engine.begin().unwrap();
    new.set_snapshot(thread).unwrap();
    assert_eq!(engine.versions.settled(), tail, "the view without a horizon is older");
    drop(view);
    old.set_snapshot(thread).unwrap();
    drop(new);
    let later = add_and_commit();
    let mut new = engine.begin().unwrap();
    new.set_snapshot(thread).unwrap();
    assert_eq!(engine.versions.settled(), tail, "one with a horizon is older");
    drop(old);
    new.set_snapshot(thread).unwrap();
    new.set_snapshot(thread).unwrap();
    assert_eq!(engine.versions.settled(), later);
}
