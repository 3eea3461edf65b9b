//! Handles of the environment: tables that are opened once for all transactions.

mod common;

use common::levels::{LEVELS, begin, open};
use common::{look_until, within};
use ledgerstone::{EnvTable, Environment, Error, IndexDef, IndexKeys, Isolation, Transaction};

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
