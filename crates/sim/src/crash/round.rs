//! A round: lives on one disk, each judged at the beginning of the next that opens.
//!
//! What a life leaves is judged when a later life has managed to open, not when the power fails. A recovery that is
//! itself crashed hands the same evidence on. After a judgement what was found becomes the state that the next life
//! begins with, and has to stay.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ledgerstone::{Conflict, Environment, Error, IndexDef, Locking, LogValues, Replacement, Victim};
use ledgerstone_disk::{Disk, PLANNED_PANIC, SimDisk};
use ledgerstone_region::{
    Mutex,
    sync::{self, Scheduler},
};

use super::client::Client;
use super::consumer::{Consumer, Stopped};
use super::doubt::{Settled, settle};
use super::ground::{Ground, blank};
use super::judge::{Evidence, Outcome, Record, describe, describe_seen, judge};
use super::model::{Bytes, Records, State, counter_bytes, value_bytes};
use super::plan::{
    Ending, JOURNAL, Key, LISTS, Life, Plan, Settings, Start, TABLE_COUNT, is_unique, key_bytes, table_name,
};
use super::tally::{Kind, Tally, register};
use crate::age::age;
use crate::counters::Counters;

/// What was wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed that reproduces it.
    pub seed: u64,
    /// In which life, from 0.
    pub life: usize,
    /// What, in lines.
    pub lines: Vec<String>,
}

/// Environments to begin with, made once and copied for each round.
#[derive(Default)]
pub struct Prepared(BTreeMap<(Start, u64, bool, bool), (SimDisk, State)>);

/// How much a round tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// Nothing.
    Quiet,
    /// Each life and each transaction.
    Loud,
}

/// What is known from one life to the next.
struct Known {
    base: State,
    records: Vec<Record>,
    closed: bool,
    lsn_max: u64,
    /// An opening has succeeded: from now on there must be an environment.
    exists: bool,
    consumer: Arc<Mutex<Consumer>>,
}

/// How a life went, as told from inside the simulation.
struct LifeReport {
    counters: Counters,
    known: Known,
    failure: Option<Vec<String>>,
}

/// Decisions of the scheduler after which a life counts as hanging. Ordinary ones take some thousands.
pub(crate) const STEPS_MAX: u64 = 3_000_000;

/// Messages of panics, in any thread, since the last look.
static PANICS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

/// Collects the messages of panics instead of printing them, but for planned ones; for the whole process.
pub fn collect_panics() {
    std::panic::set_hook(Box::new(|info| {
        let said = info.payload();
        let said = said.downcast_ref::<&str>().copied().or_else(|| said.downcast_ref::<String>().map(String::as_str));
        if said == Some(PLANNED_PANIC) {
            return;
        }
        let thread = std::thread::current().name().unwrap_or("?").to_owned();
        let mut text = format!("panic in {thread}: {info}");
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            text.push_str(&format!("\n{}", std::backtrace::Backtrace::force_capture()));
        }
        if std::thread::panicking() {
            // A panic while another unwinds: this process is about to abort, and nobody will collect anything.
            eprintln!("{text}");
        }
        PANICS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(text);
    }));
}

/// The panics since the last call.
pub fn take_panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Runs a plan.
///
/// # Errors
/// What the engine did that it must not do.
pub fn run(plan: &Plan, prepared: &mut Prepared, talk: Talk) -> Result<Counters, Failure> {
    let mut counters = Counters::default();
    let fail = |life, lines| Failure { seed: plan.seed, life, lines };
    let (mut disk, base) = prepared.get(plan).map_err(|lines| fail(0, lines))?;
    let exists = plan.start != Start::Nothing;
    let consumer = Arc::default();
    let mut known = Known { base, records: Vec::new(), closed: true, lsn_max: 0, exists, consumer };
    for (number, life) in plan.lives.iter().enumerate() {
        let report = simulate(plan, number, life, &disk, known, talk).map_err(|lines| fail(number, lines))?;
        counters.merge(&report.counters);
        if let Some(lines) = report.failure {
            return Err(fail(number, lines));
        }
        known = report.known;
        disk = if life.ending.is_kill() { disk.after_kill() } else { disk.after_crash(life.survival_seed) };
        // To open a raw store makes durable what a killed process has left.
        if !plan.is_raw {
            age(&disk, life.survival_seed ^ number as u64);
        }
    }
    counters.add("rounds", 1);
    Ok(counters)
}

