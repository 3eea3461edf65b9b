//! What must hold afterwards: M1 to M3, and M5 to M7.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledgerstone::{
    ArchiveDirectory, Backup, BackupOptions, Environment, Error, LogDirectory, Lsn, Options, RepairPages,
    RestoreReport, RestoreTo,
};
use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_region::sync;

use super::life::{Attempt, JOURNAL, TABLES, Told};
use super::{Disks, options};
use crate::counters::Counters;
use crate::faults::round::simulate;
use ledgerstone_region::Random;

/// The table of the writer while pages are repaired.
const BESIDE: &str = "beside";

/// Records by table.
type State = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn fail<T>(what: impl Into<String>) -> Result<T, Vec<String>> {
    Err(vec![what.into()])
}

pub(super) fn prove(
    disks: &Disks,
    told: &Told,
    random: &mut Random,
    counters: &mut Counters,
) -> Result<(), Vec<String>> {
    let disks = &disks.settled(random);
    let set = match Backup::open_on(&disks.backups) {
        Ok(set) => set,
        Err(Error::NotABackup { .. }) if told.backups.is_empty() => return Ok(()), // The power failed first.
        Err(error) => return fail(format!("the backups: {error}")),
    };
    let files = set.files();
    if let Some(lost) = told.backups.iter().find(|name| !files.iter().any(|info| info.file == **name)) {
        return fail(format!("backup {lost} was acknowledged and is gone"));
    }
    counters.add("backups", files.len() as u64);
    if let Err(error) = set.verify() {
        return fail(format!("verify the backups: {error}"));
    }
    let log = archive_log(disks)?;
    let newest_full = files.iter().rev().find(|file| file.is_full).map_or(0, |file| file.log_end_lsn);
    let end = files.last().map_or(0, |file| file.log_end_lsn);
    let lsns: Vec<Lsn> = told.attempts.iter().filter_map(|attempt| attempt.lsn).collect();
    let within: Vec<Lsn> = lsns.iter().copied().filter(|lsn| (newest_full..end).contains(&lsn.0)).collect();
    let mut moments = vec![RestoreTo::End];
    for _ in 0..2 {
        if !within.is_empty() {
            moments.push(RestoreTo::Lsn(random.pick(&within)));
        }
    }
    distrust(disks, random, counters)?;
    for to in moments {
        restore(&set, to, Lsn(end), &[], told, random, counters)?;
    }
    restore_all(disks, &set, log.as_ref(), told, random, counters)?;
    if random.percent(40) {
        live_again(disks, &set, random, counters)?;
    }
    if let Some(log) = log {
        // Everything that the archive has, which is what was in full segments.
        restore(&set, RestoreTo::End, Lsn(u64::MAX), std::slice::from_ref(&log), told, random, counters)?;
    }
    repair(disks, &set, random, counters)
}

fn archive_log(disks: &Disks) -> Result<Option<LogDirectory>, Vec<String>> {
    let Some(archive) = &disks.archive else { return Ok(None) };
    match ArchiveDirectory::open_on(Arc::new(archive.clone())).and_then(|archive| {
        let problem = archive.verify()?.into_iter().find_map(|segment| segment.problem);
        Ok((archive, problem))
    }) {
        Ok((_, Some(problem))) => fail(format!("the archive: {problem}")),
        Ok((archive, None)) => match archive.log() {
            Ok(log) => Ok(Some(log)),
            Err(Error::NoArchive) => Ok(None), // Nothing was given up yet.
            Err(error) => fail(format!("the archive's log: {error}")),
        },
        Err(error) => fail(format!("the archive: {error}")),
    }
}

/// M2. `end`: of what is restored at most; unknown: `u64::MAX`.
fn restore(
    set: &Backup,
    to: RestoreTo,
    end: Lsn,
    logs: &[LogDirectory],
    told: &Told,
    random: &mut Random,
    counters: &mut Counters,
) -> Result<(), Vec<String>> {
    let what = format!("restore to {to:?}{}", if logs.is_empty() { "" } else { " with the archive" });
    let Some((target, report)) = restored(set, to, logs, &what, random, counters)? else { return Ok(()) };
    let state = look(&target, random.number(), &what)?;
    let moment = match to {
        RestoreTo::Lsn(lsn) => lsn,
        _ => Lsn(report.end_lsn.saturating_sub(1)),
    };
    if report.end_lsn > end.0 {
        return fail(format!("{what}: ends at {} behind {end}", report.end_lsn));
    }
    compare(&state, told, moment, &what)
}

