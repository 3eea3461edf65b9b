//! A process dies at each step of a transaction, or of the upkeep, beside two that work and one that reads. They go on,
//! trees and records are those of a model, and nothing of the dead is left. Whoever repairs dies too.
//!
//! The frame is that of all campaigns of deaths, `ledgerstone_testkit::deaths`, with what can be asked for.
#![cfg(feature = "deaths")]

mod full;
mod late;
mod model;
mod pair;
mod prepared;
mod run;
mod second;
mod seen;
mod work;
mod world;

use ledgerstone_region::Random;
use ledgerstone_testkit::deaths::*;
use ledgerstone_txn::RepairPart;

use run::{Plan, run};
use work::{ALL, Work};

/// A plan for these steps of a run of this work.
fn plan(work: Work, n: u64, r: u64) -> Plan {
    let no = if r == 0 { n } else { n * 1000 + r };
    Plan { seed: work as u64 * 1_000_000 + no, work, deaths: Deaths::at(n, r), forgotten: None }
}

/// Most steps of a large value are alike: they store its words.
#[test]
fn deaths_at_each_step_are_repaired() {
    at_each_step(&ALL, Which::About(500), |deaths, _| deaths > 40, |work, n| run(plan(work, n, 0)));
}

#[test]
fn deaths_of_repairers_are_repaired() {
    in_repairs(&ALL, [Which::About(7), Which::About(30)], 1000, |work, n, r| run(plan(work, n, r)));
}

#[test]
fn deaths_and_stops_at_random() {
    at_random(300, ["deaths of the victim", "of a repairer", "of a worker"], 4, |seed| run(drawn(seed)).deaths());
}

fn drawn(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let work = ALL[random.below(ALL.len() as u64) as usize];
    let steps = [300, 3000, 20_000][random.below(3) as usize];
    let below = Deaths { victim: steps, repairer: 2000, worker: 8000, worker_stops: 4000 };
    let deaths = Deaths::drawn(&mut random, below);
    Plan { seed, work, deaths, forgotten: None }
}

/// Whatever a repair leaves out is missed by some run, if only because it never ends.
#[test]
fn each_part_of_a_repair_that_is_forgotten_in_deaths_is_missed() {
    each_part_is_missed(&RepairPart::ALL, |part| {
        let misses = |plan: &Plan| fails(|| run(Plan { forgotten: Some(part), ..*plan }));
        let of_step = |(no, work)| Plan { deaths: Deaths::at(3 + no * 29, 0), ..plan(work, no, 0) };
        let some = (0..60).flat_map(|no| ALL.map(|work| (no, work))).map(of_step);
        // A few need the very step.
        let each = [Work::Put, Work::Prepare].into_iter().flat_map(|work| (1..700).map(move |n| plan(work, n, 0)));
        some.chain(each).find(misses)
    });
}
