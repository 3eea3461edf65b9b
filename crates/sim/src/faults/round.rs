//! A life with a fault, and what the next one finds.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use ledgerstone::{Environment, Error};
use ledgerstone_disk::{Disk, Fault, FaultDisk, Harm, SimDisk};
use ledgerstone_region::{
    Mutex,
    sync::{self, Scheduler},
};

use super::plan::{Ending, FaultPlan, Promise, Stall};
use crate::counters::Counters;
use crate::crash::client::Client;
use crate::crash::consumer::{Consumer, Stopped};
use crate::crash::doubt::{Settled, settle};
use crate::crash::ground::over;
use crate::crash::judge::{Evidence, Outcome, Record, judge};
use crate::crash::model::State;
use crate::crash::plan::{Plan, Start};
use crate::crash::round::{Prepared, STEPS_MAX, look, open, take_panics, verify};

/// How long one sleep of the thread lasts that closes what has failed: rounds last for minutes of simulated time, and
/// steps are counted.
const CLOSER_LOOK_NS: u64 = 1_000_000;

/// What the life with the fault left behind.
struct Left {
    disk: SimDisk,
    records: Vec<Record>,
    closed: bool,
    counters: Counters,
    bugs: Vec<String>,
    consumer: Arc<Mutex<Consumer>>,
}

/// Runs a plan; if its fault lies behind the last call of its kind, again with an earlier one.
///
/// # Errors
/// What the engine did that it must not do, in lines.
pub fn run(plan: &FaultPlan, prepared: &mut Prepared) -> Result<Counters, Vec<String>> {
    let mut plan = plan.clone();
    loop {
        let (disk, base) = prepared.get(&plan.plan)?;
        let mut left = simulate(plan.plan.seed, &disk, || live(&plan, &disk))?;
        if !left.bugs.is_empty() {
            return Err(with_nth(&plan, left.bugs));
        }
        let mut counters = left.counters.clone();
        if let Some(misread) = &plan.misread {
            let disk = left.disk.clone();
            let opened = simulate(plan.plan.seed ^ 3, &disk, || open_misreading(&plan, &disk, misread))?;
            left.disk = opened.map_err(|lines| with_nth(&plan, lines))?;
            counters.add("misread_openings", 1);
        }
        let healthy = left.disk.clone();
        let found = simulate(plan.plan.seed ^ 1, &healthy, || look_after(&plan, &base, &left))?;
        let (found, kept) = found.map_err(|lines| with_nth(&plan, lines))?;
        counters.merge(&found);
        // What a lying sync has left elsewhere than in log and pages is not made good by opening.
        if let Some(kept) = kept.filter(|_| plan.fault.harm != Harm::Lie) {
            let later = healthy.after_crash(plan.plan.seed ^ 2);
            let found = simulate(plan.plan.seed ^ 2, &later, || look_again(&plan, &later, &kept))?;
            found.map_err(|lines| with_nth(&plan, lines))?;
            counters.add("looked_again", 1);
        }
        counters.add("rounds", 1);
        let nth = plan.stall.as_mut().map_or(&mut plan.fault.nth, |stall| &mut stall.nth);
        if counters.get("faults_met") + counters.get("stalls") > 0 || *nth == 1 {
            return Ok(counters);
        }
        *nth /= 2;
    }
}

fn with_nth(plan: &FaultPlan, mut lines: Vec<String>) -> Vec<String> {
    lines.push(match plan.stall {
        Some(stall) => format!("the device stalled at call {}", stall.nth),
        None => format!("the fault hit call {} of its kind", plan.fault.nth),
    });
    lines
}

