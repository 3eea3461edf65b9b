//! Counts the hits of a site's pages in files with one page number a line. The files are counted at the same time.
//!
//! Each file is one transaction: all of it is counted, or nothing. Every thread adds to the same counters, and none
//! waits for another, because the counters are a structure of our own (`increment.rs`): to undo an addition is to
//! subtract.

use std::sync::Arc;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ledgerstone::{Environment, Error};
use ledgerstone_examples::increment::{Counters, CountersStructure};

fn count(env: &Environment, file: &str) -> Result<usize> {
    let lines = fs::read_to_string(file)?;
    env.try_transact(|txn| {
        let hits = Counters::open(txn, "hits")?;
        let page_count = hits.count()?;
        for line in lines.lines() {
            let page: u16 = line.parse().with_context(|| format!("{line:?} is not the number of a page"))?;
            ensure!(page < page_count, "page {page} has no counter: the last is that of page {}", page_count - 1);
            hits.add(page, 1)?;
        }
        Ok(lines.lines().count())
    })
}

/// Adds the hits in files to those in a directory, and shows all.
#[derive(Parser)]
struct Args {
    dir: String,
    files: Vec<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let env = Environment::options().structure(Arc::new(CountersStructure)).open(&args.dir)?;
    env.transact(|txn| match Counters::open(txn, "hits") {
        Err(Error::NoSuchTable(_)) => Counters::create(txn, "hits"),
        opened => opened,
    })?;
    thread::scope(|scope| {
        let counts: Vec<_> = args.files.iter().map(|file| scope.spawn(|| count(&env, file))).collect();
        for (file, count) in args.files.iter().zip(counts) {
            match count.join().expect("it does not panic") {
                Ok(count) => println!("{file}: {count} hits"),
                Err(error) => println!("{file}: not counted: {error}"),
            }
        }
    });
    let hits = env.transact(|txn| Counters::open(txn, "hits")?.all())?;
    for (page, count) in hits.iter().enumerate().filter(|(_, count)| **count > 0) {
        println!("page {page}: {count}");
    }
    Ok(env.close()?)
}
