//! The measurements with redb.
//!
//! A commit waits for the disk, so the stream is taken in groups: whatever has come while the last group was written.

use std::sync::mpsc;
use std::{fs, io, thread};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use redb::{Database, ReadableDatabase, TableDefinition};

/// By sensor and second.
const READINGS: TableDefinition<(&str, u64), f64> = TableDefinition::new("readings");

/// A line `SENSOR,SECOND,VALUE`.
fn parse(line: &str) -> Result<((&str, u64), f64)> {
    let bad = || format!("{line:?} is not SENSOR,SECOND,VALUE");
    let (key, value) = line.rsplit_once(',').with_context(bad)?;
    let (sensor, second) = key.rsplit_once(',').with_context(bad)?;
    Ok(((sensor, second.parse().with_context(bad)?), value.parse().with_context(bad)?))
}

/// Fills the table with a file: all of it or nothing.
fn load(db: &Database, file: &str) -> Result<u64> {
    let lines = fs::read_to_string(file)?;
    let mut readings = lines.lines().map(parse).collect::<Result<Vec<_>>>()?;
    readings.sort_by_key(|(key, _)| *key);
    let txn = db.begin_write()?;
    let mut table = txn.open_table(READINGS)?;
    for (key, value) in &readings {
        table.insert(key, value)?;
    }
    drop(table);
    txn.commit()?;
    Ok(readings.len() as u64)
}

/// Takes what comes from standard input, and says how many lines became durable.
fn stream(db: &Database) -> Result<u64> {
    let (sender, lines) = mpsc::sync_channel(1000);
    let reader = thread::spawn(move || -> Result<()> {
        for line in io::stdin().lines() {
            sender.send(line?)?;
        }
        Ok(())
    });
    let mut count = 0;
    while let Ok(first) = lines.recv() {
        let txn = db.begin_write()?;
        let mut table = txn.open_table(READINGS)?;
        for line in std::iter::once(first).chain(lines.try_iter().take(1000)) {
            let (key, value) = parse(&line)?;
            table.insert(key, value)?;
            count += 1;
        }
        drop(table);
        txn.commit()?;
    }
    reader.join().expect("it does not panic")?;
    Ok(count)
}

/// A sensor's measurements from one second to before another.
fn report(db: &Database, sensor: &str, from: u64, to: u64) -> Result<()> {
    let (mut count, mut sum, mut least, mut most) = (0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
    for reading in db.begin_read()?.open_table(READINGS)?.range((sensor, from)..(sensor, to))? {
        let value = reading?.1.value();
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

fn forget(db: &Database, sensor: &str, before: u64) -> Result<usize> {
    let txn = db.begin_write()?;
    let mut gone = 0;
    for reading in txn.open_table(READINGS)?.extract_from_if((sensor, 0)..(sensor, before), |_, _| true)? {
        reading?;
        gone += 1;
    }
    txn.commit()?;
    Ok(gone)
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
    fs::create_dir_all(&args.dir)?;
    let db = Database::create(format!("{}/ingest.redb", args.dir))?;
    let txn = db.begin_write()?;
    txn.open_table(READINGS)?; // A reader does not make it.
    txn.commit()?;
    match args.command {
        Command::Load { file } => println!("{} loaded", load(&db, &file)?),
        Command::Stream => println!("{} taken", stream(&db)?),
        Command::Report { sensor, from, to } => report(&db, &sensor, from, to)?,
        Command::Forget { sensor, before } => println!("{} forgotten", forget(&db, &sensor, before)?),
    }
    Ok(())
}
