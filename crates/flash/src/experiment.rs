//! A measured run of a protocol on the simulated device: clients in a closed loop, each reading and writing a few random
//! pages a transaction, CPU time ignored (5.1). The device starts full of valid pages; only the reserve is free.
//!
//! The load here is uniform over a working set. It is not TPC-C, and its figures are not the paper's.

use std::time::Instant;

use crate::error::Result;
use crate::flag::{FlagConfig, FlagStore};
use crate::nand::memory::{Content, MemoryNand};
use crate::nand::{Geometry, Nand, Timing};
use crate::rng::Rng;
use crate::transact::Transactions;
use crate::{Lba, Xid};

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The protocol.
    pub config: FlagConfig,
    /// The device.
    pub geometry: Geometry,
    /// Clients; each has one transaction at a time.
    pub clients: u32,
    /// Pages that the load touches, from logical page 0 on.
    pub working_set: u32,
    /// Pages that a transaction reads, and as many that it writes.
    pub pages_per_txn: u32,
    /// Aborted transactions, in thousandths.
    pub abort_per_mille: u32,
    /// Transactions before measuring, and measured.
    pub warm_up: u32,
    /// Transactions measured.
    pub measured: u32,
    /// Everything random.
    pub seed: u64,
}

/// What came out. Times are simulated unless they say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Committed transactions a second.
    pub throughput: f64,
    /// Pages copied by collection a block collected, while measuring.
    pub copied_per_block: f64,
    /// The same in the second half of the measured transactions: alike if the load was steady.
    pub copied_per_block_late: f64,
    /// Flags programmed by collection a committed transaction.
    pub flags_per_commit: f64,
    /// Time for a restart, in milliseconds, one chip operation at a time.
    pub recovery_ms: f64,
    /// Chip operations (of single 2 KB pages) a second of real time that the simulator did.
    pub chip_operations_per_second: f64,
}

/// Runs it.
///
/// # Errors
/// Those of the store: none is expected.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let nand = MemoryNand::new(setup.geometry, Timing::paper(), Content::Fingerprint)?;
    let mut store = FlagStore::open(nand, setup.config)?;
    let mut rng = Rng::new(setup.seed);
    fill(&mut store)?;
    let mut clients: Vec<Client> = (0..setup.clients).map(|_| Client::default()).collect();
    let began = (Instant::now(), store.core().nand.stats());
    drive(&mut store, &mut clients, setup, setup.warm_up, &mut rng)?;
    let start = Mark::take(&store, &clients);
    let first = drive(&mut store, &mut clients, setup, setup.measured / 2, &mut rng)?;
    let middle = Mark::take(&store, &clients);
    let second = drive(&mut store, &mut clients, setup, setup.measured - setup.measured / 2, &mut rng)?;
    let end = Mark::take(&store, &clients);
    let real = began.0.elapsed().as_secs_f64();
    let lanes = setup.geometry.lanes;
    let operations = store.core().nand.stats().chip_operations(lanes) - began.1.chip_operations(lanes);
    let flags = store.core().stats.flags_moved - start.flags;
    let committed = first + second;
    let mut nand = store.into_device();
    nand.cut_power_now();
    nand.restore_power();
    let before = nand.now_ns();
    let store = FlagStore::open(nand, setup.config)?;
    let recovery_ms = (store.core().nand.now_ns() - before) as f64 / 1e6;
    Ok(Outcome {
        throughput: f64::from(committed) / ((end.now_ns - start.now_ns) as f64 / 1e9),
        copied_per_block: Mark::copied_per_block(&start, &end),
        copied_per_block_late: Mark::copied_per_block(&middle, &end),
        flags_per_commit: flags as f64 / f64::from(committed.max(1)),
        recovery_ms,
        chip_operations_per_second: operations as f64 / real,
    })
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    now_ns: u64,
}

struct Mark {
    now_ns: u64,
    copied: u64,
    collections: u64,
    flags: u64,
}

impl Mark {
    fn take(store: &FlagStore<MemoryNand>, clients: &[Client]) -> Self {
        let stats = store.core().stats;
        let now_ns = clients.iter().map(|c| c.now_ns).min().unwrap_or(0);
        Self { now_ns, copied: stats.pages_copied, collections: stats.collections, flags: stats.flags_moved }
    }

