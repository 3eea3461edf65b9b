//! What a transaction keeps for each table that it makes or drops. Alone in its process, whose heap is counted.

#[path = "common/heap.rs"]
mod heap;

use ledgerstone::{Durability, Environment, Error, Isolation, Transaction, TransactionOptions};

const COUNT: usize = 3000;
const BYTES_MAX: usize = 200;

/// Bytes of the heap that each of `COUNT` steps leaves to the transaction.
fn each(txn: &Transaction, step: impl Fn(&Transaction, &str) -> Result<(), Error>) -> Result<usize, Error> {
    let before = heap::taken_here();
    (0..COUNT).try_for_each(|n| step(txn, &format!("table number {n}")))?;
    Ok((heap::taken_here() - before).max(0) as usize / COUNT)
}

#[test]
fn a_transaction_keeps_less_than_200_bytes_of_heap_for_each_table_that_it_makes_or_drops() -> Result<(), Error> {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let dir = tempfile::tempdir().unwrap();
        let env = Environment::options().cache_bytes(64 << 20).durability(Durability::Volatile).open(dir.path())?;
        let begin =
            || env.begin_with(TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() });

        let txn = begin()?;
        let bytes = each(&txn, |txn, name| txn.create_table(name)?.put(b"k", b"v"))?;
        assert!(bytes < BYTES_MAX, "{bytes} bytes for each table made, {isolation}");
        // They are there all the same.
        assert_eq!(txn.bytes("table number 7")?.get(b"k")?.as_deref(), Some(&b"v"[..]));
        txn.commit()?;

        let txn = begin()?;
        let bytes = each(&txn, |txn, name| txn.drop_table(name))?;
        assert!(bytes < BYTES_MAX, "{bytes} bytes for each table dropped, {isolation}");
        assert!(matches!(txn.bytes("table number 7"), Err(Error::NoSuchTable(_))));
        txn.commit()?;
        env.close()?;
    }
    Ok(())
}
