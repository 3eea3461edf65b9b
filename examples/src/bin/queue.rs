//! The job queue of `docs/tutorial.md`. The page shows this program block by block.

use clap::{Parser, Subcommand};
use ledgerstone::{Environment, Error, TableDef};

/// The number of the next job.
const NEXT: TableDef<String, u64> = TableDef::new("next");
/// Jobs that nobody works on: number, attempts so far, what to do.
const WAITING: TableDef<u64, (u32, String)> = TableDef::new("waiting");
/// Jobs that a worker has claimed.
const CLAIMED: TableDef<u64, (u32, String)> = TableDef::new("claimed");
/// Jobs that ended well.
const DONE: TableDef<u64, String> = TableDef::new("done");
/// Jobs that were given up.
const FAILED: TableDef<u64, String> = TableDef::new("failed");

/// A job is given up after so many attempts.
const ATTEMPTS: u32 = 3;

fn enqueue(env: &Environment, what: &str) -> Result<u64, Error> {
    env.transact(|txn| {
        let next = txn.open(NEXT)?;
        let number = next.get_for_update("job")?.unwrap_or(1);
        next.put("job", number + 1)?;
        txn.open(WAITING)?.put(number, (0, what))?;
        Ok(number)
    })
}

fn claim(env: &Environment) -> Result<Option<(u64, u32, String)>, Error> {
    env.transact(|txn| {
        let Some((number, (attempts, what))) = txn.open(WAITING)?.pop_first()? else { return Ok(None) };
        txn.open(CLAIMED)?.put(number, (attempts + 1, &what))?;
        Ok(Some((number, attempts + 1, what)))
    })
}

fn finish(env: &Environment, number: u64, what: &str) -> Result<(), Error> {
    env.transact(|txn| {
        txn.open(CLAIMED)?.delete(number)?;
        txn.open(DONE)?.put(number, what)
    })
}

fn give_back(env: &Environment, number: u64, attempts: u32, what: &str) -> Result<(), Error> {
    env.transact(|txn| {
        txn.open(CLAIMED)?.delete(number)?;
        if attempts < ATTEMPTS {
            txn.open(WAITING)?.put(number, (attempts, what))
        } else {
            txn.open(FAILED)?.put(number, what)
        }
    })
}

fn open(dir: &str) -> Result<Environment, Error> {
    let env = Environment::options().open(dir)?;
    let left = env.transact(|txn| {
        txn.open(WAITING)?; // Makes the tables, so that a snapshot finds them.
        txn.open(DONE)?;
        txn.open(FAILED)?;
        txn.open(CLAIMED)?.range(..)?.collect::<Result<Vec<_>, Error>>()
    })?;
    for (number, (attempts, what)) in left {
        give_back(&env, number, attempts, &what)?;
    }
    Ok(env)
}

fn work(env: &Environment, worker: u32) -> Result<(), Error> {
    while let Some((number, attempts, what)) = claim(env)? {
        println!("worker {worker}: job {number}, attempt {attempts}: {what}");
        if perform(&what, attempts) {
            finish(env, number, &what)?;
        } else {
            give_back(env, number, attempts, &what)?;
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

fn work_all(env: &Environment) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4).map(|worker| scope.spawn(move || work(env, worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

fn list(env: &Environment) -> Result<(), Error> {
    let txn = env.snapshot()?;
    println!("{} waiting, {} claimed", txn.open(WAITING)?.count()?, txn.open(CLAIMED)?.count()?);
    for (title, table) in [("done", DONE), ("failed", FAILED)] {
        for job in txn.open(table)?.range(..)? {
            let (number, what) = job?;
            println!("{title}: {number} {what}");
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

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let env = open(&args.dir)?;
    match args.command {
        Command::Add { jobs } => jobs.iter().try_for_each(|job| enqueue(&env, job).map(drop))?,
        Command::Work => work_all(&env)?,
        Command::List => list(&env)?,
    }
    env.close()
}
