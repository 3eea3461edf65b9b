//! Large values in parts: read, written, cut off, rolled back, seen by snapshots, and kept over crashes.

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use ledgerstone::{Environment, Error, Isolation, Options, TableDef, TransactionOptions};
use ledgerstone_disk::SimDisk;
use proptest::prelude::*;

fn small() -> Options {
    Environment::options().cache_bytes(64 * 4300).page_count_max(1 << 18).log_segment_bytes(1 << 20)
}

fn assert_sound(env: &Environment) -> Result<(), Error> {
    let report = env.verify()?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(())
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(seed | 1) >> 3) as u8 ^ seed as u8).collect()
}

fn snapshot() -> TransactionOptions {
    TransactionOptions { isolation: Some(Isolation::Snapshot), ..TransactionOptions::default() }
}

#[test]
fn a_value_larger_than_the_cache_is_written_and_read_in_parts() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let part = pattern(5, 300_000);
    env.transact(|txn| {
        let mut writer = txn.bytes_or_create("t")?.value_writer(b"film")?;
        for _ in 0..20 {
            writer.write_all(&part).unwrap();
        }
        assert_eq!(writer.len()?, 6_000_000);
        Ok::<_, Error>(())
    })?;
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    assert_eq!(table.value_len(b"film")?, Some(6_000_000));
    assert!(table.value_reader(b"none")?.is_none());
    let mut reader = table.value_reader(b"film")?.unwrap();
    let mut found = vec![0; 300_000];
    for _ in 0..20 {
        reader.read_exact(&mut found).unwrap();
        assert!(found == part);
    }
    assert_eq!(reader.read(&mut found).unwrap(), 0);
    reader.seek(SeekFrom::Start(6_000_001)).unwrap();
    assert_eq!(reader.read(&mut found).unwrap(), 0);
    reader.seek(SeekFrom::End(-5)).unwrap();
    assert_eq!(reader.read(&mut found).unwrap(), 5);
    assert_eq!(found[..5], part[299_995..]);
    assert!(table.get(b"film")?.unwrap().chunks(300_000).all(|chunk| chunk == part));
    txn.commit()?;
    assert_sound(&env)
}

#[test]
fn a_change_in_the_middle_logs_what_changes_and_is_rolled_back() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let old = pattern(7, 200_000);
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &old))?;
    let before = env.stat()?.log_append_bytes;
    let txn = env.begin()?;
    let mut writer = txn.bytes("t")?.value_writer(b"k")?;
    writer.seek(SeekFrom::Start(99_990)).unwrap();
    writer.write_all(b"twenty bytes or so..").unwrap();
    let logged = env.stat()?.log_append_bytes - before;
    assert!(logged < 500, "{logged} bytes of log for a change of 20");
    writer.seek(SeekFrom::End(0)).unwrap();
    writer.write_all(&pattern(9, 50_000)).unwrap();
    writer.set_len(120_000)?;
    writer.set_len(130_000)?;
    let value = txn.bytes("t")?.get(b"k")?.unwrap();
    assert!(value[..99_990] == old[..99_990] && &value[99_990..100_010] == b"twenty bytes or so..");
    assert!(value[100_010..120_000] == old[100_010..120_000] && value[120_000..] == [0; 10_000]);
    txn.abort()?;
    assert!(env.transact(|txn| txn.bytes("t")?.get(b"k"))?.as_ref() == Some(&old));
    assert_sound(&env)?;
    // What the rollback left behind the end is written over by the next one.
    env.transact(|txn| {
        let mut writer = txn.bytes("t")?.value_writer(b"k")?;
        writer.seek(SeekFrom::Start(210_000)).unwrap();
        writer.write_all(b"end").unwrap();
        Ok::<_, Error>(())
    })?;
    let value = env.transact(|txn| txn.bytes("t")?.get(b"k"))?.unwrap();
    assert!(value == [&old[..], &[0; 10_000], b"end"].concat());
    env.compact()?;
    assert!(env.transact(|txn| txn.bytes("t")?.get(b"k"))?.as_ref() == Some(&value));
    assert_sound(&env)
}

