//! The steps themselves.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ledgerstone::{
    Backup, BackupOptions, Durability, Environment, Error, IndexDef, IndexKeys, Options, RecoveryPhase,
    RecoveryProgress, RestoreTo,
};
use ledgerstone_dump::{Dump, DumpOptions};

use super::told::Told;
use super::{ScaleArgs, Step};
use crate::machine::memory_bytes;
use crate::rollback::{self, change};

const RECORDS: &str = "records";
const INDEX: &str = "by_hash";
const LARGE: &str = "large";
const VALUE_BYTES: usize = 480;

/// Log that the deletion of a record and of its index entry writes, as measured. It says when a step is half done.
const LOG_BYTES_OF_DELETION: u64 = 144;
/// Log that a compaction of this environment writes, in hundredths of the pages that it ends with, as measured.
const LOG_PERCENT_OF_COMPACTION: u64 = 30;
/// Records that are looked at, where a count of all would take longer than the step.
const SAMPLE_COUNT: u64 = 2000;

/// Takes one.
pub(super) fn take(step: Step, args: &ScaleArgs, dir: &Path, cache_bytes: u64, told: &Told) -> anyhow::Result<()> {
    let mut at = dir.join("environment");
    match (step, args.after) {
        (Step::Restore, _) => at = restore(dir, told)?,
        (Step::Open, Some(Step::Restore)) => return refuse_cut_restore(dir, told),
        _ => {}
    }
    let mut options = Environment::options().cache_bytes(cache_bytes).lock_timeout(Duration::from_mins(10));
    if matches!(step, Step::VerifyTables | Step::DropTables) {
        // Each table is locked, until the end.
        options = options.lock_count_max(2 * args.tables as u32 + (64 << 10));
    }
    let env = open(step, options, &at, told)?;
    match step {
        Step::Load => {
            env.transact(|txn| {
                let records = (0..args.records).map(|n| {
                    told.at(n, args.records);
                    (n.to_be_bytes(), record(n))
                });
                txn.bytes_or_create(RECORDS)?.load_sorted(records)?;
                told.at_end();
                Ok(())
            })?;
            rollback::fill(&env, args.changes)?;
            told.say("data file (MiB)", env.stat()?.page_count as f64 * page_bytes(&env) as f64 / 1048576.0);
        }
        Step::Index => env.transact(|txn| {
            // It tells of records, then of entries.
            txn.create_index_with(RECORDS, &index(), |count| told.at(count, 2 * args.records))?;
            told.at_end();
            Ok(())
        })?,
        Step::Verify | Step::VerifyTables => {
            let found = env.verify()?;
            ensure!(found.problems.is_empty(), "{} problems, the first: {:?}", found.problems.len(), found.problems[0]);
        }
        Step::Backup => {
            let taken = env.backup(dir.join("backups"), BackupOptions::default())?;
            told.say("pages", taken.page_count as f64);
        }
        Step::Restore => {
            let count = env.transact(|txn| txn.bytes(RECORDS)?.count())?;
            ensure!(count == args.records, "{count} records came back of {}", args.records);
        }
        Step::Dump => {
            let mut sink = Counted(0);
            env.dump(&mut sink, &DumpOptions::default())?;
            told.say("text (MiB)", sink.0 as f64 / 1048576.0);
        }
        Step::DeleteRange => drop(delete_range(&env, args, told)?),
        Step::FreeRange => free_range(&env, args, told)?,
        Step::Compact => compact(&env, told)?,
        Step::LargeValue => large_value(&env, args.value, told)?,
        Step::Rollback => {
            let txn = env.begin()?;
            let began = Instant::now();
            change(&txn, args.changes)?;
            let forward = began.elapsed().as_secs_f64();
            let began = Instant::now();
            txn.abort()?;
            let back = began.elapsed().as_secs_f64();
            told.say("changes made (s)", forward);
            told.say("changes rolled back (s)", back);
            told.say("of the time of the changes (times)", back / forward);
            rollback::ensure_untouched(&env, args.changes)?;
        }
        Step::Kill => {
            let txn = env.begin()?;
            change(&txn, args.changes)?;
            let mark = env.begin()?;
            mark.bytes_or_create("mark")?.put(b"durable", b"up to here")?;
            let _ = mark.commit_with(Durability::Sync)?;
            told.at_end();
        }
        Step::Open => look(&env, args)?,
        Step::TablesInOne => env.transact(|txn| {
            (0..args.tables).try_for_each(|n| {
                told.at(n, args.tables);
                txn.create_table(&format!("one {n}"))?.put(b"k", b"v")
            })?;
            told.at_end();
            Ok(())
        })?,
        Step::TablesSingly => {
            let write = |n| env.transact(|txn| txn.create_table(&format!("single {n}"))?.put(b"k", b"v"));
            (0..args.tables).try_for_each(write)?;
        }
        Step::DropTables => env.transact(|txn| {
            (0..args.tables).try_for_each(|n| {
                told.at(n, args.tables);
                txn.drop_table(&format!("one {n}"))?;
                txn.drop_table(&format!("single {n}"))
            })?;
            told.at_end();
            Ok(())
        })?,
    }
    let began = Instant::now();
    env.close()?;
    told.say("close (s)", began.elapsed().as_secs_f64());
    if step == Step::Restore {
        std::fs::remove_dir_all(&at)?;
        std::fs::remove_dir_all(dir.join("backups"))?;
    }
    Ok(())
}

