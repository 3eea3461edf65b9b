//! What a rollback costs: reads of the device, counted. And that it is the same whatever it costs.

mod common;

use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use common::number::{NUMBER, Number, OP_ADD, add};
use common::{assert_sound, key, within};
use ledgerstone::extend::{Mode, Part, RECORD_OVERHEAD_BYTES};
use ledgerstone::{Durability, Environment, Error, Options, Transaction};
use ledgerstone_disk::{Call, DiskErrorKind, Fault, FaultDisk, Harm, SimDisk};
use ledgerstone_region::sync::{self, Scheduler};

/// All tables fit the cache; the log's buffer is small.
fn options() -> Options {
    Environment::options()
        .cache_bytes(16 << 20)
        .page_count_max(1 << 14)
        .log_segment_bytes(1 << 20)
        .log_buffer_bytes(1 << 20)
        .lock_count_max(1 << 17)
        .version_store_bytes(64 << 10)
        .checkpoint_log_bytes(1 << 30)
        .durability(Durability::Volatile)
}

const COUNT: u64 = 20_000;

/// A table of records that say their own keys, and an empty one.
fn load(env: &Environment) {
    let load =
        |txn: &Transaction| txn.bytes_or_create("t")?.load_sorted((0..COUNT).map(|n| (key(n), key(n)))).map(drop);
    env.transact(load).unwrap();
    env.transact(|txn| txn.create_table("u").map(drop)).unwrap();
}

fn filled(disk: &SimDisk) -> Environment {
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    load(&env);
    env
}

/// Another transaction's commit, which makes all of the log durable.
fn keep(env: &Environment) {
    let other = env.begin().unwrap();
    other.bytes("u").unwrap().put(b"other", b"kept").unwrap();
    other.commit_with(Durability::Sync).unwrap();
}

/// An open transaction with `count` changes, and the bytes of log that they took.
fn changed(env: &Environment, count: u64) -> (Transaction, u64) {
    let txn = env.begin().unwrap();
    let from = env.stat().unwrap().log_tail_lsn;
    change(&txn, count).unwrap();
    let bytes = env.stat().unwrap().log_tail_lsn - from;
    (txn, bytes)
}

/// Changes `count` records in every way, all over the table.
fn change(txn: &Transaction, count: u64) -> Result<(), Error> {
    let table = txn.bytes("t")?;
    for n in 0..count {
        let at = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % COUNT;
        match n % 4 {
            0 => table.put(&key(at), &key(n + 1))?,
            1 => drop(table.delete(&key(at))?),
            2 => table.put(&key(at), b"of another length")?,
            _ => table.put(&key(at + (1 << 40)), b"new")?,
        }
    }
    Ok(())
}

fn assert_untouched(env: &Environment) {
    let mut next = 0;
    let mut visit = |k: &[u8], v: &[u8]| {
        assert_eq!((k, v), (&key(next)[..], &key(next)[..]));
        next += 1;
        true
    };
    env.transact(|txn| txn.bytes("t")?.range(..)?.for_each_ref(&mut visit)).unwrap();
    assert_eq!(next, COUNT);
    assert_sound(env, "afterwards");
}

#[test]
fn what_fits_half_the_log_buffer_is_rolled_back_without_a_read() {
    let disk = SimDisk::new();
    let env = filled(&disk);
    let (txn, bytes) = changed(&env, 5000);
    assert!((300 << 10..512 << 10).contains(&bytes), "{bytes} bytes of log");
    let before = disk.counters();
    txn.abort().unwrap();
    assert_eq!(disk.counters().reads - before.reads, 0);
    assert_untouched(&env);
}

#[test]
fn a_large_transaction_reads_its_log_once_to_be_rolled_back() {
    let disk = SimDisk::new();
    let env = filled(&disk);
    let (txn, bytes) = changed(&env, 60_000);
    assert!(bytes > 3 << 19, "{bytes} bytes of log");
    let before = disk.counters();
    txn.abort().unwrap();
    let after = disk.counters();
    let (reads, read_bytes) = (after.reads - before.reads, after.read_bytes - before.read_bytes);
    assert!(reads < 30 && read_bytes < 2 * bytes, "{reads} reads, {read_bytes} bytes, of {bytes} bytes of log");
    assert_untouched(&env);
}

