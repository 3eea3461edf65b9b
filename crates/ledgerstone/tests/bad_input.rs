//! What callers and directories get wrong: a typed error that says what and where, and everything else goes on.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use ledgerstone::{BytesTable, Durability, Environment, Error, TransactionOptions};
use ledgerstone_disk::{Call, Disk, DiskErrorKind, Fault, FaultDisk, Harm, ReadOnlyDisk, SimDisk};

#[test]
fn keys_and_values_at_their_limits() {
    for page_bytes in [4096u32, 8192, 16384, 32768] {
        let env = Environment::options()
            .page_bytes(page_bytes)
            .cache_bytes(64 * u64::from(page_bytes))
            .page_count_max(1 << 14)
            .open_on(Arc::new(SimDisk::new()))
            .unwrap();
        let txn = env.begin().unwrap();
        let table = txn.create_table("t").unwrap();
        let Err(Error::KeyTooLarge { len, max }) = table.put(&vec![1; 1 << 20], b"v") else { panic!("{page_bytes}") };
        assert_eq!(len, 1 << 20);
        assert!(max >= page_bytes as usize / 10, "{max}");
        for n in 0..60u8 {
            let mut key = vec![n; max];
            table.put(&key, &vec![n; max]).unwrap();
            assert_eq!(table.get(&key).unwrap().unwrap(), vec![n; max]);
            key.push(0);
            assert!(matches!(table.put(&key, b""), Err(Error::KeyTooLarge { .. })));
            assert!(matches!(table.insert_new(&key, b""), Err(Error::KeyTooLarge { .. })));
            assert!(matches!(table.get(&key), Err(Error::KeyTooLarge { .. })));
            assert!(matches!(table.delete(&key), Err(Error::KeyTooLarge { .. })));
        }
        let value = vec![0; (1 << 30) + 1];
        assert!(matches!(table.put(b"k", &value), Err(Error::ValueTooLarge { max, .. }) if max == 1 << 30));
        assert!(matches!(table.insert_new(b"k", &value), Err(Error::ValueTooLarge { .. })));
        table.put(b"k", b"v").unwrap();
        assert!(matches!(table.modify(b"k", |_| Some(vec![0; (1 << 30) + 1])), Err(Error::ValueTooLarge { .. })));
        assert_eq!(table.get(b"k").unwrap().unwrap(), b"v", "refused, and nothing changed");
        txn.commit().unwrap();
        assert_sound(&env, "limits");
    }
}

#[test]
fn table_names_at_their_limits() {
    let env = open(&SimDisk::new()).unwrap();
    let txn = env.begin().unwrap();
    for bad in ["", &"x".repeat(256), &"ü".repeat(128)] {
        assert!(matches!(txn.create_table(bad), Err(Error::BadTableName { .. })));
        assert!(matches!(txn.bytes(bad), Err(Error::BadTableName { .. })));
        assert!(matches!(txn.drop_table(bad), Err(Error::BadTableName { .. })));
    }
    for good in ["x", &"x".repeat(255), "ü\0\n/..", " "] {
        txn.create_table(good).unwrap().put(b"k", b"v").unwrap();
    }
    assert!(matches!(txn.drop_table("none"), Err(Error::NoSuchTable(name)) if name == "none"));
    txn.commit().unwrap();
    assert_eq!(env.transact(|txn| txn.table_names()).unwrap().len(), 4);
}

#[test]
fn settings_out_of_bounds_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let tries = [
        ("page_bytes", tiny().page_bytes(0)),
        ("page_bytes", tiny().page_bytes(65536)),
        ("page_bytes", tiny().page_bytes(u32::MAX)),
        ("cache_bytes", tiny().cache_bytes(0)),
        ("cache_bytes", tiny().cache_bytes(4096)),
        ("log_segment_bytes", tiny().log_segment_bytes(0)),
        ("log_segment_bytes", tiny().log_segment_bytes(65537)),
        ("log_segment_bytes", tiny().log_segment_bytes(u64::MAX)),
        ("log_buffer_bytes", tiny().log_buffer_bytes(0)),
        ("log_buffer_bytes", tiny().log_buffer_bytes(u64::MAX)),
        ("transaction_count_max", tiny().transaction_count_max(0)),
        ("transaction_count_max", tiny().transaction_count_max(u32::MAX)),
        ("lock_count_max", tiny().lock_count_max(0)),
    ];
    for (name, options) in tries {
        let refused = options.open(dir.path());
        assert!(matches!(&refused, Err(Error::Setting { name: n, .. }) if n == name), "{name}: {refused:?}");
    }
    // Too large for any machine, or for the address space: refused, not a crash.
    for options in [tiny().cache_bytes(u64::MAX), tiny().page_count_max(u64::MAX), tiny().lock_count_max(u32::MAX)] {
        let refused = options.open(dir.path());
        assert!(matches!(&refused, Err(Error::Setting { .. } | Error::Memory(_)) | Ok(_)), "{refused:?}");
    }
    std::fs::write(dir.path().join("ledgerstone.toml"), "cache_bites = 3\n").unwrap();
    let refused = tiny().open(dir.path());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("cache_bites") && message.contains("ledgerstone.toml"), "{message}");
}