/// Runs `body` under the scheduler; panics and hangs are failures.
pub(crate) fn simulate<T>(seed: u64, disk: &SimDisk, body: impl FnOnce() -> T + Send) -> Result<T, Vec<String>> {
    disk.set_hook(Arc::new(pass));
    crate::planted::take_rare_branches(seed);
    let result = catch_unwind(AssertUnwindSafe(|| Scheduler::run_within(seed, STEPS_MAX, body)));
    let panics = take_panics();
    match result {
        Ok(Ok(value)) if panics.is_empty() => Ok(value),
        Ok(Ok(_)) => Err(panics),
        Ok(Err(stuck)) => Err([vec![format!("a hang: {stuck}")], panics].concat()),
        Err(_) => Err([vec!["a thread panicked".to_owned()], panics].concat()),
    }
}

fn pass(what: &'static str) {
    sync::yield_point(what);
    if what == "crash" {
        sync::wake_all_waiters();
    }
}

/// From some call on, every call of the disk waits until the stall is over. Returns the time of its end, 0
/// before.
fn stall_later(disk: &SimDisk, stall: Stall) -> Arc<AtomicU64> {
    let (calls, until) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let end = Arc::clone(&until);
    disk.set_hook(Arc::new(move |what| {
        pass(what);
        if calls.fetch_add(1, SeqCst) + 1 == stall.nth {
            end.store(sync::now_ns() + stall.ns, SeqCst);
        }
        let left_ns = end.load(SeqCst).saturating_sub(sync::now_ns());
        if left_ns > 0 {
            sync::sleep_ns(left_ns);
        }
    }));
    until
}

/// Opens the environment, and the raw store below if there is one.
fn open_over(plan: &Plan, disk: Arc<dyn Disk>, creates: bool) -> Result<Environment, Error> {
    open(&plan.settings, over(disk, plan.is_raw, creates)?, creates)
}

/// The same. A disk that panics before the environment has it for itself is the caller's to see: `None`.
fn open_panicking(plan: &Plan, disk: &FaultDisk, creates: bool) -> Option<Result<Environment, Error>> {
    let opened = catch_unwind(AssertUnwindSafe(|| open_over(plan, Arc::new(disk.clone()), creates)));
    match opened {
        Ok(opened) => Some(opened),
        Err(payload) if sync::ends_a_run(&*payload) => resume_unwind(payload),
        Err(_) => None, // One that was not planned is among the collected ones.
    }
}

fn live(plan: &FaultPlan, disk: &SimDisk) -> Left {
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    let mut left = Left {
        disk: disk.clone(),
        records: Vec::new(),
        closed: false,
        counters: Counters::default(),
        bugs: Vec::new(),
        consumer: Arc::default(),
    };
    let mut stalled = Arc::new(AtomicU64::new(0));
    let mut harm = || match plan.stall {
        Some(stall) => stalled = stall_later(disk, stall),
        None => faulty.add(plan.fault.clone()),
    };
    if plan.in_open {
        harm();
    }
    match open_panicking(&plan.plan, &faulty, plan.plan.start == Start::Nothing) {
        None => left.counters.add("open_panicked", 1),
        Some(Ok(env)) => {
            if !plan.in_open {
                harm();
            }
            work(plan, env, disk, &faulty, &mut left);
        }
        Some(Err(error)) if faulty.hits() > 0 && !matches!(error, Error::Panicked(_)) => {
            left.counters.add("open_refused", 1);
        }
        Some(Err(error)) => left.bugs.push(format!("open, with no fault met: {error} ({error:?})")),
    }
    left.disk = match plan.ending {
        Ending::PowerLoss => disk.after_crash(plan.plan.seed),
        Ending::Close | Ending::Kill if !disk.is_crashed() => disk.snapshot(),
        Ending::Close | Ending::Kill => left.disk, // A kill: copied before the plug was pulled.
    };
    let met = match plan.stall {
        Some(_) if stalled.load(SeqCst) > 0 => "stalls",
        _ if faulty.hits() > 0 => "faults_met",
        _ => "faults_not_met",
    };
    left.counters.add(met, 1);
    left
}