/// Opens the environment. The opening after a kill tells what it had to do, and may be killed itself.
fn open(step: Step, options: Options, at: &Path, told: &Told) -> anyhow::Result<Environment> {
    let began = Instant::now();
    if step != Step::Open {
        let env = options.open(at)?;
        told.say("open (s)", began.elapsed().as_secs_f64());
        return Ok(env);
    }
    let progress = Arc::new(RecoveryProgress::default());
    let options = options.recovery_progress(Arc::clone(&progress));
    let undone = || match progress.phase() {
        RecoveryPhase::Undo if progress.all_bytes() > 0 => Ok((progress.done_bytes(), progress.all_bytes())),
        _ => Ok((0, 1)),
    };
    let env = told.watched(undone, || Ok(options.open(at)?))?;
    told.say("open (s)", began.elapsed().as_secs_f64());
    told.say("memory when it was open (MiB)", memory_bytes("VmHWM") as f64 / 1048576.0);
    let recovery = env.recovery_report();
    told.say("log records", recovery.record_count as f64);
    told.say("page updates repeated", recovery.redo_applied_count as f64);
    told.say("records visited by undo", recovery.undone_count as f64);
    let phases = [
        ("analysis (s)", recovery.analysis_ns),
        ("redo (s)", recovery.redo_ns),
        ("undo (s)", recovery.undo_ns),
        ("checkpoint (s)", recovery.checkpoint_ns),
    ];
    phases.iter().for_each(|&(name, ns)| told.say(name, ns as f64 / 1e9));
    if recovery.put_off_count > 0 {
        env.wait_rolled_back()?;
        told.say("rolled back after (s)", began.elapsed().as_secs_f64());
        told.say("memory then (MiB)", memory_bytes("VmHWM") as f64 / 1048576.0);
    }
    Ok(env)
}

/// Whether the environment is as it was before the step that was killed.
fn look(env: &Environment, args: &ScaleArgs) -> anyhow::Result<()> {
    let names = env.table_names()?;
    let named = |start: &str| names.iter().filter(|name| name.starts_with(start)).count() as u64;
    let kept = args.records / 4;
    let counted = |expected: u64| -> anyhow::Result<()> {
        let count = env.transact(|txn| txn.bytes(RECORDS)?.count())?;
        ensure!(count == expected, "{count} records, and not {expected}");
        Ok(())
    };
    match args.after {
        Some(Step::Load) => ensure!(names.is_empty(), "tables of the load are there: {names:?}"),
        Some(Step::Index) => {
            let indexes = env.transact(|txn| Ok(txn.bytes(RECORDS)?.indexes()))?;
            ensure!(indexes.is_empty(), "the index is there");
            sample(env, args.records)?;
        }
        Some(Step::DeleteRange) => {
            counted(args.records)?;
            sample(env, args.records)?;
        }
        Some(Step::FreeRange | Step::Compact) => {
            counted(kept)?;
            sample(env, kept)?;
        }
        Some(Step::LargeValue) => ensure!(named(LARGE) == 0, "the table of the large value is there"),
        Some(Step::Kill) => rollback::ensure_untouched(env, args.changes)?,
        Some(Step::TablesInOne) => ensure!(named("one ") == 0, "{} tables are there", named("one ")),
        Some(Step::DropTables) => {
            let count = named("one ") + named("single ");
            ensure!(count == 2 * args.tables, "{count} tables are left of {}", 2 * args.tables);
        }
        after => bail!("{after:?} is not a step that is killed"),
    }
    Ok(())
}

/// Some of the first `count` records, by their keys, and by the index if there is one.
fn sample(env: &Environment, count: u64) -> anyhow::Result<()> {
    env.try_transact(|txn| -> anyhow::Result<()> {
        let table = txn.bytes(RECORDS)?;
        let index = if table.indexes().is_empty() { None } else { Some(table.index(INDEX)?) };
        for n in (0..SAMPLE_COUNT).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count) {
            let (key, expected) = (n.to_be_bytes(), record(n));
            ensure!(table.get(&key)?.is_some_and(|found| found == expected), "record {n} is not what it was");
            let Some(index) = &index else { continue };
            let found = index.get(&expected[..16])?;
            ensure!(found.is_some_and(|(found, _)| found == key), "the index does not find record {n}");
        }
        Ok(())
    })
}

fn index() -> IndexDef {
    IndexDef::new(INDEX, IndexKeys::Bytes { from: 0, to: Some(16) })
}

fn page_bytes(env: &Environment) -> u64 {
    env.effective().page_bytes as u64
}

