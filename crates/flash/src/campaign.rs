//! Random power cuts against a model: whatever happens, committed pages are there and others are not (T1 to T3 of
//! [`crate::transact`]).
//!
//! A round makes a small device and runs interleaved random transactions on it. Several times the power is cut in the
//! middle of an operation, or again during the recovery, in every way that the device knows. After each recovery all
//! pages are compared with the model, and once more after another restart: what was unstable then reads differently.

use std::collections::HashMap;

use crate::error::{FlashError, Result};
use crate::flag::{FlagConfig, FlagStore, Mode};
use crate::ftl::FtlConfig;
use crate::nand::memory::{Content, CutShape, MemoryNand};
use crate::nand::{Geometry, Nand, Timing};
use crate::rng::Rng;
use crate::transact::{Rules, Transactions};
use crate::{Lba, Xid};

/// A store under experiment: the device underneath can be reached.
pub trait Experiment: Transactions {
    /// The device.
    fn nand(&mut self) -> &mut MemoryNand;
    /// Collects a block out of turn if that is allowed.
    ///
    /// # Errors
    /// Those of the device.
    fn collect_block(&mut self, block: u32) -> Result<()>;
}

impl Experiment for FlagStore<&mut MemoryNand> {
    fn nand(&mut self) -> &mut MemoryNand {
        self.core_mut().nand
    }
    fn collect_block(&mut self, block: u32) -> Result<()> {
        FlagStore::collect_block(self, block)
    }
}

/// Opens a store of the wanted protocol on a device.
///
/// # Errors
/// Those of the protocol's `open`.
pub fn open(mode: Mode, rules: Rules, nand: &mut MemoryNand) -> Result<Box<dyn Experiment + '_>> {
    let ftl = FtlConfig { wear_spread_max: 8, ..FtlConfig::default() };
    Ok(Box::new(FlagStore::open(nand, FlagConfig { ftl, rules, ..FlagConfig::new(mode) })?))
}

/// What a campaign did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Times the power was cut.
    pub cuts: u64,
    /// Of those, during a recovery.
    pub cuts_in_recovery: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Pages compared with the model.
    pub pages_checked: u64,
}

/// A promise that was broken.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{protocol}, seed {seed}: {what}")]
pub struct Broken {
    /// Which protocol.
    pub protocol: &'static str,
    /// The round's seed, to run it again.
    pub seed: u64,
    /// What was found.
    pub what: String,
}

/// One round; everything random comes from `seed`.
///
/// # Errors
/// [`Broken`] if a promise does not hold.
pub fn round(mode: Mode, rules: Rules, seed: u64, report: &mut Report) -> Result<(), Broken> {
    let broken = |what: String| Broken { protocol: mode.name(), seed, what };
    let mut rng = Rng::new(seed);
    let geometry = Geometry {
        units: rng.between(1, 2) as u32,
        lanes: 1,
        blocks: 2 * rng.between(12, 15) as u32,
        pages_per_block: 8,
        page_bytes: 512,
        spare_bytes: 64,
        programs_max: 2,
        is_in_order: false,
    };
    let mut nand =
        MemoryNand::new(geometry, Timing::paper(), Content::Fingerprint).map_err(|e| broken(e.to_string()))?;
    let mut model = Model::default();
    for _ in 0..6 {
        run_until_cut(mode, rules, &mut nand, &mut rng, &mut model, report).map_err(broken)?;
        recover(mode, rules, &mut nand, &mut rng, &mut model, report).map_err(broken)?;
    }
    Ok(())
}

/// What the pages must say.
#[derive(Clone, Debug, Default)]
struct Model {
    committed: HashMap<Lba, u64>,
    running: HashMap<Xid, HashMap<Lba, u64>>,
    /// The transaction whose commit was under way at the cut: all of it or nothing.
    in_doubt: Option<HashMap<Lba, u64>>,
    next_value: u64,
}

impl Model {
    fn holder(&self, lba: Lba) -> Option<Xid> {
        self.running.iter().find(|(_, writes)| writes.contains_key(&lba)).map(|(&xid, _)| xid)
    }

    fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }
}

