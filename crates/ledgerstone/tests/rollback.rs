//! What a rollback costs: reads of the device, counted. And that it is the same whatever it costs.

mod common;

use std::sync::Arc;

use common::{assert_sound, key, within};
use ledgerstone::{Durability, Environment, Error, Options, Transaction};
use ledgerstone_disk::SimDisk;

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

/// A table of records that say their own keys.
fn filled(disk: &SimDisk) -> Environment {
    let env = options().open_on(Arc::new(disk.clone())).unwrap();
    let load =
        |txn: &Transaction| txn.bytes_or_create("t")?.load_sorted((0..COUNT).map(|n| (key(n), key(n)))).map(drop);
    env.transact(load).unwrap();
    env.transact(|txn| txn.create_table("u").map(drop)).unwrap();
    env
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
    let txn = env.begin().unwrap();
    let from = env.stat().unwrap().log_tail_lsn;
    change(&txn, 5000).unwrap();
    let bytes = env.stat().unwrap().log_tail_lsn - from;
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
    let txn = env.begin().unwrap();
    let from = env.stat().unwrap().log_tail_lsn;
    change(&txn, 60_000).unwrap();
    let bytes = env.stat().unwrap().log_tail_lsn - from;
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
    let txn = env.begin().unwrap();
    let from = env.stat().unwrap().log_tail_lsn;
    change(&txn, 60_000).unwrap();
    let bytes = env.stat().unwrap().log_tail_lsn - from;
    let other = env.begin().unwrap();
    other.bytes("u").unwrap().put(b"k", b"kept").unwrap();
    other.commit_with(Durability::Sync).unwrap();
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
    // Analysis and the workers of redo read it too, and the pages are read; by single records it would be 100 times the log.
    assert!(read_bytes < 20 * bytes, "{read_bytes} bytes read, {bytes} of log");
    assert_untouched(&env);
}

#[test]
fn a_snapshot_beside_a_large_open_transaction_reads_the_log_in_order() {
    let disk = SimDisk::new();
    let env = filled(&disk);
    let txn = env.begin().unwrap();
    let from = env.stat().unwrap().log_tail_lsn;
    change(&txn, 60_000).unwrap();
    let bytes = env.stat().unwrap().log_tail_lsn - from;
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