fn tree_of(dir: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            files.push((name, Vec::new()));
            files.extend(tree_of(&path));
        } else {
            files.push((name, std::fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn a_directory_of_somebody_else_is_refused_and_left_alone() {
    let make: [(&str, &[u8]); 6] = [
        ("log/app.log", b"a log of something else"),
        ("log/0000000000000000.seg.txt", b"nearly"),
        ("data", b"somebody's data"),
        ("double_write", b"somebody's file"),
        ("control", b"somebody's control file"),
        ("control", b""),
    ];
    for (file, bytes) in make {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let before = tree_of(dir.path());
        for options in [tiny(), tiny().create(false), tiny().read_only(true)] {
            let refused = options.open(dir.path());
            assert!(matches!(&refused, Err(Error::NotAnEnvironment { .. })), "{file}: {refused:?}");
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(&dir.path().display().to_string()), "{message}");
        }
        let mut after = tree_of(dir.path());
        after.retain(|(name, _)| !name.ends_with("/lock"));
        assert!(before == after, "{file}: {after:?}");
    }
}

#[test]
fn a_path_that_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    for path in [file.clone(), file.join("below")] {
        for options in [tiny(), tiny().create(false)] {
            let refused = options.open(&path);
            assert!(matches!(&refused, Err(Error::NotAnEnvironment { .. })), "{path:?}: {refused:?}");
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
    // A directory in the place of a file.
    for name in ["control", "data", "lock"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(name)).unwrap();
        let refused = tiny().open(dir.path());
        assert!(refused.is_err(), "{name}");
    }
}

#[test]
fn permission_denied_is_said() {
    for (path, call) in [("control", Call::Open), ("data", Call::Open), ("log/", Call::Open), ("", Call::Open)] {
        for kind in [DiskErrorKind::Permission, DiskErrorKind::ReadOnlyFs] {
            let disk = SimDisk::new();
            let told = script(&open(&disk).unwrap());
            let faulty = FaultDisk::new(Arc::new(disk.clone()));
            faulty.add(Fault::at(call, 1, Harm::Fail(kind)).from_then_on().on(path));
            let refused = tiny().open_on(Arc::new(faulty));
            assert!(matches!(refused, Err(Error::Permission { .. })), "{path} {kind:?}: {refused:?}");
            told.assert_kept(&read(&open(&disk).unwrap()).unwrap(), true, "afterwards");
        }
    }
    // Real files; root may write anyway.
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("sealed");
    std::fs::create_dir(&below).unwrap();
    std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o500)).unwrap();
    match tiny().open(&below) {
        Ok(env) => env.close().unwrap(),
        Err(error) => assert!(matches!(error, Error::Permission { .. }), "{error:?}"),
    }
    // A directory where nobody may write.
    let refused = tiny().open("/proc/ledgerstone");
    assert!(matches!(refused, Err(Error::Permission { .. } | Error::Disk(_) | Error::NotAnEnvironment { .. })));
}

#[test]
fn reading_what_was_closed_in_order_writes_not_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let env = tiny().open(dir.path()).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    env.close().unwrap();
    let before = tree_of(dir.path());
    for _ in 0..2 {
        let env = tiny().read_only(true).open(dir.path()).unwrap();
        assert!(env.recovery_report().was_clean);
        assert_eq!(env.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().as_deref(), Some(&b"v"[..]));
        assert!(env.verify().unwrap().problems.is_empty());
        assert!(matches!(tiny().open(dir.path()), Err(Error::AlreadyOpen { .. })));
        env.close().unwrap();
        assert!(tree_of(dir.path()) == before, "an opening for reading changed a file");
    }
}