/// Clients, and the end.
fn work(plan: &FaultPlan, env: Environment, disk: &SimDisk, faulty: &FaultDisk, left: &mut Left) {
    if plan.plan.settings.is_followed {
        match left.consumer.lock().resume(&env) {
            Ok(()) => {}
            Err(Stopped::By(error)) if faulty.hits() > 0 && !matches!(error, Error::Panicked(_)) => {}
            Err(stopped) => left.bugs.extend(stopped.lines()),
        }
    }
    let clock = Arc::new(AtomicU64::new(1 << 32 | 1));
    let told_lsn = Arc::new(AtomicU64::new(0));
    let is_indexed = plan.plan.settings.is_indexed;
    let jobs = plan.plan.lives.first().map(|life| life.clients.clone()).unwrap_or_default();
    let clients: Vec<_> = jobs
        .into_iter()
        .enumerate()
        .map(|(number, jobs)| {
            let (env, disk, clock) = (env.clone(), disk.clone(), clock.clone());
            let faults = Some(faulty.clone());
            let (consumer, told_lsn) = (Arc::clone(&left.consumer), Arc::clone(&told_lsn));
            let client = Client { env, disk, faults, number, life: 0, is_indexed, clock, told_lsn, consumer };
            sync::spawn(&format!("client {number}"), move || client.run(&jobs))
        })
        .collect();
    // Once it has failed it is closed beside its clients, as the error tells programs to: nothing is written afterwards
    // (F6).
    let are_done = Arc::new(AtomicBool::new(false));
    let closing = (plan.ending == Ending::Close).then(|| {
        let (env, disk, are_done) = (env.clone(), disk.clone(), Arc::clone(&are_done));
        sync::spawn("closer", move || {
            while !env.is_failed() {
                if are_done.load(SeqCst) {
                    return None;
                }
                sync::sleep_ns(CLOSER_LOOK_NS);
            }
            let _failed = env.close();
            Some(disk.fingerprint())
        })
    });
    for client in clients {
        match client.join() {
            Ok(report) => {
                left.counters.merge(&report.counters);
                left.bugs.extend(report.bugs);
                left.records.extend(report.records);
            }
            Err(panicked) => left.bugs.push(panicked.to_string()),
        }
    }
    left.consumer.lock().leave();
    are_done.store(true, SeqCst);
    let at_close = match closing.map(sync::JoinHandle::join) {
        Some(Ok(at_close)) => at_close,
        Some(Err(panicked)) => {
            left.bugs.push(panicked.to_string());
            None
        }
        None => None,
    };
    if let Some(at_close) = at_close {
        left.counters.add("closed_beside_clients", 1);
        if disk.fingerprint() != at_close {
            left.bugs.push("something was written after the environment had been closed".to_owned());
        }
    }
    let was_met = faulty.hits() > 0;
    if env.is_failed() {
        left.counters.add("failed", 1);
        if !was_met {
            left.bugs.push("the environment has failed though the disk has not".to_owned());
        }
        if !matches!(env.begin(), Err(Error::Failed { .. })) {
            left.bugs.push("a failed environment lets a transaction begin".to_owned());
        }
    }
    if plan.ending == Ending::Close {
        match env.close() {
            Ok(()) => left.closed = at_close.is_none(),
            Err(_) if faulty.hits() > 0 => left.counters.add("close_refused", 1),
            Err(error) => left.bugs.push(format!("close, with no fault met: {error} ({error:?})")),
        }
    } else {
        // What the threads of the environment still do is done to a disk that nobody looks at.
        left.disk = disk.snapshot();
        disk.crash_now();
        drop(env);
    }
}

