//! Measurements: a file of old ones loaded in one go, a stream of new ones, and questions about both.
//!
//! Each measurement of the stream is a transaction, and none waits for the disk. A second thread waits until they are
//! durable, in their order: there a server would tell the sensor that it may forget them.

use std::sync::mpsc;
use std::{fs, io, thread};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use ledgerstone::{Durability, Environment, TableDef, Ticket, TransactionOptions, TypedEnvTable};

/// By sensor and second. Opened once, for all transactions.
type Readings = TypedEnvTable<(String, u64), f64>;

/// A line `SENSOR,SECOND,VALUE`.
fn parse(line: &str) -> Result<((String, u64), f64)> {
    let bad = || format!("{line:?} is not SENSOR,SECOND,VALUE");
    let (key, value) = line.rsplit_once(',').with_context(bad)?;
    let (sensor, second) = key.rsplit_once(',').with_context(bad)?;
    Ok(((sensor.to_owned(), second.parse().with_context(bad)?), value.parse().with_context(bad)?))
}

/// Takes the measurements of a file: all of them or none. Of two of the same second, the later line counts.
fn load(env: &Environment, table: &Readings, file: &str) -> Result<u64> {
    let mut readings = fs::read_to_string(file)?.lines().map(parse).collect::<Result<Vec<_>>>()?;
    readings.reverse();
    readings.sort_by(|a, b| a.0.cmp(&b.0));
    readings.dedup_by(|a, b| a.0 == b.0);
    Ok(env.transact(|txn| {
        if table.is_empty(txn)? {
            return table.load_sorted(txn, readings.iter().map(|(key, value)| (key, value))); // Full pages, less log.
        }
        readings.iter().try_for_each(|(key, value)| table.put(txn, key, value))?;
        Ok(readings.len() as u64)
    })?)
}

/// Takes what comes from standard input, and says how many lines became durable.
fn stream(env: &Environment, table: &Readings) -> Result<u64> {
    let options = TransactionOptions { durability: Some(Durability::Pipelined), ..Default::default() };
    let (sender, tickets) = mpsc::channel::<Ticket>();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || tickets.iter().map(|ticket| ticket.wait().map(|()| 1)).sum::<Result<_, _>>());
        for line in io::stdin().lines() {
            let (key, value) = parse(&line?)?;
            let ((), committed) = env.transact_ticket(options, |txn| table.put(txn, &key, value))?;
            sender.send(committed.ticket)?;
        }
        drop(sender);
        Ok(waiter.join().expect("it does not panic")?)
    })
}

/// A sensor's measurements from one second to before another.
fn report(env: &Environment, table: &Readings, sensor: &str, from: u64, to: u64) -> Result<()> {
    let (mut count, mut sum, mut least, mut most) = (0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
    for reading in table.range(&env.snapshot()?, (sensor, from)..(sensor, to))? {
        let (_, value) = reading?;
        count += 1;
        sum += value;
        least = value.min(least);
        most = value.max(most);
    }
    match count {
        0 => println!("{sensor}: no readings"),
        _ => println!("{sensor}: {count} readings, {least} to {most}, mean {:.3}", sum / f64::from(count)),
    }
    Ok(())
}

/// Keeps measurements in a directory.
#[derive(Parser)]
struct Args {
    dir: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Loads a file of lines SENSOR,SECOND,VALUE.
    Load { file: String },
    /// Takes such lines from standard input.
    Stream,
    /// Sums up a sensor's measurements.
    Report { sensor: String, from: u64, to: u64 },
    /// Deletes a sensor's measurements before a second.
    Forget { sensor: String, before: u64 },
}

fn main() -> Result<()> {
    let args = Args::parse();
    let env = Environment::options().open(&args.dir)?;
    let table: Readings = env.typed_table(TableDef::new("readings"))?;
    match args.command {
        Command::Load { file } => println!("{} loaded", load(&env, &table, &file)?),
        Command::Stream => println!("{} taken", stream(&env, &table)?),
        Command::Report { sensor, from, to } => report(&env, &table, &sensor, from, to)?,
        Command::Forget { sensor, before } => {
            let gone = env.transact(|txn| table.delete_range(txn, (&sensor, 0)..(&sensor, before)))?;
            println!("{gone} forgotten");
        }
    }
    Ok(env.close()?)
}