#[test]
fn reading_what_was_not_closed_in_order_recovers_it_for_good() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    let disk = disk.after_crash(3);
    let first = tiny().read_only(true).open_on(Arc::new(disk.clone())).unwrap();
    assert!(!first.recovery_report().was_clean);
    assert_eq!(first.transact(|txn| txn.bytes("t")?.get(b"k")).unwrap().as_deref(), Some(&b"v"[..]));
    first.close().unwrap();
    let again = tiny().read_only(true).open_on(Arc::new(disk.clone())).unwrap();
    assert!(again.recovery_report().was_clean);
    // A directory where nobody may write, in the middle of things.
    let disk = {
        again.close().unwrap();
        let env = open(&disk).unwrap();
        let torn = disk.after_crash(3);
        drop(env);
        torn
    };
    let refused = tiny().read_only(true).open_on(Arc::new(ReadOnlyDisk::new(Arc::new(disk))));
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("not closed in order") && why.contains("ledgerstone recover"), "{why}");
    // One that was closed, with a file that may not be read: nothing is to be recovered, and nobody is sent to do it.
    let disk = SimDisk::new();
    open(&disk).unwrap().close().unwrap();
    let faulty = FaultDisk::new(Arc::new(disk));
    faulty.add(Fault::at(Call::Open, 1, Harm::Fail(DiskErrorKind::Permission)).from_then_on().on("data"));
    let refused = tiny().read_only(true).open_on(Arc::new(ReadOnlyDisk::new(Arc::new(faulty))));
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("data") && why.contains("permission denied") && !why.contains("recover"), "{why}");
}

/// What was closed in order is read as it lies there, whatever an older version or a killed process has left: not a
/// byte is written.
#[test]
fn what_was_closed_in_order_is_read_without_a_byte_written() {
    let disk = SimDisk::new();
    let told = script(&open(&disk).unwrap());
    open(&disk).unwrap().close().unwrap();
    let control = bytes_of(&disk, "control");
    let slot = |no: usize, change: &dyn Fn(&mut [u8])| {
        let mut slot = control[no * 4096..][..4096].to_vec();
        change(&mut slot);
        let crc = crc32c::crc32c(&slot[12..]).to_le_bytes();
        slot[8..12].copy_from_slice(&crc);
        slot
    };
    let both = |change: &dyn Fn(&mut [u8])| [slot(0, change), slot(1, change)].concat();
    // Of format 1: no mark, page count, newest segment, durable LSN and redo LSN.
    let first_format = both(&|slot| {
        slot[12] = 1;
        slot[96..104].fill(0);
        slot[112..144].fill(0);
    });
    let segments = disk.list("log").unwrap();
    let newest = u64::from_str_radix(segments[segments.len() - 1].trim_end_matches(".seg"), 16).unwrap();
    // Killed when a segment had its name, and the control file did not say so yet.
    let unnamed = both(&|slot| slot[120..128].copy_from_slice(&(newest - (64 << 10)).to_le_bytes()));
    let mut area = bytes_of(&disk, "double_write");
    area[8] = 1;
    let crc = crc32c::crc32c(&area[..24]).to_le_bytes();
    area[24..28].copy_from_slice(&crc);
    let cases: [(&str, &str, Vec<u8>); 5] = [
        ("as it is", "control", control.clone()),
        ("control of format 1", "control", first_format),
        ("a segment that control does not name", "control", unnamed),
        ("a draft of a segment", "log/next.tmp", vec![0; 8192]),
        ("double_write of format 1", "double_write", area),
    ];
    for (what, path, bytes) in cases {
        let disk = disk.snapshot();
        place(&disk, path, Some(&bytes));
        // Another size of the cache is another header of the double-write file.
        for options in [tiny(), tiny().cache_bytes(128 * 4096)] {
            let before = disk.fingerprint();
            let env = options.read_only(true).open_on(Arc::new(disk.clone())).unwrap();
            assert!(env.recovery_report().was_clean, "{what}");
            told.assert_kept(&read(&env).unwrap(), true, what);
            assert_sound(&env, what);
            env.close().unwrap();
            assert_eq!(disk.fingerprint(), before, "{what}: something was written");
        }
        told.assert_kept(&read(&open(&disk).unwrap()).unwrap(), true, what);
    }
}