#[test]
fn a_snapshot_sees_a_value_as_it_was_while_parts_change() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let old = pattern(3, 60_000);
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &old))?;
    let reader = env.begin_with(snapshot())?;
    let other = env.begin_with(snapshot())?;
    assert!(other.bytes("t")?.get(b"k")?.is_some());
    let table = reader.bytes("t")?;
    assert_eq!(table.value_len(b"k")?, Some(60_000));
    let mut new = old.clone();
    for at in [10, 4_000, 30_000, 59_990] {
        env.transact(|txn| {
            let mut writer = txn.bytes("t")?.value_writer(b"k")?;
            writer.seek(SeekFrom::Start(at)).unwrap();
            writer.write_all(b"changed bytes").unwrap();
            Ok::<_, Error>(())
        })?;
        new.resize(new.len().max(at as usize + 13), 0);
        new[at as usize..at as usize + 13].copy_from_slice(b"changed bytes");
        assert!(table.get(b"k")?.as_ref() == Some(&old));
    }
    let mut whole = Vec::new();
    table.value_reader(b"k")?.unwrap().read_to_end(&mut whole).unwrap();
    assert!(whole == old);
    assert!(table.range(..)?.next().unwrap()?.1 == old);
    assert!(env.transact(|txn| txn.bytes("t")?.get(b"k"))?.as_ref() == Some(&new));
    // Of two writers with snapshots the first to commit wins.
    let conflict = other.bytes("t")?.value_writer(b"k").map(drop);
    assert!(matches!(conflict, Err(Error::SnapshotConflict { .. })), "{conflict:?}");
    Ok(())
}

#[test]
fn parts_are_whole_or_absent_after_a_crash() {
    let disk = SimDisk::new();
    let env = small().open_on(Arc::new(disk.clone())).unwrap();
    let mut value = pattern(11, 90_000);
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &value)).unwrap();
    for n in 0..6u64 {
        let txn = env.begin().unwrap();
        let mut writer = txn.bytes("t").unwrap().value_writer(b"k").unwrap();
        let part = pattern(n + 20, 9_000);
        let at = (n as usize * 17_000) % 85_000;
        writer.seek(SeekFrom::Start(at as u64)).unwrap();
        writer.write_all(&part).unwrap();
        if n % 2 == 0 {
            txn.commit().unwrap();
            value.resize(value.len().max(at + 9_000), 0);
            value[at..at + 9_000].copy_from_slice(&part);
        } else {
            txn.abort().unwrap();
        }
    }
    let txn = env.begin().unwrap();
    let mut writer = txn.bytes("t").unwrap().value_writer(b"k").unwrap();
    writer.seek(SeekFrom::Start(1_000)).unwrap();
    writer.write_all(&pattern(99, 200_000)).unwrap();
    env.checkpoint().unwrap();
    disk.crash_now();
    drop((writer, txn, env));
    for seed in 0..4 {
        let env = small().open_on(Arc::new(disk.after_crash(seed))).unwrap();
        assert!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().as_ref() == Some(&value));
        assert_sound(&env).unwrap();
    }
}

#[test]
fn a_value_may_have_a_gigabyte_and_no_more() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let txn = env.begin()?;
    let mut writer = txn.bytes_or_create("t")?.value_writer(b"k")?;
    writer.seek(SeekFrom::Start(1 << 30)).unwrap();
    let refused = writer.write(b"x").unwrap_err();
    assert!(refused.to_string().contains("at most 1073741824 bytes"), "{refused}");
    Ok(())
}

/// Bytes of pages that each of many values of this length takes, its share of the tree included.
fn page_bytes_of(page_bytes: u32, key_bytes: usize, len: usize) -> Result<u64, Error> {
    const COUNT: u64 = 120;
    let options = small().page_bytes(page_bytes).cache_bytes(16 << 20).log_buffer_bytes(1 << 20);
    let env = options.open_on(Arc::new(SimDisk::new()))?;
    env.transact(|txn| txn.create_table("t").map(drop))?;
    let before = env.stat()?.allocated_page_count;
    let key = |n: u64| {
        let mut key = n.to_be_bytes().to_vec();
        key.resize(key_bytes, b'k');
        key
    };
    env.transact(|txn| {
        let table = txn.bytes("t")?;
        for n in 0..COUNT {
            table.put(key(n), &pattern(n, len))?;
        }
        Ok::<_, Error>(())
    })?;
    let bytes = (env.stat()?.allocated_page_count - before) * u64::from(page_bytes) / COUNT;
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    for n in 0..COUNT {
        assert!(table.get(key(n))?.unwrap() == pattern(n, len), "value {n} of {len} bytes");
    }
    txn.commit()?;
    env.transact(|txn| txn.bytes("t")?.delete_range(..).map(drop))?;
    env.reclaim()?;
    assert_sound(&env)?;
    let left = env.stat()?.allocated_page_count - before;
    assert!(left <= 4, "{left} pages are left of values of {len} bytes");
    Ok(bytes)
}

