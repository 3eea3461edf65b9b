//! A process dies at each step of what programs do with an environment, beside two that work and one that reads. They
//! go on, tables and indexes are those of a model, and nothing of the dead is left. Whoever repairs dies too.
//!
//! The frame is that of all campaigns of deaths, `ledgerstone_testkit::deaths`, with what can be asked for. Here,
//! `SEED` is also for the rounds that are not at random.
#![cfg(feature = "deaths")]

mod close;
#[path = "../common/mod.rs"]
mod common;
mod cut;
mod model;
mod panics;
mod panics_of_engine;
mod panics_of_users;
mod panics_of_views;
mod run;
mod work;
mod world;

use ledgerstone_region::Random;
use ledgerstone_testkit::deaths::*;

use run::{Plan, run};
use work::{ALL, Work};

/// A plan for this work. With one seed, all goes the same way up to the death.
fn plan(work: Work, n: u64, r: u64) -> Plan {
    let seed = work as u64 * 1_000_000 + asked_seed();
    Plan { seed, work, deaths: Deaths::at(n, r), crowd: false, power_lost_after_ns: 0 }
}

#[test]
fn deaths_at_each_step_are_repaired() {
    let is_enough = |deaths: u64, steps: u64| deaths > (steps / 2).min(30);
    at_each_step(&ALL, Which::About(150), is_enough, |work, n| run(plan(work, n, 0)).died);
}

/// The steps at which the file grows are few of very many: they are searched.
#[test]
fn deaths_while_the_file_grows_are_repaired() {
    let dies_at = |n| run(plan(Work::Growth, n, 0));
    let (mut before, mut after) = (1, dies_at(0).died.victim_steps);
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
        assert!(dies_at(n).died.victim);
    }
}

#[test]
fn deaths_of_repairers_are_repaired() {
    in_repairs(&ALL, [Which::About(7), Which::About(30)], 20, |work, n, r| run(plan(work, n, r)).died);
}

#[test]
fn deaths_and_stops_at_random() {
    let what = ["deaths of the victim", "of a repairer", "of a worker", "losses of power in commits"];
    at_random(200, what, 4, |seed| {
        let outcome = run(drawn(seed));
        let [victim, repairer, worker] = outcome.died.deaths();
        [victim, repairer, worker, u64::from(outcome.power)]
    });
}

fn drawn(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let work = ALL[random.below(ALL.len() as u64) as usize];
    let power_ns = [100_000, 2_000_000, 40_000_000][random.below(3) as usize];
    let steps = [300, 3000, 20_000][random.below(3) as usize];
    let below = Deaths { victim: steps, repairer: 2000, worker: 8000, worker_stops: 4000 };
    let deaths = Deaths::drawn(&mut random, below);
    let power_lost_after_ns = if random.below(3) == 0 { 1 + random.below(power_ns) } else { 0 };
    Plan { seed, work, deaths, crowd: true, power_lost_after_ns }
}