#[test]
fn opened_for_reading_only() {
    let disk = SimDisk::new();
    assert!(matches!(tiny().read_only(true).open_on(Arc::new(disk.clone())), Err(Error::NotAnEnvironment { .. })));
    let told = script(&open(&disk).unwrap());
    // After an orderly close, and after a crash.
    for disk in [disk.snapshot(), disk.after_crash(2)] {
        let env = tiny().read_only(true).open_on(Arc::new(disk.clone())).unwrap();
        told.assert_kept(&read(&env).unwrap(), false, "read-only");
        assert_sound(&env, "read-only");
        let txn = env.begin().unwrap();
        let table = txn.bytes("t").unwrap();
        let refused = [
            table.put(b"k", b"v"),
            table.insert_new(b"k", b"v"),
            table.delete(b"last").map(|_| ()),
            table.modify(b"last", |_| Some(vec![])).map(|_| ()),
            txn.create_table("new").map(|_| ()),
            txn.bytes_or_create("new").map(|_| ()),
            txn.drop_table("t"),
            env.checkpoint().map(|_| ()),
        ];
        for (no, refused) in refused.into_iter().enumerate() {
            assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{no}: {refused:?}");
        }
        txn.commit().unwrap();
        env.close().unwrap();
        told.assert_kept(&read(&open(&disk).unwrap()).unwrap(), false, "afterwards");
    }
}

#[test]
fn one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let env = tiny().open(dir.path()).unwrap();
    for _ in 0..3 {
        let refused = tiny().open(dir.path());
        assert!(matches!(&refused, Err(Error::AlreadyOpen { path }) if path.contains(&*dir.path().to_string_lossy())));
    }
    // By another name.
    let link = dir.path().with_extension("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    assert!(matches!(tiny().open(&link), Err(Error::AlreadyOpen { .. })));
    std::fs::remove_file(&link).unwrap();
    let other = env.clone();
    drop(env);
    assert!(matches!(tiny().open(dir.path()), Err(Error::AlreadyOpen { .. })), "a clone is still open");
    drop(other);
    tiny().open(dir.path()).unwrap().close().unwrap();

    // Two that are created at the same time: one wins.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_path_buf();
    let results: Vec<_> = (0..4)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || tiny().open(path))
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    assert!(results.iter().all(|r| matches!(r, Ok(_) | Err(Error::AlreadyOpen { .. }))), "{results:?}");
}

fn every_call(table: &BytesTable) -> Vec<Result<(), Error>> {
    vec![
        table.get(b"k").map(|_| ()),
        table.get_for_update(b"k").map(|_| ()),
        table.contains(b"k").map(|_| ()),
        table.put(b"k", b"v"),
        table.insert_new(b"n", b"v"),
        table.delete(b"k").map(|_| ()),
        table.modify(b"k", |_| None).map(|_| ()),
        table.range(..).and_then(|mut r| r.next().transpose()).map(|_| ()),
        table.prefix(b"k").map(|_| ()),
        table.first().map(|_| ()),
        table.last().map(|_| ()),
        table.count().map(|_| ()),
        table.entry(b"k").map(|_| ()),
    ]
}

#[test]
fn commands_on_a_finished_transaction() {
    let env = open(&SimDisk::new()).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    for end in 0..3 {
        let txn = env.begin().unwrap();
        let table = txn.bytes("t").unwrap();
        let mut range = table.range(..).unwrap();
        match end {
            0 => drop(txn.commit().unwrap()),
            1 => txn.abort().unwrap(),
            _ => drop(txn),
        }
        for (no, result) in every_call(&table).into_iter().enumerate() {
            assert!(matches!(result, Err(Error::Finished)), "end {end}, call {no}: {result:?}");
        }
        assert!(matches!(range.next(), Some(Err(Error::Finished)) | None));
        assert!(range.next().is_none());
        // Its locks are gone although its tables are still held.
        let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..Default::default() };
        env.transact_with(options, |txn| txn.bytes("t")?.put(b"k", b"v")).unwrap();
    }
}

