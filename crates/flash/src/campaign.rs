//! Random power cuts against a model: whatever happens, committed pages are there and others are not (T1 to T3 of
//! [`crate::transact`]).
//!
//! A round makes a small device and runs interleaved random transactions on it. Several times the power is cut in the
//! middle of an operation, or again during the recovery, in every way that the device knows. After each recovery all
//! pages are compared with the model, and once more after another restart: what was unstable then reads differently.

pub mod records;

use std::collections::HashMap;

use crate::error::{FlashError, Result};
use crate::ftl::FtlConfig;
use crate::nand::memory::{Content, CutShape, MemoryNand};
use crate::nand::{Geometry, Nand, Timing};
use crate::protocol::{AnyStore, Config, Protocol};
use crate::rng::Rng;
use crate::transact::{Rules, Transactions};
use crate::{Lba, Xid};

/// Opens a store of the wanted protocol on a device, with levelling that a small device needs.
///
/// # Errors
/// Those of [`AnyStore::open`].
pub fn open(protocol: Protocol, rules: Rules, nand: &mut MemoryNand) -> Result<AnyStore<&mut MemoryNand>> {
    let ftl = FtlConfig { wear_spread_max: 8, ..FtlConfig::default() };
    // A buffer and a log so small that pages leave it and checkpoints come while transactions run.
    AnyStore::open(nand, Config { ftl, rules, buffer_pages: 6, checkpoint_pages: 8, ..Config::new(protocol) })
}

/// A store whose device outlives it.
type Tried<'a> = AnyStore<&'a mut MemoryNand>;

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

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cuts, cuts_in_recovery, commits, pages_checked } = self;
        write!(
            f,
            "{cuts} power cuts ({cuts_in_recovery} during recovery), {commits} commits, {pages_checked} pages compared"
        )
    }
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

/// Rounds over all protocols until so many cuts were made. `progress` is told how many there were.
///
/// # Errors
/// [`Broken`] if a promise does not hold.
pub fn run(cuts: u64, seed: u64, progress: &mut dyn FnMut(u64)) -> Result<Report, Broken> {
    let mut report = Report::default();
    let mut seed = seed;
    while report.cuts < cuts {
        for protocol in Protocol::ALL {
            round(protocol, Rules::corrected(), seed, &mut report)?;
            if protocol.is_no_force() {
                records::round(protocol, seed, &mut report)?;
            }
        }
        seed += 1;
        progress(report.cuts);
    }
    Ok(report)
}

/// One round. Everything random comes from `seed`.
///
/// # Errors
/// [`Broken`] if a promise does not hold.
pub fn round(protocol: Protocol, rules: Rules, seed: u64, report: &mut Report) -> Result<(), Broken> {
    let broken = |what: String| Broken { protocol: protocol.name(), seed, what };
    let mut rng = Rng::new(seed);
    let geometry = Geometry {
        units: rng.between(1, 2) as u32,
        lanes: 1,
        blocks: 2 * rng.between(12, 15) as u32,
        pages_per_block: 8,
        page_bytes: 512,
        ..Geometry::small(24)
    };
    let geometry = Config::new(protocol).suitable(geometry);
    let mut nand =
        MemoryNand::new(geometry, Timing::paper(), Content::Fingerprint).map_err(|e| broken(e.to_string()))?;
    let mut model = Model::default();
    for _ in 0..6 {
        run_until_cut(protocol, rules, &mut nand, 300, &mut rng, report, |store, rng, report| {
            let pages = u64::from(store.page_count().min(24));
            step(store, rng, &mut model, pages, report)
        })
        .map_err(broken)?;
        model.running.clear();
        recover(protocol, rules, &mut nand, 12, &mut rng, report, |store, report| compare(store, &mut model, report))
            .map_err(broken)?;
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

/// One step of one of the running transactions.
fn step(
    store: &mut AnyStore<&mut MemoryNand>,
    rng: &mut Rng,
    model: &mut Model,
    pages: u64,
    report: &mut Report,
) -> Result<()> {
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
            let blocks = u64::from(store.core_mut().nand.geometry().blocks);
            store.collect_block(rng.below(blocks) as u32)?;
        }
    }
    Ok(())
}

