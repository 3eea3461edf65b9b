//! TPC-C on a store whose power is cut again and again: the consistency conditions must hold after every run and every
//! recovery.

use super::pages::StorePages;
use super::{Layout, Mix, Outcome, Rows, Scale, check, load, run_one};
use crate::error::{FlashError, Result};
use crate::nand::memory::{Content, CutShape, MemoryNand};
use crate::nand::{Geometry, Timing};
use crate::protocol::{AnyStore, Config, Protocol};
use crate::rng::Rng;
use crate::transact::Transactions;

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The protocol.
    pub protocol: Protocol,
    /// The size of the database.
    pub scale: Scale,
    /// Transactions between two power cuts, at most.
    pub transactions: u32,
    /// Power cuts.
    pub cuts: u32,
    /// Everything random.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialReport {
    /// Transactions committed.
    pub committed: u64,
    /// Transactions rolled back because an item did not exist.
    pub rolled_back: u64,
    /// Power cuts in the middle of an operation.
    pub cuts: u64,
    /// Times that all twelve conditions were checked.
    pub checks: u64,
}

/// Loads, runs, cuts the power, recovers and checks.
///
/// # Errors
/// [`FlashError::Corrupt`] names the condition that does not hold, and those of the store: none is expected.
pub fn trial(trial: &Trial) -> Result<TrialReport> {
    let mut rng = Rng::new(trial.seed);
    let page_bytes = 2048;
    let layout = Layout::new(trial.scale, Rows::Packed, page_bytes)?;
    let blocks = (layout.page_count() / 15 * 5 / 4 + 24).next_multiple_of(2);
    let geometry =
        Geometry { pages_per_block: 16, page_bytes: page_bytes as u32, spare_bytes: 128, ..Geometry::small(blocks) };
    let config = Config { buffer_pages: 64, checkpoint_pages: 64, ..Config::new(trial.protocol) };
    let geometry = config.suitable(geometry);
    let mut nand = MemoryNand::new(geometry, Timing::paper(), Content::Full)?;
    let mut report = TrialReport::default();
    let mut pages = StorePages::new(AnyStore::open(&mut nand, config)?);
    load(&layout, &mut pages, &mut rng, &mut StorePages::commit)?;
    check(&layout, &mut pages)?;
    report.checks += 1;
    drop(pages);
    for _ in 0..trial.cuts {
        let mut pages = StorePages::new(AnyStore::open(&mut nand, config)?);
        let shape = match rng.below(5) {
            0 => CutShape::Nothing,
            1 => CutShape::Garbage,
            2 => CutShape::UnstableNew,
            3 => CutShape::UnstableOld,
            _ => CutShape::Subset(rng.next_u64()),
        };
        let after = rng.below(u64::from(trial.transactions) * 20);
        pages.store.core_mut().nand.cut_power_after(after, shape);
        match run(&layout, &mut pages, trial.transactions, &mut rng, &mut report) {
            Err(FlashError::PowerCut) => report.cuts += 1,
            other => other?,
        }
        drop(pages);
        nand.restore_power();
        for _ in 0..2 {
            let mut pages = StorePages::new(AnyStore::open(&mut nand, config)?);
            check(&layout, &mut pages)?;
            report.checks += 1;
            drop(pages);
            nand.restore_power();
        }
    }
    Ok(report)
}

fn run<T: Transactions>(
    layout: &Layout,
    pages: &mut StorePages<T>,
    transactions: u32,
    rng: &mut Rng,
    report: &mut TrialReport,
) -> Result<()> {
    for _ in 0..transactions {
        let warehouse = rng.below(u64::from(layout.scale.warehouses)) as u32;
        let kind = Mix::default().draw(rng);
        match run_one(layout, pages, kind, warehouse, rng)? {
            Outcome::Done => {
                pages.commit()?;
                report.committed += 1;
            }
            Outcome::RolledBack => {
                pages.abort()?;
                report.rolled_back += 1;
            }
            Outcome::Full => pages.abort()?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twelve_conditions_hold_after_every_recovery_under_every_protocol() {
        for protocol in Protocol::ALL {
            let scale = Scale { items: 40, customers: 12, orders_max: 60, ..Scale::small(2) };
            let report = trial(&Trial { protocol, scale, transactions: 60, cuts: 4, seed: 7 }).unwrap();
            assert!(report.committed > 20 && report.checks == 9, "{protocol:?}: {report:?}");
        }
    }

    #[test]
    fn a_condition_that_does_not_hold_is_named() {
        use crate::tpcc::pages::MemoryPages;
        use crate::tpcc::{Pages, layout::Table};
        let layout = Layout::new(Scale::small(1), Rows::Packed, 2048).unwrap();
        let mut pages = MemoryPages::new(layout.page_count(), 2048);
        load(&layout, &mut pages, &mut Rng::new(1), &mut |_| Ok(())).unwrap();
        check(&layout, &mut pages).unwrap();
        let mut row = layout.get(&mut pages, Table::Warehouse, 0).unwrap();
        row.add_cents(0, 1);
        layout.put(&mut pages as &mut dyn Pages, Table::Warehouse, 0, &row).unwrap();
        let error = check(&layout, &mut pages).unwrap_err();
        assert!(error.to_string().contains("condition 1 "), "{error}");
    }
}