#[test]
fn a_panic_anywhere_in_user_code_rolls_back() {
    let env = open(&SimDisk::new()).unwrap();
    env.transact(|txn| {
        let table = txn.bytes_or_create("t")?;
        (0..500).try_for_each(|n| table.put(&key(n), &[1; 50]))
    })
    .unwrap();
    let before = read(&env).unwrap();
    type Harmful = fn(&ledgerstone::Transaction) -> Result<(), Error>;
    let calls: [Harmful; 4] = [
        |_| panic!("on purpose"),
        |txn| txn.bytes("t")?.modify(&key(250), |_| panic!("on purpose")).map(|_| ()),
        |txn| txn.bytes("t")?.range(..)?.for_each_ref(|_, _| panic!("on purpose")),
        |txn| {
            txn.drop_table("t")?;
            txn.create_table("t")?.put(b"k", b"v")?;
            panic!("on purpose")
        },
    ];
    for (no, call) in calls.into_iter().enumerate() {
        let shared = env.clone();
        within(20, &format!("panic {no}"), move || {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                shared.transact(|txn| {
                    txn.bytes("t")?.put(&key(250), b"changed")?;
                    txn.bytes("t")?.put(&key(9999), b"new")?;
                    call(txn)
                })
            }));
            assert!(panicked.is_err());
        });
        let shared = env.clone();
        let found = within(20, &format!("after panic {no}"), move || {
            let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..Default::default() };
            shared.transact_with(options, |txn| txn.bytes("t")?.put(&key(250), &[1; 50])).unwrap();
            read(&shared).unwrap()
        });
        assert!(found == before, "panic {no}");
    }
    assert_sound(&env, "panics");
    env.close().unwrap();
}

/// A closure that calls back into its own transaction finds it busy.
#[test]
fn a_call_inside_a_call_of_the_same_transaction_is_refused() {
    let env = open(&SimDisk::new()).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    within(20, "call inside a call", move || {
        let txn = env.begin().unwrap();
        let table = txn.bytes("t").unwrap();
        let mut inner = None;
        table
            .modify(b"k", |_| {
                inner = Some(table.get(b"k"));
                None
            })
            .unwrap();
        assert!(matches!(inner, Some(Err(Error::Busy))), "{inner:?}");
        let mut inner = None;
        table
            .range(..)
            .unwrap()
            .for_each_ref(|key, _| {
                inner = Some(table.put(key, b"w"));
                true
            })
            .unwrap();
        assert!(matches!(inner, Some(Err(Error::Busy))), "{inner:?}");
        // The owned iterator is the way.
        for record in table.range(..).unwrap() {
            table.put(&record.unwrap().0, b"w").unwrap();
        }
        txn.commit().unwrap();
    });
}

#[test]
fn too_many_transactions_and_too_many_locks() {
    let env = tiny().lock_count_max(1024).escalate_after(u32::MAX).open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t").map(|_| ())).unwrap();
    let mut running = Vec::new();
    let refused = loop {
        match env.begin() {
            Ok(txn) => running.push(txn),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyTransactions(16)), "{refused:?}");
    assert!(running.len() >= 15);
    drop(running.pop());
    drop(env.begin().unwrap());
    running.clear();

    // Whoever is alone in a table takes the whole table instead, however many there are.
    let txn = env.begin().unwrap();
    let table = txn.bytes("t").unwrap();
    (0..5000).for_each(|n| table.put(&key(n), b"v").unwrap());
    txn.abort().unwrap();
    env.transact(|txn| (0..80).try_for_each(|no| txn.create_table(&format!("t{no}")).map(drop))).unwrap();
    let txns: Vec<_> = (0..14).map(|no| (format!("t{no}"), env.begin().unwrap())).collect();
    (0..500).for_each(|n| txns.iter().for_each(|(name, txn)| txn.bytes(name).unwrap().put(&key(n), b"v").unwrap()));
    txns.into_iter().for_each(|(_, txn)| drop(txn.commit().unwrap()));

    // Many that have one record in each of many tables leave no locks. Whoever is refused gives up its own, so that the
    // others go on.
    let txns: Vec<_> = (0..14).map(|_| env.begin().unwrap()).collect();
    let put = |no: usize, n: u64| txns[no].bytes(&format!("t{n}")).and_then(|table| table.put(&key(no as u64), b"w"));
    let refused = (0..80).find_map(|n| (0..14).find_map(|no| put(no, n).err().map(|error| (no, n, error))));
    let (victim, count, error) = refused.expect("1024 locks are never all taken");
    assert!(matches!(error, Error::LockTableFull { .. }) && error.is_retryable(), "{error:?}");
    assert!(14 * 2 * count >= 1024, "an intention and a key in each of {count} tables");
    for (no, txn) in txns.into_iter().enumerate() {
        let ended = txn.commit();
        assert!(
            if no == victim {
                matches!(ended, Err(Error::LockTableFull { .. } | Error::Finished))
            } else {
                ended.is_ok()
            },
            "{no}: {ended:?}"
        );
    }
    env.transact(|txn| (0..300).try_for_each(|n| txn.bytes("t")?.put(&key(n), b"v"))).unwrap();
    let kept = env.begin().unwrap().bytes("t").unwrap().range(..).unwrap().take(300).count();
    assert_eq!(kept, 300);
    assert_sound(&env, "locks");
}