/// Restarts, perhaps with further cuts on the way, each within so many operations, and compares; then restarts and
/// compares again.
fn recover(
    protocol: Protocol,
    rules: Rules,
    nand: &mut MemoryNand,
    cut_within: u64,
    rng: &mut Rng,
    report: &mut Report,
    mut compare: impl FnMut(&mut Tried<'_>, &mut Report) -> Result<(), String>,
) -> Result<(), String> {
    for attempt in 0..4 {
        nand.restore_power();
        if attempt < 3 && rng.chance(400) {
            nand.cut_power_after(rng.below(cut_within), random_shape(rng));
        }
        match open(protocol, rules, nand) {
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
        let mut store = open(protocol, rules, nand).map_err(|e| format!("opening again: {e}"))?;
        compare(&mut store, report)?;
        drop(store);
        nand.restore_power();
    }
    Ok(())
}

/// Opens the store and takes steps until the power fails, within so many operations.
fn run_until_cut(
    protocol: Protocol,
    rules: Rules,
    nand: &mut MemoryNand,
    cut_within: u64,
    rng: &mut Rng,
    report: &mut Report,
    mut step: impl FnMut(&mut Tried<'_>, &mut Rng, &mut Report) -> Result<()>,
) -> Result<(), String> {
    nand.cancel_cut();
    let mut store = open(protocol, rules, nand).map_err(|e| format!("opening: {e}"))?;
    store.core_mut().nand.cut_power_after(rng.between(1, cut_within), random_shape(rng));
    report.cuts += 1;
    loop {
        match step(&mut store, rng, report) {
            Ok(()) => {}
            Err(FlashError::PowerCut) => return Ok(()),
            Err(error) => return Err(format!("an operation was refused: {error}")),
        }
    }
}

fn compare(store: &mut AnyStore<&mut MemoryNand>, model: &mut Model, report: &mut Report) -> Result<(), String> {
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

    fn check(protocol: Protocol, rounds: u64) {
        let mut report = Report::default();
        for seed in 0..rounds {
            if let Err(broken) = round(protocol, Rules::corrected(), seed, &mut report) {
                panic!("{broken}");
            }
        }
        assert!(report.cuts >= rounds * 6 && report.commits > rounds && report.cuts_in_recovery > 0, "{report:?}");
    }

    /// Without a rule the same campaign must find a loss: it shows that the rule is needed and that the campaign is
    /// awake.
    fn check_needed(protocol: Protocol, rules: Rules, rounds: u64) {
        let mut report = Report::default();
        let found = (0..rounds).any(|seed| round(protocol, rules, seed, &mut report).is_err());
        assert!(found, "no loss in {rounds} rounds without the rule: {report:?}");
    }

    /// A round that a campaign has found, with all the rules.
    fn replay(protocol: Protocol, seed: u64) {
        if let Err(broken) = round(protocol, Rules::corrected(), seed, &mut Report::default()) {
            panic!("{broken}");
        }
    }

    #[test]
    fn cfc_keeps_its_promises_through_random_power_cuts() {
        check(Protocol::Cfc, 250);
    }

    /// Found by a campaign: two sub-chains, power failed between their TRUE flags, and the one that had its TRUE was
    /// collected first.
    #[test]
    fn a_commit_cut_between_two_sub_chains_is_completed() {
        replay(Protocol::Cfc, 106_785);
    }

    /// Found by a campaign: each cut recovery copied all recent pages again, until no block was free.
    #[test]
    fn recoveries_cut_again_and_again_do_not_fill_the_device() {
        replay(Protocol::Cfc, 107_735);
    }

    #[test]
    fn afc_keeps_its_promises_through_random_power_cuts() {
        check(Protocol::Afc, 250);
    }

    #[test]
    fn scc_keeps_its_promises_through_random_power_cuts() {
        check(Protocol::Scc, 250);
    }

    #[test]
    fn bpcc_keeps_its_promises_through_random_power_cuts() {
        check(Protocol::Bpcc, 250);
    }

    /// Found by a campaign: the page that closed a circle could not be read, so the transaction was found uncommitted.
    /// The erase of its pages was cut. The next recovery read that page, and took what was left for the whole circle.
    #[test]
    fn a_circle_whose_erase_was_cut_does_not_close_again() {
        for (protocol, seed) in
            [(Protocol::Bpcc, 585), (Protocol::Bpcc, 10_208), (Protocol::Scc, 6507), (Protocol::Scc, 6763)]
        {
            replay(protocol, seed);
        }
    }

    /// Found by a campaign: a recovery relied on a flag that read TRUE, and erased the versions before. It was cut
    /// before it had written the flag again, and then the flag read FALSE.
    #[test]
    fn a_recovery_erases_nothing_before_its_flags_are_stable() {
        replay(Protocol::Afc, 285);
    }

    /// Found by a campaign: a restart of WAL could not read the log page with a commit, wrote one of that
    /// transaction's pages anew, and was cut. The next restart could read the log page, and repeated the changes of the
    /// other pages only.
    #[test]
    fn half_a_commit_does_not_come_back_with_its_log_page() {
        replay(Protocol::Wal, 3_005_978);
    }

    #[test]
    fn wal_keeps_its_promises_through_random_power_cuts() {
        check(Protocol::Wal, 250);
    }

    #[test]
    fn extended_cfc_keeps_its_promises_through_random_power_cuts() {
        check(Protocol::CfcEx, 250);
    }

    #[test]
    fn extended_afc_keeps_its_promises_through_random_power_cuts() {
        check(Protocol::AfcEx, 250);
    }

    #[test]
    fn scc_loses_if_records_that_name_a_page_outlive_its_next_version() {
        check_needed(Protocol::Scc, Rules { uncommitted_names_are_erased: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn bpcc_loses_if_the_last_witness_goes() {
        check_needed(Protocol::Bpcc, Rules { witnesses_are_kept: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn links_without_numbers_lose_commits() {
        check_needed(Protocol::Cfc, Rules { links_are_numbered: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn without_verdicts_aborted_work_comes_back() {
        check_needed(Protocol::Cfc, Rules { verdicts_are_kept: false, ..Rules::corrected() }, 3000);
        check_needed(Protocol::Afc, Rules { verdicts_are_kept: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn programming_false_into_a_running_transaction_breaks_afc() {
        check_needed(Protocol::Afc, Rules { running_chains_stay_false: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn relying_on_unstable_bits_loses_commits() {
        check_needed(Protocol::Cfc, Rules { unstable_is_hardened: false, ..Rules::corrected() }, 3000);
        check_needed(Protocol::Afc, Rules { unstable_is_hardened: false, ..Rules::corrected() }, 3000);
    }

    #[test]
    fn an_interrupted_erase_breaks_afc_unless_all_that_goes_is_false() {
        check_needed(Protocol::Afc, Rules { erases_may_be_cut: false, ..Rules::corrected() }, 3000);
    }
}
