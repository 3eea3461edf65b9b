//! One of the processes: opens the environment, and works in it until it is told to leave.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use ledgerstone::{Environment, Error};
use ledgerstone_examples::counter_list::CounterList;
use ledgerstone_region::{Random, sync};

use super::{COUNTS, LIST, options};
use crate::soak::Stage;
use crate::soak::users::{Act, User, key, number};
use crate::soak::watch::Watch;

/// What a child is told.
#[derive(Debug, Clone, clap::Args)]
pub struct ChildArgs {
    /// Where everything is.
    pub dir: PathBuf,
    /// The directory for the region.
    pub region_dir: PathBuf,
    /// Its number among all that were ever started.
    pub number: u64,
    /// Threads.
    pub threads: usize,
    /// Bytes of private memory that it has touched.
    pub private_bytes: usize,
}

/// What its threads do. The first of a process counts.
const ACTS: [(&str, Act); 13] = [
    ("transfers", count),
    ("records", User::change_records),
    ("audits", User::audit),
    ("snapshots", User::hold_snapshot),
    ("tables", User::change_tables),
    ("films", User::change_film),
    ("house", keep_house),
    ("prepares", prepare),
    ("transfers", User::transfer),
    ("lists", add_to_list),
    ("lists", add_to_list),
    ("feed", User::follow),
    ("backups", back_up),
];

/// Runs until standard input ends. Says `open` when the environment is open, and `wrong: ...` of each problem.
///
/// # Errors
/// The environment could not be opened or closed.
pub fn work(args: &ChildArgs) -> Result<(), Error> {
    let private = vec![1_u8; args.private_bytes];
    let env = options(&args.dir, &args.region_dir).open(args.dir.join("env"))?;
    std::hint::black_box(&private);
    println!("open");
    let own = args.dir.join(format!("own-{}", args.number));
    std::fs::create_dir_all(&own).map_err(Error::Disk)?;
    let watch = Watch::new(&own, Duration::from_secs(3600), args.threads).map_err(Error::Disk)?;
    let stage = Arc::new(Stage { env, dir: own, watch, is_over: AtomicBool::new(false) });
    let mut random = Random::new(args.number);
    let threads: Vec<_> = (0..args.threads)
        .map(|no| {
            let (name, act) = if no == 0 { ACTS[0] } else { random.pick(&ACTS[1..]) };
            let mut user = User::new(Arc::clone(&stage), no, name, random.fork());
            sync::spawn(name, move || user.go_on(act))
        })
        .collect();
    let over = Arc::clone(&stage);
    // Its end is this process's: nobody waits for it.
    let _ = sync::spawn("listens", move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        over.is_over.store(true, SeqCst);
    });
    let tell = |stage: &Stage| stage.watch.take_problems().iter().for_each(|problem| println!("wrong: {problem}"));
    while !stage.is_over.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(20));
        decide_old(&stage.env);
        tell(&stage);
    }
    for thread in threads {
        if thread.join().is_err() {
            println!("wrong: a user panicked");
        }
    }
    tell(&stage);
    let env = stage.env.clone();
    drop(stage);
    env.close()
}

/// Moves money, and counts so in a record of this process's own, in the same transaction. What it is told is committed
/// it tells its file, which outlives it.
fn count(user: &mut User) -> Result<(), Error> {
    let me = std::process::id();
    let (from, to) =
        (user.random.below(crate::soak::users::ACCOUNT_COUNT), user.random.below(crate::soak::users::ACCOUNT_COUNT));
    let committed = user.stage.env.transact(|txn| {
        let bank = txn.bytes(crate::soak::users::BANK)?;
        bank.modify(&key(from), |money| Some(number(money).wrapping_sub(1).to_le_bytes().to_vec()))?;
        bank.modify(&key(to), |money| Some(number(money).wrapping_add(1).to_le_bytes().to_vec()))?;
        let counts = txn.bytes(COUNTS)?;
        let so_far = counts.get_for_update(&me.to_be_bytes())?.map_or(0, |count| number(&count));
        counts.put(&me.to_be_bytes(), &(so_far + 1).to_le_bytes())?;
        Ok(so_far + 1)
    })?;
    std::fs::write(user.stage.dir.with_file_name(format!("told-{me}")), committed.to_le_bytes()).map_err(Error::Disk)
}

/// Prepares a transaction and decides it a little later.
fn prepare(user: &mut User) -> Result<(), Error> {
    let id = format!("{}-{}", std::process::id(), user.random.number());
    let commits = user.random.percent(50);
    let (from, to) =
        (user.random.below(crate::soak::users::ACCOUNT_COUNT), user.random.below(crate::soak::users::ACCOUNT_COUNT));
    let txn = user.stage.env.begin()?;
    let bank = txn.bytes(crate::soak::users::BANK)?;
    bank.modify(&key(from), |money| Some(number(money).wrapping_sub(1).to_le_bytes().to_vec()))?;
    bank.modify(&key(to), |money| Some(number(money).wrapping_add(1).to_le_bytes().to_vec()))?;
    drop(bank);
    let prepared = txn.prepare(id.as_bytes())?;
    user.pause(5);
    if commits { prepared.commit().map(drop) } else { prepared.abort() }
}

/// Adds to one number what it takes from another.
fn add_to_list(user: &mut User) -> Result<(), Error> {
    let (from, to, by) = (user.random.below(500), user.random.below(500), user.random.below(100) as i64);
    let gives_up = user.random.percent(10);
    let done = user.stage.env.transact(|txn| {
        let list = CounterList::open(txn, LIST)?;
        list.add(from, -by)?;
        list.add(to, by)?;
        if gives_up { Err(Error::Cancelled) } else { Ok(()) }
    });
    if user.random.percent(5) {
        let name = format!("list {}", user.random.below(4));
        let _ = user.stage.env.transact(|txn| CounterList::create(txn, &name)?.add(1, 1)); // It may be there.
        let _ = user.stage.env.transact(|txn| txn.drop_structure(&name)); // Another may have dropped it.
    }
    done
}

/// Without an archive, a backup that follows on another may come too late: then a whole one is taken next. Several
/// threads of a process may do this, and one is refused while another writes.
fn back_up(user: &mut User) -> Result<(), Error> {
    match user.back_up() {
        Err(Error::LogGone { .. }) => std::fs::remove_dir_all(user.stage.dir.join("backup")).map_err(Error::Disk),
        Err(Error::BackupUnderWay { .. }) => Ok(()),
        done => done,
    }
}

/// Decides what processes had prepared that are gone.
fn decide_old(env: &Environment) {
    let me = format!("{}-", std::process::id());
    for found in env.in_doubt() {
        if !found.global_id.starts_with(me.as_bytes()) {
            let _ = env.abort_in_doubt(&found.global_id); // Another one may have, or it is failed.
        }
    }
}

/// Compactions, checkpoints, and what waits to be freed.
fn keep_house(user: &mut User) -> Result<(), Error> {
    let stage = Arc::clone(&user.stage);
    user.pause(100);
    match user.random.below(4) {
        0 => drop(stage.env.compact()?),
        1 => drop(stage.env.checkpoint()?),
        2 => stage.env.reclaim()?,
        _ => drop(stage.env.stat()?),
    }
    Ok(())
}