/// Ends the first life of a plan at each change of the disk that it makes, one after the other: by a power failure, and
/// because the process is killed. After a kill a second life only opens, and then the power fails. Each time with so
/// many choices of what survives.
///
/// # Errors
/// As [`run`]; the last line says where the life ended.
pub fn run_every_write(plan: Plan, survivals: u64, prepared: &mut Prepared) -> Result<Counters, Failure> {
    run_first_writes(plan, u64::MAX, survivals, prepared)
}

/// The same for at most so many changes, from the first one on.
///
/// # Errors
/// As [`run_every_write`].
pub fn run_first_writes(
    mut plan: Plan,
    changes_max: u64,
    survivals: u64,
    prepared: &mut Prepared,
) -> Result<Counters, Failure> {
    let (seed, mut counters) = (plan.seed, Counters::default());
    let last = plan.lives.pop();
    plan.lives.truncate(1);
    // The last life only looks: that no power failure is left to come tells that the script is through.
    plan.lives.extend(last.map(|last| Life { crash_after: None, ..last }));
    plan.lives[0].closes = true;
    let in_creation = plan.start == Start::Nothing;
    plan.lives[0].crash_in_open = None;
    let looks = plan.lives.last().cloned();
    for n in 1..=changes_max {
        let mut ends = 0;
        let endings = [Ending::PowerLoss, Ending::Kill { bytes: u64::MAX }, Ending::Kill { bytes: 4096 }];
        for (ending, survival) in endings.into_iter().flat_map(|ending| (0..survivals).map(move |no| (ending, no))) {
            let survival_seed = seed ^ n << 8 ^ survival;
            plan.lives.truncate(1);
            let first = &mut plan.lives[0];
            let point = if in_creation { &mut first.crash_in_open } else { &mut first.crash_after };
            *point = Some(n);
            (first.ending, first.survival_seed) = (ending, survival_seed);
            if ending.is_kill() {
                let ending = Ending::PowerLoss;
                plan.lives.extend(looks.clone().map(|looks| Life { closes: false, ending, survival_seed, ..looks }));
            }
            plan.lives.extend(looks.clone());
            let more = run(&plan, prepared, Talk::Quiet).map_err(|mut failure| {
                failure.lines.push(format!("{ending:?} at change {n}, survival {survival}"));
                failure
            })?;
            // The second life's power always fails.
            ends += more.get("crashes") + more.get("kills") - u64::from(ending.is_kill());
            counters.merge(&more);
        }
        if ends == 0 {
            break;
        }
    }
    Ok(counters)
}

/// Runs a life under the scheduler; panics and hangs are failures.
fn simulate(
    plan: &Plan,
    number: usize,
    life: &Life,
    disk: &SimDisk,
    known: Known,
    talk: Talk,
) -> Result<LifeReport, Vec<String>> {
    disk.set_hook(Arc::new(|what| {
        sync::yield_point(what);
        if what == "crash" {
            sync::wake_all_waiters();
        }
    }));
    crate::planted::take_rare_branches(life.schedule_seed);
    let body = || live(plan, number, life, disk, known, talk);
    let result = catch_unwind(AssertUnwindSafe(|| Scheduler::run_within(life.schedule_seed, STEPS_MAX, body)));
    let panics = take_panics();
    match result {
        Ok(Ok(report)) if panics.is_empty() => Ok(report),
        Ok(Ok(mut report)) => {
            report.failure.get_or_insert_default().extend(panics);
            Ok(report)
        }
        Ok(Err(stuck)) => Err([vec![format!("a hang: {stuck}")], panics].concat()),
        Err(_) => Err([vec!["a thread panicked".to_owned()], panics].concat()),
    }
}