/// An opening that misreads: it may be refused. What it leaves is what the next one finds.
fn open_misreading(plan: &FaultPlan, disk: &SimDisk, misread: &Fault) -> Result<SimDisk, Vec<String>> {
    let faulty = FaultDisk::new(Arc::new(disk.clone()));
    faulty.add(misread.clone());
    let opened = open_over(&plan.plan, Arc::new(faulty.clone()), plan.plan.start == Start::Nothing);
    let may_be_refused = faulty.hits() > 0 || plan.promise() != Promise::Kept;
    let left = disk.snapshot();
    disk.crash_now();
    match opened {
        Err(error) if !may_be_refused || matches!(error, Error::Panicked(_)) => {
            Err(vec![format!("open that met {misread:?} {} times: {error} ({error:?})", faulty.hits())])
        }
        _ => Ok(left),
    }
}

/// Opens on the healthy disk and compares. Where everything has to be kept, also what is there in the end, after which
/// the power fails.
fn look_after(plan: &FaultPlan, base: &State, left: &Left) -> Result<(Counters, Option<State>), Vec<String>> {
    let mut counters = Counters::default();
    let promise = plan.promise();
    let mut refuse = |what: &str, error: &Error| {
        if promise == Promise::Kept || matches!(error, Error::Panicked(_)) {
            return Err(vec![format!("{what} on the healthy disk: {error} ({error:?})")]);
        }
        counters.add("damage_found", 1);
        Ok((counters.clone(), None))
    };
    let env = match open_over(&plan.plan, Arc::new(left.disk.clone()), plan.plan.start == Start::Nothing) {
        Ok(opened) => opened,
        Err(error) => return refuse("open", &error),
    };
    let mut records = left.records.clone();
    let settled = settle(&env, &mut records, promise == Promise::Kept, || false, &mut Counters::default());
    match settled {
        Ok(Settled::Damaged(error)) => return refuse("deciding what was in doubt", &error),
        settled if promise != Promise::Answers => drop(settled?),
        _ => {}
    }
    let found = match look(&env) {
        Ok(found) => found,
        Err(error) => return refuse("reading everything back", &error),
    };
    if promise != Promise::Answers {
        let is_whole = promise != Promise::PrefixOrCorrupt;
        for record in records.iter_mut().filter(|_| !is_whole) {
            if let Outcome::Committed { durable, .. } = &mut record.outcome {
                *durable = false;
            }
        }
        let evidence =
            Evidence { base, records: &records, closed: left.closed && is_whole, lsn_before: 0, found: &found };
        let verdict = judge(&evidence)?;
        counters.add("judged", 1);
        counters.add("present", verdict.present);
    }
    if promise == Promise::Kept {
        if left.consumer.lock().has_begun() {
            let follow = || -> Result<u64, Stopped> {
                let mut consumer = left.consumer.lock();
                consumer.resume(&env)?;
                let count = consumer.judge(base, &records, &found)?;
                consumer.leave();
                Ok(count)
            };
            counters.add("followed", follow().map_err(Stopped::lines)?);
        }
        verify(&env)?;
        let after = env.transact(|txn| txn.bytes_or_create("after")?.put(b"k", b"v"));
        after.map_err(|error: Error| vec![format!("a transaction on the healthy disk: {error}")])?;
        let kept = look(&env).map_err(|error| vec![format!("reading everything once more: {error}")])?;
        if plan.ending == Ending::Close {
            env.close().map_err(|error| vec![format!("close on the healthy disk: {error}")])?;
        } else {
            left.disk.crash_now();
        }
        return Ok((counters, Some(kept)));
    }
    Ok((counters, None))
}

/// After a power failure on the healthy disk: nothing that was seen there has depended on what the fault had kept from
/// being durable.
fn look_again(plan: &FaultPlan, disk: &SimDisk, kept: &State) -> Result<(), Vec<String>> {
    let what = |error: Error| vec![format!("after a power failure on the healthy disk: {error} ({error:?})")];
    let env = open_over(&plan.plan, Arc::new(disk.clone()), false).map_err(what)?;
    let differences = kept.differences(&look(&env).map_err(what)?);
    if !differences.is_empty() {
        let first = "after a power failure on the healthy disk another state is there".to_owned();
        return Err([vec![first], differences].concat());
    }
    verify(&env)?;
    env.close().map_err(what)
}
