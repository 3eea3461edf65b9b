//! The orders of tasks with SQLite. A commit keeps its thread, and the only writer, until it is on the disk.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use clap::Parser;
use rusqlite::Connection;
use tokio::task::{JoinSet, spawn_blocking};

/// Takes an order, unless nothing is left. The order is durable when this returns.
async fn order(db: Arc<Mutex<Connection>>, number: u64) -> Result<bool> {
    spawn_blocking(move || {
        let mut db = db.lock().expect("no task panics");
        let txn = db.transaction()?;
        if txn.execute("UPDATE stock SET left = left - 1 WHERE item = 'apple' AND left > 0", ())? == 0 {
            return Ok(false);
        }
        txn.execute("INSERT INTO orders VALUES (?, 'apple')", [number as i64])?;
        txn.commit()?;
        Ok(true)
    })
    .await?
}

/// Sells apples to many customers at once.
#[derive(Parser)]
struct Args {
    dir: String,
    apples: u32,
    customers: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.dir)?;
    let db = Connection::open(format!("{}/orders.sqlite", args.dir))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, left INTEGER NOT NULL);
         CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item TEXT NOT NULL);",
    )?;
    db.execute("INSERT OR REPLACE INTO stock VALUES ('apple', ?)", [args.apples])?;
    let first: i64 = db.query_row("SELECT coalesce(max(number), 0) + 1 FROM orders", (), |row| row.get(0))?;
    let db = Arc::new(Mutex::new(db));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(4).build()?;
    let taken = runtime.block_on(async {
        let mut customers: JoinSet<_> =
            (0..args.customers).map(|no| order(Arc::clone(&db), first as u64 + no)).collect();
        let mut taken = 0;
        while let Some(customer) = customers.join_next().await {
            taken += u64::from(customer??);
        }
        anyhow::Ok(taken)
    })?;
    let db = db.lock().expect("no task panics");
    let count = |what: &str| db.query_row(what, (), |row| row.get::<_, u32>(0));
    let (left, orders) = (count("SELECT left FROM stock")?, count("SELECT count(*) FROM orders")?);
    println!("{taken} of {} orders taken; {left} apples left, {orders} orders kept", args.customers);
    Ok(())
}
