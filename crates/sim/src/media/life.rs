//! The life: clients that write and remember what, and a keeper that takes backups.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use ledgerstone::{
    BackupOptions, CompactOptions, Durability, Environment, Error, IndexDef, IndexKeys, Lsn, TransactionOptions,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync;
use parking_lot::Mutex;

use super::{Disks, options};
use crate::counters::Counters;
use crate::faults::round::simulate;
use crate::random::Random;

/// The table in which each transaction leaves its mark.
pub(super) const JOURNAL: &str = "journal";
/// The other tables.
pub(super) const TABLES: [&str; 3] = ["t0", "t1", "t2"];

/// A value set, or a key deleted.
pub(super) struct Write {
    pub table: &'static str,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// A transaction that was to be committed.
pub(super) struct Attempt {
    /// Its key in the journal.
    pub mark: Vec<u8>,
    /// Rises with each commit that conflicts with it: drawn while the locks are held.
    pub order: u64,
    pub writes: Vec<Write>,
    /// Its commit, if the call returned.
    pub lsn: Option<Lsn>,
}

/// What the clients know.
pub(super) struct Told {
    pub attempts: Vec<Attempt>,
    pub crashed: bool,
}

/// Lets clients and keeper run until they are done or the power fails.
pub(super) fn live(disks: &Disks, random: &mut Random, counters: &mut Counters) -> Result<Told, Vec<String>> {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let problems = Arc::new(Mutex::new(Vec::new()));
    let (client_count, schedule) = (random.between(1, 3), random.number());
    let crash_after = random.percent(40).then(|| random.between(20, 700));
    let closes = random.percent(50);
    let seeds: Vec<Random> = (0..=client_count).map(|_| random.fork()).collect();
    let disk = disks.env.clone();
    let (all, bad) = (Arc::clone(&attempts), Arc::clone(&problems));
    simulate(schedule, &disks.env, move || {
        let mut options = options();
        if let Some(archive) = &disks.archive {
            options = options.archive_on(Arc::new(archive.clone()));
        }
        let env = match options.open_on(Arc::new(disk.clone())) {
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
        let order = Arc::new(AtomicU64::new(1));
        let mut threads = Vec::new();
        for (number, random) in seeds.into_iter().enumerate() {
            let (env, disk, order) = (env.clone(), disk.clone(), Arc::clone(&order));
            let (all, bad, backups) = (Arc::clone(&all), Arc::clone(&bad), disks.backups.clone());
            threads.push(sync::spawn(&format!("client {number}"), move || {
                let done = if number == 0 {
                    keep(&env, &backups, random)
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
    counters.add("crashes", u64::from(crashed));
    let attempts = std::mem::take(&mut *attempts.lock());
    counters.add("transactions", attempts.len() as u64);
    Ok(Told { attempts, crashed })
}

/// Takes backups and checkpoints.
fn keep(env: &Environment, backups: &SimDisk, mut random: Random) -> Result<(), Error> {
    let mut has_full = false;
    for _ in 0..random.between(1, 5) {
        sync::sleep_ns(random.below(3_000_000));
        let incremental = has_full && random.percent(60);
        let options = BackupOptions::default().incremental(incremental);
        match env.backup_on(Arc::new(backups.clone()), options, &mut |_| ControlFlow::Continue(())) {
            Ok(_) => has_full = true,
            Err(Error::LogGone { .. }) if incremental => {} // Too late, without an archive.
            Err(error) => return Err(error),
        }
        if random.percent(40) {
            env.checkpoint()?;
        }
        if random.percent(15) {
            env.compact(CompactOptions::default())?;
        }
    }
    Ok(())
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
            all.push(Attempt { mark, order: order.fetch_add(1, SeqCst), writes, lsn: None });
            all.len() - 1
        };
        let lsn = txn.commit()?.ticket.lsn();
        all.lock()[place].lsn = Some(lsn);
    }
    Ok(())
}
