//! Counterexamples, written out: a script for each correction under which the store without that one correction breaks
//! a promise, and the store with all of them does not. They are longer than the exhaustive check goes, since most need
//! two power cuts.
//!
//! All but two were found at random and then shortened as long as they still broke. `make flash-models` does that again
//! and prints what it finds, for the day when a change of the store gives operations other numbers.

use ledgerstone_flash::FlashError;
use ledgerstone_flash::nand::memory::{CutShape, MemoryNand};
use ledgerstone_flash::protocol::{AnyStore, Config, Protocol};
use ledgerstone_flash::rng::Rng;
use ledgerstone_flash::transact::Rules;

use super::world::{Step, World, config, contents};
use CutShape::{Garbage, Nothing, Subset, UnstableNew, UnstableOld};
use Move::{Cut, CutRestart, Do, Restart};

/// What a script is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    Do(Step),
    /// The step with the power cut in its operation of this number, then a restart.
    Cut(Step, u64, CutShape),
    /// A restart.
    Restart,
    /// A restart that is cut in its operation of this number, and another one.
    CutRestart(u64, CutShape),
}

/// Plays a script; the first broken promise, in words. Moves that are impossible are left out.
fn play(config: Config, script: &[Move]) -> Result<(), String> {
    let mut world = World::new(config);
    for (number, own) in script.iter().enumerate() {
        let at = |why: String| format!("move {number}, {own:?}: {why}");
        match *own {
            Move::Do(step) | Move::Cut(step, ..) if !is_open(&world, step) => {}
            Move::Do(step) => {
                world.act(step).map_err(|e| at(e.to_string()))?;
                let found = contents(&mut world.store).map_err(|e| at(e.to_string()))?;
                if found != world.committed {
                    return Err(at(format!("{found:?}, expected {:?}", world.committed)));
                }
            }
            Move::Cut(step, after, shape) => {
                let old = world.committed;
                world.store.core_mut().nand.cut_power_after(after, shape);
                let new = world.after(step);
                match world.act(step) {
                    Ok(()) => {
                        world.store.core_mut().nand.cancel_cut();
                        world = restart(config, world, None, &[new]).map_err(at)?;
                    }
                    Err(FlashError::PowerCut) => world = restart(config, world, None, &[old, new]).map_err(at)?,
                    Err(error) => return Err(at(error.to_string())),
                }
            }
            Move::Restart => {
                let old = world.committed;
                world = restart(config, world, None, &[old]).map_err(at)?;
            }
            Move::CutRestart(after, shape) => {
                let old = world.committed;
                world = restart(config, world, Some((after, shape)), &[old]).map_err(at)?;
            }
        }
    }
    Ok(())
}

fn is_open(world: &World, step: Step) -> bool {
    let is_there = match step {
        Step::Collect { block } => world.store.core().holds_pages(block),
        _ => true,
    };
    is_there && world.is_possible(step)
}

fn restart(
    config: Config,
    world: World,
    cut: Option<(u64, CutShape)>,
    outcomes: &[[u64; super::PAGES]],
) -> Result<World, String> {
    let next_value = world.next_value;
    let mut nand: MemoryNand = world.store.into_device();
    nand.restore_power();
    if let Some((after, shape)) = cut {
        nand.cut_power_after(after, shape);
        match AnyStore::open(&mut nand, config) {
            Ok(_) | Err(FlashError::PowerCut) => {}
            Err(error) => return Err(error.to_string()),
        }
        nand.restore_power();
    }
    let mut store = AnyStore::open(nand, config).map_err(|e| e.to_string())?;
    let found = contents(&mut store).map_err(|e| e.to_string())?;
    if !outcomes.contains(&found) {
        return Err(format!("{found:?}, expected one of {outcomes:?}"));
    }
    Ok(World::opened(store, found, next_value))
}

/// Looks for a script that breaks the store, at random, and shortens it.
fn find(config: Config, seed: u64, tries: u64) -> Option<Vec<Move>> {
    let mut rng = Rng::new(seed);
    for _ in 0..tries {
        let script: Vec<Move> = (0..4 + rng.below(12)).map(|_| random_move(&mut rng)).collect();
        if play(config, &script).is_err() {
            return Some(shorten(config, script));
        }
    }
    None
}

