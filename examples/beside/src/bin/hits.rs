//! The hits of pages with redb. There is one writer, so the files are counted one after the other.

use std::{fs, thread};

use anyhow::{Context, Result};
use clap::Parser;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

const HITS: TableDefinition<u16, i64> = TableDefinition::new("hits");

fn count(db: &Database, file: &str) -> Result<usize> {
    let lines = fs::read_to_string(file)?;
    let txn = db.begin_write()?;
    let mut hits = txn.open_table(HITS)?;
    for line in lines.lines() {
        let page: u16 = line.parse().with_context(|| format!("{line:?} is not the number of a page"))?;
        let count = hits.get(page)?.map_or(0, |count| count.value());
        hits.insert(page, count + 1)?;
    }
    drop(hits);
    txn.commit()?;
    Ok(lines.lines().count())
}

/// Adds the hits in files to those in a directory, and shows all.
#[derive(Parser)]
struct Args {
    dir: String,
    files: Vec<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    fs::create_dir_all(&args.dir)?;
    let db = Database::create(format!("{}/hits.redb", args.dir))?;
    let txn = db.begin_write()?;
    txn.open_table(HITS)?; // A reader does not make it.
    txn.commit()?;
    thread::scope(|scope| {
        let counts: Vec<_> = args.files.iter().map(|file| scope.spawn(|| count(&db, file))).collect();
        for (file, count) in args.files.iter().zip(counts) {
            match count.join().expect("it does not panic") {
                Ok(count) => println!("{file}: {count} hits"),
                Err(error) => println!("{file}: not counted: {error}"),
            }
        }
    });
    for hits in db.begin_read()?.open_table(HITS)?.iter()? {
        let (page, count) = hits?;
        println!("page {}: {}", page.value(), count.value());
    }
    Ok(())
}
