//! One run: a plan of deaths, and what has to be when all is over.

use std::sync::Arc;

use ledgerstone_region::sync;
use ledgerstone_testkit::deaths::*;

use crate::work::{ALL, LARGE_BYTES, Work};
use crate::world::Process;

/// A thread that makes the file longer when all is over.
const GROWER: u32 = 30;

/// What is to happen.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub work: Work,
    pub deaths: Deaths,
    /// Two or three threads in each process that works, whose work differs, and a loss of power in this time.
    pub crowd: bool,
    pub power_lost_after_ns: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub struct Came {
    pub died: Outcome,
    /// The power failed while somebody committed.
    pub power: bool,
    /// Pages that the data file has in the end.
    pub page_count: u64,
}

/// Runs the work beside deaths, and looks at what is there afterwards.
pub fn run(plan: Plan) -> Came {
    round(plan, plan.seed, 10_000_000, || {
        let root = Process::create();
        prepare(&root, plan);
        let view = || Arc::new(root.view());
        let mut cast = Cast::begin(plan.deaths, |_| view(), Process::repair);
        for (process, lives) in WHO_WORKS {
            let own = view();
            for (thread, work) in jobs(process, plan, lives) {
                cast.start(process, "works", Arc::clone(&own), move |own| match work {
                    Some(work) => own.work(thread, work),
                    None => own.live(thread, 4),
                });
            }
        }
        cast.start(WORKERS[0] + 4, "reads", view(), |own| own.read(3));
        let lost = (plan.power_lost_after_ns > 0).then(|| {
            sync::sleep_ns(plan.power_lost_after_ns);
            root.lose_power()
        });
        let died = cast.end();
        root.repair().into_iter().for_each(lived);
        if plan.work == Work::Compact {
            root.view().grow(GROWER, 2, LARGE_BYTES); // Behind an end that was cut.
        }
        let [page_count, _] = root.end();
        let power = lost.as_ref().is_some_and(|(_, model)| model.has_some_under_way());
        if let Some(lost) = lost {
            root.check_after_power_loss(lost, plan.seed);
        }
        Came { died, power, page_count }
    })
}

/// The processes that work, and whether they live: one does the plan's work.
const WHO_WORKS: [(u32, bool); 3] = [(VICTIM, false), (WORKERS[0], true), (WORKERS[1], true)];

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
    let all: Vec<(u32, Option<Work>)> =
        WHO_WORKS.into_iter().flat_map(|(process, lives)| jobs(process, plan, lives)).chain([(GROWER, None)]).collect();
    own.prepare_for_all(all.iter().map(|(thread, _)| *thread));
    for (thread, work) in all {
        if let Some(work) = work {
            own.prepare_for(thread, work);
        }
    }
}