/// Restores the backup beside the environment.
fn restore(dir: &Path, told: &Told) -> anyhow::Result<std::path::PathBuf> {
    let (at, began) = (dir.join("restored"), Instant::now());
    Backup::open(dir.join("backups"))?.restore_with(&at, RestoreTo::End, &[], |now| {
        if now.what == "copy pages" && now.total_bytes > 0 {
            told.at(now.done_bytes, now.total_bytes);
        }
    })?;
    told.at_end();
    told.say("restored (s)", began.elapsed().as_secs_f64());
    Ok(at)
}

/// What a killed restore leaves is not opened, and says so at once.
fn refuse_cut_restore(dir: &Path, told: &Told) -> anyhow::Result<()> {
    let (at, began) = (dir.join("restored"), Instant::now());
    let refused = Environment::options().open(&at);
    told.say("refused (s)", began.elapsed().as_secs_f64());
    ensure!(matches!(refused, Err(Error::NotAnEnvironment { .. })), "half of a restore was opened: {refused:?}");
    Ok(std::fs::remove_dir_all(&at)?)
}

/// Deletes three quarters of the large table, which may kill it, and says how many pages that will free at least.
fn delete_range(env: &Environment, args: &ScaleArgs, told: &Told) -> anyhow::Result<u64> {
    let (began, count) = (Instant::now(), args.records - args.records / 4);
    let is_killed_in_it = told.is_killed() && args.step == Some(Step::DeleteRange);
    let log_from = env.stat()?.log_tail_lsn;
    let from = (args.records / 4).to_be_bytes();
    let txn = env.begin()?;
    let delete = || Ok(txn.bytes(RECORDS)?.delete_range(&from[..]..)?);
    let deleted = if is_killed_in_it {
        let log = || Ok((env.stat()?.log_tail_lsn - log_from, count * LOG_BYTES_OF_DELETION));
        told.watched(log, delete)?
    } else {
        delete()?
    };
    ensure!(deleted == count, "{deleted} records were deleted, and not {count}");
    told.say("log of the deletion (bytes a record)", (env.stat()?.log_tail_lsn - log_from) as f64 / count as f64);
    let _ = txn.commit()?;
    told.say("deleted and committed (s)", began.elapsed().as_secs_f64());
    Ok(count * VALUE_BYTES as u64 / page_bytes(env))
}

/// The same, and then their pages are freed.
fn free_range(env: &Environment, args: &ScaleArgs, told: &Told) -> anyhow::Result<()> {
    let pages = delete_range(env, args, told)?;
    let (began, before) = (Instant::now(), env.stat()?.allocated_page_count);
    let freed = || Ok((before.saturating_sub(env.stat()?.allocated_page_count), pages));
    told.watched(freed, || Ok(env.reclaim()?))?;
    told.say("freed (s)", began.elapsed().as_secs_f64());
    Ok(())
}

fn compact(env: &Environment, told: &Told) -> anyhow::Result<()> {
    let stat = env.stat()?;
    let all = stat.allocated_page_count * page_bytes(env) * LOG_PERCENT_OF_COMPACTION / 100;
    let has_failed = AtomicBool::new(false);
    let report = env.compact_with(|_| match env.stat() {
        Ok(now) => told.at(now.log_tail_lsn - stat.log_tail_lsn, all),
        Err(_) => has_failed.store(true, Relaxed),
    })?;
    ensure!(!has_failed.load(Relaxed), "no figures");
    told.at_end();
    told.say("pages before", report.page_count_before as f64);
    told.say("pages afterwards", report.page_count_after as f64);
    let log_bytes = env.stat()?.log_tail_lsn - stat.log_tail_lsn;
    told.say("log (MiB)", log_bytes as f64 / 1048576.0);
    Ok(())
}

/// 16 bytes that spread, then filling.
fn record(n: u64) -> Vec<u8> {
    let mut value = vec![b'.'; VALUE_BYTES];
    value[..16].copy_from_slice(&u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes());
    value
}

fn large_value(env: &Environment, bytes: u64, told: &Told) -> anyhow::Result<()> {
    let piece = vec![b'x'; 1 << 20];
    let began = Instant::now();
    env.try_transact(|txn| -> Result<(), anyhow::Error> {
        let mut to = txn.bytes_or_create(LARGE)?.value_writer(b"film")?;
        let mut left = bytes;
        while left > 0 {
            told.at(bytes - left, bytes);
            let now = left.min(piece.len() as u64);
            to.write_all(&piece[..now as usize])?;
            left -= now;
        }
        told.at_end();
        Ok(())
    })?;
    told.say("written (s)", began.elapsed().as_secs_f64());
    // A snapshot from before the value is replaced reads it as it was.
    let old = env.snapshot()?;
    env.transact(|txn| txn.bytes(LARGE)?.put(b"film", b"short"))?;
    for (txn, what, expected) in [(old, "read at an older snapshot (s)", bytes), (env.begin()?, "read now (s)", 5)] {
        let began = Instant::now();
        let mut from = txn.bytes(LARGE)?.value_reader(b"film")?.context("the value is gone")?;
        let (mut buffer, mut count) = (vec![0; 1 << 20], 0);
        loop {
            match from.read(&mut buffer)? {
                0 => break,
                n => count += n as u64,
            }
        }
        ensure!(count == expected, "{count} bytes of {expected}");
        told.say(what, began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Counts what is written to it.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