fn random_move(rng: &mut Rng) -> Move {
    let txn = rng.below(2) as usize;
    let page = rng.below(super::PAGES as u64) as usize;
    let step = match rng.below(10) {
        0..4 => Step::Write { txn, page },
        4 => Step::Commit { txn, with_page: None },
        5 => Step::Commit { txn, with_page: Some(page) },
        6 => Step::Abort { txn },
        _ => Step::Collect { block: rng.below(12) as u32 },
    };
    let shape = match rng.below(6) {
        0 => CutShape::Nothing,
        1 => CutShape::Garbage,
        2 => CutShape::UnstableNew,
        3 => CutShape::UnstableOld,
        _ => CutShape::Subset(rng.below(16)),
    };
    match rng.below(12) {
        0..8 => Move::Do(step),
        8..10 => Move::Cut(step, rng.below(6), shape),
        10 => Move::Restart,
        _ => Move::CutRestart(rng.below(8), shape),
    }
}

/// Leaves out moves, and makes cuts restarts, as long as it still breaks.
fn shorten(config: Config, mut script: Vec<Move>) -> Vec<Move> {
    loop {
        let without = |at: usize| [&script[..at], &script[at + 1..]].concat();
        let simpler = |at: usize| match script[at] {
            Move::Cut(step, ..) => Some([&script[..at], &[Move::Do(step)], &script[at + 1..]].concat()),
            Move::CutRestart(..) => Some([&script[..at], &[Move::Restart], &script[at + 1..]].concat()),
            _ => None,
        };
        let shorter = (0..script.len()).flat_map(|at| [Some(without(at)), simpler(at)]).flatten();
        match shorter.into_iter().find(|script| play(config, script).is_err()) {
            Some(found) => script = found,
            None => return script,
        }
    }
}

/// Without the rule the script breaks the store, with it it does not.
fn check(protocol: Protocol, without: Rules, script: &[Move]) {
    let corrected = config(protocol);
    let broken = play(Config { rules: without, ..corrected }, script);
    assert!(broken.is_err(), "{}: nothing broke without the rule", protocol.name());
    assert_eq!(play(corrected, script), Ok(()), "{}", protocol.name());
}

const fn write(txn: usize, page: usize) -> Step {
    Step::Write { txn, page }
}

const fn commit(txn: usize) -> Step {
    Step::Commit { txn, with_page: None }
}

const fn commit_with(txn: usize, page: usize) -> Step {
    Step::Commit { txn, with_page: Some(page) }
}

/// A recovery copies pages to places that were used before, and is cut. An old link now leads to one of them, which is
/// then no head, and its TRUE is never looked at.
#[test]
fn links_without_numbers_lose_a_commit_of_cfc() {
    let script = [Do(commit_with(0, 0)), Do(write(0, 1)), Do(commit_with(0, 1)), Restart, CutRestart(2, Subset(10))];
    check(Protocol::Cfc, Rules { links_are_numbered: false, ..Rules::corrected() }, &script);
}

/// The flag of a commit is cut. The first restart reads FALSE and forgets it, the second reads TRUE.
#[test]
fn without_verdicts_cfc_commits_what_it_has_aborted() {
    let script = [Do(write(0, 0)), Cut(commit(0), 0, UnstableOld), Restart];
    check(Protocol::Cfc, Rules { verdicts_are_kept: false, ..Rules::corrected() }, &script);
}

/// The same, 11 and 10 for FALSE and TRUE, with an erase between that a second cut leaves half done.
#[test]
fn without_verdicts_afc_commits_what_it_has_aborted() {
    let script = [Cut(commit_with(0, 1), 2, Garbage), Cut(write(1, 1), 5, UnstableOld)];
    check(Protocol::Afc, Rules { verdicts_are_kept: false, ..Rules::corrected() }, &script);
}

/// The first page, which holds the FALSE, is collected. 00 in the other one cannot be taken back by the commit.
#[test]
fn false_for_ever_in_a_running_transaction_loses_a_commit_of_afc() {
    let script = [Do(write(1, 0)), Do(write(1, 0)), Do(Step::Collect { block: 0 }), Cut(commit(1), 5, Nothing)];
    check(Protocol::Afc, Rules { running_chains_stay_false: false, ..Rules::corrected() }, &script);
}

/// FALSE, TRUE, and a page of somebody else: a block is all that is left of an aborted transaction. Its erase is cut
/// and leaves the page that is TRUE.
#[test]
fn an_interrupted_erase_commits_what_afc_has_aborted() {
    let script = [
        Do(commit_with(0, 0)),
        Do(write(1, 0)),
        Do(write(1, 1)),
        Do(Step::Abort { txn: 1 }),
        Do(commit_with(0, 0)),
        Cut(Step::Collect { block: 1 }, 2, Subset(2)),
    ];
    check(Protocol::Afc, Rules { erases_may_be_cut: false, ..Rules::corrected() }, &script);
}