#[test]
fn a_restart_reads_the_log_of_a_loser_once_to_undo_it() {
    let disk = SimDisk::new();
    let env = filled(&disk);
    env.checkpoint().unwrap();
    let (txn, bytes) = changed(&env, 60_000);
    keep(&env);
    let after_kill = disk.snapshot();
    drop(txn);
    drop(env);
    let before = after_kill.counters();
    let env = within(60, "opening", {
        let disk = after_kill.clone();
        move || options().open_on(Arc::new(disk)).unwrap()
    });
    let after = after_kill.counters();
    let read_bytes = after.read_bytes - before.read_bytes;
    // Analysis and the workers of redo read it too, and the pages are read; by single records it would be 100 times the
    // log.
    assert!(read_bytes < 20 * bytes, "{read_bytes} bytes read, {bytes} of log");
    assert_untouched(&env);
}

/// A cache that holds a few of the table's pages.
fn small() -> Options {
    // It is the openings that are looked at.
    options().cache_bytes(256 << 10).page_bytes(4096).restart_undo_bytes(u64::MAX)
}

#[test]
fn a_restart_visits_a_page_of_a_table_larger_than_the_cache_a_few_times_only() {
    let disk = SimDisk::new();
    let env = small().open_on(Arc::new(disk.clone())).unwrap();
    load(&env);
    env.checkpoint().unwrap();
    let txn = env.begin().unwrap();
    change(&txn, 60_000).unwrap();
    keep(&env);
    let page_count = env.stat().unwrap().page_count;
    let after_kill = disk.snapshot();
    drop((txn, env));
    let env = small().open_on(Arc::new(after_kill)).unwrap();
    let stat = env.stat().unwrap();
    assert!(page_count > 3 * 64, "{page_count} pages are not more than the cache");
    // One visit by redo and one by undo, and what is in the way: in the order of the log there would be one for each
    // change.
    let read_count = stat.page_read_count;
    assert!(read_count < 8 * page_count, "{read_count} pages read, of {page_count}");
    let write_count = stat.page_write_count;
    assert!(write_count < 8 * page_count, "{write_count} pages written, of {page_count}");
    assert_untouched(&env);
}

/// Options with a structure of a program's own, whose updates have no place: they are undone in the order of the log.
fn with_number(options: Options) -> Options {
    options.structure(Arc::new(Number(Arc::new(|| ()))))
}

fn load_number(env: &Environment) {
    load(env);
    env.transact(|txn| txn.create_structure("number", NUMBER, &[]).map(drop)).unwrap();
}

static FILM: [u8; 1 << 18] = [1; 1 << 18];

#[test]
fn updates_of_other_structures_leave_a_restart_its_windows() {
    let small = || with_number(small());
    let disk = SimDisk::new();
    let env = small().open_on(Arc::new(disk.clone())).unwrap();
    load_number(&env);
    env.transact(|txn| txn.bytes_or_create("films")?.put(b"night", &FILM)).unwrap();
    env.checkpoint().unwrap();
    let txn = env.begin().unwrap();
    let mut film = txn.bytes("films").unwrap().value_writer(b"night").unwrap();
    for n in 0..COUNT {
        let at = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % COUNT;
        match n % 8 {
            0 => drop(add(&txn, 1, &|| ()).unwrap()),
            1 => {
                film.seek(SeekFrom::Start(at * 13)).unwrap();
                film.write_all(b"a part of a value").unwrap();
            }
            _ => txn.bytes("t").unwrap().put(&key(at), &key(n)).unwrap(),
        }
    }
    keep(&env);
    let page_count = env.stat().unwrap().page_count;
    let after_kill = disk.snapshot();
    drop((film, txn, env));
    let env = small().open_on(Arc::new(after_kill)).unwrap();
    let stat = env.stat().unwrap();
    assert!(page_count > 3 * 64, "{page_count} pages are not more than the cache");
    let read_count = stat.page_read_count;
    assert!(read_count < 8 * page_count, "{read_count} pages read, of {page_count}");
    assert_eq!(env.transact(|txn| add(txn, 0, &|| ())).unwrap(), 0);
    let film = env.transact(|txn| txn.bytes("films")?.get(b"night")).unwrap();
    assert!(film.as_deref() == Some(&FILM), "the parts of the large value are taken back");
    assert_untouched(&env);
}