fn live(plan: &Plan, number: usize, life: &Life, disk: &SimDisk, mut known: Known, talk: Talk) -> LifeReport {
    let mut counters = Counters::default();
    counters.add("lives", 1);
    let failure = live_or_fail(plan, number, life, disk, &mut known, &mut counters, talk).err();
    LifeReport { counters, known, failure }
}

fn live_or_fail(
    plan: &Plan,
    number: usize,
    life: &Life,
    disk: &SimDisk,
    known: &mut Known,
    counters: &mut Counters,
    talk: Talk,
) -> Result<(), Vec<String>> {
    let say = |text: String| {
        if talk == Talk::Loud {
            println!("life {number}: {text}");
        }
    };
    if let Some(n) = life.crash_in_open {
        end_at(disk, life, n);
    }
    let (ended, counter) = match life.ending {
        Ending::PowerLoss => ("power lost", "crashes"),
        Ending::Kill { .. } => ("killed", "kills"),
    };
    let ground = Ground::new(disk, plan.is_raw, !known.exists);
    let opened = ground
        .map_err(Error::from)
        .and_then(|ground| Ok((open(&plan.settings, Arc::clone(&ground.disk), !known.exists)?, ground)));
    let (env, ground) = match opened {
        Ok(opened) => opened,
        Err(_) if disk.is_crashed() => {
            say(format!("{ended} while opening"));
            counters.add(counter, 1);
            counters.add("ends_in_recovery", u64::from(known.exists));
            return Ok(());
        }
        Err(error) => return Err(vec![format!("open: {error} ({error:?})")]),
    };
    // A failure from here on pulls the plug first: nothing may wait for a disk that the harness has given up.
    let result = work(&plan.settings, number, life, disk, &ground, &env, known, counters, talk);
    known.consumer.lock().leave();
    if result.is_err() {
        disk.crash_now();
    }
    if disk.is_crashed() {
        counters.add(counter, 1);
        say(ended.to_owned());
        drop(env);
        return result;
    }
    result?;
    match env.close() {
        Ok(()) => {
            known.closed = true;
            counters.add("closes", 1);
            say("closed".to_owned());
            disk.crash_now();
            Ok(())
        }
        Err(_) if disk.is_crashed() => {
            counters.add(counter, 1);
            say(format!("{ended} while closing"));
            Ok(())
        }
        // Without space for its checkpoint it stays unclean, which loses nothing.
        Err(Error::ReadOnly { .. }) if life.space_bytes.is_some() => {
            disk.crash_now();
            Ok(())
        }
        Err(error) => {
            disk.crash_now();
            Err(vec![format!("close: {error} ({error:?})")])
        }
    }
}

