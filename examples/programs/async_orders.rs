//! Orders taken by tasks of tokio, none of which ever blocks the executor.
//!
//! A transaction may wait: for locks, for pages from the disk, for room in the log. So it runs in a thread of tokio's where
//! that is allowed (`spawn_blocking`), and only as long as it has work to do. That its commit is durable is awaited by the
//! task itself: a [`Ticket`](ledgerstone::Ticket) is a future, and many tasks share one write to the disk.
//!
//! Run it with `cargo run -p ledgerstone-examples --example async_orders DIR`.

use std::path::Path;

use ledgerstone::{Durability, Environment, Error, TableDef, TransactionOptions};
use tokio::task::spawn_blocking;

const STOCK: TableDef<String, u64> = TableDef::new("stock");
const ORDERS: TableDef<u64, String> = TableDef::new("orders");

/// Threads that run transactions. More would only wait for each other, and each takes a slot of the environment's.
const TRANSACTION_THREADS: usize = 4;

fn main() -> Result<(), Error> {
    let dir = std::env::args_os().nth(1).unwrap_or_else(|| "orders".into());
    let sold = take_orders(dir.as_ref(), 200)?;
    println!("{sold} of 200 orders were taken, each durable before its customer was told");
    Ok(())
}

/// Takes `count` orders at once, until nothing is left, and says how many were taken.
fn take_orders(dir: &Path, count: u64) -> Result<u64, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(TRANSACTION_THREADS)
        .build()
        .map_err(Error::user)?;
    // Opening may recover, and closing writes what is left: both outside of the executor.
    let env = Environment::options().cache_bytes(16 << 20).open(dir)?;
    env.transact(|txn| txn.open(STOCK)?.put("apple", &150))?;
    let sold = runtime.block_on(async {
        let customers: Vec<_> = (0..count).map(|id| tokio::spawn(order(env.clone(), id))).collect();
        let mut sold = 0;
        for customer in customers {
            match customer.await.map_err(Error::user)? {
                Ok(_left) => sold += 1,
                Err(Error::User(_sold_out)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sold)
    })?;
    drop(runtime); // Its tasks have ended, and their handles of the environment with them.
    env.close()?;
    Ok(sold)
}

/// One order: how many are left after it.
async fn order(env: Environment, id: u64) -> Result<u64, Error> {
    let (left, committed) = spawn_blocking(move || {
        let options = TransactionOptions { durability: Some(Durability::Pipelined), ..TransactionOptions::default() };
        env.transact_ticket(options, |txn| {
            let stock = txn.open(STOCK)?;
            // For update: two that had both read could not both write, and one would be run again.
            let left = stock.get_for_update("apple")?.unwrap_or(0);
            let left = left.checked_sub(1).ok_or_else(|| Error::user("sold out"))?;
            stock.put("apple", &left)?;
            txn.open(ORDERS)?.put(&id, &"apple".to_string())?;
            Ok(left)
        })
    })
    .await
    .map_err(Error::user)??;
    // The thread above serves others by now. Here the task sleeps, and no thread does.
    committed.ticket.await?;
    Ok(left)
}

#[test]
fn every_order_that_was_taken_is_there() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(take_orders(dir.path(), 200).unwrap(), 150);
    let env = Environment::options().cache_bytes(16 << 20).open(dir.path()).unwrap();
    env.transact(|txn| {
        assert_eq!(txn.open(STOCK)?.get("apple")?, Some(0));
        assert_eq!(txn.open(ORDERS)?.range(..)?.count(), 150);
        Ok(())
    })
    .unwrap();
}