/// M7. Restores, perhaps after a try that lost the power; and perhaps loses it afterwards. `None`: the logs begin
/// behind the backup.
fn restored(
    set: &Backup,
    to: RestoreTo,
    logs: &[LogDirectory],
    what: &str,
    random: &mut Random,
    counters: &mut Counters,
) -> Result<Option<(SimDisk, RestoreReport)>, Vec<String>> {
    if random.percent(30) {
        let target = SimDisk::new();
        target.crash_at(random.between(1, 25));
        if set.restore_on(Arc::new(target.clone()), to, logs, |_| ()).is_err() && target.is_crashed() {
            let opened = options().create(false).open_on(Arc::new(target.after_crash(random.number())));
            // The last call of all, whose effect arrived, made it one.
            if let Ok(env) = opened {
                drop(env);
                counters.add("restores_cut_at_their_end", 1);
            }
            counters.add("restores_cut", 1);
        }
    }
    let target = SimDisk::new();
    let report = match set.restore_on(Arc::new(target.clone()), to, logs, |_| ()) {
        Ok(report) => report,
        Err(Error::LogGone { .. }) if !logs.is_empty() => return Ok(None),
        Err(error) => return fail(format!("{what}: {error}")),
    };
    if let Some(left) = report.left_out.first() {
        return fail(format!("{what}: {} was left out: {}", left.what, left.why));
    }
    counters.add("restores", 1);
    let target = if random.percent(50) { target.after_crash(random.number()) } else { target };
    Ok(Some((target, report)))
}

/// M6. Backups, archive and the log that is left give what the environment itself gives.
fn restore_all(
    disks: &Disks,
    set: &Backup,
    archive: Option<&LogDirectory>,
    told: &Told,
    random: &mut Random,
    counters: &mut Counters,
) -> Result<(), Vec<String>> {
    let own = LogDirectory::open_on(Arc::new(disks.env.snapshot()));
    let own = own.map_err(|error| vec![format!("the log that is left: {error}")])?;
    let again = archive_log(disks)?;
    let mut logs: Vec<LogDirectory> = archive.and(again).into_iter().chain([own]).collect();
    if random.percent(50) {
        logs.reverse();
    }
    let what = "restore with all logs";
    let Some((target, _)) = restored(set, RestoreTo::End, &logs, what, random, counters)? else {
        // Without an archive the log since may be gone.
        return if disks.archive.is_none() { Ok(()) } else { fail(format!("{what}: a part of the log is nowhere")) };
    };
    let found = look(&target, random.number(), what)?;
    let kept = look(&disks.env.snapshot(), random.number(), "open what is left")?;
    let journal = kept.get(JOURNAL);
    let is_there = |attempt: &Attempt| journal.is_some_and(|journal| journal.contains_key(&attempt.mark));
    if let Some(lost) = told.attempts.iter().find(|attempt| attempt.is_durable && !is_there(attempt)) {
        return fail(format!("the transaction with commit {:?} was durable and is lost", lost.lsn));
    }
    counters.add("restores_of_all", 1);
    if found == kept { Ok(()) } else { fail(format!("{what}: other records than in what is left")) }
}

/// M7. A restored life keeps out of what belongs to the old one, and what it commits survives.
fn live_again(disks: &Disks, set: &Backup, random: &mut Random, counters: &mut Counters) -> Result<(), Vec<String>> {
    let Some((target, _)) = restored(set, RestoreTo::End, &[], "another life", random, counters)? else {
        return Ok(());
    };
    if let Some(archive) = &disks.archive {
        let archive = archive.snapshot();
        match options().archive_on(Arc::new(archive)).open_on(Arc::new(target.snapshot())) {
            Err(Error::ArchiveOfAnother { .. }) => {}
            other => return fail(format!("another life with the archive of the old one: {:?}", other.map(drop))),
        }
    }
    target.crash_at(target.counters().mutations + random.between(1, 150));
    let (backups, own_archive) = (disks.backups.snapshot(), SimDisk::new());
    let kept = simulate(random.number(), &target, || -> Result<u64, String> {
        let open = options().archive_on(Arc::new(own_archive.clone())).open_on(Arc::new(target.clone()));
        let Ok(env) = open else { return Ok(0) };
        let increment = BackupOptions::default().incremental(true);
        let taken = env.backup_on(Arc::new(backups.clone()), increment, |_| ());
        if let Ok(info) = taken {
            return Err(format!("{} goes on from the backups of another life", info.file));
        }
        for n in 0..30u64 {
            let put = env.transact(|txn| txn.bytes_or_create(BESIDE)?.put(&n.to_be_bytes(), &[3; 900]));
            if put.is_err() || n % 8 == 7 && env.checkpoint().is_err() {
                return Ok(if put.is_err() { n } else { n + 1 });
            }
        }
        Ok(30)
    })?;
    let count = kept.map_err(|problem| vec![format!("another life: {problem}")])?;
    let after = target.after_crash(random.number());
    drop(look(&after, random.number(), "another life after a power loss")?);
    let found = simulate(random.number(), &after, || -> Result<u64, Error> {
        let env = options().open_on(Arc::new(after.clone()))?;
        let txn = env.begin()?;
        match txn.bytes(BESIDE) {
            Err(Error::NoSuchTable(_)) => Ok(0),
            table => Ok(table?.range(..)?.count() as u64),
        }
    })?;
    let found = found.map_err(|error| vec![format!("another life: {error}")])?;
    counters.add("lives_after_a_restore", 1);
    if found >= count { Ok(()) } else { fail(format!("another life: {found} of {count} commits are there")) }
}