#[allow(clippy::too_many_arguments)] // One caller; the life's whole context.
fn work(
    settings: &Settings,
    number: usize,
    life: &Life,
    disk: &SimDisk,
    ground: &Ground,
    env: &Environment,
    known: &mut Known,
    counters: &mut Counters,
    talk: Talk,
) -> Result<(), Vec<String>> {
    known.exists = true;
    // What is left of the power that fails in the opening may fail here.
    let settled = settle(env, &mut known.records, true, || disk.is_crashed(), counters);
    disk.crash_at(u64::MAX);
    if disk.is_crashed() || matches!(settled?, Settled::PowerLost) {
        return Ok(());
    }
    let found = look(env).map_err(|error| vec![format!("reading everything back: {error} ({error:?})")])?;
    let evidence = Evidence {
        base: &known.base,
        records: &known.records,
        closed: known.closed,
        lsn_before: known.lsn_max,
        found: &found,
    };
    let verdict = judge(&evidence)?;
    counters.add("present", verdict.present);
    counters.add("lost", verdict.lost);
    counters.add("unanswered_present", verdict.unanswered_present);
    counters.add("judged", 1);
    let recovery = env.recovery_report();
    counters.add("torn_pages", recovery.torn_pages.len() as u64);
    counters.add("redone", recovery.redo_applied_count);
    counters.add("redo_put_off", recovery.redo_put_off_count);
    counters.add("losers", recovery.loser_count);
    counters.add("put_off", recovery.put_off_count);
    counters.add("beside_put_off", env.rolling_back().len() as u64);
    if talk == Talk::Loud {
        println!("life {number}: opened, {verdict:?}, {:?}", env.recovery_report());
    }
    if settings.is_followed {
        let follow = || -> Result<u64, Stopped> {
            let mut consumer = known.consumer.lock();
            consumer.resume(env)?;
            let count = consumer.judge(&known.base, &known.records, &found)?;
            if life.verifies {
                consumer.acknowledge(0)?;
            }
            Ok(count)
        };
        counters.add("followed", follow().map_err(Stopped::lines)?);
    }
    *known = Known {
        base: found,
        records: Vec::new(),
        closed: false,
        lsn_max: verdict.lsn_max,
        exists: true,
        consumer: Arc::clone(&known.consumer),
    };
    if life.verifies {
        verify(env)?;
    }

    if let Some(n) = life.crash_after {
        end_at(disk, life, disk.counters().mutations + n);
    }
    if let Some(bytes) = life.space_bytes {
        match ground.leave_space(disk, bytes) {
            Err(_) if disk.is_crashed() => {}
            left => left.map_err(|error| vec![format!("taking space away: {error}")])?,
        }
    }
    let clock = Arc::new(AtomicU64::new(((number as u64 + 1) << 32) + 1));
    let told_lsn = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = life
        .clients
        .iter()
        .enumerate()
        .map(|(client_number, jobs)| {
            let (env, disk, clock, jobs) = (env.clone(), disk.clone(), clock.clone(), jobs.clone());
            let consumer = Arc::clone(&known.consumer);
            let told_lsn = Arc::clone(&told_lsn);
            let (is_indexed, faults, number, life) = (settings.is_indexed, None, client_number, number);
            let client = Client { env, disk, faults, number, life, is_indexed, clock, told_lsn, consumer };
            sync::spawn(&format!("client {client_number}"), move || client.run(&jobs))
        })
        .collect();
    let mut bugs = Vec::new();
    for client in clients {
        match client.join() {
            Ok(report) => {
                counters.merge(&report.counters);
                bugs.extend(report.bugs);
                known.records.extend(report.records);
            }
            Err(panicked) => bugs.push(panicked.to_string()),
        }
    }
    if talk == Talk::Loud {
        print_records(number, &known.records);
    }
    if !bugs.is_empty() {
        return Err(bugs);
    }
    if !disk.is_crashed() {
        if env.is_failed() {
            let why = env.begin().err().map_or(String::new(), |error| error.to_string());
            return Err(vec![format!("the environment has failed though the disk has not: {why}")]);
        }
        if !life.closes {
            disk.crash_now();
        }
    }
    Ok(())
}

/// Ends a life inside the `n`-th change of its disk.
fn end_at(disk: &SimDisk, life: &Life, n: u64) {
    match life.ending {
        Ending::PowerLoss => disk.crash_at(n),
        Ending::Kill { bytes } => disk.kill_at(n, bytes),
    }
}

fn print_records(life: usize, records: &[Record]) {
    let mut records: Vec<&Record> = records.iter().collect();
    records.sort_by_key(|record| (record.asked_at, record.client));
    for record in records {
        let mark = record.mark.as_ref().map_or("reader".into(), |mark| String::from_utf8_lossy(mark));
        println!("life {life}: client {} {mark} asked at {}: {:?}", record.client, record.asked_at, record.outcome);
        for (deed, seen) in &record.deeds {
            println!("    {} -> {}", describe(deed), describe_seen(seen));
        }
    }
}