fn random_shape(rng: &mut Rng) -> CutShape {
    match rng.below(6) {
        0 => CutShape::Nothing,
        1 => CutShape::Garbage,
        2 => CutShape::Whole,
        3 => CutShape::UnstableNew,
        4 => CutShape::UnstableOld,
        _ => CutShape::Subset(rng.next_u64()),
    }
}

/// Random transactions until the power fails.
fn run_until_cut(
    mode: Mode,
    rules: Rules,
    nand: &mut MemoryNand,
    rng: &mut Rng,
    model: &mut Model,
    report: &mut Report,
) -> Result<(), String> {
    nand.cancel_cut();
    let mut store = open(mode, rules, nand).map_err(|e| format!("opening: {e}"))?;
    store.nand().cut_power_after(rng.between(1, 300), random_shape(rng));
    report.cuts += 1;
    let pages = u64::from(store.page_count().min(24));
    loop {
        match step(&mut *store, rng, model, pages, report) {
            Ok(()) => {}
            Err(FlashError::PowerCut) => break,
            Err(error) => return Err(format!("an operation was refused: {error}")),
        }
    }
    model.running.clear();
    Ok(())
}

fn step(store: &mut dyn Experiment, rng: &mut Rng, model: &mut Model, pages: u64, report: &mut Report) -> Result<()> {
    let mut running: Vec<Xid> = model.running.keys().copied().collect();
    running.sort_unstable();
    let pick = |rng: &mut Rng| running[rng.below(running.len() as u64) as usize];
    if running.is_empty() || (running.len() < 4 && rng.chance(200)) {
        let xid = store.begin();
        model.running.insert(xid, HashMap::new());
        return Ok(());
    }
    match rng.below(100) {
        0..60 => {
            let xid = pick(rng);
            let lba = rng.below(pages) as Lba;
            let value = model.value();
            let holder = model.holder(lba);
            let answer = store.write(xid, lba, &value.to_le_bytes());
            if holder.is_some_and(|h| h != xid) {
                return match answer {
                    Err(FlashError::Conflict { .. }) => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => Err(FlashError::Corrupt(format!("page {lba} was written by two at once"))),
                };
            }
            answer?;
            if let Some(writes) = model.running.get_mut(&xid) {
                writes.insert(lba, value);
            }
        }
        60..70 => {
            let xid = pick(rng);
            let lba = rng.below(pages) as Lba;
            let own = model.running[&xid].get(&lba).or_else(|| model.committed.get(&lba));
            let mut bytes = [0; 8];
            store.read(Some(xid), lba, &mut bytes)?;
            let (expected, found) = (own.copied().unwrap_or(u64::MAX), u64::from_le_bytes(bytes));
            if expected != found {
                return Err(FlashError::Corrupt(format!("page {lba} reads {found} to {xid}, expected {expected}")));
            }
        }
        70..85 => {
            let xid = pick(rng);
            let mut writes = model.running.remove(&xid).unwrap_or_default();
            let mut last: Vec<(Lba, [u8; 8])> = Vec::new();
            if rng.chance(600) {
                for _ in 0..rng.between(1, 3) {
                    let lba = rng.below(pages) as Lba;
                    if model.holder(lba).is_none() && last.iter().all(|(l, _)| *l != lba) {
                        let value = model.value();
                        last.push((lba, value.to_le_bytes()));
                        writes.insert(lba, value);
                    }
                }
            }
            let last: Vec<(Lba, &[u8])> = last.iter().map(|(lba, bytes)| (*lba, &bytes[..])).collect();
            model.in_doubt = Some(writes);
            store.commit_with(xid, &last)?;
            model.committed.extend(model.in_doubt.take().unwrap_or_default());
            report.commits += 1;
        }
        85..95 => {
            let xid = pick(rng);
            model.running.remove(&xid);
            store.abort(xid)?;
        }
        _ => {
            let blocks = u64::from(store.nand().geometry().blocks);
            store.collect_block(rng.below(blocks) as u32)?;
        }
    }
    Ok(())
}

