//! A process dies at each step of a transaction, or of the upkeep, beside two that work and one that reads. They go on,
//! trees and records are those of a model, and nothing of the dead is left. Whoever repairs dies too.
//!
//! `ROUNDS` is for the random campaign. A failure prints the seed, which `SEED` tries again. `EVERY=1`: each step.
#![cfg(feature = "deaths")]

mod full;
mod late;
mod model;
mod pair;
mod prepared;
mod run;
mod second;
mod work;
mod world;

use ledgerstone_region::Random;
use ledgerstone_txn::RepairPart;

use run::{Outcome, Plan, run};
use work::{ALL, Work};

/// A plan for the `n`th step of a run of this work.
fn plan(work: Work, n: u64) -> Plan {
    Plan { seed: work as u64 * 1_000_000 + n, work, ..Plan::default() }
}

/// Some of so many steps, from the first on, or all of them if `EVERY` says so. Most steps of a large value are alike:
/// they store its words.
fn some_of(steps: u64, count: u64) -> impl Iterator<Item = u64> {
    let stride = if std::env::var_os("EVERY").is_some() { 1 } else { (steps / count).max(1) };
    (1..=steps).step_by(stride as usize)
}

#[test]
fn deaths_at_each_step_are_repaired() {
    for work in ALL {
        let steps = run(plan(work, 0)).victim_steps;
        let count = some_of(steps, 500)
            .map(|n| u64::from(run(Plan { victim_dies_at: n, ..plan(work, n) }).victim))
            .sum::<u64>();
        println!("{work:?}: {count} deaths in {steps} steps");
        assert!(count > 40, "{work:?}: {count} deaths in {steps} steps");
    }
}

#[test]
fn deaths_of_repairers_are_repaired() {
    let mut pairs = 0;
    for work in ALL {
        for n in some_of(run(plan(work, 0)).victim_steps, 7) {
            let plan = |r| Plan { victim_dies_at: n, repairer_dies_at: r, ..plan(work, n * 1000 + r) };
            let repair_steps = run(plan(0)).repair_steps;
            pairs += some_of(repair_steps, 30).filter(|r| run(plan(*r)).repairer).count();
        }
    }
    println!("{pairs} pairs");
    assert!(pairs > 1000, "{pairs}");
}

#[test]
fn deaths_and_stops_at_random() {
    let rounds = std::env::var("ROUNDS").map_or(300, |rounds| rounds.parse().expect("a number of rounds"));
    let seeds = match std::env::var("SEED") {
        Ok(seed) if !seed.is_empty() => vec![seed.parse().expect("a seed")],
        _ => (0..rounds).collect::<Vec<u64>>(),
    };
    let mut count = [0; 3];
    for seed in seeds {
        let Outcome { victim, repairer, worker, .. } = run(drawn(seed));
        for (count, died) in count.iter_mut().zip([victim, repairer, worker]) {
            *count += u64::from(died);
        }
    }
    println!("{rounds} rounds; deaths of the victim, a repairer, a worker: {count:?}");
}

fn drawn(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let work = ALL[random.below(ALL.len() as u64) as usize];
    let steps = [300, 3000, 20_000][random.below(3) as usize];
    Plan {
        seed,
        work,
        victim_dies_at: 1 + random.below(steps),
        repairer_dies_at: random.below(3) * random.below(2000),
        worker_dies_at: random.below(2) * random.below(8000),
        worker_stops_at: random.below(2) * random.below(4000),
        forgotten: None,
    }
}

/// Whatever a repair leaves out is missed by some run, if only because it never ends.
#[test]
fn each_part_of_a_repair_that_is_forgotten_in_deaths_is_missed() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let is_missed = |part: RepairPart| {
        let fails = |plan: &Plan| std::panic::catch_unwind(|| run(Plan { forgotten: Some(part), ..*plan })).is_err();
        let of_step = |(no, work): (u64, Work)| Plan { victim_dies_at: 3 + no * 29, ..plan(work, no) };
        let some = (0..60).flat_map(|no| ALL.map(|work| (no, work))).map(of_step);
        // A few need the very step.
        let each = [Work::Put, Work::Prepare]
            .into_iter()
            .flat_map(|work| (1..700).map(move |n| Plan { victim_dies_at: n, ..plan(work, n) }));
        let found = some.chain(each).find(fails);
        println!("{part:?}: {:?}", found.map(|plan| (plan.work, plan.victim_dies_at)));
        found.is_some()
    };
    let forgotten: Vec<_> = RepairPart::ALL.iter().filter(|part| !is_missed(**part)).collect();
    std::panic::set_hook(hook);
    assert!(forgotten.is_empty(), "these are not missed: {forgotten:?}");
}