/// The header of an update's record is 40 bytes, and undoing it takes 8 more.
#[test]
fn a_change_too_long_for_a_log_record_is_refused_and_the_longest_can_be_taken_back() {
    let disk = SimDisk::new();
    let env = with_number(options().log_buffer_bytes(8 << 20)).open_on(Arc::new(disk.clone())).unwrap();
    load_number(&env);
    let txn = env.begin().unwrap();
    let before = add(&txn, 3, &|| ()).unwrap();
    let longest = ledgerstone_log::RECORD_BYTES_MAX - 40 - 8;
    let change = |parts: &[usize], is_group: bool| {
        txn.structure("number", NUMBER)?.enter(Mode::X, |txn, at| {
            txn.claim(parts.iter().map(|len| len + RECORD_OVERHEAD_BYTES).sum())?;
            let mut page = at.cache().exclusive(at.root())?;
            let args: Vec<_> = parts.iter().map(|&len| vec![1; len]).collect();
            let parts: Vec<_> = args.iter().map(|args| Part { page: 0, op: OP_ADD, args }).collect();
            match is_group {
                true => txn.group(&mut [&mut page], &parts)?,
                false => txn.update(&mut page, OP_ADD, &args[0])?,
            };
            Ok(())
        })
    };
    let too_long = [
        (vec![longest + 1], false),
        (vec![3 << 20], false),
        (vec![longest], true),
        (vec![2 << 20], true),
        (vec![600 << 10; 2], true),
    ];
    for (parts, is_group) in too_long {
        let refused = change(&parts, is_group);
        assert!(matches!(refused, Err(Error::OperationRefused { op: OP_ADD, .. })), "{parts:?}: {refused:?}");
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("1048576") || text.contains("1048568"), "{text}");
    }
    let mark = txn.savepoint().unwrap();
    change(&[longest], false).unwrap();
    txn.rollback_to(mark).unwrap();
    assert_eq!(add(&txn, 1, &|| ()).unwrap(), before + 1);
    txn.commit_with(Durability::Sync).unwrap();
    env.close().unwrap();
    let env = with_number(options()).open_on(Arc::new(disk)).unwrap();
    assert_eq!(env.transact(|txn| add(txn, 1, &|| ())).unwrap(), before + 2);
    assert_sound(&env, "too long");
}

#[test]
fn losers_that_took_turns_are_undone_in_the_room_that_they_reserved() {
    let open = |disk: &SimDisk| {
        let options = with_number(options()).log_buffer_bytes(128 << 10).log_segment_bytes(64 << 10);
        options.open_on(Arc::new(disk.clone()))
    };
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    load_number(&env);
    let (one, other) = (env.begin().unwrap(), env.begin().unwrap());
    for n in 0..COUNT {
        one.bytes("t").unwrap().put(&key(n), &key(n + 1)).unwrap();
        add(&other, 1, &|| ()).unwrap();
    }
    keep(&env);
    let after_kill = disk.after_kill();
    drop((one, other, env));
    after_kill.no_space_after(after_kill.used_bytes());
    let env = open(&after_kill).unwrap();
    assert_eq!(env.recovery_report().loser_count, 2);
    assert_eq!(env.transact(|txn| add(txn, 0, &|| ())).unwrap(), 0);
    assert_untouched(&env);
}

/// What is left of a process that was killed with an open transaction of 40 MB.
fn killed_with_more_than_memory_sorts() -> SimDisk {
    let disk = SimDisk::new();
    let env = small().open_on(Arc::new(disk.clone())).unwrap();
    load(&env);
    let txn = env.begin().unwrap();
    let table = txn.bytes("t").unwrap();
    for n in 0..3 * COUNT {
        table.put(&key(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % COUNT), &[n as u8; 800]).unwrap();
    }
    keep(&env);
    disk.snapshot()
}