/// The page that commits is cut; it reads well now, is relied on, and cannot be read later.
#[test]
fn a_page_that_cannot_be_read_later_loses_a_commit_of_cfc() {
    let script = [Do(write(0, 1)), Cut(commit_with(1, 0), 1, UnstableNew), Cut(commit_with(0, 1), 5, Subset(4))];
    check(Protocol::Cfc, Rules { unstable_is_hardened: false, ..Rules::corrected() }, &script);
}

/// The commit's flag reads TRUE after one restart and FALSE after the next.
#[test]
fn a_flag_that_reads_otherwise_later_loses_a_commit_of_afc() {
    let script = [Cut(commit_with(0, 0), 2, UnstableNew), Restart];
    check(Protocol::Afc, Rules { unstable_is_hardened: false, ..Rules::corrected() }, &script);
}

/// Page 0 was written, naming a version of page 1 that never came. The next version of page 1 closes its circle, or
/// seems to.
#[test]
fn a_record_that_names_a_page_commits_under_scc_when_that_page_is_written() {
    let script = [Do(write(1, 0)), Do(write(1, 1)), Do(Step::Abort { txn: 1 }), Cut(commit_with(1, 1), 2, Subset(9))];
    check(Protocol::Scc, Rules { uncommitted_names_are_erased: false, ..Rules::corrected() }, &script);
}

/// Page 0 was written, naming version k of page 1 that never came. The version committed next has skipped k; those
/// after it have not, and when it goes nothing says any longer that k was never there.
#[test]
fn without_the_last_witness_bpcc_commits_what_was_aborted() {
    let script = [
        Do(write(1, 0)),
        Do(write(1, 1)),
        Do(Step::Abort { txn: 1 }),
        Do(commit_with(0, 1)),
        Do(commit_with(0, 1)),
        Do(commit_with(0, 1)),
        Do(Step::Collect { block: 1 }),
        Restart,
    ];
    check(Protocol::Bpcc, Rules { witnesses_are_kept: false, ..Rules::corrected() }, &script);
}

/// Found when looking for a script for the rule above: the store lost this one with all rules. A page that a recovery
/// left out of its block's summary came back when the erase of that block was cut. By then its transaction's number had
/// been given again.
#[test]
fn a_page_that_a_recovery_has_left_out_does_not_come_back() {
    let script = [
        Cut(write(1, 1), 1, Subset(1)),
        Do(write(1, 0)),
        Do(write(0, 1)),
        CutRestart(4, UnstableOld),
        Restart,
        Do(commit_with(0, 1)),
        Cut(Step::Collect { block: 2 }, 0, Subset(2)),
    ];
    for protocol in Protocol::ALL {
        assert_eq!(play(config(protocol), &script), Ok(()), "{}", protocol.name());
    }
}

/// No script at random breaks a store with all rules.
#[test]
fn scripts_at_random_break_nothing() {
    for protocol in Protocol::ALL {
        assert_eq!(find(config(protocol), 1, tries()), None, "{}", protocol.name());
    }
}

/// Scripts at random for each protocol; `FLASH_SCRIPTS` for more (`make flash-models`).
fn tries() -> u64 {
    std::env::var("FLASH_SCRIPTS").ok().and_then(|tries| tries.parse().ok()).unwrap_or(500)
}

/// Looks for all of them but two, which are too rare (interrupted erases, witnesses), and prints the shortest.
#[test]
#[ignore = "takes a minute; make flash-models runs it"]
fn scripts_that_break_are_found_at_random() {
    let all = Rules::corrected();
    for (protocol, rules) in [
        (Protocol::Cfc, Rules { links_are_numbered: false, ..all }),
        (Protocol::Cfc, Rules { verdicts_are_kept: false, ..all }),
        (Protocol::Afc, Rules { verdicts_are_kept: false, ..all }),
        (Protocol::Afc, Rules { running_chains_stay_false: false, ..all }),
        (Protocol::Cfc, Rules { unstable_is_hardened: false, ..all }),
        (Protocol::Afc, Rules { unstable_is_hardened: false, ..all }),
        (Protocol::Scc, Rules { uncommitted_names_are_erased: false, ..all }),
    ] {
        let config = Config { rules, ..config(protocol) };
        let found = (0..6).filter_map(|seed| find(config, seed * 7919, 100_000)).min_by_key(Vec::len);
        let script = found.unwrap_or_else(|| panic!("{}: no script breaks {rules:?}", protocol.name()));
        println!("{} {rules:?}\n  {script:?}: {:?}", protocol.name(), play(config, &script));
    }
}
