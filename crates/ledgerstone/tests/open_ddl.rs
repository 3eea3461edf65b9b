//! A transaction that makes, renames or drops tables and does not end keeps nobody waiting that only wants to know the
//! tables. That holds when it is in doubt, too, and after a restart.

mod common;

use common::{open, within};

use ledgerstone::{Environment, Error, IndexDef, IndexKeys, Lsn};
use ledgerstone_disk::SimDisk;

/// What must not wait; locks are waited for longer than this takes.
fn nobody_waits(env: &Environment, turn: u8) {
    let env = env.clone();
    common::within(60, "a feed, a compaction and the names of tables", move || {
        assert_eq!(env.table_names().unwrap(), ["a", "b", "c"]);
        let mut feed = env.changes(Lsn(u64::MAX)).unwrap();
        env.transact(|txn| txn.bytes("c")?.put(b"k", &[turn])).unwrap();
        let commit = feed.next().unwrap().unwrap();
        assert_eq!(&*commit.changes().next().unwrap().table, "c");
        env.changes(Lsn(0)).unwrap();
        let report = env.compact().unwrap();
        assert_eq!(report.skipped_tables, ["a", "b"]);
        env.stat().unwrap();
    });
}

fn change_tables(env: &Environment) -> Result<ledgerstone::Transaction, Error> {
    let txn = env.begin()?;
    txn.create_table("new")?.put(b"k", b"v")?;
    txn.rename_table("a", "z")?;
    txn.drop_table("b")?;
    Ok(txn)
}

#[test]
fn open_changes_of_tables_keep_nobody_waiting() {
    let disk = SimDisk::new();
    // Longer than the test may take: a wait is a failure.
    let open = |disk: &SimDisk| {
        let options = common::tiny().lock_timeout(std::time::Duration::from_secs(120));
        options.open_on(std::sync::Arc::new(disk.clone())).unwrap()
    };
    let env = open(&disk);
    env.transact(|txn| {
        for name in ["a", "b", "c"] {
            txn.create_table(name)?.put(b"k", b"v")?;
        }
        txn.create_index("a", &IndexDef::new("i", IndexKeys::Value))
    })
    .unwrap();
    let txn = change_tables(&env).unwrap();
    nobody_waits(&env, 0);
    txn.abort().unwrap();
    let prepared = change_tables(&env).unwrap().prepare(b"id").unwrap();
    nobody_waits(&env, 1);
    disk.crash_now();
    drop(prepared);
    drop(env);
    let env = open(&disk.after_crash(7));
    nobody_waits(&env, 2);
    env.commit_in_doubt(b"id").unwrap();
    assert_eq!(env.table_names().unwrap(), ["c", "new", "z"]);
}

/// One transaction may have locked very many tables: compaction does not wait for each of them.
#[test]
fn a_compaction_waits_for_all_locked_tables_together() {
    let env = open(&SimDisk::new()).unwrap();
    let names: Vec<String> = (0..60).map(|n| format!("t{n:02}")).collect();
    env.transact(|txn| names.iter().try_for_each(|name| txn.create_table(name).map(drop))).unwrap();
    let open = env.begin().unwrap();
    names.iter().for_each(|name| open.drop_table(name).unwrap());
    let report = within(40, "a compaction", {
        let env = env.clone();
        move || env.compact().unwrap()
    });
    assert_eq!(report.skipped_tables, names);
    open.abort().unwrap();
    assert!(env.compact().unwrap().skipped_tables.is_empty());
}

/// A page that was taken back is free, but its entry stays locked until the transaction ends: others take another page.
#[test]
fn a_page_that_an_open_transaction_has_given_back_is_passed_over() {
    let options = common::tiny().lock_timeout(std::time::Duration::from_secs(120));
    let env = options.open_on(std::sync::Arc::new(SimDisk::new())).unwrap();
    let large = vec![7; 40_000];
    env.transact(|txn| txn.create_table("there")?.put("k", "v")).unwrap();
    let txn = env.begin().unwrap();
    for no in 0..5 {
        let before = txn.savepoint().unwrap();
        let table = txn.create_table("undone").unwrap();
        (0..10_u8).for_each(|n| table.put([n], &large).unwrap());
        txn.rollback_to(before).unwrap();
        let env = env.clone();
        let large = large.clone();
        within(60, "new tables and large values", move || {
            env.transact(|txn| {
                let table = txn.create_table(&format!("made {no}"))?;
                (0..10_u8).try_for_each(|n| table.put([n], &large))
            })
            .unwrap();
        });
    }
    drop(txn);
    common::assert_sound(&env, "after pages were passed over");
    assert_eq!(env.table_names().unwrap().len(), 6);
}