#[test]
fn a_loser_that_memory_cannot_sort_is_undone_through_a_file_and_without_one_where_the_disk_is_full() {
    let after_kill = killed_with_more_than_memory_sorts();

    let reads_of = |fault: Option<Fault>| {
        let disk = after_kill.snapshot();
        let faulty = FaultDisk::new(Arc::new(disk.clone()));
        fault.into_iter().for_each(|fault| faulty.add(fault.on("sort-")));
        let opened = small().open_on(Arc::new(faulty));
        let read_count = opened.map(|env| {
            let stat = env.stat().unwrap();
            assert_untouched(&env);
            stat.page_read_count
        });
        (disk, read_count)
    };
    // With a file there is one visit of a page to undo it all, and with memory alone there is one for each filling of
    // memory.
    let by_file = reads_of(None).1.unwrap();
    let full = Fault::at(Call::Write, 1, Harm::Fail(DiskErrorKind::NoSpace)).from_then_on();
    let by_memory = reads_of(Some(full)).1.unwrap();
    assert!(by_file < by_memory, "{by_file} pages read with a file, {by_memory} without: it has not been used");

    let (disk, refused) = reads_of(Some(Fault::at(Call::Write, 20, Harm::FlipBit(7_777))));
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_untouched(&small().open_on(Arc::new(disk)).unwrap());
}

/// The first restart has room for its temporary file and is killed in the middle of its one window. The second has
/// none, so its windows hold what memory holds. It is killed behind the first of them.
#[test]
fn what_an_earlier_restart_has_undone_is_known_to_the_third_if_the_second_had_smaller_windows() {
    let after_kill = killed_with_more_than_memory_sorts();

    let restart = |disk: &SimDisk, at: u64, fault: Option<Fault>| {
        let life = disk.snapshot();
        let from = life.counters().mutations;
        life.crash_at(from + at);
        let faulty = FaultDisk::new(Arc::new(life.clone()));
        fault.into_iter().for_each(|fault| faulty.add(fault.on("sort-")));
        let opened = small().open_on(Arc::new(faulty));
        (life.counters().mutations - from, opened.is_ok(), life.after_kill())
    };
    let full = || Some(Fault::at(Call::Write, 1, Harm::Fail(DiskErrorKind::NoSpace)).from_then_on());
    let (all, is_open, _) = restart(&after_kill, u64::MAX >> 1, None);
    assert!(is_open);
    for part in [6, 8] {
        let (_, is_open, first) = restart(&after_kill, all * part / 10, None);
        assert!(!is_open, "the first restart came to its end");
        let (all, ..) = restart(&first, u64::MAX >> 1, full());
        let (_, is_open, second) = restart(&first, all * 7 / 10, full());
        assert!(!is_open, "the second restart came to its end");
        assert_untouched(&small().open_on(Arc::new(second)).unwrap());
    }
}

/// All of them together would want more of the log's buffer than there is, if each kept what it has claimed. They are
/// undone by key, so each has to wait for all others before its own next key.
#[test]
fn very_many_losers_are_undone_with_a_small_log_buffer() {
    const LOSERS: u64 = 2000;
    let with_many = || options().log_buffer_bytes(128 << 10).transaction_count_max(2048).thread_count_max(4);
    let disk = SimDisk::new();
    let env = with_many().open_on(Arc::new(disk.clone())).unwrap();
    load(&env);
    let put = |n: u64| {
        let txn = env.begin().unwrap();
        (0..5).for_each(|part| txn.bytes("t").unwrap().put(&key(LOSERS * part + n), b"taken back").unwrap());
        txn
    };
    let open: Vec<_> = (0..LOSERS).map(put).collect();
    keep(&env);
    let after_kill = disk.after_kill();
    drop((open, env));
    let env = within(60, "opening", move || with_many().open_on(Arc::new(after_kill)).unwrap());
    assert_eq!(env.recovery_report().loser_count, LOSERS);
    assert_untouched(&env);
}

#[test]
fn a_restart_repeats_nothing_that_a_checkpoint_has_brought_home() {
    let disk = SimDisk::new();
    let env = filled(&disk);
    env.checkpoint().unwrap();
    let txn = env.begin().unwrap();
    change(&txn, 20_000).unwrap();
    env.checkpoint().unwrap(); // The transaction goes on, and holds the log back.
    txn.bytes("u").unwrap().put(b"k", b"taken back").unwrap();
    keep(&env);
    let after_kill = disk.snapshot();
    drop((txn, env));
    let env = options().open_on(Arc::new(after_kill)).unwrap();
    let found = env.recovery_report();
    assert!(found.record_count > 10_000 && found.undone_count > 10_000, "{found:?}");
    assert!(found.redo_applied_count + found.redo_skipped_count < 100, "{found:?}");
    assert_eq!(env.transact(|txn| txn.bytes("u")?.get(b"k")).unwrap(), None);
    assert_untouched(&env);
}

