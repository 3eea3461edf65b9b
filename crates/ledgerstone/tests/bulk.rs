//! Many records at once: sorted loads, range deletes; and tables that get another name.

use std::time::Duration;

use ledgerstone::{Environment, Error, Isolation, Options, TableDef, TransactionOptions};
use ledgerstone_disk::SimDisk;

fn small() -> Options {
    Environment::options().cache_bytes(2 << 20).page_count_max(1 << 18).log_segment_bytes(1 << 20)
}

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn impatient() -> TransactionOptions {
    TransactionOptions { lock_timeout: Some(Duration::from_millis(1)), ..TransactionOptions::default() }
}

fn assert_sound(env: &Environment) -> Result<(), Error> {
    let report = env.verify()?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(())
}

fn records(count: u64) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    // Small ones, some that fill a quarter of a page, some that do not fit into a leaf.
    (0..count).map(|n| (key(n), vec![n as u8; if n % 400 == 7 { 9_000 } else { (n * 37 % 300) as usize }]))
}

#[test]
fn a_sorted_load_fills_a_table_with_full_pages_and_little_log() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    let value = [7u8; 100];
    let log_of = |f: &dyn Fn() -> Result<(), Error>| -> Result<u64, Error> {
        let before = env.stat()?.log_append_bytes;
        f()?;
        Ok(env.stat()?.log_append_bytes - before)
    };
    let loaded = log_of(&|| {
        env.transact(|txn| {
            let mut table = txn.create_table("loaded")?;
            assert_eq!(table.load_sorted((0..20_000).map(|n| (key(n), value)))?, 20_000);
            assert_eq!(table.get(&key(777))?.as_deref(), Some(&value[..]));
            Ok(())
        })
    })?;
    let put = log_of(&|| {
        env.transact(|txn| {
            let table = txn.create_table("put")?;
            (0..20_000).try_for_each(|n| table.put(&key(n), &value))
        })
    })?;
    let content = 20_000 * 108;
    assert!(
        loaded < content * 5 / 4 && loaded * 10 < put * 7,
        "{loaded} bytes of log, {put} by puts, {content} of content"
    );
    let txn = env.begin()?;
    assert!(txn.bytes("loaded")?.range(..)?.map(Result::unwrap).eq((0..20_000).map(|n| (key(n), value.to_vec()))));
    txn.commit()?;
    assert_sound(&env)
}

#[test]
fn records_of_all_sizes_are_loaded_and_the_table_goes_on_as_any_other() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| {
        let mut table = txn.bytes_or_create("t")?;
        table.load_sorted(records(5_000))?;
        table.put(&key(2), b"changed")?;
        table.delete(&key(4_000)).map(drop)
    })?;
    assert_sound(&env)?;
    // It has records now: a second load appends.
    env.transact(|txn| txn.bytes("t")?.load_sorted((5_000..6_000).map(|n| (key(n), b"more"))).map(drop))?;
    let failed = env.transact(|txn| txn.bytes("t")?.load_sorted([(key(17), b"below the last")]).map(drop));
    assert!(matches!(failed, Err(Error::NotAtEnd { .. })), "{failed:?}");
    env.close()?;
    let env = small().open(dir.path())?;
    assert_sound(&env)?;
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    assert_eq!(table.count()?, 5_999);
    assert_eq!(table.get(&key(2))?.as_deref(), Some(&b"changed"[..]));
    for (key, value) in records(5_000).filter(|(k, _)| *k != key(2) && *k != key(4_000)) {
        assert!(table.get(&key)?.as_ref() == Some(&value));
    }
    Ok(())
}

#[test]
fn an_aborted_load_and_one_out_of_order_leave_nothing() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| txn.create_table("t").map(drop))?;
    let pages = |env: &Environment| -> Result<u64, Error> {
        env.reclaim()?;
        Ok(env.stat()?.allocated_page_count)
    };
    let before = pages(&env)?;
    let txn = env.begin()?;
    let mut table = txn.bytes("t")?;
    table.load_sorted(records(3_000))?;
    table.put(b"\xff", b"x")?;
    txn.abort()?;
    assert_eq!(pages(&env)?, before);
    let failed = env.transact(|txn| {
        let shuffled = records(900).chain([(key(5), Vec::new())]);
        txn.bytes("t")?.load_sorted(shuffled).map(drop)
    });
    assert!(matches!(failed, Err(Error::NotSorted { record: 900, .. })), "{failed:?}");
    assert_eq!(pages(&env)?, before);
    // A loader that is never finished, in a transaction that commits.
    env.transact(|txn| {
        let mut loader = txn.bytes("t")?.sorted_loader()?;
        records(900).try_for_each(|(key, value)| loader.push(&key, &value))
    })?;
    assert_eq!(pages(&env)?, before);
    // Back to a savepoint from before the load.
    env.transact(|txn| {
        let point = txn.savepoint()?;
        txn.bytes("t")?.load_sorted(records(900))?;
        txn.rollback_to(point)?;
        txn.bytes("t")?.put(b"a", b"b")
    })?;
    assert_sound(&env)?;
    let txn = env.begin()?;
    assert_eq!(txn.bytes("t")?.count()?, 1);
    Ok(())
}

