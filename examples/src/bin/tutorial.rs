//! The job queue of `docs/tutorial.md`. The page shows this program block by block.

use std::process::ExitCode;

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
        next.put("job", &(number + 1))?;
        txn.open(WAITING)?.put(&number, &(0, what.to_string()))?;
        Ok(number)
    })
}

fn claim(env: &Environment) -> Result<Option<(u64, u32, String)>, Error> {
    env.transact(|txn| {
        let waiting = txn.open(WAITING)?;
        let Some((number, (attempts, what))) = waiting.first()? else { return Ok(None) };
        waiting.delete(&number)?;
        txn.open(CLAIMED)?.put(&number, &(attempts + 1, what.clone()))?;
        Ok(Some((number, attempts + 1, what)))
    })
}

fn finish(env: &Environment, number: u64, what: &str) -> Result<(), Error> {
    env.transact(|txn| {
        txn.open(CLAIMED)?.delete(&number)?;
        txn.open(DONE)?.put(&number, &what.to_string())
    })
}

fn give_back(env: &Environment, number: u64, attempts: u32, what: &str) -> Result<(), Error> {
    env.transact(|txn| {
        txn.open(CLAIMED)?.delete(&number)?;
        if attempts < ATTEMPTS {
            txn.open(WAITING)?.put(&number, &(attempts, what.to_string()))
        } else {
            txn.open(FAILED)?.put(&number, &what.to_string())
        }
    })
}

fn open(dir: &str) -> Result<Environment, Error> {
    let env = Environment::options().open(dir)?;
    let left = env.transact(|txn| txn.open(CLAIMED)?.range(..)?.collect::<Result<Vec<_>, Error>>())?;
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

fn run(args: &[&str]) -> Result<(), Error> {
    let [dir, command, jobs @ ..] = args else {
        println!("usage: tutorial DIR add JOB... | work | list");
        return Ok(());
    };
    let env = open(dir)?;
    match *command {
        "add" => jobs.iter().try_for_each(|job| enqueue(&env, job).map(drop))?,
        "work" => work_all(&env)?,
        _ => list(&env)?,
    }
    env.close()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