/// Opens, verifies and reads what is on a disk.
fn look(disk: &SimDisk, seed: u64, what: &str) -> Result<State, Vec<String>> {
    look_with(&options(), disk, seed, what)
}

fn look_with(options: &Options, disk: &SimDisk, seed: u64, what: &str) -> Result<State, Vec<String>> {
    let found = simulate(seed, disk, || -> Result<State, Error> {
        let env = options.clone().open_on(Arc::new(disk.clone()))?;
        let report = env.verify()?;
        if let Some(problem) = report.problems.first() {
            return Err(Error::Corrupt { what: format!("{}: {}", problem.place, problem.what) });
        }
        let state = read(&env)?;
        env.close()?;
        Ok(state)
    })?;
    found.map_err(|error| vec![format!("{what}: {error}")])
}

fn read(env: &Environment) -> Result<State, Error> {
    let txn = env.begin()?;
    let mut state = State::new();
    for name in TABLES.iter().chain([&JOURNAL]) {
        let records = match txn.bytes(name) {
            Err(Error::NoSuchTable(_)) => continue, // A moment before it was made.
            other => other?.range(..)?.collect::<Result<_, _>>()?,
        };
        state.insert((*name).to_string(), records);
    }
    txn.abort()?;
    Ok(state)
}

/// What is there is what the transactions of the journal made, and these are the right ones.
fn compare(found: &State, told: &Told, moment: Lsn, what: &str) -> Result<(), Vec<String>> {
    let empty = BTreeMap::new();
    let journal: BTreeSet<&Vec<u8>> = found.get(JOURNAL).unwrap_or(&empty).keys().collect();
    let mut there: Vec<&Attempt> = Vec::new();
    for attempt in &told.attempts {
        let is_there = journal.contains(&attempt.mark);
        match attempt.lsn {
            Some(lsn) if (lsn <= moment) != is_there => {
                let word = if is_there { "there" } else { "missing" };
                return fail(format!("{what}: the transaction with commit {lsn} is {word} at {moment}"));
            }
            _ if is_there => there.push(attempt),
            _ => {}
        }
    }
    if there.len() != journal.len() {
        return fail(format!("{what}: {} marks of {} transactions", journal.len(), there.len()));
    }
    there.sort_by_key(|attempt| attempt.order);
    let mut expected: BTreeMap<&str, BTreeMap<&[u8], &[u8]>> = BTreeMap::new();
    for write in there.iter().flat_map(|attempt| &attempt.writes) {
        let records = expected.entry(write.table).or_default();
        match &write.value {
            Some(value) => drop(records.insert(&write.key, value)),
            None => drop(records.remove(&write.key[..])),
        }
    }
    for table in TABLES {
        let there = found.get(table).unwrap_or(&empty);
        let wanted = expected.remove(table).unwrap_or_default();
        let same = there.len() == wanted.len()
            && there.iter().zip(&wanted).all(|((a, b), (c, d))| a.as_slice() == *c && b.as_slice() == *d);
        if !same {
            return fail(format!("{what}: table {table} at {moment} differs from {} transactions", journal.len()));
        }
    }
    Ok(())
}

/// M3.
fn repair(disks: &Disks, set: &Backup, random: &mut Random, counters: &mut Counters) -> Result<(), Vec<String>> {
    let disks = &disks.snapshot();
    let disk = disks.env.clone();
    // A recovery first, which is not what is tested here. It archives what it gives up.
    let before = look_with(&disks.options(), &disk, random.number(), "open again")?;
    let log = archive_log(disks)?;
    let log = log.as_ref();
    damage(&disk, "data", random).map_err(|error| vec![format!("damage: {error}")])?;
    if random.percent(50) {
        return repair_running(disks, &disk, set, &before, random, counters);
    }
    match set.repair_on(Arc::new(disk.clone()), &RepairPages::AllDamaged, log, |_| ()) {
        Ok(report) => counters.add("repaired_pages", report.repaired.len() as u64),
        // The recovery's own log is not in the archive, and without one the log since the backup may be gone.
        Err(Error::LogGone { .. }) => {
            counters.add("repairs_without_log", 1);
            return Ok(());
        }
        Err(error) => return fail(format!("repair: {error}")),
    }
    let after = look(&disk, random.number(), "after the repair")?;
    if after == before { Ok(()) } else { fail("after the repair: other records than before the damage") }
}

