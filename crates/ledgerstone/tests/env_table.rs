//! Handles of the environment: tables that are opened once for all transactions.

mod common;

use common::levels::{LEVELS, begin, open};
use common::{look_until, within};
use ledgerstone::{
    EnvTable, Environment, Error, IndexDef, IndexKeys, Isolation, TableDef, TableTypes, Transaction,
    TransactionOptions, TypedEnvTable,
};

fn made(env: &Environment, records: &[(&str, &str)]) {
    env.transact(|txn| {
        let table = txn.create_table("stock")?;
        records.iter().try_for_each(|(key, value)| table.put(key, value))
    })
    .unwrap();
}

fn value(table: &EnvTable, env: &Environment, level: Isolation, key: &str) -> Option<String> {
    let txn = begin(env, level);
    let value = table.get(&txn, key).unwrap();
    assert_eq!(table.contains(&txn, key).unwrap(), value.is_some());
    assert_eq!(table.get_with(&txn, key, <[u8]>::to_vec).unwrap(), value);
    assert_eq!(table.of(&txn).unwrap().get(key).unwrap(), value);
    txn.commit().unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn a_table_is_opened_once_for_the_transactions_of_all_threads() {
    fn is_for_all_threads<T: Send + Sync + 'static>() {}
    is_for_all_threads::<EnvTable>();
    let env = open();
    assert!(matches!(env.table("stock"), Err(Error::NoSuchTable(_))));
    made(&env, &[("apples", "12")]);
    let stock = env.table("stock").unwrap();
    assert_eq!(stock.name(), "stock");
    let sell = |key: &'static str| {
        let (env, stock) = (env.clone(), stock.clone());
        move || {
            env.transact(|txn| {
                stock.put(txn, key, "1")?;
                assert!(stock.modify(txn, key, |old| Some([old, b"0"].concat()))?);
                assert_eq!(stock.get_for_update(txn, key)?.as_deref(), Some(&b"10"[..]));
                Ok(())
            })
            .unwrap();
        }
    };
    let threads = ["pears", "plums"].map(|key| std::thread::spawn(sell(key)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for level in LEVELS {
        for (key, expected) in [("apples", Some("12")), ("pears", Some("10")), ("figs", None)] {
            assert_eq!(value(&stock, &env, level, key).as_deref(), expected, "{level:?} {key}");
        }
    }
    env.transact(|txn| {
        assert!(matches!(stock.insert_new(txn, "pears", "2"), Err(Error::KeyExists { .. })));
        assert!(stock.delete(txn, "pears")? && !stock.delete(txn, "pears")?);
        stock.insert_new(txn, "pears", "3")
    })
    .unwrap();
    assert_eq!(value(&stock, &env, Isolation::Serializable, "pears").as_deref(), Some("3"));
}

#[test]
fn a_handle_goes_on_with_what_has_its_name() {
    let env = open();
    made(&env, &[("apples", "12")]);
    let stock = env.table("stock").unwrap();
    let before = begin(&env, Isolation::Snapshot);
    env.transact(|txn| txn.drop_table("stock")).unwrap();
    for level in LEVELS {
        let txn = begin(&env, level);
        assert!(matches!(stock.get(&txn, "apples"), Err(Error::NoSuchTable(_))), "{level:?}");
        assert!(matches!(stock.put(&txn, "apples", "1"), Err(Error::NoSuchTable(_))), "{level:?}");
    }
    made(&env, &[("apples", "7")]);
    for level in LEVELS {
        assert_eq!(value(&stock, &env, level, "apples").as_deref(), Some("7"), "{level:?}");
    }
    assert_eq!(stock.get(&before, "apples").unwrap().as_deref(), Some(&b"12"[..]), "as at its snapshot");
    env.transact(|txn| stock.put(txn, "pears", "8")).unwrap();
    let again = env.table("stock").unwrap();
    assert_eq!(value(&again, &env, Isolation::Serializable, "pears").as_deref(), Some("8"));
    // A snapshot that is older than the table does not show it, whatever the handle knows.
    assert_eq!(again.get(&before, "apples").unwrap().as_deref(), Some(&b"12"[..]));
    drop(before);
    env.transact(|txn| txn.rename_table("stock", "shelf")).unwrap();
    let txn = env.begin().unwrap();
    assert!(matches!(again.get(&txn, "apples"), Err(Error::NoSuchTable(_))));
}

/// More often than a handle learns what has become of its table, with snapshots from between.
#[test]
fn a_handle_learns_what_its_table_has_become_again_and_again() {
    let env = open();
    made(&env, &[("apples", "0")]);
    let stock = env.table("stock").unwrap();
    let mut before = Vec::new();
    for round in 1..=20 {
        before.push(begin(&env, Isolation::Snapshot));
        // Two in three are made anew while snapshots still show the one before, and one is only given back its place.
        let change = |txn: &Transaction| {
            txn.drop_table("stock")?;
            txn.create_table("stock")?.put("apples", round.to_string())?;
            if round % 3 == 0 { Err(Error::NoSuchTable("stock".into())) } else { Ok(()) }
        };
        let is_changed = env.transact(|txn| change(txn)).is_ok();
        assert_eq!(is_changed, round % 3 != 0);
        let now = if is_changed { round } else { round - 1 };
        for level in LEVELS {
            assert_eq!(value(&stock, &env, level, "apples"), Some(now.to_string()), "{round} {level:?}");
            assert_eq!(value(&stock.clone(), &env, level, "apples"), Some(now.to_string()), "{round} {level:?}");
        }
        for (no, txn) in before.iter().enumerate() {
            let then = if no % 3 == 0 && no > 0 { no - 1 } else { no };
            let seen = stock.get(txn, "apples").unwrap().unwrap();
            assert_eq!(String::from_utf8(seen).unwrap(), then.to_string(), "{round}");
        }
    }
}

#[test]
fn a_snapshot_older_than_the_table_does_not_show_it() {
    let env = open();
    let before = begin(&env, Isolation::Snapshot);
    made(&env, &[("apples", "12")]);
    let stock = env.table("stock").unwrap();
    assert!(matches!(stock.get(&before, "apples"), Err(Error::NoSuchTable(_))));
    assert_eq!(value(&stock, &env, Isolation::Snapshot, "apples").as_deref(), Some("12"));
}

#[test]
fn indexes_that_come_later_are_kept_by_writes_through_the_handle() {
    let env = open();
    made(&env, &[("apples", "red")]);
    let stock = env.table("stock").unwrap();
    let colours = IndexDef::new("colour", IndexKeys::Bytes { from: 0, to: None });
    env.transact(|txn| txn.create_index("stock", &colours)).unwrap();
    env.transact(|txn| stock.put(txn, "plums", "blue")).unwrap();
    env.transact(|txn| {
        let table = stock.of(txn)?;
        assert_eq!(table.index("colour")?.get("blue")?, Some((b"plums".to_vec(), b"blue".to_vec())));
        assert_eq!(table.index("colour")?.get("green")?, None);
        Ok(())
    })
    .unwrap();
}

#[test]
fn what_a_transaction_has_made_of_the_table_itself_counts_at_once() {
    let env = open();
    made(&env, &[("apples", "12")]);
    let stock = env.table("stock").unwrap();
    let txn = env.begin().unwrap();
    txn.drop_table("stock").unwrap();
    assert!(matches!(stock.get(&txn, "apples"), Err(Error::NoSuchTable(_))));
    txn.create_table("stock").unwrap().put("apples", "1").unwrap();
    assert_eq!(stock.get(&txn, "apples").unwrap().as_deref(), Some(&b"1"[..]));
    txn.abort().unwrap();
    assert_eq!(value(&stock, &env, Isolation::Serializable, "apples").as_deref(), Some("12"));
}

#[test]
fn a_handle_is_of_one_environment_and_does_not_keep_it_open() {
    let (env, other) = (open(), open());
    made(&env, &[("apples", "12")]);
    made(&other, &[("apples", "3")]);
    let stock = env.table("stock").unwrap();
    assert_eq!(value(&stock, &other, Isolation::Serializable, "apples").as_deref(), Some("3"), "found by its name");
    env.close().unwrap();
    assert_eq!(stock.name(), "stock");
}

#[test]
fn a_call_that_finds_the_table_changed_and_goes_on_has_met_no_conflict() {
    type Change = fn(&Transaction) -> Result<(), Error>;
    let changes: [Change; 2] = [
        |txn| txn.create_index("stock", &IndexDef::new("colour", IndexKeys::Bytes { from: 0, to: None })),
        |txn| {
            txn.drop_table("stock")?;
            txn.create_table("stock").map(drop)
        },
    ];
    for change in changes {
        within(60, "a changed table", move || {
            let env = open();
            made(&env, &[("apples", "red")]);
            let stock = env.table("stock").unwrap();
            let first = env.begin().unwrap();
            stock.put(&first, "pears", "green").unwrap();
            let changer = {
                let env = env.clone();
                std::thread::spawn(move || env.transact(change))
            };
            look_until(&env, &changer, |waits| !waits.is_empty());
            let writer = {
                let (env, stock, mut runs) = (env.clone(), stock.clone(), 0);
                std::thread::spawn(move || {
                    let failed = env.transact(|txn| {
                        runs += 1;
                        stock.put(txn, "plums", "blue")?;
                        Err::<(), _>(Error::user("a reason of its own"))
                    });
                    assert!(matches!(failed, Err(Error::User(_))), "{failed:?}");
                    runs
                })
            };
            look_until(&env, &writer, |waits| waits.iter().any(|wait| wait.waiter != waits[0].waiter));
            first.commit().unwrap();
            changer.join().unwrap().unwrap();
            assert_eq!(writer.join().unwrap(), 1, "the call succeeded: there is nothing to try again");
        });
    }
}

const AGES: TableDef<String, u32> = TableDef::new("ages");
const NAMES: TableDef<String, String> = TableDef::new("ages");

fn is_mismatch<T>(got: &Result<T, Error>) -> bool {
    matches!(got, Err(Error::TableTypeMismatch(found)) if found.table == "ages")
}

#[test]
fn a_typed_table_is_made_if_it_is_missing_and_opened_with_its_types_only() {
    fn is_for_all_threads<T: Send + Sync + 'static>() {}
    is_for_all_threads::<TypedEnvTable<String, u32>>();
    let env = open();
    let before = begin(&env, Isolation::Snapshot);
    let ages = env.typed_table(AGES).unwrap();
    assert_eq!((ages.name(), ages.as_bytes().name()), ("ages", "ages"));
    for level in LEVELS {
        let txn = begin(&env, level);
        let before = ages.insert(&txn, "Ann", 31).unwrap();
        assert_eq!(ages.of(&txn).unwrap().get("Ann").unwrap(), Some(31), "{level:?}");
        assert_eq!(ages.as_bytes().count(&txn).unwrap(), 1);
        assert_eq!(before.is_some(), level != LEVELS[0]);
        txn.commit().unwrap();
    }
    assert!(is_mismatch(&env.typed_table(NAMES)));
    assert_eq!(env.typed_table(AGES).unwrap().get(&env.snapshot().unwrap(), "Ann").unwrap(), Some(31));
    assert!(matches!(ages.get(&before, "Ann"), Err(Error::NoSuchTable(_))), "it was made after that snapshot");
    env.table_or_create("plain").unwrap();
    let plain = env.table_or_create("plain").unwrap();
    assert!(matches!(plain.get(&before, "x"), Err(Error::NoSuchTable(_))));
    assert_eq!(plain.get(&env.snapshot().unwrap(), "x").unwrap(), None);
}

#[test]
fn an_environment_for_reading_makes_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let env = common::tiny().open(dir.path()).unwrap();
    let ages = env.typed_table(AGES).unwrap();
    env.transact(|txn| ages.put(txn, "Ann", 31)).unwrap();
    env.close().unwrap();
    let env = common::tiny().read_only(true).open(dir.path()).unwrap();
    assert_eq!(env.typed_table(AGES).unwrap().get(&env.begin().unwrap(), "Ann").unwrap(), Some(31));
    let missing = env.typed_table(TableDef::<u32, u32>::new("missing"));
    assert!(matches!(missing, Err(Error::NoSuchTable(_))), "{missing:?}");
    let missing = env.table_or_create("missing");
    assert!(matches!(missing, Err(Error::ReadOnly { .. })), "{missing:?}");
}

/// Every call of a handle whose table has other types by now, at every level.
#[test]
fn a_typed_handle_refuses_a_table_of_its_name_with_other_types() {
    let env = open();
    let ages = env.typed_table(AGES).unwrap();
    env.transact(|txn| ages.put(txn, "Ann", 31)).unwrap();
    let before = begin(&env, Isolation::Snapshot);
    assert_eq!(ages.get(&before, "Ann").unwrap(), Some(31));
    env.transact(|txn| {
        txn.drop_table("ages")?;
        let names = txn.open(NAMES)?;
        // By a transaction that has changed it itself as well.
        assert!(is_mismatch(&ages.get(txn, "Ann")));
        names.put("Ann", "Smith")
    })
    .unwrap();
    for level in LEVELS {
        let txn = begin(&env, level);
        assert!(is_mismatch(&ages.get(&txn, "Ann")), "{level:?}");
        assert!(is_mismatch(&ages.get_with(&txn, "Ann", <[u8]>::len)), "{level:?}");
        assert!(is_mismatch(&ages.put(&txn, "Ann", 1)), "{level:?}");
        assert!(is_mismatch(&ages.range(&txn, ..)), "{level:?}");
        assert!(is_mismatch(&ages.modify(&txn, "Ann", |_| panic!("of other types"))), "{level:?}");
        assert!(is_mismatch(&ages.entry(&txn, "Ann")), "{level:?}");
        assert!(is_mismatch(&ages.load_sorted(&txn, [("Zoe", 1)])), "{level:?}");
        assert!(is_mismatch(&ages.of(&txn)), "{level:?}");
        assert!(is_mismatch(&ages.as_bytes().get(&txn, "Ann")), "{level:?}");
    }
    assert_eq!(ages.get(&before, "Ann").unwrap(), Some(31), "as at its snapshot");
    drop(before);
    let names = env.typed_table(NAMES).unwrap();
    assert_eq!(names.get(&env.begin().unwrap(), "Ann").unwrap().as_deref(), Some("Smith"));
    // And back again.
    env.transact(|txn| txn.drop_table("ages").and_then(|()| txn.open(AGES)?.put("Ann", 32))).unwrap();
    assert_eq!(ages.get(&env.begin().unwrap(), "Ann").unwrap(), Some(32));
    assert!(is_mismatch(&names.get(&env.begin().unwrap(), "Ann")));
}

#[test]
fn a_typed_handle_of_a_table_without_types_asks_again_when_it_gets_some() {
    let env = open();
    let plain = env.table_or_create("ages").unwrap();
    let (ages, names) = (env.typed_table(AGES).unwrap(), env.typed_table(NAMES).unwrap());
    env.transact(|txn| ages.put(txn, "Ann", 31)).unwrap();
    assert!(matches!(names.get(&env.begin().unwrap(), "Ann"), Err(Error::WrongType { .. }) | Ok(Some(_))));
    let types = TableTypes { key: Some("string".into()), value: Some("u32".into()) };
    let txn = env.begin().unwrap();
    txn.set_table_types("ages", &types).unwrap();
    assert_eq!(ages.get(&txn, "Ann").unwrap(), Some(31));
    assert!(is_mismatch(&names.get(&txn, "Ann")));
    txn.abort().unwrap();
    assert!(!is_mismatch(&names.get(&env.begin().unwrap(), "Ann")));
    env.transact(|txn| txn.set_table_types("ages", &types)).unwrap();
    for level in LEVELS {
        let txn = begin(&env, level);
        assert_eq!(ages.get(&txn, "Ann").unwrap(), Some(31), "{level:?}");
        assert!(is_mismatch(&names.get(&txn, "Ann")), "{level:?}");
        assert_eq!(plain.types(&txn).unwrap(), types, "{level:?}");
        assert_eq!(plain.get(&txn, "Ann").unwrap(), plain.of(&txn).unwrap().get("Ann").unwrap(), "{level:?}");
    }
}

#[test]
fn all_of_a_renamed_table_is_found_by_handles_of_its_new_name() {
    let env = open();
    let ages = env.typed_table(AGES).unwrap();
    env.transact(|txn| ages.put(txn, "Ann", 31)).unwrap();
    env.transact(|txn| txn.rename_table("ages", "years")).unwrap();
    let years = env.typed_table(TableDef::<String, u32>::new("years")).unwrap();
    for level in LEVELS {
        let txn = begin(&env, level);
        assert!(matches!(ages.range(&txn, ..), Err(Error::NoSuchTable(_))), "{level:?}");
        assert!(matches!(ages.of(&txn), Err(Error::NoSuchTable(_))), "{level:?}");
        assert_eq!(years.pop_first(&txn).unwrap(), Some(("Ann".to_string(), 31)), "{level:?}");
        txn.abort().unwrap();
    }
}

#[test]
fn a_load_into_an_empty_table_is_seen_by_the_handle_and_by_its_clones() {
    let env = open();
    let ages = env.typed_table(AGES).unwrap();
    let clone = ages.clone();
    let txn = env.begin().unwrap();
    assert_eq!(ages.load_sorted(&txn, [("Ann", 31), ("Bob", 4)]).unwrap(), 2);
    assert_eq!((ages.count(&txn).unwrap(), clone.count(&txn).unwrap()), (2, 2));
    assert!(matches!(ages.load_sorted(&txn, [("Abe", 1)]), Err(Error::NotAtEnd { .. })));
    let failed = ages.try_load_sorted(&txn, [Ok(("Cid", 1)), Err(Error::user("ends"))]);
    assert!(matches!(failed, Err(Error::User(_))), "{failed:?}");
    assert_eq!(clone.last(&txn).unwrap(), Some(("Bob".to_string(), 4)));
    txn.abort().unwrap();
    for level in LEVELS {
        assert!(ages.is_empty(&begin(&env, level)).unwrap(), "{level:?}");
    }
    env.transact(|txn| ages.load_sorted(txn, [("Ann", 31)])).unwrap();
    for level in LEVELS {
        assert_eq!(clone.first(&begin(&env, level)).unwrap(), Some(("Ann".to_string(), 31)), "{level:?}");
    }
}

#[test]
fn nothing_of_a_closed_environment_is_reached_by_its_handles() {
    let (env, other) = (open(), open());
    let ages = env.typed_table(AGES).unwrap();
    let txn = env.begin().unwrap();
    ages.put(&txn, "Ann", 31).unwrap();
    let (table, mut range) = (ages.of(&txn).unwrap(), ages.range(&txn, ..).unwrap());
    txn.commit().unwrap();
    env.clone().close().unwrap();
    assert!(matches!(table.get("Ann"), Err(Error::Failed { .. } | Error::Finished)));
    assert!(matches!(range.next(), Some(Err(Error::Failed { .. } | Error::Finished))));
    assert!(matches!(env.typed_table(AGES), Err(Error::Failed { .. })));
    assert!(matches!(env.table_or_create("ages"), Err(Error::Failed { .. })));
    // In another environment, it is what has the name there.
    let txn = other.begin().unwrap();
    assert!(matches!(ages.put(&txn, "Ann", 31), Err(Error::NoSuchTable(_))));
    txn.open(NAMES).unwrap();
    assert!(is_mismatch(&ages.put(&txn, "Ann", 31)));
}

#[test]
fn a_call_inside_a_closure_of_its_transaction_is_refused_and_its_work_is_kept() {
    let env = open();
    let ages = env.typed_table(AGES).unwrap();
    for level in LEVELS {
        let txn = begin(&env, level);
        ages.put(&txn, "Ann", 31).unwrap();
        let changed = ages.modify(&txn, "Ann", |age| {
            assert!(matches!(ages.get(&txn, "Ann"), Err(Error::Busy)));
            assert!(matches!(ages.of(&txn), Err(Error::Busy)));
            assert!(matches!(ages.put(&txn, "Bob", 1), Err(Error::Busy)));
            Some(age + 1)
        });
        assert!(changed.unwrap());
        // A panic takes back the step, and nothing else.
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ages.modify(&txn, "Ann", |_| std::panic::resume_unwind(Box::new("on purpose")))
        }));
        assert!(panicked.is_err());
        assert_eq!(ages.get_with(&txn, "Ann", |_| ages.get(&txn, "Ann").unwrap()).unwrap(), Some(Some(32)));
        txn.commit().unwrap();
    }
}

