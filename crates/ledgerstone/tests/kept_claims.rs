//! Transactions keep a little room in the log between their calls (C5 in `log/append.rs`). Nobody waits for it.

use std::time::Duration;

use ledgerstone::{Durability, Environment, Error};

const TRANSACTIONS: u32 = 60;
const BUFFER_BYTES: u64 = 128 << 10;

/// The largest claims have room beside what all the others keep, and the log goes round its buffer many times.
#[test]
fn large_and_many_records_pass_beside_transactions_that_do_nothing() {
    let (sent, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let dir = tempfile::tempdir().unwrap();
        let env = Environment::options()
            .log_buffer_bytes(BUFFER_BYTES)
            .transaction_count_max(TRANSACTIONS + 4)
            .page_bytes(32 << 10)
            .durability(Durability::Volatile)
            .open(dir.path())
            .unwrap();
        env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
        let idle: Vec<_> = (0..TRANSACTIONS)
            .map(|no| {
                let txn = env.begin().unwrap();
                let table = txn.bytes("t").unwrap();
                table.put(no.to_be_bytes(), b"small").unwrap();
                txn
            })
            .collect();
        let large = vec![7; 4 << 20];
        for no in 0..4_u32 {
            env.transact(|txn| txn.bytes("t")?.put((1000 + no).to_be_bytes(), &large)).unwrap();
            env.transact(|txn| {
                let table = txn.bytes("t")?;
                (0..200_u32)
                    .try_for_each(|i| table.put((2000 + 200 * no + i).to_be_bytes(), vec![b'.'; 1000 + i as usize]))
            })
            .unwrap();
        }
        // Those that did nothing go on with what they kept, and by either end.
        for (no, txn) in idle.into_iter().enumerate() {
            txn.bytes("t").unwrap().put((no as u32).to_be_bytes(), b"other").unwrap();
            if no % 2 == 0 { txn.commit().map(drop) } else { txn.abort() }.unwrap();
        }
        let count = env.transact(|txn| Ok::<_, Error>(txn.bytes("t")?.range(..)?.count())).unwrap();
        env.verify().unwrap();
        env.close().unwrap();
        sent.send(count).unwrap();
    });
    let count = received.recv_timeout(Duration::from_secs(120)).expect("somebody waits for what others keep");
    assert_eq!(count, TRANSACTIONS as usize / 2 + 4 + 4 * 200);
}

/// An old record longer than what replaces it: more is claimed once the page says so.
#[test]
fn a_short_value_replaces_a_long_one_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options().durability(Durability::Volatile).open(dir.path()).unwrap();
    env.transact(|txn| txn.create_table("t").map(drop)).unwrap();
    let long = vec![b'l'; 1_900];
    for len in [0, 1, 100, 1_899] {
        env.transact(|txn| txn.bytes("t")?.put("k", &long)).unwrap();
        let txn = env.begin().unwrap();
        let table = txn.bytes("t").unwrap();
        table.put("k", vec![b's'; len]).unwrap();
        table.put("k", &long).unwrap();
        table.put("k", vec![b'x'; len]).unwrap();
        txn.abort().unwrap();
        let back = env.transact(|txn| txn.bytes("t")?.get("k")).unwrap();
        assert_eq!(back.as_deref(), Some(&long[..]), "{len}");
    }
}