#[test]
fn a_snapshot_beside_a_large_open_transaction_reads_the_log_in_order() {
    let disk = SimDisk::new();
    let env = filled(&disk);
    let (txn, bytes) = changed(&env, 60_000);
    for is_forward in [true, false] {
        let snapshot = env.snapshot().unwrap();
        let before = disk.counters();
        let range = snapshot.bytes("t").unwrap().range(..).unwrap();
        let keys: Vec<_> = match is_forward {
            true => range.map(|record| record.unwrap()).collect(),
            false => range.rev().map(|record| record.unwrap()).collect(),
        };
        let read_bytes = disk.counters().read_bytes - before.read_bytes;
        let mut expected: Vec<_> = (0..COUNT).map(|n| (key(n), key(n))).collect();
        if !is_forward {
            expected.reverse();
        }
        assert!(keys == expected, "forwards: {is_forward}");
        assert!(read_bytes < 16 * bytes, "{read_bytes} bytes read, {bytes} of log, forwards: {is_forward}");
        // What came after the gathering is taken back too.
        let mut seen = 0;
        for record in snapshot.bytes("t").unwrap().range(..).unwrap() {
            let (k, v) = record.unwrap();
            assert_eq!((&k, &v), (&key(seen), &key(seen)));
            if seen % 500 == 0 {
                txn.bytes("t").unwrap().put(&key(COUNT - 1 - seen / 3), &key(seen + 7)).unwrap();
                txn.bytes("t").unwrap().delete(&key(seen + 3)).unwrap();
            }
            seen += 1;
        }
        assert_eq!(seen, COUNT);
    }
    txn.abort().unwrap();
    assert_untouched(&env);
}

/// Rollbacks of more than the cache holds, on a device that stalls for longer than a frame is waited for.
#[test]
fn rollbacks_outwait_a_device_that_has_stalled() {
    const CLIENTS: u32 = 8;
    let left = Scheduler::run(1, || {
        let disk = SimDisk::new();
        let stalls_until = Arc::new(AtomicU64::new(0));
        let by_hook = Arc::clone(&stalls_until);
        disk.set_hook(Arc::new(move |operation| {
            let left_ns = by_hook.load(SeqCst).saturating_sub(sync::now_ns());
            if operation == "write" && left_ns > 0 {
                sync::sleep_ns(left_ns);
            }
        }));
        let env = common::tiny().open_on(Arc::new(disk.clone())).unwrap();
        let put = |txn: &Transaction, client: u32, value: u8| {
            let t = txn.bytes_or_create(&format!("t{client}"))?;
            (0..40).try_for_each(|n| t.put(key(n), [value; 1500]))
        };
        for client in 0..CLIENTS {
            env.transact(|txn| put(txn, client, 1)).unwrap();
        }
        env.checkpoint().unwrap();
        let changed: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let txn = env.begin().unwrap();
                put(&txn, client, 2).unwrap();
                txn
            })
            .collect();
        stalls_until.store(sync::now_ns() + 12_000_000_000, SeqCst);
        let aborts: Vec<_> = changed.into_iter().map(|txn| sync::spawn("client", move || txn.abort())).collect();
        for abort in aborts {
            abort.join().unwrap_or_else(|panicked| panic!("{panicked}")).unwrap();
        }
        assert!(sync::now_ns() >= stalls_until.load(SeqCst), "nobody waited for the device");
        assert!(!env.is_failed());
        let left = common::read(&env).unwrap();
        assert_sound(&env, "rolled back");
        env.close().unwrap();
        left
    })
    .unwrap_or_else(|stuck| panic!("{stuck}"));
    assert_eq!(left.len(), CLIENTS as usize);
    assert!(left.values().all(|t| t.len() == 40 && t.values().all(|value| *value == [1; 1500])));
}
