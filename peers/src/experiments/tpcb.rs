//! TPC-B at 1,000,000 accounts and at 1,000 (LIBTP 5.1.2).

use super::bank::Bank;
use super::{Bench, threads};
use crate::peer::{Durability, Kind, Peer, Settings};

/// Threads of a whole run.
const THREADS: &[u64] = &[1, 2, 4, 8, 16, 32];

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (peer, dir) = bench.open("bank")?;
    let many = Bank { account_count: 1_000_000, branch_count: 100 };
    let few = Bank { branch_count: 10, ..many };
    many.load(&*peer)?;
    let mut cases = Cases { bench, peer: &*peer, case: 0 };
    cases.writes("without sync, 10 branches", few, Durability::None, bench.choose(&[1, 2, 8, 32], THREADS))?;
    cases.writes("without sync, 100 branches", many, Durability::None, bench.choose(&[2, 8], THREADS))?;
    peer.checkpoint()?;
    cases.reads("read-only", few, bench.choose(&[1, 2], THREADS))?;
    let case = cases.case;
    peer.close()?;
    // Opened again, as its users open a store whose commits wait for the device.
    let peer = bench.entry.open(Settings { is_durable: true, ..Settings::roomy(&dir) })?;
    many.read_all(&*peer)?;
    let mut cases = Cases { bench, peer: &*peer, case };
    cases.writes("sync, 10 branches", few, Durability::Sync, bench.choose(&[1, 8, 32], THREADS))?;
    cases.writes("sync, 100 branches", many, Durability::Sync, bench.choose(&[8], THREADS))?;
    if bench.entry.name == "ledgerstone" {
        cases.writes("pipelined, 10 branches", few, Durability::Pipelined, bench.choose(&[1, 32], THREADS))?;
        cases.writes("pipelined, 100 branches", many, Durability::Pipelined, bench.choose(&[], THREADS))?;
    }
    let case_count = cases.case;
    let row_count = many.check(&*peer)?;
    bench.proved(format!("{row_count} transfers of {case_count} cases agree with every balance"));
    peer.close()?;
    std::fs::remove_dir_all(dir)?;

    let (peer, dir) = bench.open("small")?;
    let small = Bank { account_count: 1_000, branch_count: 10 };
    small.load(&*peer)?;
    let mut cases = Cases { bench, peer: &*peer, case: 0 };
    cases.writes("without sync, 1,000 accounts", small, Durability::None, bench.choose(&[1, 2], THREADS))?;
    cases.reads("read-only, 1,000 accounts", small, bench.choose(&[2], &[1, 2, 4, 16]))?;
    let row_count = small.check(&*peer)?;
    bench.proved(format!("{row_count} transfers of the small bank agree with every balance"));
    peer.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

struct Cases<'a> {
    bench: &'a Bench<'a>,
    peer: &'a dyn Peer,
    /// Each measurement has history keys of its own, a repeated one too.
    case: u64,
}

impl Cases<'_> {
    fn writes(&mut self, name: &str, bank: Bank, durability: Durability, counts: &[u64]) -> anyhow::Result<()> {
        for &count in counts {
            let case = format!("{name}, {}", threads(count));
            self.bench.steady(&case, || {
                self.case += 1;
                let no = self.case;
                let make = move |thread_no| bank.transfers(no, thread_no);
                crate::measure::crowd(self.peer, durability, count, self.bench.time(), &case, &make)
            })?;
        }
        Ok(())
    }

    fn reads(&mut self, name: &str, bank: Bank, counts: &[u64]) -> anyhow::Result<()> {
        for (name, kind) in [(name.to_owned(), Kind::Read), (format!("{name}, at a snapshot"), Kind::Snapshot)] {
            if kind == Kind::Snapshot && !self.bench.entry.has_snapshots {
                continue;
            }
            for &count in counts {
                let make = |thread_no| bank.looks(kind, thread_no);
                let case = format!("{name}, {}", threads(count));
                self.bench.crowd(self.peer, Durability::None, count, &case, &make)?;
            }
        }
        Ok(())
    }
}
