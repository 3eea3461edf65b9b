//! Orders taken by tasks of tokio, none of which ever blocks the executor.
//!
//! A transaction may wait: for locks, for pages from the disk, for room in the log. So it runs in a thread of tokio's
//! that may wait (`spawn_blocking`). When the commit is durable, the task learns by awaiting the ticket. No thread
//! waits for that, and many tasks share one write of the disk.

use anyhow::Result;
use clap::Parser;
use ledgerstone::{Durability, Environment, TableDef, TransactionOptions};
use tokio::task::{JoinSet, spawn_blocking};

const STOCK: TableDef<String, u64> = TableDef::new("stock");
const ORDERS: TableDef<u64, String> = TableDef::new("orders");

/// Takes an order, unless nothing is left. The order is durable when this returns.
async fn order(env: Environment, number: u64) -> Result<bool> {
    let (taken, committed) = spawn_blocking(move || {
        let options = TransactionOptions { durability: Some(Durability::Pipelined), ..Default::default() };
        env.transact_ticket(options, |txn| {
            let stock = txn.open(STOCK)?;
            // For update: of two that had both only read, one would have to be run again.
            let left = stock.get_for_update("apple")?.unwrap_or(0);
            if left == 0 {
                return Ok(false);
            }
            stock.put("apple", left - 1)?;
            txn.open(ORDERS)?.put(number, "apple")?;
            Ok(true)
        })
    })
    .await??;
    committed.ticket.await?; // The thread above serves others by now. Here the task sleeps, and no thread does.
    Ok(taken)
}

/// Sells apples to many customers at once.
#[derive(Parser)]
struct Args {
    dir: String,
    apples: u64,
    customers: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    // Opening may recover, and closing writes what is left: both outside of the executor.
    let env = Environment::options().open(&args.dir)?;
    let first = env.transact(|txn| {
        txn.open(STOCK)?.put("apple", args.apples)?;
        Ok(txn.open(ORDERS)?.last()?.map_or(1, |(number, _)| number + 1)) // Those of an earlier day stay.
    })?;
    // More threads for transactions would only wait for each other.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(4).build()?;
    let taken = runtime.block_on(async {
        let mut customers: JoinSet<_> = (0..args.customers).map(|no| order(env.clone(), first + no)).collect();
        let mut taken = 0;
        while let Some(customer) = customers.join_next().await {
            taken += u64::from(customer??);
        }
        anyhow::Ok(taken)
    })?;
    let (left, orders) = env.transact(|txn| Ok((txn.open(STOCK)?.get("apple")?, txn.open(ORDERS)?.count()?)))?;
    println!("{taken} of {} orders taken; {} apples left, {orders} orders kept", args.customers, left.unwrap_or(0));
    drop(runtime); // Its tasks have ended, and their handles of the environment with them.
    Ok(env.close()?)
}
