//! One run: a plan of deaths, and what has to be when all is over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_region::sync::deaths::{is_dead, kill_at_step, steps, stop_at_step};
use ledgerstone_region::sync::{self, Scheduler, Stuck};

use crate::work::{ALL, Work};
use crate::world::{Process, Thread};

/// The processes: one that dies, two that work, of which one may die, one that repairs and may die, one that repairs
/// after it.
const VICTIM: u32 = 1;
const WORKERS: [u32; 2] = [2, 3];
const REPAIRERS: [u32; 2] = [4, 5];

/// A thread that makes the file longer when all is over.
const GROWER: u32 = 30;

/// What is to happen: deaths before these steps, 0 none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    pub seed: u64,
    pub work: Work,
    pub victim_dies_at: u64,
    pub repairer_dies_at: u64,
    pub worker_dies_at: u64,
    pub worker_stops_at: u64,
    /// Two or three threads in each process that works, whose work differs, and a loss of power in this time.
    pub crowd: bool,
    pub power_lost_after_ns: u64,
}

/// Who has died, and how far they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub victim: bool,
    pub repairer: bool,
    pub worker: bool,
    pub victim_steps: u64,
    pub repair_steps: u64,
    /// The power failed while somebody committed.
    pub power: bool,
    /// Pages that the data file has in the end.
    pub page_count: u64,
}

/// Runs the work beside deaths, and looks at what is there afterwards.
pub fn run(plan: Plan) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| run_simulated(plan)));
    let ran = ran.inspect_err(|_| eprintln!("{plan:?}")).unwrap_or_else(|panic| resume_unwind(panic));
    ran.unwrap_or_else(|stuck| panic!("{plan:?}: {stuck}"))
}

fn run_simulated(plan: Plan) -> Result<Outcome, Stuck> {
    Scheduler::run_within(plan.seed, 10_000_000, || {
        let root = Process::create();
        prepare(&root, plan);
        kill_at_step(VICTIM, plan.victim_dies_at);
        kill_at_step(REPAIRERS[0], plan.repairer_dies_at);
        kill_at_step(WORKERS[1], plan.worker_dies_at);
        stop_at_step(WORKERS[1], plan.worker_stops_at, 30_000_000);
        let repairers = [(REPAIRERS[0], 700_000), (REPAIRERS[1], 40_000_000)]
            .map(|(no, every_ns)| Arc::new(root.view()).start(no, "repairs", move |own| own.go_on_repairing(every_ns)));
        let victims = crew(&root, VICTIM, plan, false);
        let [first, second] = WORKERS.map(|no| crew(&root, no, plan, true));
        let reader = Arc::new(root.view()).start(WORKERS[0] + 4, "reads", |own| own.read(3));
        let lost = (plan.power_lost_after_ns > 0).then(|| {
            sync::sleep_ns(plan.power_lost_after_ns);
            root.lose_power()
        });
        let victim = join(victims, VICTIM);
        join(first, 0);
        let worker = join(second, WORKERS[1]);
        join(vec![reader], 0);
        sync::sleep_ns(100_000_000); // Somebody repairs.
        root.is_over.store(true, SeqCst);
        let [first, last] = repairers;
        let repairer = join(vec![first], REPAIRERS[0]);
        join(vec![last], 0);
        if let Some(ending) = root.repair() {
            join(vec![ending], 0);
        }
        let own = root.view(); // What is known of the catalog there is new.
        if plan.work == Work::Compact {
            own.work(GROWER, Work::Growth); // Behind an end that was cut.
        }
        own.check_all();
        drop(own); // With the room in the log that it keeps.
        let page_count = root.env.stat().unwrap().page_count;
        root.env.end_background();
        root.env.assert_nothing_left();
        root.env.clone().close().unwrap();
        let power = lost.as_ref().is_some_and(|(_, model)| model.has_some_under_way());
        if let Some(lost) = lost {
            root.check_after_power_loss(lost, plan.seed);
        }
        let [victim_steps, repair_steps] = [VICTIM, REPAIRERS[0]].map(steps);
        Outcome { victim, repairer, worker, power, victim_steps, repair_steps, page_count }
    })
}

/// The threads of a process that works, by their numbers and what they do. One does the plan's work if it is the
/// victim's, else it lives. In a crowd there are others beside it.
fn jobs(process: u32, plan: Plan, lives: bool) -> Vec<(u32, Option<Work>)> {
    let own = if plan.crowd && plan.work == Work::Close { Work::Insert } else { plan.work };
    let first = (process, (!lives).then_some(own));
    let mut jobs = vec![first];
    if plan.crowd {
        jobs.push((process + 10, None));
        if process != WORKERS[0] {
            // One that closes the environment is alone.
            jobs.push((process + 20, Some(ALL[(plan.seed / 7 + u64::from(process)) as usize % (ALL.len() - 1)])));
        }
    }
    jobs
}

fn prepare(root: &Process, plan: Plan) {
    let own = root.view();
    let all: Vec<(u32, Option<Work>)> = [(VICTIM, false), (WORKERS[0], true), (WORKERS[1], true)]
        .into_iter()
        .flat_map(|(process, lives)| jobs(process, plan, lives))
        .chain([(GROWER, None)])
        .collect();
    own.prepare_for_all(all.iter().map(|(thread, _)| *thread));
    for (thread, work) in all {
        if let Some(work) = work {
            own.prepare_for(thread, work);
        }
    }
}

fn crew(root: &Process, process: u32, plan: Plan, lives: bool) -> Vec<Thread> {
    let view = Arc::new(root.view());
    let start = |(thread, work)| {
        view.start(process, "works", move |own: &Arc<Process>| match work {
            Some(work) => own.work(thread, work),
            None => own.live(thread, 4),
        })
    };
    jobs(process, plan, lives).into_iter().map(start).collect()
}

/// Waits for threads, and whether their process, if it may, has died; then until that is known.
pub fn join(threads: Vec<Thread>, may_die: u32) -> bool {
    let mut has_died = false;
    for thread in threads {
        match thread.join() {
            Ok(()) => {}
            Err(_) if may_die != 0 => {
                while !is_dead(may_die) {
                    sync::sleep_ns(1_000_000);
                }
                has_died = true;
            }
            Err(panic) => panic.resume(),
        }
    }
    has_died
}