#[test]
fn a_load_behind_other_records_is_taken_back_whole() -> Result<(), Error> {
    let env = small().open_on(std::sync::Arc::new(SimDisk::new()))?;
    let txn = env.begin()?;
    let mut table = txn.create_table("t")?;
    table.put(&key(0), b"there before")?;
    let unsorted = (1..300).chain([5]).map(|n| (key(n), [1; 50]));
    assert!(matches!(table.load_sorted(unsorted), Err(Error::NotSorted { record: 299, .. })));
    assert_eq!(table.count()?, 1);
    let panics =
        (1..300).map(|n| if n == 200 { std::panic::resume_unwind(Box::new("on purpose")) } else { (key(n), [1; 50]) });
    let load = std::panic::AssertUnwindSafe(|| table.load_sorted(panics));
    assert!(std::panic::catch_unwind(load).is_err());
    assert_eq!(txn.bytes("t")?.count()?, 1);
    let mut table = txn.bytes("t")?;
    assert_eq!(table.load_sorted((1..300).map(|n| (key(n), [1; 50])))?, 299);
    txn.commit()?;
    assert_eq!(env.begin()?.bytes("t")?.count()?, 300);
    assert_sound(&env)
}

#[test]
fn a_load_does_not_go_on_after_its_transaction_went_back() -> Result<(), Error> {
    let env = small().open_on(std::sync::Arc::new(SimDisk::new()))?;
    for is_nested in [false, true] {
        let txn = env.begin()?;
        let mut loader = txn.create_table("t")?.sorted_loader()?;
        let push = |loader: &mut ledgerstone::SortedLoader, from: u64| {
            (from..from + 500).try_for_each(|n| loader.push(&key(n), &[1; 100]))
        };
        push(&mut loader, 0)?;
        if is_nested {
            let taken_back = txn.nested(|_| push(&mut loader, 500).and(Err::<(), _>(Error::user("on purpose"))));
            assert!(matches!(taken_back, Err(Error::User(_))));
        } else {
            let savepoint = txn.savepoint()?;
            push(&mut loader, 500)?;
            txn.rollback_to(savepoint)?;
        }
        // Of the records between, some have filled leaves, which no rollback takes apart.
        assert!(matches!(loader.push(&key(2000), b"x"), Err(Error::LoadIncomplete)));
        assert!(matches!(loader.finish(), Err(Error::LoadIncomplete)));
        txn.abort()?;
        assert_sound(&env)?;
    }
    // Whole loads are taken back as anything else is, and records that were appended one by one too.
    let txn = env.begin()?;
    let mut t = txn.create_table("t")?;
    let empty = txn.savepoint()?;
    t.load_sorted(records(1000))?;
    txn.rollback_to(empty)?;
    let mut t = txn.bytes("t")?;
    assert_eq!(t.count()?, 0);
    t.load_sorted([(key(1), b"1")])?;
    let mut loader = t.sorted_loader()?;
    let one = txn.savepoint()?;
    loader.push(&key(2), b"2")?;
    txn.rollback_to(one)?;
    loader.push(&key(3), b"3")?;
    let t = loader.finish()?;
    assert_eq!(t.range(..)?.map(|row| row.map(|(key, _)| key)).collect::<Result<Vec<_>, _>>()?, [key(1), key(3)]);
    txn.commit()?;
    assert_sound(&env)
}

#[test]
fn who_waits_for_a_load_at_any_level_finds_the_new_tree() -> Result<(), Error> {
    for isolation in Isolation::ALL {
        let env = small().lock_timeout(Duration::from_secs(20)).open_on(std::sync::Arc::new(SimDisk::new()))?;
        env.transact(|txn| txn.create_table("t").map(drop))?;
        let txn = env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() })?;
        let mut t = txn.bytes("t")?;
        // Whoever opens it from here on knows it by another name for the same: the first handle may have been alone.
        env.transact(|txn| txn.bytes("t").map(drop))?;
        t.load_sorted([(key(1), b"loaded")])?;
        let waited = env.stat()?.lock_wait_count;
        let waiting = std::thread::spawn({
            let env = env.clone();
            move || env.transact(|txn| txn.bytes("t")?.put(&key(2), b"put"))
        });
        let began = std::time::Instant::now();
        while env.stat()?.lock_wait_count == waited && began.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        txn.commit()?;
        waiting.join().unwrap()?;
        let rows = env.transact(|txn| txn.bytes("t")?.range(..)?.collect::<Result<Vec<_>, Error>>())?;
        assert_eq!(rows, [(key(1), b"loaded".to_vec()), (key(2), b"put".to_vec())], "{isolation}");
        env.reclaim()?;
        assert_sound(&env)?;
    }
    Ok(())
}