#[test]
fn a_transaction_larger_than_cache_and_log_buffer() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    let fill = |txn: &ledgerstone::Transaction, seed: u8| -> Result<(), Error> {
        let table = txn.bytes_or_create("t")?;
        (0..3000u64).try_for_each(|n| table.put(&key(n * 1009 % 3000), &large(seed, 200)))
    };
    env.transact(|txn| fill(txn, 1)).unwrap();
    let before = read(&env).unwrap();
    let txn = env.begin().unwrap();
    fill(&txn, 2).unwrap();
    txn.bytes("t").unwrap().put(b"large", &large(3, 700_000)).unwrap();
    txn.abort().unwrap();
    assert!(read(&env).unwrap() == before);
    // One that a crash ends.
    let txn = env.begin().unwrap();
    fill(&txn, 4).unwrap();
    let env_after = open(&disk.after_crash(1)).unwrap();
    assert!(read(&env_after).unwrap() == before);
    assert_sound(&env_after, "larger");
}

#[test]
fn transactions_of_the_library_find_a_slot_beside_as_many_as_may_run() {
    let env = tiny().transaction_count_max(1).open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    for prepares in [false, true] {
        let txn = env.begin().unwrap();
        txn.bytes("t").unwrap().put(b"k", b"w").unwrap();
        let refused = env.begin().unwrap_err();
        assert!(matches!(refused, Error::TooManyTransactions(1)), "{refused:?}");
        assert_eq!(env.table_names().unwrap(), ["t"]);
        env.reclaim().unwrap();
        env.compact().unwrap();
        if prepares {
            txn.prepare(b"global").unwrap().abort().unwrap();
        } else {
            txn.commit().unwrap();
        }
    }
}

/// Nor do they take the slots of users' transactions, many as they may be. Those that find none of their own say so.
#[test]
fn calls_of_the_library_leave_users_their_transactions() {
    fn verify(env: &Environment, depth: u32, inside: &mut dyn FnMut(u32)) -> Result<(), Error> {
        let mut below = None;
        let verified = env.verify_with(|_| {
            if below.is_none() {
                inside(depth);
                below = Some(verify(env, depth + 1, inside));
            }
        });
        verified.map(|report| assert_eq!(report.problems, [])).and(below.unwrap_or(Ok(())))
    }
    let options = tiny().transaction_count_max(1).lock_timeout(Duration::ZERO);
    let env = options.open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t")?.put(b"k", b"v")).unwrap();
    let mut deepest = 0;
    let refused = verify(&env, 1, &mut |depth| {
        deepest = depth;
        let txn = env.begin().unwrap_or_else(|error| panic!("beside {depth} calls: {error}"));
        assert_eq!(txn.bytes("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
        txn.commit().unwrap();
    });
    assert_eq!(deepest, 16, "so many have a slot");
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    env.verify().unwrap();
}

#[test]
fn more_losers_than_slots_at_the_next_open() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes_or_create("t").map(|_| ())).unwrap();
    let losers: Vec<_> = (0..12)
        .map(|n| {
            let txn = env.begin().unwrap();
            txn.bytes("t").unwrap().put(&key(n * 1000), b"loser").unwrap();
            txn
        })
        .collect();
    env.transact(|txn| txn.bytes("t")?.put(b"kept", b"1")).unwrap();
    let after = disk.after_crash(9);
    drop(losers);
    let env = tiny().transaction_count_max(4).open_on(Arc::new(after)).unwrap();
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count()).unwrap(), 1);
}

