//! A process dies at each step of what programs do with an environment, beside two that work and one that reads. They
//! go on, tables and indexes are those of a model, and nothing of the dead is left. Whoever repairs dies too.
//!
//! `ROUNDS` is for the random campaign. A failure prints the seed, which `SEED` tries again. `EVERY=1`: each step.
#![cfg(feature = "deaths")]

mod close;
mod cut;
mod model;
mod panics;
mod run;
mod work;
mod world;

use ledgerstone_region::Random;

use run::{Outcome, Plan, run};
use work::{ALL, Work};

/// A plan for this work.
fn plan(work: Work, seed: u64) -> Plan {
    Plan { seed: work as u64 * 1_000_000 + seed, work, ..Plan::default() }
}

/// The seed that was asked for.
fn seed() -> u64 {
    std::env::var("SEED").map_or(0, |seed| seed.parse().unwrap_or(0))
}

/// Some of so many steps, from the first on, or all of them if `EVERY` says so.
fn some_of(steps: u64, count: u64) -> impl Iterator<Item = u64> {
    let stride = if std::env::var_os("EVERY").is_some() { 1 } else { (steps / count).max(1) };
    (1..=steps).step_by(stride as usize)
}

/// The works to try: all, or the one that `WORK` names.
fn works() -> impl Iterator<Item = Work> {
    let named = std::env::var("WORK").unwrap_or_default();
    ALL.into_iter().filter(move |work| named.is_empty() || format!("{work:?}") == named)
}

#[test]
fn deaths_at_each_step_are_repaired() {
    for work in works() {
        // One seed: all goes the same way up to the death.
        let plan = plan(work, seed());
        let steps = run(plan).victim_steps;
        let deaths = some_of(steps, 150).filter(|n| run(Plan { victim_dies_at: *n, ..plan }).victim).count() as u64;
        println!("{work:?}: {deaths} deaths in {steps} steps");
        assert!(deaths > 30.min(steps / 2), "{work:?}: {deaths} deaths in {steps} steps");
    }
}

/// The steps at which the file grows are few of very many: they are searched.
#[test]
fn deaths_while_the_file_grows_are_repaired() {
    let plan = plan(Work::Growth, seed());
    let dies_at = |n| run(Plan { victim_dies_at: n, ..plan });
    let (mut before, mut after) = (1, run(plan).victim_steps);
    let page_count = dies_at(before).page_count;
    while after - before > 1 {
        let between = before.midpoint(after);
        if dies_at(between).page_count > page_count {
            after = between;
        } else {
            before = between;
        }
    }
    println!("the file grows at step {before}");
    for n in before - 10..before + 10 {
        assert!(dies_at(n).victim);
    }
}

#[test]
fn deaths_of_repairers_are_repaired() {
    let mut pairs = 0;
    for work in works() {
        for n in some_of(run(plan(work, seed())).victim_steps, 7) {
            let plan = |r| Plan { victim_dies_at: n, repairer_dies_at: r, ..plan(work, seed()) };
            let repair_steps = run(plan(0)).repair_steps;
            pairs += some_of(repair_steps, 30).filter(|r| run(plan(*r)).repairer).count();
        }
    }
    println!("{pairs} pairs");
    assert!(pairs > 20, "{pairs} pairs");
}

#[test]
fn deaths_and_stops_at_random() {
    let rounds = std::env::var("ROUNDS").map_or(200, |rounds| rounds.parse().expect("a number of rounds"));
    let seeds = match std::env::var("SEED") {
        Ok(seed) if !seed.is_empty() => vec![seed.parse().expect("a seed")],
        _ => (0..rounds).collect::<Vec<u64>>(),
    };
    let mut count = [0; 4];
    for seed in seeds {
        let Outcome { victim, repairer, worker, power, .. } = run(drawn(seed));
        for (count, has_come) in count.iter_mut().zip([victim, repairer, worker, power]) {
            *count += u64::from(has_come);
        }
    }
    println!("{rounds} rounds; deaths of the victim, a repairer, a worker, and losses of power in commits: {count:?}");
}

fn drawn(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let work = ALL[random.below(ALL.len() as u64) as usize];
    let power_ns = [100_000, 2_000_000, 40_000_000][random.below(3) as usize];
    let steps = [300, 3000, 20_000][random.below(3) as usize];
    Plan {
        seed,
        work,
        victim_dies_at: 1 + random.below(steps),
        repairer_dies_at: random.below(3) * random.below(2000),
        worker_dies_at: random.below(2) * random.below(8000),
        worker_stops_at: random.below(2) * random.below(4000),
        crowd: true,
        power_lost_after_ns: match random.below(3) {
            0 => 1 + random.below(power_ns),
            _ => 0,
        },
    }
}
