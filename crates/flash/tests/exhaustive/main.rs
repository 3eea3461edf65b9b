//! Bounded checks of every protocol: every script of a few steps over two transactions, two logical pages and all
//! blocks in use. The power is cut at every operation of its last step, in every way that a cut can go. Then it
//! restarts, with all pages compared after each, since what is unstable reads differently from one to the next.
//!
//! The steps run on the real store. Because a script's beginnings are scripts themselves, cutting in the last step cuts
//! everywhere.

mod scripts;
mod world;

use ledgerstone_flash::FlashError;
use ledgerstone_flash::nand::memory::CutShape;
use ledgerstone_flash::protocol::{AnyStore, Config, Protocol};
use ledgerstone_flash::transact::Rules;
use world::{PAGES, Step, World, config, contents, steps};

struct Search {
    config: Config,
    /// The ways in which power is cut.
    shapes: Vec<CutShape>,
    cuts: u64,
    scripts: u64,
}

impl Search {
    /// Runs every script; the first broken promise, in words.
    fn explore(&mut self, world: &World, script: &mut Vec<Step>, depth: usize) -> Result<(), String> {
        if depth == 0 {
            return Ok(());
        }
        for step in steps(world) {
            if !world.is_possible(step) {
                continue;
            }
            script.push(step);
            self.cut_everywhere(world, step, script)?;
            let mut next = world.clone();
            let found = next.act(step).and_then(|()| contents(&mut next.store));
            if !found.as_ref().is_ok_and(|pages| *pages == next.committed) {
                return Err(format!("{script:?}: {found:?}, expected {:?}", next.committed));
            }
            self.scripts += 1;
            self.explore(&next, script, depth - 1)?;
            script.pop();
        }
        Ok(())
    }

    fn cut_everywhere(&mut self, world: &World, step: Step, script: &[Step]) -> Result<(), String> {
        for &shape in &self.shapes.clone() {
            for after in 0.. {
                let mut world = world.clone();
                let old = world.committed;
                world.store.core_mut().nand.cut_power_after(after, shape);
                let new = world.after(step);
                match world.act(step) {
                    Ok(()) => break, // The step has fewer operations.
                    Err(FlashError::PowerCut) => {}
                    Err(error) => return Err(format!("{script:?}: {error}")),
                }
                self.cuts += 1;
                let what = || format!("{script:?} cut after {after} operations of the last step, {shape:?}");
                self.restart(world, [old, new]).map_err(|why| format!("{}: {why}", what()))?;
            }
        }
        Ok(())
    }

    /// Restarts three times; whichever of the two outcomes the first shows must stay.
    fn restart(&self, world: World, outcomes: [[u64; PAGES]; 2]) -> Result<(), String> {
        let mut nand = world.store.into_device();
        let mut first = None;
        for _ in 0..3 {
            nand.restore_power();
            let mut store = AnyStore::open(nand, self.config).map_err(|e| e.to_string())?;
            let found = contents(&mut store).map_err(|e| e.to_string())?;
            if !outcomes.contains(&found) {
                return Err(format!("{found:?}, expected one of {outcomes:?}"));
            }
            if *first.get_or_insert(found) != found {
                return Err(format!("a restart changed its mind to {found:?}"));
            }
            nand = store.into_device();
        }
        Ok(())
    }
}

/// Every way: four pages a block, so every subset of the three with data, with and without the summary.
fn all_shapes() -> Vec<CutShape> {
    use CutShape::{Garbage, Nothing, Subset, UnstableNew, UnstableOld, Whole};
    [Nothing, Garbage, Whole, UnstableNew, UnstableOld].into_iter().chain((0..16).map(Subset)).collect()
}

fn check(protocol: Protocol, depth: usize) {
    let config = config(protocol);
    let mut search = Search { config, shapes: all_shapes(), cuts: 0, scripts: 0 };
    if let Err(broken) = search.explore(&World::new(config), &mut Vec::new(), depth) {
        panic!("{}: {broken}", protocol.name());
    }
    assert!(search.cuts > 1000 && search.scripts > 100, "{} cuts in {} scripts", search.cuts, search.scripts);
    println!("{}: {} scripts, {} cuts", protocol.name(), search.scripts, search.cuts);
}

/// Steps in a script; `FLASH_DEPTH` for longer ones (`make flash-models`).
fn depth() -> usize {
    std::env::var("FLASH_DEPTH").ok().and_then(|d| d.parse().ok()).unwrap_or(3)
}

#[test]
fn every_short_script_of_cfc_survives_every_cut() {
    check(Protocol::Cfc, depth());
}

#[test]
fn every_short_script_of_afc_survives_every_cut() {
    check(Protocol::Afc, depth());
}

#[test]
fn every_short_script_of_scc_survives_every_cut() {
    check(Protocol::Scc, depth());
}

#[test]
fn every_short_script_of_bpcc_survives_every_cut() {
    check(Protocol::Bpcc, depth());
}

#[test]
fn every_short_script_of_wal_survives_every_cut() {
    check(Protocol::Wal, depth());
}

#[test]
fn every_short_script_of_extended_cfc_survives_every_cut() {
    check(Protocol::CfcEx, depth());
}

#[test]
fn every_short_script_of_extended_afc_survives_every_cut() {
    check(Protocol::AfcEx, depth());
}

/// Without a rule, within so many steps some script with some cut breaks a promise. Prints the first.
fn check_needed(protocol: Protocol, rules: Rules, shapes: Vec<CutShape>, depth: usize) {
    let config = Config { rules, ..config(protocol) };
    let mut search = Search { config, shapes, cuts: 0, scripts: 0 };
    match search.explore(&World::new(config), &mut Vec::new(), depth) {
        Ok(()) => panic!("{}: nothing broke in {} scripts with {} cuts", protocol.name(), search.scripts, search.cuts),
        Err(broken) => println!("{}: {broken}", protocol.name()),
    }
}

/// The paper taken literally: no correction at all.
fn literal() -> Rules {
    Rules {
        links_are_numbered: false,
        verdicts_are_kept: false,
        running_chains_stay_false: false,
        unstable_is_hardened: false,
        erases_may_be_cut: false,
        uncommitted_names_are_erased: false,
        witnesses_are_kept: false,
    }
}

#[test]
fn the_papers_rules_for_cfc_break_within_three_steps() {
    check_needed(Protocol::Cfc, literal(), all_shapes(), 3);
}

#[test]
fn the_papers_rules_for_afc_break_within_three_steps() {
    check_needed(Protocol::Afc, literal(), all_shapes(), 3);
}

#[test]
fn flags_that_a_power_cut_left_unstable_break_cfc_and_afc_within_three_steps() {
    for protocol in [Protocol::Cfc, Protocol::Afc] {
        check_needed(protocol, Rules { unstable_is_hardened: false, ..Rules::corrected() }, all_shapes(), 3);
    }
}
