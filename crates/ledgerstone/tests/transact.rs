//! What a closure in a transaction may return, and what comes back with its commit.

use std::fmt;
use std::sync::Arc;

use ledgerstone::{Durability, Environment, Error, Lsn, TableDef, TransactionOptions};
use tempfile::TempDir;

const STOCK: TableDef<String, u64> = TableDef::new("stock");

fn environment() -> (TempDir, Environment) {
    let dir = tempfile::tempdir().unwrap();
    let env = Environment::options().cache_bytes(8 << 20).open(dir.path()).unwrap();
    (dir, env)
}

fn left(env: &Environment) -> Option<u64> {
    env.transact(|txn| txn.open(STOCK)?.get("apple")).unwrap()
}

#[test]
fn closures_need_no_type_of_error() {
    let (_dir, env) = environment();
    env.transact(|txn| {
        txn.open(STOCK)?.put("apple", &1)?;
        txn.nested(|txn| {
            txn.open(STOCK)?.put("apple", &2)?;
            Ok(())
        })?;
        txn.nested_read_only(|txn| {
            assert_eq!(txn.open(STOCK)?.get("apple")?, Some(2));
            Ok(())
        })?;
        Ok(())
    })
    .unwrap();
    env.transact_with(TransactionOptions::default(), |_| Ok(())).unwrap();
    assert_eq!(left(&env), Some(2));
}

#[derive(Debug, PartialEq)]
struct SoldOut(u64);

impl fmt::Display for SoldOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sold out, {} are missing", self.0)
    }
}

impl std::error::Error for SoldOut {}

#[test]
fn a_reason_of_ones_own_comes_back_as_it_is_and_its_transaction_is_rolled_back() {
    let (_dir, env) = environment();
    let mut tries = 0;
    let error = env
        .transact(|txn| {
            tries += 1;
            txn.open(STOCK)?.put("apple", &1)?;
            Err::<(), _>(Error::user(SoldOut(3)))
        })
        .unwrap_err();
    assert_eq!(tries, 1, "it is not a conflict");
    assert!(!error.is_retryable());
    assert_eq!(error.to_string(), "sold out, 3 are missing");
    let Error::User(why) = error else { panic!("{error:?}") };
    assert_eq!(why.downcast_ref(), Some(&SoldOut(3)));
    assert_eq!(left(&env), None);
}

#[derive(Debug)]
enum ShopError {
    SoldOut,
    Store(Error),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> ShopError {
        ShopError::Store(error)
    }
}

#[test]
fn a_program_may_have_an_error_type_of_its_own() {
    let (_dir, env) = environment();
    let sold_out = env.try_transact(|txn| {
        txn.open(STOCK)?.put("apple", &1)?;
        txn.try_nested(|_| Err::<(), _>(ShopError::SoldOut))
    });
    assert!(matches!(sold_out, Err(ShopError::SoldOut)));
    assert_eq!(left(&env), None);
    let missing = env.try_transact_with(TransactionOptions::default(), |txn| Ok(txn.bytes("nowhere").map(drop)?));
    assert!(matches!(missing, Err(ShopError::Store(Error::NoSuchTable(_)))), "{missing:?}");
}

#[test]
fn a_result_comes_with_the_ticket_of_its_commit() {
    let (_dir, env) = environment();
    let mut last = Lsn(0);
    for durability in [Durability::Sync, Durability::Pipelined, Durability::Async, Durability::Volatile] {
        let options = TransactionOptions { durability: Some(durability), ..TransactionOptions::default() };
        let (left, committed) = env
            .transact_ticket(options, |txn| {
                let stock = txn.open(STOCK)?;
                let left = stock.get("apple")?.unwrap_or(0) + 1;
                stock.put("apple", &left)?;
                Ok(left)
            })
            .unwrap();
        assert!(committed.lsn > last, "{durability:?}, {left}: {committed:?}");
        assert!(committed.ticket.is_durable() || durability != Durability::Sync);
        committed.ticket.wait().unwrap();
        assert!(committed.ticket.is_durable(), "{durability:?}");
        last = committed.lsn;
    }
    assert_eq!(left(&env), Some(4));
    let options = TransactionOptions::default();
    let refused = env.try_transact_ticket(options, |_| Err::<(), _>(ShopError::SoldOut));
    assert!(matches!(refused, Err(ShopError::SoldOut)));
}

#[test]
fn the_ticket_is_of_the_try_that_was_committed() {
    let (_dir, env) = environment();
    env.transact(|txn| txn.open(STOCK)?.put("apple", &1)).unwrap();
    let (mut tries, env) = (0, Arc::new(env));
    let options = TransactionOptions { isolation: Some(ledgerstone::Isolation::Snapshot), ..Default::default() };
    let (seen, committed) = env
        .transact_ticket(options, |txn| {
            tries += 1;
            if tries == 1 {
                // Another one is faster: first committer wins.
                let env = Arc::clone(&env);
                let other = move || env.transact(|txn| txn.open(STOCK)?.put("apple", &10));
                std::thread::spawn(other).join().unwrap()?;
            }
            let stock = txn.open(STOCK)?;
            let seen = stock.get("apple")?;
            stock.put("apple", &20)?;
            Ok(seen)
        })
        .unwrap();
    assert_eq!((tries, seen, left(&env)), (2, Some(10), Some(20)));
    assert!(committed.lsn > Lsn(0) && committed.ticket.is_durable());
}