    fn copied_per_block(from: &Self, to: &Self) -> f64 {
        (to.copied - from.copied) as f64 / (to.collections - from.collections).max(1) as f64
    }
}

/// Every logical page gets a version.
fn fill(store: &mut FlagStore<MemoryNand>) -> Result<()> {
    let mut lba = 0;
    while lba < store.page_count() {
        let txn = store.begin();
        for _ in 0..40 {
            if lba < store.page_count() {
                store.write(txn, lba, &u64::from(lba).to_le_bytes())?;
                lba += 1;
            }
        }
        store.commit(txn)?;
    }
    Ok(())
}

/// Runs transactions, always that of the client whose turn is next; returns how many committed.
///
/// Pages of a transaction are drawn without clashes between clients: a client's turn is a whole transaction.
fn drive(
    store: &mut FlagStore<MemoryNand>,
    clients: &mut [Client],
    setup: &Setup,
    count: u32,
    rng: &mut Rng,
) -> Result<u32> {
    let mut committed = 0;
    let mut pages: Vec<Lba> = Vec::new();
    for _ in 0..count {
        let Some(client) = clients.iter_mut().min_by_key(|c| c.now_ns) else { break };
        store.core_mut().nand.set_now_ns(client.now_ns);
        let txn: Xid = store.begin();
        pages.clear();
        while pages.len() < setup.pages_per_txn as usize {
            let lba = rng.below(u64::from(setup.working_set)) as Lba;
            if !pages.contains(&lba) {
                pages.push(lba);
            }
        }
        let mut bytes = [0; 8];
        for &lba in &pages {
            store.read(Some(txn), lba, &mut bytes)?;
        }
        let value = rng.next_u64().to_le_bytes();
        let (last, others) = pages.split_last().map_or((None, &[][..]), |(last, others)| (Some(*last), others));
        for &lba in others {
            store.write(txn, lba, &value)?;
        }
        let is_aborted = rng.chance(u64::from(setup.abort_per_mille));
        if is_aborted {
            store.abort(txn)?;
        } else {
            let last: Vec<(Lba, &[u8])> = last.iter().map(|&lba| (lba, &value[..])).collect();
            store.commit_with(txn, &last)?;
            committed += 1;
        }
        client.now_ns = store.core().nand.now_ns();
    }
    Ok(committed)
}

/// The paper's device, one `part`-th of it.
pub fn paper_device(part: u32) -> Geometry {
    let paper = Geometry::paper();
    Geometry { blocks: (paper.blocks / part.max(1)).max(paper.units * 16), ..paper }
}

/// Megabytes of memory that simulating a device takes: its spare areas and fingerprints, its summaries, and the tables of
/// the translation layer.
pub fn memory_mb(store: &FlagStore<MemoryNand>) -> f64 {
    let geometry = store.core().nand.geometry();
    let pages = f64::from(geometry.pages());
    let summaries = f64::from(geometry.blocks) * f64::from(geometry.pages_per_block) * 40.0;
    let device = pages * (f64::from(geometry.spare_bytes) + 8.0 + 1.0) + summaries;
    (device + store.core().table_bytes() as f64 + store.table_bytes() as f64) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flag::Mode;

    #[test]
    fn a_run_measures_and_the_same_seed_gives_the_same() {
        let setup = Setup {
            config: FlagConfig::new(Mode::Cfc),
            geometry: Geometry { blocks: 64, ..Geometry::paper() },
            clients: 4,
            working_set: 500,
            pages_per_txn: 4,
            abort_per_mille: 50,
            warm_up: 1000,
            measured: 2000,
            seed: 1,
        };
        let (a, b) = (run(&setup).unwrap(), run(&setup).unwrap());
        assert!(a.throughput > 0.0 && a.recovery_ms > 0.0 && a.copied_per_block > 0.0, "{a:?}");
        assert_eq!(
            (a.throughput, a.flags_per_commit, a.recovery_ms),
            (b.throughput, b.flags_per_commit, b.recovery_ms)
        );
    }
}
