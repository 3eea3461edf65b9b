//! Short durable transactions, from one thread to a crowd.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Bench, fill, record, threads};
use crate::measure::Operation;
use crate::peer::{Durability, Kind, RECORDS, Settings};

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let dir = bench.fresh("commits")?;
    let peer = bench.entry.open(Settings { is_durable: true, ..Settings::roomy(&dir) })?;
    fill(&*peer, 10_000, 100)?;
    // Threads insert at places of their own, in every case at new ones.
    let place = AtomicU64::new(1);
    let make = |_| -> Operation<'_> {
        let from = place.fetch_add(1, Relaxed) << 32;
        let mut no = 0;
        Box::new(move |worker| {
            no += 1;
            let value = record(no, 100);
            Ok((1, worker.run(Kind::Write, &mut |txn| txn.put(RECORDS, from | no, &value))?))
        })
    };
    for &count in bench.choose(&[1, 16, 50, 200][..], &[1, 2, 4, 8, 16, 50, 100, 200]) {
        bench.crowd(&*peer, Durability::Sync, count, &format!("sync, {}", threads(count)), &make)?;
    }
    if bench.entry.name == "ledgerstone" {
        for &count in bench.choose(&[1, 50][..], &[1, 16, 50, 200]) {
            bench.crowd(&*peer, Durability::Pipelined, count, &format!("pipelined, {}", threads(count)), &make)?;
        }
    }
    peer.close()?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