/// Opens an environment with the settings of a plan, and with the structures of users that the plans use.
pub(crate) fn open(settings: &Settings, disk: Arc<dyn Disk>, creates: bool) -> Result<Environment, Error> {
    let env = register(Environment::options())
        .create(creates)
        .page_bytes(4096)
        .cache_bytes(settings.cache_frames * 4096)
        .log_segment_bytes(settings.segment_bytes)
        .log_buffer_bytes(settings.buffer_bytes)
        .checkpoint_log_bytes(settings.checkpoint_log_bytes)
        .lock_timeout(Duration::from_millis(settings.lock_timeout_ms))
        .escalate_after(settings.escalate_after)
        .lock_count_max(4096)
        .transaction_count_max(64)
        .page_count_max(1 << 16)
        .async_delay(Duration::from_millis(2))
        .version_store_bytes(settings.version_store_bytes)
        .restart_undo_bytes(settings.restart_undo_bytes)
        .locking(settings.locking.0)
        .lock_conflict(settings.locking.1)
        .deadlock_victim(settings.victim)
        .deadlock_period(Duration::from_millis(settings.deadlock_period_ms))
        .commit_group_min(settings.commit.0)
        .commit_wait_percent(settings.commit.1)
        .commit_log_delay_bytes(settings.commit.2)
        .commit_delay(Duration::from_micros(settings.commit.3))
        .log_values(if settings.logs_whole { LogValues::Whole } else { LogValues::Changed })
        .replacement(if settings.is_lru { Replacement::Lru } else { Replacement::Clock })
        .open_on(disk)?;
    Ok(env)
}

/// Everything in an environment. While something is being rolled back since the opening, a snapshot has to show what
/// was committed.
pub(crate) fn look(env: &Environment) -> Result<State, Error> {
    let mut tries = 0;
    loop {
        match look_once(env) {
            // The reclaimer may be in the way.
            Err(error) if error.is_retryable() && tries < 50 => tries += 1,
            other => return other,
        }
        sync::sleep_ns(1_000_000);
    }
}

fn look_once(env: &Environment) -> Result<State, Error> {
    let txn = if env.rolling_back().is_empty() { env.begin()? } else { env.snapshot()? };
    let mut state = State::default();
    for name in txn.table_names()? {
        let mut records = Records::new();
        let table = txn.bytes(&name)?;
        if table.indexes().iter().any(IndexDef::is_unique) {
            state.unique.insert(name.clone());
        }
        table.range(..)?.for_each_ref(|key, value| {
            records.insert(Bytes::from(key), Bytes::from(value));
            true
        })?;
        state.tables.insert(name, records);
    }
    let _ = txn.commit()?;
    let txn = env.begin()?;
    for (name, _) in txn.structure_names()? {
        let all = Tally::open(&txn, &name)?.all()?;
        let records = all.into_iter().map(|(key, counter)| (Bytes::from(key.to_be_bytes()), counter_bytes(counter)));
        state.tables.insert(name, records.collect());
    }
    let _ = txn.commit()?;
    Ok(state)
}

/// Checks the structure, when nothing is being rolled back any more.
pub(crate) fn verify(env: &Environment) -> Result<(), Vec<String>> {
    let waited = env.wait_rolled_back();
    waited.map_err(|error| vec![format!("waiting for what was put off: {error} ({error:?})")])?;
    let report = env.verify().map_err(|error| vec![format!("verification could not be done: {error}")])?;
    if let Some(skipped) = report.skipped.first() {
        return Err(vec![format!("verification left out {skipped:?} with nothing in doubt")]);
    }
    if report.problems.is_empty() {
        return Ok(());
    }
    let shown = report.problems.iter().take(20).map(|problem| format!("  {problem:?}"));
    Err([format!("verification found {} problems", report.problems.len())].into_iter().chain(shown).collect())
}

