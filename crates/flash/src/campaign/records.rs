//! Rounds for the protocols with record-level concurrency: several transactions change bytes of the same pages at the
//! same time.
//!
//! A page has eight records of one byte. What the model says is compared byte by byte after each recovery.

use std::collections::HashMap;

use super::{Broken, Report, recover, run_until_cut};
use crate::error::{FlashError, Result};
use crate::nand::memory::{Content, MemoryNand};
use crate::nand::{Geometry, Nand, Timing};
use crate::protocol::{AnyStore, Config, Protocol};
use crate::rng::Rng;
use crate::transact::{Rules, Transactions};
use crate::{Lba, Xid};

type Record = (Lba, usize);
type Writes = HashMap<Record, u8>;

const PAGES: u64 = 12;
const RECORDS: u64 = 8;

/// What the records must say.
#[derive(Clone, Debug, Default)]
struct Model {
    committed: Writes,
    running: HashMap<Xid, Writes>,
    in_doubt: Option<Writes>,
}

/// One round. Everything random comes from `seed`.
///
/// # Errors
/// [`Broken`] if a promise does not hold.
pub fn round(protocol: Protocol, seed: u64, report: &mut Report) -> std::result::Result<(), Broken> {
    let broken = |what: String| Broken { protocol: protocol.name(), seed, what: format!("records: {what}") };
    let mut rng = Rng::new(seed ^ 0x5eed_0000_0000);
    let blocks = 2 * rng.between(12, 15) as u32;
    let geometry = Geometry { pages_per_block: 8, page_bytes: 512, ..Geometry::small(blocks) };
    let geometry = Config::new(protocol).suitable(geometry);
    let nand = MemoryNand::new(geometry, Timing::paper(), Content::Fingerprint);
    let mut nand = nand.map_err(|e| broken(e.to_string()))?;
    let mut model = Model::default();
    for _ in 0..6 {
        run_until_cut(protocol, Rules::corrected(), &mut nand, 200, &mut rng, report, |store, rng, report| {
            step(protocol, store, rng, &mut model, report)
        })
        .map_err(broken)?;
        model.running.clear();
        recover(protocol, Rules::corrected(), &mut nand, 20, &mut rng, report, |store, report| {
            compare(store, &mut model, report)
        })
        .map_err(broken)?;
    }
    Ok(())
}

fn step(
    protocol: Protocol,
    store: &mut AnyStore<&mut MemoryNand>,
    rng: &mut Rng,
    model: &mut Model,
    report: &mut Report,
) -> Result<()> {
    let mut running: Vec<Xid> = model.running.keys().copied().collect();
    running.sort_unstable();
    if running.is_empty() || (running.len() < 6 && rng.chance(200)) {
        model.running.insert(store.begin(), HashMap::new());
        return Ok(());
    }
    let xid = running[rng.below(running.len() as u64) as usize];
    match rng.below(100) {
        0..70 => {
            let record = (rng.below(PAGES) as Lba, rng.below(RECORDS) as usize);
            let value = rng.below(255) as u8;
            let others = || model.running.iter().filter(|(other, _)| **other != xid);
            if others().any(|(_, writes)| writes.contains_key(&record)) {
                return Ok(()); // Callers lock records.
            }
            match store.update(xid, record.0, record.1, &[value]) {
                Ok(()) => {}
                Err(FlashError::Conflict { holder, .. }) => {
                    // Only somebody who is running and has changes in this page may be in the way.
                    let is_there = |writes: &Writes| writes.keys().any(|(lba, _)| *lba == record.0);
                    return match model.running.get(&holder).filter(|writes| is_there(writes)) {
                        Some(_) => Ok(()),
                        None => {
                            Err(FlashError::Corrupt(format!("transaction {holder} is not in the way of {record:?}")))
                        }
                    };
                }
                Err(error) => return Err(error),
            }
            if let Some(writes) = model.running.get_mut(&xid) {
                writes.insert(record, value);
            }
        }
        // Reading what others are changing is a matter of locks under WAL.
        70..78 if protocol != Protocol::Wal => {
            let lba = rng.below(PAGES) as Lba;
            let mut bytes = [0; RECORDS as usize];
            store.read(Some(xid), lba, &mut bytes)?;
            for (at, found) in bytes.iter().enumerate() {
                let own = model.running[&xid].get(&(lba, at)).or_else(|| model.committed.get(&(lba, at)));
                let expected = own.copied().unwrap_or(0xff);
                if expected != *found {
                    let what = format!("record {at} of page {lba} reads {found} to {xid}, expected {expected}");
                    return Err(FlashError::Corrupt(what));
                }
            }
        }
        70..86 => {
            model.in_doubt = model.running.remove(&xid);
            store.commit(xid)?;
            model.committed.extend(model.in_doubt.take().unwrap_or_default());
            report.commits += 1;
        }
        86..95 => {
            model.running.remove(&xid);
            store.abort(xid)?;
        }
        _ => {
            let blocks = u64::from(store.core().nand.geometry().blocks);
            store.collect_block(rng.below(blocks) as u32)?;
        }
    }
    Ok(())
}

fn compare(
    store: &mut AnyStore<&mut MemoryNand>,
    model: &mut Model,
    report: &mut Report,
) -> std::result::Result<(), String> {
    let mut found: Writes = HashMap::new();
    for lba in 0..PAGES as Lba {
        let mut bytes = [0; RECORDS as usize];
        store.read(None, lba, &mut bytes).map_err(|e| format!("page {lba}: {e}"))?;
        report.pages_checked += 1;
        found.extend(bytes.iter().enumerate().map(|(at, byte)| ((lba, at), *byte)));
    }
    let differs = |expected: &Writes| {
        found
            .iter()
            .find(|(record, byte)| expected.get(*record).copied().unwrap_or(0xff) != **byte)
            .map(|(r, b)| (*r, *b))
    };
    let without = model.committed.clone();
    let Some((record, byte)) = differs(&without) else {
        model.in_doubt = None;
        return Ok(());
    };
    if let Some(doubt) = model.in_doubt.take() {
        model.committed.extend(doubt);
        if differs(&model.committed).is_none() {
            return Ok(()); // It became durable, all of it.
        }
    }
    Err(format!("record {record:?} reads {byte}, expected {:?}", without.get(&record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by a campaign: a restart could not read the log page with a commit, wrote a page of that transaction
    /// anew, and was cut. The next restart could read the log page, and took the page for newer than the commit's
    /// change.
    #[test]
    fn a_log_page_that_can_be_read_again_finds_no_newer_versions() {
        if let Err(broken) = round(Protocol::CfcEx, 285, &mut Report::default()) {
            panic!("{broken}");
        }
    }

    #[test]
    fn records_of_several_transactions_in_one_page_survive_random_power_cuts() {
        for protocol in [Protocol::Wal, Protocol::CfcEx, Protocol::AfcEx] {
            let mut report = Report::default();
            for seed in 0..150 {
                if let Err(broken) = round(protocol, seed, &mut report) {
                    panic!("{broken}");
                }
            }
            assert!(report.commits > 1000 && report.cuts_in_recovery > 100, "{protocol:?}: {report:?}");
        }
    }
}
