//! One round: who is in it, who dies, and how all of it ends.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ledgerstone_region::Random;
use ledgerstone_region::sync::deaths::{kill_at_step, spawn_in, steps, stop_at_step};
use ledgerstone_region::sync::{self, JoinHandle, Scheduler};

/// The process that dies.
pub const VICTIM: u32 = 1;
/// Two that work. The second one may die, or stop for a while.
pub const WORKERS: [u32; 2] = [2, 3];
/// One that repairs and may die, and one that repairs after it.
pub const REPAIRERS: [u32; 2] = [4, 5];
/// How often these look whether anybody has died.
const REPAIRED_EVERY_NS: [u64; 2] = [700_000, 40_000_000];
/// After this time, a death is known to all.
pub const KNOWN_NS: u64 = 3_000_000;
/// After this time, somebody has repaired.
const REPAIRED_NS: u64 = 100_000_000;
/// How long a worker stops.
const STOP_NS: u64 = 30_000_000;

/// What is to happen in a round: deaths before these steps, 0 none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deaths {
    /// Of the victim.
    pub victim: u64,
    /// Of the first repairer.
    pub repairer: u64,
    /// Of the second worker.
    pub worker: u64,
    /// No death: the second worker stops at this step.
    pub worker_stops: u64,
}

impl Deaths {
    /// The victim dies, and the first repairer as well.
    #[must_use]
    pub fn at(victim: u64, repairer: u64) -> Deaths {
        Deaths { victim, repairer, ..Deaths::default() }
    }

    /// Some, drawn. The victim dies before a step up to the number here. The others may: a worker below its number, the
    /// repairer below twice its own.
    #[must_use]
    pub fn drawn(random: &mut Random, below: Deaths) -> Deaths {
        Deaths {
            victim: 1 + random.below(below.victim),
            repairer: random.below(3) * random.below(below.repairer),
            worker: random.below(2) * random.below(below.worker),
            worker_stops: random.below(2) * random.below(below.worker_stops),
        }
    }
}

/// Who has died in a round, and how far the victim and the first repairer came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The victim has died.
    pub victim: bool,
    /// The first repairer has.
    pub repairer: bool,
    /// The second worker has.
    pub worker: bool,
    /// Steps of the victim.
    pub victim_steps: u64,
    /// Steps of the first repairer.
    pub repair_steps: u64,
}

impl Outcome {
    /// Deaths of the victim, of the first repairer, of the second worker.
    #[must_use]
    pub fn deaths(&self) -> [u64; 3] {
        [self.victim, self.repairer, self.worker].map(u64::from)
    }
}

/// The threads of a round.
pub struct Cast {
    threads: Vec<(u32, JoinHandle<()>)>,
    repairers: [(u32, JoinHandle<()>); 2],
    over: Over,
}

/// All is over when this is dropped, also by a round that fails: its repairers do not go on for ever then.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Cast {
    /// Begins a round with these deaths. Its repairers repair by `repair` in what `view` gives each of them.
    pub fn begin<O: Send + 'static>(
        deaths: Deaths,
        view: impl Fn(u32) -> O,
        repair: fn(&O) -> Option<JoinHandle<()>>,
    ) -> Cast {
        kill_at_step(VICTIM, deaths.victim);
        kill_at_step(REPAIRERS[0], deaths.repairer);
        kill_at_step(WORKERS[1], deaths.worker);
        stop_at_step(WORKERS[1], deaths.worker_stops, STOP_NS);
        let is_over = Arc::new(AtomicBool::new(false));
        let repairers = [0, 1].map(|no| {
            let (process, own, is_over) = (REPAIRERS[no], view(REPAIRERS[no]), Arc::clone(&is_over));
            let repairs = move || go_on_repairing(&is_over, REPAIRED_EVERY_NS[no], || repair(&own));
            (process, spawn_in(process, "repairs", repairs))
        });
        Cast { threads: Vec::new(), repairers, over: Over(is_over) }
    }

    /// Starts a thread of a process, with its own view.
    pub fn start<O: Send + 'static>(
        &mut self,
        process: u32,
        name: &str,
        own: O,
        work: impl FnOnce(&O) + Send + 'static,
    ) {
        self.threads.push((process, spawn_in(process, name, move || work(&own))));
    }

    /// Waits until all have ended or died, and somebody has repaired after them. Deaths are known by then.
    ///
    /// # Panics
    /// A thread has failed by itself.
    pub fn end(self) -> Outcome {
        let mut died = BTreeSet::new();
        let mut end = |(process, thread): (u32, JoinHandle<()>)| {
            if outlived(thread).is_none() {
                died.insert(process);
            }
        };
        self.threads.into_iter().for_each(&mut end);
        sync::sleep_ns(REPAIRED_NS);
        drop(self.over);
        self.repairers.into_iter().for_each(&mut end);
        sync::sleep_ns(KNOWN_NS);
        let [victim, repairer, worker] = [VICTIM, REPAIRERS[0], WORKERS[1]].map(|process| died.contains(&process));
        Outcome { victim, repairer, worker, victim_steps: steps(VICTIM), repair_steps: steps(REPAIRERS[0]) }
    }
}

/// Repairs now and then until all is over. A repair returns the thread that ends the transactions of the dead, if it
/// has one: that may come to wait for whoever dies next, and a repairer must not.
pub fn go_on_repairing(is_over: &AtomicBool, every_ns: u64, mut repair: impl FnMut() -> Option<JoinHandle<()>>) {
    let mut ending = Vec::new();
    while !is_over.load(SeqCst) {
        sync::sleep_ns(every_ns);
        ending.extend(repair());
    }
    ending.into_iter().for_each(lived);
}

/// What a thread has returned. None if its process has died. A thread that has failed by itself fails the round.
///
/// # Panics
/// With the panic of that thread.
#[track_caller]
pub fn outlived<T>(thread: JoinHandle<T>) -> Option<T> {
    match thread.join() {
        Ok(value) => Some(value),
        Err(panic) if panic.is_released() => None,
        Err(panic) => panic.resume(),
    }
}

/// Waits for a thread, and whether its process has died; then until that is known.
#[track_caller]
pub fn died<T>(thread: JoinHandle<T>) -> bool {
    let has_died = outlived(thread).is_none();
    if has_died {
        sync::sleep_ns(KNOWN_NS);
    }
    has_died
}

/// What a thread has returned that must not die.
///
/// # Panics
/// With the panic of that thread.
#[track_caller]
pub fn lived<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| panic.resume())
}

/// Runs a round in a simulation of so many decisions at most. A failure tells the plan.
///
/// # Panics
/// The round has failed, or is stuck.
pub fn round<T>(plan: impl Debug, seed: u64, decisions_max: u64, simulate: impl FnOnce() -> T + Send) -> T {
    tried(plan, seed, decisions_max, || Ok(simulate())).unwrap_or_else(|what| panic!("{what}"))
}

/// As [`round`], where the round says itself what is wrong.
///
/// # Errors
/// What is wrong, or that the round has panicked or is stuck.
pub fn tried<T>(
    plan: impl Debug,
    seed: u64,
    decisions_max: u64,
    simulate: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(|| Scheduler::run_within(seed, decisions_max, simulate))) {
        Ok(Ok(done)) => done.map_err(|what| format!("{plan:?}: {what}")),
        Ok(Err(stuck)) => Err(format!("{plan:?}: {stuck}")),
        Err(_) => Err(format!("{plan:?}: a panic")),
    }
}