/// Restarts, perhaps with further cuts on the way, and compares; then restarts and compares again.
fn recover(
    mode: Mode,
    rules: Rules,
    nand: &mut MemoryNand,
    rng: &mut Rng,
    model: &mut Model,
    report: &mut Report,
) -> Result<(), String> {
    for attempt in 0..4 {
        nand.restore_power();
        if attempt < 3 && rng.chance(400) {
            nand.cut_power_after(rng.below(12), random_shape(rng));
        }
        match open(mode, rules, nand) {
            Ok(_) => break,
            Err(FlashError::PowerCut) => {
                report.cuts += 1;
                report.cuts_in_recovery += 1;
            }
            Err(error) => return Err(format!("recovery was refused: {error}")),
        }
    }
    for _ in 0..2 {
        nand.cancel_cut();
        let mut store = open(mode, rules, nand).map_err(|e| format!("opening again: {e}"))?;
        compare(&mut *store, model, report)?;
        drop(store);
        nand.restore_power();
    }
    Ok(())
}

fn compare(store: &mut dyn Experiment, model: &mut Model, report: &mut Report) -> Result<(), String> {
    let store_pages = store.page_count().min(24);
    let mut read = |lba: Lba| -> Result<u64, String> {
        let mut bytes = [0; 8];
        store.read(None, lba, &mut bytes).map_err(|e| format!("page {lba}: {e}"))?;
        report.pages_checked += 1;
        Ok(u64::from_le_bytes(bytes))
    };
    if let Some(doubt) = model.in_doubt.take()
        && let Some((&lba, &value)) = doubt.iter().next()
        && read(lba)? == value
    {
        model.committed.extend(doubt); // It became durable: then all of it must have.
    }
    for lba in 0..store_pages {
        let expected = model.committed.get(&lba).copied().unwrap_or(u64::MAX);
        let found = read(lba)?;
        if found != expected {
            return Err(format!("page {lba} reads {found}, expected {expected}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mode: Mode, rounds: u64) {
        let mut report = Report::default();
        for seed in 0..rounds {
            if let Err(broken) = round(mode, Rules::corrected(), seed, &mut report) {
                panic!("{broken}");
            }
        }
        assert!(report.cuts >= rounds * 6 && report.commits > rounds && report.cuts_in_recovery > 0, "{report:?}");
    }

    /// Without a rule the same campaign must find a loss: it shows that the rule is needed and that the campaign is awake.
    fn check_needed(mode: Mode, rules: Rules, rounds: u64) {
        let mut report = Report::default();
        let found = (0..rounds).any(|seed| round(mode, rules, seed, &mut report).is_err());
        assert!(found, "no loss in {rounds} rounds without the rule: {report:?}");
    }

    #[test]
    fn cfc_keeps_its_promises_through_random_power_cuts() {
        check(Mode::Cfc, 250);
    }

    /// Found by a campaign: two sub-chains, power failed between their TRUE flags, and the one that had its TRUE was
    /// collected first.
    #[test]
    fn a_commit_cut_between_two_sub_chains_is_completed() {
        if let Err(broken) = round(Mode::Cfc, Rules::corrected(), 106_785, &mut Report::default()) {
            panic!("{broken}");
        }
    }

    /// Found by a campaign: each cut recovery copied all recent pages again, until no block was free.
    #[test]
    fn recoveries_cut_again_and_again_do_not_fill_the_device() {
        if let Err(broken) = round(Mode::Cfc, Rules::corrected(), 107_735, &mut Report::default()) {
            panic!("{broken}");
        }
    }

    #[test]
    fn afc_keeps_its_promises_through_random_power_cuts() {
        check(Mode::Afc, 250);
    }

    #[test]
    fn links_without_numbers_lose_commits() {
        check_needed(Mode::Cfc, Rules { links_are_numbered: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn without_verdicts_aborted_work_comes_back() {
        check_needed(Mode::Cfc, Rules { verdicts_are_kept: false, ..Rules::corrected() }, 3000);
        check_needed(Mode::Afc, Rules { verdicts_are_kept: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn programming_false_into_a_running_transaction_breaks_afc() {
        check_needed(Mode::Afc, Rules { running_chains_stay_false: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn relying_on_unstable_bits_loses_commits() {
        check_needed(Mode::Cfc, Rules { unstable_is_hardened: false, ..Rules::corrected() }, 3000);
        check_needed(Mode::Afc, Rules { unstable_is_hardened: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn an_interrupted_erase_breaks_afc_unless_all_that_goes_is_false() {
        check_needed(Mode::Afc, Rules { erases_may_be_cut: false, ..Rules::corrected() }, 3000);
    }
}