impl Prepared {
    /// A copy of what a plan begins with, and its state.
    pub(crate) fn get(&mut self, plan: &Plan) -> Result<(SimDisk, State), Vec<String>> {
        let failed = |error| vec![format!("a new disk: {error}")];
        if plan.start == Start::Nothing {
            return Ok((blank(plan.is_raw).map_err(failed)?, State::default()));
        }
        let key = (plan.start, plan.settings.segment_bytes, plan.settings.is_indexed, plan.is_raw);
        let (disk, state) = match self.0.entry(key) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => place.insert(prepare(plan.start == Start::Filled, plan.is_raw, &plan.settings)?),
        };
        Ok((disk.snapshot(), state.clone()))
    }
}

/// Makes an environment with the usual tables, and closes it.
fn prepare(filled: bool, is_raw: bool, settings: &Settings) -> Result<(SimDisk, State), Vec<String>> {
    // Only what is fixed at creation may come from the plan: the disk is shared by plans with other settings.
    let settings = Settings {
        cache_frames: 128,
        checkpoint_log_bytes: 1 << 20,
        lock_timeout_ms: 10_000,
        escalate_after: 4096,
        is_lru: false,
        locking: (Locking::Hierarchical, Conflict::Wait),
        victim: Victim::Youngest,
        deadlock_period_ms: 0,
        commit: (4, 90, 256 << 10, 0),
        logs_whole: false,
        is_followed: false,
        restart_undo_bytes: 64 << 20,
        ..*settings
    };
    let disk = blank(is_raw).map_err(|error| vec![format!("a new disk: {error}")])?;
    let body = || -> Result<State, Error> {
        let env = open(&settings, Ground::new(&disk, is_raw, true)?.disk, true)?;
        let txn = env.begin()?;
        for name in &LISTS[..4] {
            let list = Tally::create(&txn, name)?;
            let key_count = Kind::of(name).map_or(0, Kind::key_count).min(480);
            for key in 0..if filled { key_count / 2 } else { 0 } {
                list.add(2 * key, 1 << (key % 63))?; // A page has room for a dozen more.
            }
        }
        let _ = txn.commit()?;
        for table in 0..TABLE_COUNT {
            let txn = env.begin()?;
            let _ = txn.bytes_or_create(JOURNAL)?;
            let _ = txn.create_table(&table_name(table))?;
            if settings.is_indexed {
                let is_unique = is_unique(&table_name(table));
                txn.create_index(&table_name(table), &super::client::index(is_unique))?;
            }
            let records = txn.bytes(&table_name(table))?;
            for number in (0..if filled { 120 } else { 0 }).filter(|number| number % 3 != 1) {
                let length = if number % 40 == 0 { 6000 } else { (number * 37 % 300) as usize };
                records.put(&key_bytes(Key { table, number }), &value_bytes(1 << 20 | table << 10 | number, length))?;
            }
            let _ = txn.commit()?;
        }
        let state = look(&env)?;
        env.close()?;
        Ok(state)
    };
    let result = catch_unwind(AssertUnwindSafe(|| Scheduler::run(1, body)));
    let made = match result {
        Ok(Ok(made)) => made.map_err(|error| vec![format!("preparing an environment: {error} ({error:?})")]),
        Ok(Err(stuck)) => Err(vec![format!("preparing an environment: {stuck}")]),
        Err(_) => Err([vec!["preparing an environment: a thread panicked".to_owned()], take_panics()].concat()),
    };
    made.map(|state| (disk, state))
}

/// The outcomes of a list of records, for a report.
pub fn outcomes(records: &[Record]) -> Vec<Outcome> {
    records.iter().map(|record| record.outcome).collect()
}