#[test]
fn the_last_handle_goes_while_transactions_run() {
    let disk = SimDisk::new();
    let env = open(&disk).unwrap();
    env.transact(|txn| txn.bytes_or_create("t").map(|_| ())).unwrap();
    let (kept, lost) = (env.begin().unwrap(), env.begin().unwrap());
    kept.bytes("t").unwrap().put(b"kept", b"1").unwrap();
    lost.bytes("t").unwrap().put(b"lost", b"1").unwrap();
    let refused = env.close();
    assert!(matches!(refused, Err(Error::TransactionsOpen { count: 2 })), "{refused:?}");
    // The environment lives until the last transaction is over.
    assert!(matches!(open(&disk), Err(Error::AlreadyOpen { .. })));
    let table = kept.bytes("t").unwrap();
    table.put(b"also kept", b"1").unwrap();
    kept.commit().unwrap();
    drop(lost);
    let env = open(&disk).unwrap();
    assert!(env.recovery_report().was_clean);
    assert_eq!(env.transact(|txn| txn.bytes("t")?.count()).unwrap(), 2);
    // A table that is left over does no harm.
    assert!(table.get(b"kept").is_err());
}

#[test]
fn more_threads_than_slots() {
    let env = tiny().thread_count_max(12).open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| txn.bytes_or_create("t").map(|_| ())).unwrap();
    let gate = Arc::new(std::sync::Barrier::new(17));
    let threads: Vec<_> = (0..16u64)
        .map(|n| {
            let (env, gate) = (env.clone(), Arc::clone(&gate));
            std::thread::spawn(move || {
                let done = env.transact(|txn| txn.bytes("t")?.put(&key(n), b"v"));
                gate.wait(); // All are alive, and hold their slots.
                gate.wait();
                done
            })
        })
        .collect();
    gate.wait();
    gate.wait();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let refused = results.iter().filter(|r| matches!(r, Err(Error::TooManyThreads(14)))).count();
    let fine = results.iter().filter(|r| r.is_ok()).count();
    assert_eq!(refused + fine, 16, "{results:?}");
    assert!(refused >= 4 && fine >= 4, "{results:?}");
    // Threads that have ended give their slots back.
    let again = std::thread::spawn({
        let env = env.clone();
        move || env.transact(|txn| txn.bytes("t")?.count())
    });
    assert_eq!(again.join().unwrap().unwrap(), fine as u64);
    env.close().unwrap();
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park_timeout(Duration::from_secs(10)),
        }
    }
}

#[test]
fn tickets_are_awaited() {
    let disk = SimDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk));
    let env = tiny().open_on(Arc::new(faulty.clone())).unwrap();
    let commit = |durability| {
        let txn = env.begin().unwrap();
        txn.bytes_or_create("t").unwrap().put(b"k", &txn.xid().0.to_le_bytes()).unwrap();
        txn.commit_with(durability).unwrap().ticket
    };
    for durability in [Durability::Sync, Durability::Pipelined, Durability::Async, Durability::Volatile] {
        let ticket = commit(durability);
        let began = Instant::now();
        block_on(ticket.clone()).unwrap();
        assert!(ticket.is_durable() && began.elapsed() < Duration::from_secs(5), "{durability:?}");
    }
    // The log fails while somebody waits.
    faulty.add(Fault::at(Call::Write, 1, Harm::Fail(DiskErrorKind::Io(5))).on("log/").from_then_on());
    let ticket = commit(Durability::Volatile);
    let began = Instant::now();
    let failed = block_on(ticket.clone());
    assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?} {ticket:?}");
    assert!(matches!(ticket.wait(), Err(Error::Failed { .. })));
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// As futures are that are polled together with others.
#[test]
fn a_ticket_that_is_polled_often_has_one_waker() {
    struct Nothing;
    impl std::task::Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    let env = tiny().open_on(Arc::new(SimDisk::new())).unwrap();
    for n in 0..50u64 {
        let txn = env.begin().unwrap();
        txn.bytes_or_create("t").unwrap().put(b"k", &n.to_le_bytes()).unwrap();
        let mut ticket = txn.commit_with(Durability::Volatile).unwrap().ticket;
        let nothing = Arc::new(Nothing);
        let waker = std::task::Waker::from(Arc::clone(&nothing));
        let mut context = std::task::Context::from_waker(&waker);
        for _ in 0..100 {
            let _ = std::pin::Pin::new(&mut ticket).poll(&mut context);
            // Ours are two; the log has one, and may be waking another.
            assert!(Arc::strong_count(&nothing) <= 4, "{}", Arc::strong_count(&nothing));
        }
    }
}
