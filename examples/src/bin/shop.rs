//! A shop: goods in stock, orders, and an index of the orders by customer. Any number of buyers at once; nothing is
//! sold twice.

use std::collections::HashMap;
use std::thread;

use clap::{Parser, Subcommand};
use ledgerstone::{Environment, Error, IndexDef, IndexKeys, TableDef, Value};

const STOCK: TableDef<String, Goods> = TableDef::new("stock");
const ORDERS: TableDef<u64, Order> = TableDef::new("orders");
/// The number of the next order.
const NEXT: TableDef<String, u64> = TableDef::new("next");

#[derive(Value)]
struct Goods {
    left: u64,
    cents: u64,
}

#[derive(Value)]
struct Order {
    customer: String,
    item: String,
    count: u64,
    cents: u64,
}

fn open(dir: &str) -> Result<Environment, Error> {
    let customer = |_: &u64, order: &Order| vec![order.customer.clone()];
    let env = Environment::options().typed_index_extractor("customer", customer).open(dir)?;
    env.transact(|txn| {
        txn.open(STOCK)?; // Makes the tables, so that a snapshot finds them.
        txn.open(ORDERS)?;
        let by_customer = IndexDef::new("by_customer", IndexKeys::Extractor("customer".into()));
        txn.create_index_if_missing("orders", &by_customer)
    })?;
    Ok(env)
}

/// More goods, at this price from now on.
fn stock(env: &Environment, item: &str, count: u64, cents: u64) -> Result<(), Error> {
    env.transact(|txn| {
        let stock = txn.open(STOCK)?;
        let left = stock.get_for_update(item)?.map_or(0, |goods| goods.left);
        stock.put(item, Goods { left: left + count, cents })
    })
}

/// The number of the order, unless there is not enough left.
fn buy(env: &Environment, customer: &str, item: &str, count: u64) -> Result<Option<u64>, Error> {
    env.transact(|txn| {
        let stock = txn.open(STOCK)?;
        let Some(Goods { left, cents }) = stock.get_for_update(item)? else { return Ok(None) };
        let Some(left) = left.checked_sub(count) else { return Ok(None) };
        stock.put(item, Goods { left, cents })?;
        let next = txn.open(NEXT)?;
        let number = next.get_for_update("order")?.unwrap_or(1);
        next.put("order", number + 1)?;
        let (customer, item) = (customer.to_owned(), item.to_owned());
        txn.open(ORDERS)?.put(number, Order { customer, item, count, cents: count * cents })?;
        Ok(Some(number))
    })
}

/// Buyers at once, each of whom buys one of the item after the other until it is sold out. Says how many were sold.
fn crowd(env: &Environment, buyers: u32, item: &str) -> Result<u64, Error> {
    let buyer = |name: String| {
        let mut bought = 0;
        while buy(env, &name, item, 1)?.is_some() {
            bought += 1;
        }
        Ok(bought)
    };
    thread::scope(|scope| {
        let buyers: Vec<_> = (1..=buyers).map(|no| scope.spawn(move || buyer(format!("buyer {no}")))).collect();
        buyers.into_iter().map(|buyer| buyer.join().expect("a buyer does not panic")).sum()
    })
}

fn orders(env: &Environment, customer: &str) -> Result<(), Error> {
    for order in env.snapshot()?.open(ORDERS)?.index::<String>("by_customer")?.lookup(customer)? {
        let (_, number, Order { item, count, cents, .. }) = order?;
        println!("order {number}: {count} {item}, {cents} cents");
    }
    Ok(())
}

/// What is left and what was sold, as of one moment.
fn report(env: &Environment) -> Result<(), Error> {
    let txn = env.snapshot()?;
    let mut sums: HashMap<String, (u64, u64)> = HashMap::new();
    for order in txn.open(ORDERS)?.range(..)? {
        let (_, Order { item, count, cents, .. }) = order?;
        let (sold, earned) = sums.entry(item).or_default();
        *sold += count;
        *earned += cents;
    }
    for goods in txn.open(STOCK)?.range(..)? {
        let (item, Goods { left, .. }) = goods?;
        let (sold, earned) = sums.get(&item).copied().unwrap_or_default();
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
    Stock { item: String, count: u64, cents: u64 },
    /// Takes an order.
    Buy { customer: String, item: String, count: u64 },
    /// Lets buyers buy at once until an item is sold out.
    Crowd { buyers: u32, item: String },
    /// Shows a customer's orders.
    Orders { customer: String },
    /// Shows what is left and what was sold.
    Report,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let env = open(&args.dir)?;
    match args.command {
        Command::Stock { item, count, cents } => stock(&env, &item, count, cents)?,
        Command::Buy { customer, item, count } => match buy(&env, &customer, &item, count)? {
            Some(number) => println!("order {number}"),
            None => println!("not enough left"),
        },
        Command::Crowd { buyers, item } => println!("{} sold", crowd(&env, buyers, &item)?),
        Command::Orders { customer } => orders(&env, &customer)?,
        Command::Report => report(&env)?,
    }
    env.close()
}