#[test]
fn a_table_that_is_lent_to_a_transaction_stays_what_it_is_until_the_transaction_ends() {
    let env = open();
    let ages = env.typed_table(AGES).unwrap();
    let without_waiting = TransactionOptions { lock_timeout: Some(std::time::Duration::ZERO), ..Default::default() };
    let drop_it = || env.begin_with(without_waiting).unwrap().drop_table("ages");
    let txn = env.begin().unwrap();
    let table = ages.of(&txn).unwrap();
    assert!(matches!(drop_it(), Err(Error::LockTimeout { .. })), "the transaction is serializable");
    table.put("Ann", 31).unwrap();
    // What the transaction itself makes of it counts for the table that it has, as for one that it opened.
    txn.rename_table("ages", "years").unwrap();
    assert!(matches!(table.get("Ann"), Err(Error::NoSuchTable(_))));
    assert!(matches!(ages.of(&txn), Err(Error::NoSuchTable(_))));
    txn.abort().unwrap();
    drop_it().unwrap();
    let txn = env.begin().unwrap();
    assert!(ages.of(&txn).unwrap().is_empty().unwrap(), "the one that dropped it has not committed");
}

/// Below serializable, a call looks until no table has the name: one that is made anew all the time is never missing.
#[test]
fn threads_go_on_with_a_table_that_is_made_anew_all_the_time() {
    within(120, "a table made anew", || {
        let env = open();
        let ages = env.typed_table(AGES).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let is_over = &is_over;
        std::thread::scope(|scope| {
            for level in LEVELS {
                let (env, ages) = (env.clone(), ages.clone());
                scope.spawn(move || {
                    let options = TransactionOptions { isolation: Some(level), ..Default::default() };
                    let mut done = 0;
                    while !is_over.load(std::sync::atomic::Ordering::SeqCst) || done < 20 {
                        let result = env.transact_with(options, |txn| {
                            let key = format!("{level:?}");
                            ages.first(txn)?;
                            ages.count(txn)?;
                            ages.insert(txn, &key, done)?;
                            ages.modify(txn, &key, |age| Some(age + 1))?;
                            ages.get_or_insert_with(txn, "all", || 1)?;
                            ages.delete_range(txn, "x".."y")?;
                            ages.remove(txn, &key).map(drop)
                        });
                        match result {
                            Ok(()) => done += 1,
                            Err(error) => assert!(error.is_retryable(), "{level:?}: {error:?}"),
                        }
                    }
                });
            }
            for _ in 0..60 {
                let made = env.transact(|txn| {
                    txn.drop_table("ages")?;
                    txn.open(AGES)?.put("Ann", 31)
                });
                assert!(made.is_ok() || made.as_ref().is_err_and(Error::is_retryable), "{made:?}");
            }
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        common::assert_sound(&env, "made anew");
    });
}