#[test]
fn a_crash_in_a_load_leaves_nothing() {
    let disk = SimDisk::new();
    let env = small().open_on(std::sync::Arc::new(disk.clone())).unwrap();
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let before = env.stat().unwrap().allocated_page_count;
    let txn = env.begin().unwrap();
    let mut loader = txn.bytes("t").unwrap().sorted_loader().unwrap();
    records(2_000).try_for_each(|(key, value)| loader.push(&key, &value)).unwrap();
    env.checkpoint().unwrap();
    disk.crash_now();
    drop((loader, txn, env));
    let env = small().open_on(std::sync::Arc::new(disk.after_crash(1))).unwrap();
    env.reclaim().unwrap();
    assert_eq!(env.stat().unwrap().allocated_page_count, before);
    assert_sound(&env).unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count()).unwrap(), 0);
}

#[test]
fn a_range_is_deleted_and_closed_to_others_until_the_end() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    // No lock of the whole table: the gaps themselves are to keep others out.
    let env = small().escalate_after(100_000).open(dir.path())?;
    env.transact(|txn| records(3_000).try_for_each(|(key, value)| txn.bytes_or_create("t")?.put(&key, &value)))?;
    let txn = env.begin()?;
    let table = txn.bytes("t")?;
    assert_eq!(table.delete_range(&key(100)[..]..&key(2_500)[..])?, 2_400);
    assert_eq!(table.delete_range(&key(100)[..]..&key(2_500)[..])?, 0);
    assert_eq!(table.delete_range(&key(9)[..]..&key(2)[..])?, 0);
    for inside in [key(100), [key(100), vec![0]].concat(), key(1_234), [key(2_499), vec![9]].concat()] {
        let other = env.begin_with(impatient())?;
        let put = other.bytes("t")?.put(&inside, b"phantom");
        assert!(matches!(put, Err(Error::LockTimeout { .. })), "{inside:?}: {put:?}");
    }
    let other = env.begin_with(impatient())?;
    other.bytes("t")?.put(&key(50), b"outside")?;
    other.commit()?;
    assert_eq!(table.count()?, 600);
    txn.abort()?;
    env.transact(|txn| {
        let table = txn.bytes("t")?;
        assert_eq!(table.count()?, 3_000);
        assert_eq!(table.delete_range(..)?, 3_000);
        Ok::<_, Error>(())
    })?;
    env.reclaim()?;
    assert_sound(&env)?;
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count())?, 0);
    Ok(())
}

#[test]
fn typed_tables_load_and_delete_ranges_too() -> Result<(), Error> {
    const SQUARES: TableDef<u64, u64> = TableDef::new("squares");
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| {
        let mut squares = txn.open(SQUARES)?;
        assert_eq!(squares.load_sorted((0..1_000).map(|n| (n, n * n)))?, 1_000);
        assert_eq!(squares.delete_range(10..=19)?, 10);
        assert_eq!(squares.get(&20)?, Some(400));
        assert_eq!(squares.get(&19)?, None);
        Ok::<_, Error>(())
    })?;
    env.transact(|txn| {
        let cubes = txn.open(TableDef::<(String, u64), u64>::new("cubes"))?;
        let mut loader = cubes.sorted_loader()?;
        (0..1_000).try_for_each(|n| loader.push(("n", n), n * n * n))?;
        let again = loader.push(("n", 999), 0);
        assert!(matches!(again, Err(Error::NotSorted { record: 1_000, .. })), "{again:?}");
        loader.push(&("o".to_string(), 0), &1)?;
        assert_eq!(loader.count(), 1_001);
        let cubes = loader.finish()?;
        assert_eq!((cubes.get(("n", 12))?, cubes.last()?), (Some(1_728), Some((("o".to_string(), 0), 1))));
        // To a table that has records, it appends.
        let mut loader = cubes.sorted_loader()?;
        assert!(matches!(loader.push(("a", 0), 0), Err(Error::NotAtEnd { .. })));
        loader.push(("p", 0), 2)?;
        assert_eq!(loader.finish()?.count()?, 1_002);
        Ok::<_, Error>(())
    })?;
    assert_sound(&env)
}

