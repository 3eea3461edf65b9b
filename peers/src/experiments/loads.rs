//! Loads of one transaction: ascending and in no order, of records of 8 + 100 bytes and of 8 + 8.
//!
//! The loaded store is read back whole, and the files are what the close has left.

use anyhow::ensure;

use super::{Bench, record};
use crate::measure::{self, Figure, Moment};
use crate::peer::{Durability, Kind, Peer, RECORDS};

/// Odd, so that it takes every key once; and the keys come in no order.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let count = bench.records.unwrap_or(bench.choose(200_000, 1_000_000));
    for (length, size) in [(100, "8 + 100"), (8, "8 + 8")] {
        one(bench, count, &format!("{size}, sorted"), length, |peer| {
            let put = |key| (key, record(key, length));
            in_one(peer, &mut (0..count).map(put), true)
        })?;
        one(bench, count, &format!("{size}, random"), length, |peer| {
            // Below 2^63, as all keys are.
            let put = |no: u64| (no.wrapping_mul(SPREAD) >> 1, record(no, length));
            in_one(peer, &mut (0..count).map(put), false)
        })?;
    }
    if bench.entry.name == "ledgerstone" {
        // Loaders of the others are not measured: files of RocksDB, bulk cursors, puts of many.
        one(bench, count, "8 + 100, sorted, loader", 100, |peer| {
            let mut records = (0..count).map(|key| (key, record(key, 100)));
            peer.load(RECORDS, &mut records).unwrap_or(Ok(()))
        })?;
    }
    Ok(())
}

fn in_one(peer: &dyn Peer, records: &mut dyn Iterator<Item = (u64, Vec<u8>)>, is_sorted: bool) -> anyhow::Result<()> {
    peer.worker(Durability::Sync)?.run(Kind::Write, &mut |txn| {
        for (key, value) in &mut *records {
            match is_sorted {
                true => txn.append(RECORDS, key, &value)?,
                false => txn.put(RECORDS, key, &value)?,
            }
        }
        Ok(())
    })?;
    Ok(())
}

fn one(
    bench: &Bench<'_>,
    count: u64,
    name: &str,
    length: usize,
    load: impl Fn(&dyn Peer) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut sizes, mut parts) = ((0.0, 0.0), Vec::new());
    let case = format!("{name}, records");
    bench.steady(&case, || {
        let (peer, dir) = bench.open("load")?;
        let before = Moment::now(&[]);
        load(&*peer)?;
        peer.checkpoint()?;
        parts = peer.written()?;
        peer.close()?;
        let mut figure = Figure::plain(&*case, count as f64 / before.seconds(), "1/s", true);
        let written = before.written(&[]);
        before.tell(&[], count, &mut figure);
        sizes = (written as f64 / f64::from(1 << 20), measure::disk_bytes(&dir) as f64 / f64::from(1 << 20));
        let peer = bench.entry.open(crate::peer::Settings::roomy(&dir))?;
        let mut seen = 0;
        let mut worker = peer.worker(Durability::None)?;
        worker.run(Kind::Read, &mut |txn| {
            seen = 0;
            txn.scan(RECORDS, 0, u64::MAX, &mut |_, value| {
                seen += u64::from(value.len() == length);
                true
            })
        })?;
        ensure!(seen == count, "{seen} records of {count} are there");
        drop(worker);
        peer.close()?;
        std::fs::remove_dir_all(dir)?;
        Ok(figure)
    })?;
    bench.add(Figure::plain(format!("{name}, written"), sizes.0, "MiB", false));
    bench.add_parts(&format!("{name}, written"), &parts, &[], "MiB", f64::from(1 << 20));
    bench.add(Figure::plain(format!("{name}, files"), sizes.1, "MiB", false));
    bench.proved(format!("{name}: all {count} records are there after the close"));
    Ok(())
}
