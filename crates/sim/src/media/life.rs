//! The life: clients that write and remember what, and a keeper that takes backups.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use ledgerstone::{BackupOptions, Durability, Environment, Error, IndexDef, IndexKeys, Lsn, TransactionOptions};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::{Mutex, sync};

use super::Disks;
use crate::counters::Counters;
use crate::faults::round::simulate;
use ledgerstone_region::Random;

/// The table in which each transaction leaves its mark.
pub(super) const JOURNAL: &str = "journal";
/// The other tables.
pub(super) const TABLES: [&str; 3] = ["t0", "t1", "t2"];

/// A value set, or a key deleted.
#[derive(Clone)]
pub(super) struct Write {
    pub table: &'static str,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// A transaction that was to be committed.
#[derive(Clone)]
pub(super) struct Attempt {
    /// Its key in the journal.
    pub mark: Vec<u8>,
    /// Rises with each commit that conflicts with it: drawn while the locks are held.
    pub order: u64,
    pub writes: Vec<Write>,
    /// Its commit, if the call returned.
    pub lsn: Option<Lsn>,
    /// It was acknowledged as durable.
    pub is_durable: bool,
}

/// What the clients know.
#[derive(Default)]
pub(super) struct Told {
    pub attempts: Vec<Attempt>,
    /// Names of the backups that were acknowledged.
    pub backups: Vec<String>,
    /// What a process would have left that had been killed on the way, and what was known then.
    pub killed: Option<Box<(Disks, Told)>>,
}

/// What the keeper works with.
struct Keeper {
    disks: Disks,
    attempts: Arc<Mutex<Vec<Attempt>>>,
    told: Arc<Mutex<Told>>,
    random: Random,
}

/// Lets clients and keeper run until they are done or the power fails.
pub(super) fn live(disks: &Disks, random: &mut Random, counters: &mut Counters) -> Result<Told, Vec<String>> {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let problems = Arc::new(Mutex::new(Vec::new()));
    let (client_count, schedule) = (random.between(1, 3), random.number());
    let crash_after = random.percent(40).then(|| random.between(20, 700));
    let backups_after = random.percent(20).then(|| random.between(1, 40));
    let archive_after = random.percent(30).then(|| random.between(1, 40));
    let one_machine = random.percent(50);
    let closes = random.percent(50);
    let seeds: Vec<Random> = (0..=client_count).map(|_| random.fork()).collect();
    let disk = disks.env.clone();
    let (all, bad) = (Arc::clone(&attempts), Arc::clone(&problems));
    let told = Arc::new(Mutex::new(Told::default()));
    let kept = Arc::clone(&told);
    yield_in(disks);
    simulate(schedule, &disks.env, move || {
        let env = match disks.options().open_on(Arc::new(disk.clone())) {
            Ok(env) => env,
            Err(error) => return bad.lock().push(format!("open: {error}")),
        };
        let prepared = env.transact(|txn| {
            TABLES.iter().chain([&JOURNAL]).try_for_each(|name| txn.bytes_or_create(name).map(drop))?;
            // Verified with its table wherever something is restored or repaired.
            txn.create_index(TABLES[1], &IndexDef::new("first", IndexKeys::Bytes { from: 0, to: Some(1) }))
        });
        if let Err(error) = prepared {
            return bad.lock().push(format!("create tables: {error}"));
        }
        if let Some(n) = crash_after {
            disk.crash_at(n);
        }
        for (disk, after) in [(Some(&disks.backups), backups_after), (disks.archive.as_ref(), archive_after)] {
            if let (Some(disk), Some(n)) = (disk, after) {
                disk.crash_at(disk.counters().mutations + n);
            }
        }
        let order = Arc::new(AtomicU64::new(1));
        let mut threads = Vec::new();
        for (number, random) in seeds.into_iter().enumerate() {
            let (env, disk, order) = (env.clone(), disk.clone(), Arc::clone(&order));
            let (all, bad) = (Arc::clone(&all), Arc::clone(&bad));
            let (disks, attempts, told) = (disks.clone(), Arc::clone(&all), Arc::clone(&kept));
            threads.push(sync::spawn(&format!("client {number}"), move || {
                let done = if number == 0 {
                    keep(&env, Keeper { disks, attempts, told, random })
                } else {
                    work(&env, number as u8, random, &order, &all)
                };
                if let Err(error) = done
                    && !disk.is_crashed()
                {
                    bad.lock().push(format!("client {number}: {error}"));
                }
            }));
        }
        for thread in threads {
            let _ = thread.join();
        }
        if closes && !disk.is_crashed() {
            if let Err(error) = env.close()
                && !disk.is_crashed()
            {
                bad.lock().push(format!("close: {error}"));
            }
        } else {
            disk.crash_now();
        }
    })?;
    let problems = std::mem::take(&mut *problems.lock());
    if !problems.is_empty() {
        return Err(problems);
    }
    let crashed = disks.env.is_crashed();
    if crashed && one_machine {
        disks.all().for_each(SimDisk::crash_now);
    }
    counters.add("crashes", u64::from(crashed));
    counters.add("crashes_of_media", disks.all().skip(1).filter(|disk| disk.is_crashed()).count() as u64);
    let attempts = std::mem::take(&mut *attempts.lock());
    counters.add("transactions", attempts.len() as u64);
    let told = std::mem::take(&mut *told.lock());
    Ok(Told { attempts, ..told })
}

/// Lets the threads meet inside the calls of the other disks, too.
fn yield_in(disks: &Disks) {
    for disk in disks.all().skip(1) {
        disk.set_hook(Arc::new(sync::yield_point));
    }
}

/// Takes backups and checkpoints, and notes what a kill would leave.
fn keep(env: &Environment, keeper: Keeper) -> Result<(), Error> {
    let Keeper { disks, attempts, told, mut random } = keeper;
    let count = random.between(1, 5);
    let killed_at = random.percent(40).then(|| random.below(count));
    for n in 0..count {
        sync::sleep_ns(random.below(3_000_000));
        if killed_at == Some(n) {
            // What was not durable then may be missing afterwards, and others may commit at its place in the log.
            let mut attempts = attempts.lock().clone();
            attempts.iter_mut().filter(|attempt| !attempt.is_durable).for_each(|attempt| attempt.lsn = None);
            let mut told = told.lock();
            let then = Told { attempts, backups: told.backups.clone(), killed: None };
            told.killed = Some(Box::new((disks.snapshot(), then)));
        }
        take_backup(env, &disks, &mut random, &told)?;
        if random.percent(40) {
            env.checkpoint()?;
        }
        if random.percent(30) {
            fill_archive(env, &disks)?;
        }
        if random.percent(15) {
            env.compact()?;
        }
    }
    Ok(())
}

/// A disk of backups that has lost its power takes none.
fn take_backup(env: &Environment, disks: &Disks, random: &mut Random, told: &Mutex<Told>) -> Result<(), Error> {
    let incremental = !told.lock().backups.is_empty() && random.percent(60);
    let options = BackupOptions::default().incremental(incremental);
    match env.backup_on(Arc::new(disks.backups.clone()), options, |_| ()) {
        Ok(info) => told.lock().backups.push(info.file),
        Err(Error::LogGone { .. }) if incremental => {} // Too late, without an archive.
        Err(_) if disks.backups.is_crashed() && !disks.env.is_crashed() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn fill_archive(env: &Environment, disks: &Disks) -> Result<(), Error> {
    match env.archive_now() {
        Err(Error::NoArchive) => Ok(()),
        Err(_) if disks.archive.as_ref().is_some_and(SimDisk::is_crashed) && !disks.env.is_crashed() => Ok(()),
        other => other.map(drop),
    }
}

/// Another process goes on where one was killed, and does what a keeper does, until the power fails for all disks.
pub(super) fn go_on(
    (disks, told): (Disks, Told),
    random: &mut Random,
    counters: &mut Counters,
) -> Result<(Disks, Told), Vec<String>> {
    let (schedule, mut own) = (random.number(), random.fork());
    // Any call may be the last, also one of recovery.
    let last = random.below(3) as usize;
    if let Some(disk) = disks.all().nth(last) {
        disk.crash_at(random.between(1, 60));
    }
    let told = Mutex::new(told);
    yield_in(&disks);
    let done = simulate(schedule, &disks.env, || -> Result<(), Error> {
        let env = disks.options().open_on(Arc::new(disks.env.clone()))?;
        for _ in 0..own.between(1, 4) {
            match own.below(3) {
                0 => take_backup(&env, &disks, &mut own, &told)?,
                1 => fill_archive(&env, &disks)?,
                _ => drop(env.checkpoint()?),
            }
        }
        env.close()
    })?;
    if let Err(error) = done
        && !disks.all().any(SimDisk::is_crashed)
    {
        return Err(vec![format!("after a kill: {error}")]);
    }
    disks.all().for_each(SimDisk::crash_now);
    counters.add("kills", 1);
    Ok((disks, told.into_inner()))
}

fn work(
    env: &Environment,
    number: u8,
    mut random: Random,
    order: &AtomicU64,
    all: &Mutex<Vec<Attempt>>,
) -> Result<(), Error> {
    for sequence in 0..random.between(5, 40) {
        let durability =
            random.pick(&[Durability::Sync, Durability::Volatile, Durability::Async, Durability::Pipelined]);
        let txn = env.begin_with(TransactionOptions { durability: Some(durability), ..Default::default() })?;
        let mut mark = vec![number];
        mark.extend_from_slice(&sequence.to_be_bytes());
        let mut writes = Vec::new();
        let done = (|| {
            for _ in 0..random.between(1, 5) {
                let table = random.pick(&TABLES);
                let key = random.below(60).to_be_bytes().to_vec();
                let len = if random.percent(4) { 6000 } else { random.below(20) * random.below(20) };
                let value = random.percent(75).then(|| vec![random.below(256) as u8; len as usize]);
                let records = txn.bytes(table)?;
                match &value {
                    Some(value) => records.put(&key, value)?,
                    None => drop(records.delete(&key)?),
                }
                writes.push(Write { table, key, value });
            }
            txn.bytes(JOURNAL)?.put(&mark, &[])
        })();
        match done {
            Err(Error::Deadlock { .. } | Error::LockTimeout { .. }) => continue, // Dropped: rolled back.
            other => other?,
        }
        if random.percent(12) {
            txn.abort()?;
            continue;
        }
        let place = {
            let mut all = all.lock();
            all.push(Attempt { mark, order: order.fetch_add(1, SeqCst), writes, lsn: None, is_durable: false });
            all.len() - 1
        };
        let lsn = txn.commit()?.ticket.lsn();
        let mut all = all.lock();
        all[place].lsn = Some(lsn);
        all[place].is_durable = durability == Durability::Sync;
    }
    Ok(())
}