/// M3 in an environment that is open, beside a writer.
fn repair_running(
    disks: &Disks,
    disk: &SimDisk,
    set: &Backup,
    before: &State,
    random: &mut Random,
    counters: &mut Counters,
) -> Result<(), Vec<String>> {
    let rounds = random.between(3, 30);
    let done = simulate(random.number(), disk, || -> Result<Option<(u64, State)>, Error> {
        let env = match disks.options().open_on(Arc::new(disk.clone())) {
            Ok(env) => env,
            Err(Error::Corrupt { .. }) => return Ok(None), // What it needs to be open at all: repaired closed.
            Err(error) => return Err(error),
        };
        let writer = env.clone();
        let beside = sync::spawn("beside", move || -> Result<(), Error> {
            for n in 0..rounds {
                let put = writer.transact(|txn| txn.bytes_or_create(BESIDE)?.put(&n.to_be_bytes(), &[7; 500]));
                match put {
                    Err(Error::Corrupt { .. }) => {} // It has met a page before it was repaired.
                    other => other?,
                }
            }
            Ok(())
        });
        let repaired = env.repair(set, &RepairPages::AllDamaged);
        if let Ok(Err(error)) = beside.join() {
            return Err(error);
        }
        let repaired = match repaired {
            Ok(report) => report.repaired.len() as u64,
            Err(Error::LogGone { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let report = env.verify()?;
        if let Some(problem) = report.problems.first() {
            return Err(Error::Corrupt { what: format!("{}: {}", problem.place, problem.what) });
        }
        let state = read(&env)?;
        env.close()?;
        Ok(Some((repaired, state)))
    })?;
    match done {
        Ok(None) => counters.add("repairs_without_log", 1),
        Ok(Some((repaired, state))) if state == *before => counters.add("pages_repaired_running", repaired),
        Ok(Some(_)) => return fail("after the repair beside a writer: other records than before the damage"),
        Err(error) => return fail(format!("repair beside a writer: {error}")),
    }
    Ok(())
}

/// M5. Bytes of one of the files of backups and archive are changed: it is found out, and nothing is restored from it.
fn distrust(disks: &Disks, random: &mut Random, counters: &mut Counters) -> Result<(), Vec<String>> {
    let damaged = disks.backups.snapshot();
    let names: Vec<String> = damaged.list("").map_err(|error| vec![error.to_string()])?;
    let whole: Vec<String> = names.into_iter().filter(|name| name.ends_with(".backup")).collect();
    let name = &whole[random.below(whole.len() as u64) as usize];
    damage(&damaged, name, random).map_err(|error| vec![format!("damage: {error}")])?;
    let set = match Backup::open_on(&damaged) {
        Ok(set) => set,
        Err(error) if is_refusal(&error) => {
            counters.add("distrusted", 1);
            return Ok(());
        }
        Err(error) => return fail(format!("damaged {name}: {error}")),
    };
    match set.verify() {
        Err(error) if is_refusal(&error) => counters.add("distrusted", 1),
        other => return fail(format!("{name} was damaged, and verification says {other:?}")),
    }
    let target = SimDisk::new();
    // The newest chain may be whole, and is enough.
    match set.restore_on(Arc::new(target.clone()), RestoreTo::End, &[], |_| ()) {
        Err(error) if is_refusal(&error) => {}
        Ok(_) => drop(look(&target, random.number(), "restored beside a damaged backup")?),
        Err(error) => return fail(format!("restore beside damaged {name}: {error}")),
    }
    Ok(())
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. } | Error::NotABackup { .. } | Error::NewerFormat { .. })
}

/// Flips some bits of a file.
fn damage(disk: &SimDisk, name: &str, random: &mut Random) -> Result<(), ledgerstone_disk::DiskError> {
    let file = disk.open(name, Open::EXISTING)?;
    let len = file.len()?;
    // At different places, so that none is flipped back.
    let places: BTreeSet<u64> = (0..random.between(1, 6)).map(|_| random.below(len)).collect();
    for at in places {
        let mut byte = [0];
        file.read_at(at, &mut byte)?;
        file.write_at(at, &[byte[0] ^ (1 << random.below(8))])?;
    }
    file.sync()
}