/// The figures of docs/limits.md. A value that is one byte too long for its leaf has a page of its own: twice to four
/// times its length (docs/tried.md).
#[test]
fn a_value_takes_little_more_room_than_it_has_bytes() -> Result<(), Error> {
    // Page, key, value; bytes of pages at most.
    let rows = [
        (4096, 8, 800, 1_200),
        (4096, 8, 897, 1_500),
        (4096, 8, 1_000, 1_500),
        (4096, 8, 1_900, 2_200),
        (4096, 8, 2_000, 4_400),
        (4096, 8, 3_000, 4_400),
        (4096, 8, 4_000, 4_400),
        (4096, 8, 5_000, 8_500),
        (4096, 8, 8_000, 8_500),
        (4096, 8, 32_000, 33_200),
        (4096, 8, 100_000, 107_000),
        (4096, 512, 800, 2_200),
        (4096, 512, 1_430, 2_200),
        (4096, 512, 1_431, 5_200),
        (4096, 512, 4_000, 5_200),
        (32 << 10, 16, 2_000, 2_600),
        (32 << 10, 16, 8_191, 11_500),
        (32 << 10, 16, 8_192, 33_500),
        (32 << 10, 16, 32_000, 33_500),
        (32 << 10, 16, 33_000, 68_000),
        (32 << 10, 4096, 8_191, 17_500),
        (32 << 10, 4096, 8_192, 41_000),
    ];
    let mut wrong = Vec::new();
    for (page_bytes, key_bytes, len, max) in rows {
        let found = page_bytes_of(page_bytes, key_bytes, len)?;
        println!("page {page_bytes:5}, key {key_bytes:4}, value {len:6}: {found:6} bytes of pages");
        if found > max {
            wrong.push((page_bytes, key_bytes, len, found, max));
        }
    }
    assert!(wrong.is_empty(), "(page, key, value, bytes of pages, at most) {wrong:?}");
    Ok(())
}

#[test]
fn a_large_value_is_read_by_runs_of_pages() -> Result<(), Error> {
    const LEN: usize = 8 << 20;
    let disk = SimDisk::new();
    let options = || small().cache_bytes(2 << 20);
    let env = options().open_on(Arc::new(disk.clone()))?;
    let value = pattern(3, LEN);
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &value))?;
    env.close()?;
    let env = options().open_on(Arc::new(disk.clone()))?;
    let reads = |what: &str, most: u64, read: &dyn Fn() -> Result<bool, Error>| {
        let before = disk.counters().reads;
        assert!(read()?, "{what}: other bytes");
        let found = disk.counters().reads - before;
        println!("{what}: {found} reads");
        assert!(found <= most, "{what}: {found} reads of {} pages", LEN / 4048);
        Ok::<_, Error>(())
    };
    reads("whole", 120, &|| env.transact(|txn| Ok(txn.bytes("t")?.get(b"k")? == Some(value.clone()))))?;
    reads("in parts of 64 KiB", 300, &|| {
        let txn = env.begin()?;
        let mut reader = txn.bytes("t")?.value_reader(b"k")?.unwrap();
        let mut part = vec![0; 64 << 10];
        let is_same = value.chunks(64 << 10).all(|chunk| {
            reader.read_exact(&mut part[..chunk.len()]).unwrap();
            part[..chunk.len()] == *chunk
        });
        txn.commit()?;
        Ok(is_same)
    })
}