#[test]
fn a_renamed_table_has_its_records_under_the_new_name_only() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let env = small().open(dir.path())?;
    env.transact(|txn| {
        txn.bytes_or_create("old")?.put(b"k", b"v")?;
        txn.create_table("other").map(drop)
    })?;
    let txn = env.begin()?;
    let handle = txn.bytes("old")?;
    assert!(matches!(txn.rename_table("old", "other"), Err(Error::TableExists(_))));
    assert!(matches!(txn.rename_table("none", "new"), Err(Error::NoSuchTable(_))));
    txn.rename_table("old", "new")?;
    assert!(matches!(handle.get(b"k"), Err(Error::NoSuchTable(_))));
    assert!(matches!(txn.bytes("old"), Err(Error::NoSuchTable(_))));
    txn.bytes("new")?.put(b"k2", b"v2")?;
    txn.abort()?;
    assert_eq!(env.transact(|txn| txn.bytes("old")?.get(b"k"))?.as_deref(), Some(&b"v"[..]));
    env.transact(|txn| {
        txn.rename_table("old", "new")?;
        txn.bytes_or_create("old")?.put(b"k", b"another table")
    })?;
    env.close()?;
    let env = small().open(dir.path())?;
    let txn = env.begin()?;
    assert_eq!(txn.table_names()?, ["new", "old", "other"]);
    assert_eq!(txn.bytes("new")?.get(b"k")?.as_deref(), Some(&b"v"[..]));
    assert_eq!(txn.bytes("new")?.get(b"k2")?, None);
    assert_eq!(txn.bytes("old")?.get(b"k")?.as_deref(), Some(&b"another table"[..]));
    txn.commit()?;
    assert_sound(&env)
}

/// Records that another handle of the same transaction puts while an empty table is filled would go with the tree that
/// the load replaces.
#[test]
fn records_put_beside_a_sorted_load_are_not_lost() {
    let disk = SimDisk::new();
    let env = small().open_on(std::sync::Arc::new(disk.clone())).unwrap();
    let txn = env.begin().unwrap();
    let old = txn.create_table("t").unwrap();
    let mut loader = txn.bytes("t").unwrap().sorted_loader().unwrap();
    (0..300).for_each(|n| loader.push(&key(n), b"loaded").unwrap());
    old.put(&key(1000), b"put beside").unwrap();
    let refused = loader.finish().unwrap_err();
    assert!(matches!(&refused, Error::LoadNotAlone { table } if table == "t"), "{refused:?}");
    // What was put is there, and a load behind it goes on.
    assert_eq!(old.get(&key(1000)).unwrap().as_deref(), Some(&b"put beside"[..]));
    let mut again = old.sorted_loader().unwrap();
    again.push(&key(1001), b"loaded").unwrap();
    again.finish().unwrap();
    txn.commit().unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count()).unwrap(), 2);
    // Put and deleted again: nothing would be lost.
    let txn = env.begin().unwrap();
    let old = txn.create_table("u").unwrap();
    let mut loader = txn.bytes("u").unwrap().sorted_loader().unwrap();
    loader.push(&key(1), b"loaded").unwrap();
    old.put(&key(1000), b"put beside").unwrap();
    old.delete(&key(1000)).unwrap();
    assert_eq!(loader.finish().unwrap().count().unwrap(), 1);
    txn.commit().unwrap();
    assert_sound(&env).unwrap();
}

/// A load gives a table another tree. Whoever opened the table before runs again, and is not told that there is none.
#[test]
fn a_table_that_another_transaction_has_loaded_is_there() {
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted, Isolation::Snapshot] {
        for writes in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let env = small().open(dir.path()).unwrap();
            env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
            let options = TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() };
            let mut tries = 0;
            let read = env.transact_with(options, |txn| {
                tries += 1;
                let table = txn.bytes("t")?;
                if tries == 1 {
                    let load = || env.transact(|txn| txn.bytes("t")?.load_sorted([("a", "1"), ("b", "2")]).map(drop));
                    std::thread::scope(|scope| scope.spawn(load).join().unwrap())?;
                }
                if writes { table.put("c", "3").map(|()| None) } else { table.get("a") }
            });
            let read = read.unwrap_or_else(|error| panic!("{isolation:?}, writes: {writes}: {error}"));
            let is_old = isolation == Isolation::Snapshot && !writes; // It reads what was there when it began.
            let expected = (!writes && !is_old).then(|| b"1".to_vec());
            assert_eq!((read, tries), (expected, if is_old { 1 } else { 2 }), "{isolation:?}, writes: {writes}");
        }
    }
}
