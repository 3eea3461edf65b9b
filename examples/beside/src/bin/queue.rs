//! The job queue of `docs/tutorial.md` with redb.

use anyhow::Result;
use clap::{Parser, Subcommand};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

/// The number of the next job.
const NEXT: TableDefinition<&str, u64> = TableDefinition::new("next");
/// Jobs that nobody works on: number, attempts so far, what to do.
const WAITING: TableDefinition<u64, (u32, &str)> = TableDefinition::new("waiting");
/// Jobs that a worker has claimed.
const CLAIMED: TableDefinition<u64, (u32, &str)> = TableDefinition::new("claimed");
/// Jobs that ended well.
const DONE: TableDefinition<u64, &str> = TableDefinition::new("done");
/// Jobs that were given up.
const FAILED: TableDefinition<u64, &str> = TableDefinition::new("failed");

/// A job is given up after so many attempts.
const ATTEMPTS: u32 = 3;

fn enqueue(db: &Database, what: &str) -> Result<u64> {
    let txn = db.begin_write()?;
    let mut next = txn.open_table(NEXT)?;
    let number = next.get("job")?.map_or(1, |number| number.value());
    next.insert("job", number + 1)?;
    txn.open_table(WAITING)?.insert(number, (0, what))?;
    drop(next);
    txn.commit()?;
    Ok(number)
}

fn claim(db: &Database) -> Result<Option<(u64, u32, String)>> {
    let txn = db.begin_write()?;
    let job = txn.open_table(WAITING)?.pop_first()?.map(|(number, job)| {
        let (attempts, what) = job.value();
        (number.value(), attempts + 1, what.to_owned())
    });
    if let Some((number, attempts, what)) = &job {
        txn.open_table(CLAIMED)?.insert(number, (*attempts, what.as_str()))?;
    }
    txn.commit()?;
    Ok(job)
}

fn finish(db: &Database, number: u64, what: &str) -> Result<()> {
    let txn = db.begin_write()?;
    txn.open_table(CLAIMED)?.remove(number)?;
    txn.open_table(DONE)?.insert(number, what)?;
    Ok(txn.commit()?)
}

fn give_back(db: &Database, number: u64, attempts: u32, what: &str) -> Result<()> {
    let txn = db.begin_write()?;
    txn.open_table(CLAIMED)?.remove(number)?;
    if attempts < ATTEMPTS {
        txn.open_table(WAITING)?.insert(number, (attempts, what))?;
    } else {
        txn.open_table(FAILED)?.insert(number, what)?;
    }
    Ok(txn.commit()?)
}

fn open(dir: &str) -> Result<Database> {
    std::fs::create_dir_all(dir)?;
    let db = Database::create(format!("{dir}/queue.redb"))?;
    let txn = db.begin_write()?;
    txn.open_table(WAITING)?; // Readers do not make the tables.
    txn.open_table(DONE)?;
    txn.open_table(FAILED)?;
    let mut left = Vec::new();
    for claimed in txn.open_table(CLAIMED)?.iter()? {
        let (number, job) = claimed?;
        let (attempts, what) = job.value();
        left.push((number.value(), attempts, what.to_owned()));
    }
    txn.commit()?;
    for (number, attempts, what) in left {
        give_back(&db, number, attempts, &what)?;
    }
    Ok(db)
}

fn work(db: &Database, worker: u32) -> Result<()> {
    while let Some((number, attempts, what)) = claim(db)? {
        println!("worker {worker}: job {number}, attempt {attempts}: {what}");
        if perform(&what, attempts) {
            finish(db, number, &what)?;
        } else {
            give_back(db, number, attempts, &what)?;
        }
    }
    Ok(())
}

/// Says whether it went well.
fn perform(what: &str, attempts: u32) -> bool {
    match what {
        "crash" if attempts == 1 => std::process::abort(), // As a power cut would end it.
        "fail" => false,
        _ => true,
    }
}

fn work_all(db: &Database) -> Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4).map(|worker| scope.spawn(move || work(db, worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

fn list(db: &Database) -> Result<()> {
    let txn = db.begin_read()?;
    println!("{} waiting, {} claimed", txn.open_table(WAITING)?.len()?, txn.open_table(CLAIMED)?.len()?);
    for (title, table) in [("done", DONE), ("failed", FAILED)] {
        for job in txn.open_table(table)?.iter()? {
            let (number, what) = job?;
            println!("{title}: {} {}", number.value(), what.value());
        }
    }
    Ok(())
}

/// Keeps a queue of jobs in a directory.
#[derive(Parser)]
struct Args {
    dir: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Puts jobs into the queue.
    Add { jobs: Vec<String> },
    /// Works until nothing is waiting.
    Work,
    /// Shows what became of the jobs.
    List,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let db = open(&args.dir)?;
    match args.command {
        Command::Add { jobs } => jobs.iter().try_for_each(|job| enqueue(&db, job).map(drop))?,
        Command::Work => work_all(&db)?,
        Command::List => list(&db)?,
    }
    Ok(())
}
