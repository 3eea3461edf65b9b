//! The shop with SQLite.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

/// A connection of a thread's own.
fn open(dir: &str) -> Result<Connection> {
    let db = Connection::open(format!("{dir}/shop.sqlite"))?;
    db.busy_timeout(Duration::from_secs(60))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    Ok(db)
}

fn create(db: &Connection) -> Result<()> {
    Ok(db.execute_batch(
        "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, left INTEGER NOT NULL, cents INTEGER NOT NULL);
         CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL,
                                            count INTEGER NOT NULL, cents INTEGER NOT NULL);
         CREATE INDEX IF NOT EXISTS by_customer ON orders (customer);",
    )?)
}

/// More goods, at this price from now on.
fn stock(db: &Connection, item: &str, count: u32, cents: u32) -> Result<()> {
    db.execute(
        "INSERT INTO stock VALUES (?1, ?2, ?3)
         ON CONFLICT (item) DO UPDATE SET left = left + excluded.left, cents = excluded.cents",
        (item, count, cents),
    )?;
    Ok(())
}

/// The number of the order, unless there is not enough left.
fn buy(db: &mut Connection, customer: &str, item: &str, count: u32) -> Result<Option<i64>> {
    let txn = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let cents: Option<u32> = txn
        .prepare_cached("UPDATE stock SET left = left - ?2 WHERE item = ?1 AND left >= ?2 RETURNING cents")?
        .query_row((item, count), |row| row.get(0))
        .optional()?;
    let Some(cents) = cents else { return Ok(None) };
    let order = "INSERT INTO orders (customer, item, count, cents) VALUES (?, ?, ?, ?)";
    let number = txn.prepare_cached(order)?.insert((customer, item, count, count * cents))?;
    txn.commit()?;
    Ok(Some(number))
}

/// Buyers at once, each of whom buys one of the item after the other until it is sold out. Says how many were sold.
fn crowd(dir: &str, buyers: u32, item: &str) -> Result<u64> {
    let buyer = |name: String| {
        let mut db = open(dir)?;
        let mut bought = 0;
        while buy(&mut db, &name, item, 1)?.is_some() {
            bought += 1;
        }
        Ok(bought)
    };
    thread::scope(|scope| {
        let buyers: Vec<_> = (1..=buyers).map(|no| scope.spawn(move || buyer(format!("buyer {no}")))).collect();
        buyers.into_iter().map(|buyer| buyer.join().expect("a buyer does not panic")).sum()
    })
}

fn orders(db: &Connection, customer: &str) -> Result<()> {
    let mut orders = db.prepare("SELECT number, item, count, cents FROM orders WHERE customer = ? ORDER BY number")?;
    let mut rows = orders.query([customer])?;
    while let Some(row) = rows.next()? {
        let (number, item, count, cents): (u32, String, u32, u32) = row.try_into()?;
        println!("order {number}: {count} {item}, {cents} cents");
    }
    Ok(())
}

/// What is left and what was sold, as of one moment.
fn report(db: &Connection) -> Result<()> {
    let mut goods = db.prepare(
        "SELECT item, left, ifnull(sum(count), 0), ifnull(sum(orders.cents), 0)
         FROM stock LEFT JOIN orders USING (item) GROUP BY item ORDER BY item",
    )?;
    let mut rows = goods.query(())?;
    while let Some(row) = rows.next()? {
        let (item, left, sold, earned): (String, u32, u32, u32) = row.try_into()?;
        println!("{item}: {left} left, {sold} sold for {earned} cents");
    }
    Ok(())
}

/// Keeps a shop in a directory.
#[derive(Parser)]
struct Args {
    dir: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Adds goods.
    Stock { item: String, count: u32, cents: u32 },
    /// Takes an order.
    Buy { customer: String, item: String, count: u32 },
    /// Lets buyers buy at once until an item is sold out.
    Crowd { buyers: u32, item: String },
    /// Shows a customer's orders.
    Orders { customer: String },
    /// Shows what is left and what was sold.
    Report,
}

fn main() -> Result<()> {
    let Args { dir, command } = Args::parse();
    std::fs::create_dir_all(&dir)?;
    let mut db = open(&dir)?;
    create(&db)?;
    match command {
        Command::Stock { item, count, cents } => stock(&db, &item, count, cents)?,
        Command::Buy { customer, item, count } => match buy(&mut db, &customer, &item, count)? {
            Some(number) => println!("order {number}"),
            None => println!("not enough left"),
        },
        Command::Crowd { buyers, item } => println!("{} sold", crowd(&dir, buyers, &item)?),
        Command::Orders { customer } => orders(&db, &customer)?,
        Command::Report => report(&db)?,
    }
    Ok(())
}