#[test]
fn a_snapshot_reads_a_value_that_was_overwritten_since_in_so_many_steps_as_it_has_parts() -> Result<(), Error> {
    const PARTS: usize = 1_000;
    const PART: usize = 2_000;
    let disk = SimDisk::new();
    // The writer changes more than the version store has room for, and the log's buffer keeps little of it.
    let options = small().cache_bytes(16 << 20).version_store_bytes(64 << 10).log_buffer_bytes(128 << 10);
    let env = options.open_on(Arc::new(disk.clone()))?;
    let value = pattern(3, PARTS * PART);
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &value))?;
    let snapshot = env.snapshot()?;
    let mut reader = snapshot.bytes("t")?.value_reader(b"k")?.unwrap();
    let txn = env.begin()?;
    let mut writer = txn.bytes("t")?.value_writer(b"k")?;
    for n in 0..PARTS {
        writer.write_all(&pattern(n as u64 + 9, PART)).unwrap();
    }
    let before = disk.counters().reads;
    let mut part = vec![0; PART];
    for (n, chunk) in value.chunks(PART).enumerate() {
        reader.read_exact(&mut part).unwrap();
        assert!(part == chunk, "part {n}");
    }
    let found = disk.counters().reads - before;
    println!("{found} reads for {PARTS} parts");
    assert!(found < 10 * PARTS as u64, "{found} reads for {PARTS} parts");
    // A reader of its own change is not told what it found before.
    txn.commit()?;
    let txn = env.begin_with(self::snapshot())?;
    let table = txn.bytes("t")?;
    let mut reader = table.value_reader(b"k")?.unwrap();
    reader.read_exact(&mut part).unwrap();
    assert!(part == pattern(9, PART));
    table.put(b"k", b"short")?;
    assert_eq!((reader.len()?, reader.read(&mut part).unwrap()), (5, 0));
    txn.commit()?;
    assert_sound(&env)
}

#[test]
fn typed_tables_are_asked_by_what_their_keys_lend() -> Result<(), Error> {
    const AGES: TableDef<String, u32> = TableDef::new("ages");
    const BLOBS: TableDef<Vec<u8>, u32> = TableDef::new("blobs");
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| {
        let ages = txn.open(AGES)?;
        ages.put("ada", &36)?;
        ages.put(&"grace".to_string(), &85)?;
        assert_eq!(ages.get(&"ada".to_string())?, Some(36));
        assert_eq!(ages.get("grace")?, Some(85));
        assert!(ages.modify("ada", |age| Some(age + 1))? && ages.delete("grace")?);
        let blobs = txn.open(BLOBS)?;
        blobs.insert_new(&[1u8, 2][..], &3)?;
        assert_eq!(blobs.get(&vec![1, 2])?, Some(3));
        Ok::<_, Error>(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_of_a_value_are_as_those_of_a_vector(
        first in 0usize..20_000,
        steps in prop::collection::vec((0u8..4, 0usize..40_000, 0usize..9_000, any::<bool>()), 1..12),
    ) {
        let disk = SimDisk::new();
        let env = small().open_on(Arc::new(disk)).unwrap();
        let mut model = pattern(1, first);
        env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", &model)).unwrap();
        for (step, at, len, commits) in steps {
            let txn = env.begin().unwrap();
            let mut writer = txn.bytes("t").unwrap().value_writer(b"k").unwrap();
            let mut changed = model.clone();
            if step == 0 {
                writer.set_len(at as u64).unwrap();
                changed.resize(at, 0);
            } else {
                let bytes = pattern(at as u64, len);
                writer.seek(SeekFrom::Start(at as u64)).unwrap();
                writer.write_all(&bytes).unwrap();
                if len > 0 {
                    changed.resize(changed.len().max(at + len), 0);
                    changed[at..at + len].copy_from_slice(&bytes);
                }
            }
            if commits {
                txn.commit().unwrap();
                model = changed;
            } else {
                prop_assert!(txn.bytes("t").unwrap().get(b"k").unwrap().as_ref() == Some(&changed));
                txn.abort().unwrap();
            }
        }
        let txn = env.begin().unwrap();
        let mut found = Vec::new();
        txn.bytes("t").unwrap().value_reader(b"k").unwrap().unwrap().read_to_end(&mut found).unwrap();
        prop_assert!(found == model);
        drop(txn);
        assert_sound(&env).unwrap();
    }
}
